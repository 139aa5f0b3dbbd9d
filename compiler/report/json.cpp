// The report as JSON and back. docs/reference/report.md lists the keys; they stay, new ones may come.
#include "compiler/report/report.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

using Json = nlohmann::ordered_json;
using planner::Alternative;
using planner::CandidateCost;
using planner::CollectiveTotal;

Json meshJson(const dist::Mesh &mesh) {
  Json json = Json::object();
  for (const dist::MeshAxis &axis : mesh.axes) json[axis.name] = axis.size;
  return json;
}

dist::Mesh meshOf(const Json &json) {
  dist::Mesh mesh;
  for (const auto &[name, size] : json.items()) mesh.axes.push_back({name, size.get<int64_t>()});
  return mesh;
}

Json alternativeJson(const Alternative &row) {
  return {{"name", row.name},
          {"schedule", row.schedule},
          {"mesh", meshJson(row.mesh)},
          {"zero", row.zero},
          {"microbatches", row.microbatches},
          {"recompute", planner::name(row.recompute)},
          {"step_time_s", row.stepSeconds},
          {"compute_s", row.computeSeconds},
          {"exposed_communication_s", row.exposedCommunicationSeconds},
          {"bubble_s", row.bubbleSeconds},
          {"memory_bytes_per_device", row.memoryBytes},
          {"fits", row.fits},
          {"why_not", row.whyNot},
          {"offload", planner::name(row.offload)}};
}

Json movesJson(const std::vector<planner::MoveResult> &moves) {
  Json rows = Json::array();
  for (const planner::MoveResult &move : moves)
    rows.push_back(
        {{"name", move.name}, {"seconds", move.seconds}, {"gained_s", move.gained}, {"raised_bound_s", move.raised}});
  return rows;
}

planner::StepPart stepPartOf(const std::string &name) {
  const auto found = std::ranges::find(planner::stepPartNames, name);
  return found == std::end(planner::stepPartNames) ? planner::StepPart::Forward
                                                   : planner::StepPart(found - std::begin(planner::stepPartNames));
}

Alternative alternativeOf(const Json &json) {
  Alternative row;
  row.name = json.at("name");
  row.schedule = json.at("schedule");
  row.mesh = meshOf(json.at("mesh"));
  row.zero = json.at("zero");
  row.microbatches = json.at("microbatches");
  planner::parseRecompute(json.at("recompute"), row.recompute);
  row.stepSeconds = json.at("step_time_s");
  row.computeSeconds = json.value("compute_s", 0.0);
  row.exposedCommunicationSeconds = json.value("exposed_communication_s", 0.0);
  row.bubbleSeconds = json.value("bubble_s", 0.0);
  row.memoryBytes = json.at("memory_bytes_per_device");
  row.fits = json.at("fits");
  row.whyNot = json.at("why_not");
  planner::parseOffload(json.value("offload", "none"), row.offload);
  return row;
}

Json collectiveJson(const CollectiveTotal &row) {
  Json tensors = Json::array();
  for (const planner::MovedTensor &tensor : row.tensors)
    tensors.push_back(
        {{"name", tensor.name}, {"alike", tensor.alike}, {"bytes", tensor.bytes}, {"shown", tensor.shown}});
  return {{"op", row.op},
          {"axes", row.axes},
          {"bytes", row.bytes},
          {"count", row.count},
          {"seconds", row.seconds},
          {"hidden", row.hidden},
          {"forward_bytes", row.forwardBytes},
          {"backward_bytes", row.backwardBytes},
          {"why", row.why},
          {"shown", row.shown},
          {"tensors", tensors},
          {"tensors_more", row.tensorsMore}};
}

CollectiveTotal collectiveOf(const Json &json) {
  CollectiveTotal row{json.at("op"),
                      json.at("axes"),
                      json.at("bytes"),
                      json.at("count"),
                      json.at("seconds"),
                      json.at("hidden"),
                      json.at("forward_bytes"),
                      json.at("backward_bytes"),
                      json.at("why"),
                      json.value("shown", json.at("why").get<std::string>()),
                      {}};
  for (const Json &tensor : json.value("tensors", Json::array()))
    row.tensors.push_back(
        {tensor.at("name"), tensor.at("alike"), tensor.at("bytes"), tensor.value("shown", tensor.at("name"))});
  row.tensorsMore = json.value("tensors_more", int64_t(0));
  return row;
}

Json candidateJson(const CandidateCost &row) {
  Json json = {{"split", row.split},
               {"compute_s", row.computeSeconds},
               {"communication_s", row.communicationSeconds},
               {"memory_bytes", row.memoryBytes}};
  for (const planner::Neighbour &one : row.neighbours)
    json["neighbours"].push_back({{"relation", one.relation},
                                  {"tensor", one.tensor},
                                  {"reader", one.reader},
                                  {"more_readers", one.more},
                                  {"seconds", one.seconds}});
  if (!row.passesPartial.empty()) json["passes_partial"] = row.passesPartial;
  if (row.chosen) json["chosen"] = true;
  return json;
}

CandidateCost candidateOf(const Json &json) {
  CandidateCost row;
  row.split = json.at("split").get<dist::FactorSharding>();
  for (const Json &one : json.value("neighbours", Json::array()))
    row.neighbours.push_back(
        {one.at("relation"), one.at("tensor"), one.at("reader"), one.at("more_readers"), one.at("seconds")});
  row.passesPartial = json.value("passes_partial", dist::Axes());
  row.computeSeconds = json.at("compute_s");
  row.communicationSeconds = json.at("communication_s");
  row.memoryBytes = json.at("memory_bytes");
  row.chosen = json.value("chosen", false);
  return row;
}

Json memoryJson(const planner::MemoryBreakdown &memory) {
  return {{"parameters", memory.parameters},   {"gradients", memory.gradients}, {"optimizer", memory.optimizer},
          {"activations", memory.activations}, {"workspace", memory.workspace}, {"host", memory.host}};
}

planner::MemoryBreakdown memoryOf(const Json &json) {
  return {json.at("parameters"),  json.at("gradients"), json.at("optimizer"),
          json.at("activations"), json.at("workspace"), json.value("host", 0.0)};
}

Json passJson(const Stage &stage) {
  return {{"forward_s", stage.pass.forward},
          {"input_gradient_s", stage.pass.backwardInput},
          {"weight_gradient_s", stage.pass.backwardWeight},
          {"send_forward_s", stage.pass.sendForward},
          {"send_backward_s", stage.pass.sendBackward},
          {"link_forward", stage.pass.linkForward},
          {"link_backward", stage.pass.linkBackward},
          {"sent_forward_bytes", stage.sentForwardBytes},
          {"sent_backward_bytes", stage.sentBackwardBytes}};
}

planner::StageTimes passOf(const Json &json) {
  return {json.at("forward_s"),      json.at("input_gradient_s"), json.at("weight_gradient_s"),
          json.at("send_forward_s"), json.at("send_backward_s"),  json.at("link_forward"),
          json.at("link_backward")};
}

Json stageJson(const Stage &stage) {
  return {{"devices", stage.devices},
          {"nodes", stage.nodes},
          {"parameters", stage.parameters},
          {"step_time_s", stage.stepSeconds},
          {"memory_bytes_per_device", stage.memoryBytes},
          {"rank", stage.rank},
          {"blocks", stage.blocks},
          {"activation_blocks", stage.activationBlocks},
          {"selective_blocks", stage.selectiveBlocks},
          {"recomputed_blocks", stage.recomputedBlocks},
          {"forward_s", stage.forwardSeconds},
          {"backward_s", stage.backwardSeconds},
          {"reduction_s", stage.reductionSeconds},
          {"update_s", stage.updateSeconds},
          {"communication_s", stage.communicationSeconds},
          {"forward_communication_s", stage.forwardCommunicationSeconds},
          {"after_passes_s", stage.afterPassesSeconds},
          {"pass", passJson(stage)}};
}

Stage stageOf(const Json &json) {
  return {json.at("devices"),
          json.at("nodes"),
          json.at("parameters"),
          json.at("step_time_s"),
          json.at("memory_bytes_per_device"),
          json.at("rank"),
          json.at("blocks"),
          json.at("activation_blocks"),
          json.at("selective_blocks"),
          json.at("recomputed_blocks"),
          json.at("forward_s"),
          json.at("backward_s"),
          json.at("reduction_s"),
          json.at("update_s"),
          json.at("communication_s"),
          passOf(json.at("pass")),
          json.at("pass").at("sent_forward_bytes"),
          json.at("pass").at("sent_backward_bytes"),
          json.at("forward_communication_s"),
          json.at("after_passes_s")};
}

Json pointsJson(const std::vector<planner::MemoryPoint> &points) {
  Json rows = Json::array();
  for (const planner::MemoryPoint &point : points) {
    rows.push_back({{"seconds", point.seconds}, {"part", planner::stepPartNames[size_t(point.part)]}});
    rows.back().update(memoryJson(point.memory));
  }
  return rows;
}

std::vector<planner::MemoryPoint> pointsOf(const Json &json) {
  std::vector<planner::MemoryPoint> points;
  for (const Json &entry : json)
    points.push_back({entry.at("seconds"), stepPartOf(entry.value("part", "forward")), memoryOf(entry)});
  return points;
}

Json rankMemoryJson(const RankMemory &rank) {
  Json json = {{"over_time", pointsJson(rank.overTime)}, {"fullest_at", rank.fullestAt}, {"phase", rank.phase}};
  for (const HeldTensor &one : rank.held)
    json["held"].push_back({{"kind", one.kind}, {"name", one.name}, {"copies", one.copies}, {"bytes", one.bytes}});
  return json;
}

RankMemory rankMemoryOf(const Json &json) {
  RankMemory rank{pointsOf(json.at("over_time")), {}, json.at("fullest_at"), json.at("phase")};
  for (const Json &one : json.value("held", Json::array()))
    rank.held.push_back({one.at("kind"), one.at("name"), one.at("copies"), one.at("bytes")});
  return rank;
}

template <typename T, typename Read> std::vector<T> listOf(const Json &json, Read read) {
  std::vector<T> list;
  for (const Json &entry : json) list.push_back(read(entry));
  return list;
}

Report reportOf(const Json &json) {
  Report report;
  report.model = json.at("model");
  report.cluster = json.at("cluster");
  report.software = json.value("software", "");
  report.command = json.value("command", "");
  report.version = json.value("version", "");
  report.recipe = json.value("recipe", "");
  report.batch = json.at("batch");
  report.tokensPerSample = json.value("tokens_per_sample", int64_t(0));
  report.pricePerHour = json.value("price_per_hour", 0.0);
  report.mesh = meshOf(json.at("mesh"));
  report.zero = json.at("zero");
  report.lowerZero = json.value("lower_zero", -1);
  report.schedule = json.at("schedule");
  report.microbatches = json.at("microbatches");
  report.recompute = json.at("recompute");
  report.offload = json.value("offload", "none");
  report.chunks = json.value("chunks", int64_t(1));
  report.like = json.at("like");
  report.given = splitRequestOf(json.value("given", Json::object()));
  report.devices = json.at("devices");
  const Json &predicted = json.at("predicted"), &memory = predicted.at("memory_breakdown");
  report.predicted = {predicted.at("step_time_s"),
                      predicted.at("compute_s"),
                      predicted.at("exposed_communication_s"),
                      predicted.at("bubble_s"),
                      predicted.at("hidden_communication_s"),
                      memoryOf(memory),
                      predicted.at("tflops_per_device"),
                      predicted.at("mfu"),
                      predicted.value("host_s", 0.0),
                      predicted.value("exposed_host_s", 0.0)};
  report.estimatedMemoryBytes = predicted.at("estimated_memory_bytes_per_device");
  report.memoryIsPlanned = predicted.at("memory_is_planned");
  report.contentionSeconds = predicted.value("contention_s", 0.0);
  report.predictionError = predicted.value("error", 0.0);
  report.deviceMemoryBytes = json.at("device_memory_bytes");
  report.reservedMemoryBytes = json.value("reserved_memory_bytes", 0.0);
  const Json &search = json.at("search");
  report.searchSeconds = search.at("seconds");
  report.gap = search.at("gap");
  for (const Json &move : search.value("moves", Json::array()))
    report.moves.push_back({move.at("name"), move.at("seconds"), move.at("gained_s"), move.at("raised_bound_s")});
  report.candidates = search.at("candidates");
  report.stages = listOf<Stage>(json.at("stages"), stageOf);
  report.timeParts = listOf<planner::TimePart>(json.at("time"), [](const Json &entry) -> planner::TimePart {
    return {entry.at("part"),      entry.at("op"),        entry.at("count"),
            entry.at("compute_s"), entry.at("exposed_s"), entry.at("beside_compute_s")};
  });
  report.memoryOverTime = pointsOf(json.at("memory_over_time"));
  report.rankMemory = listOf<RankMemory>(json.value("rank_memory", Json::array()), rankMemoryOf);
  report.sensitivities =
      listOf<planner::Sensitivity>(json.at("sensitivity"), [](const Json &entry) -> planner::Sensitivity {
        return {entry.at("twice"), entry.at("step_time_s")};
      });
  report.collectives = listOf<CollectiveTotal>(json.at("collectives"), collectiveOf);
  report.collectivesArePlanned = json.at("collectives_are_planned");
  report.commands = listOf<CommandTotal>(json.value("commands", Json::array()), [](const Json &entry) -> CommandTotal {
    return {entry.at("kind"), entry.at("count"), entry.at("launches"), entry.at("bytes")};
  });
  report.simulatedSeconds = json.value("simulated_step_time_s", 0.0);
  report.simulatedShape = json.value("simulated_shape", "");
  report.notSimulated = json.value("not_simulated", "");
  report.alternatives = listOf<Alternative>(json.at("alternatives"), alternativeOf);
  report.tried = listOf<TriedSplit>(json.value("tried", Json::array()), [](const Json &entry) -> TriedSplit {
    return {alternativeOf(entry), entry.at("simulated_step_time_s"), entry.at("measured_step_time_s"),
            entry.at("chosen")};
  });
  report.parameters = listOf<ParameterLayout>(json.at("parameters"), [](const Json &entry) -> ParameterLayout {
    return {entry.at("name"),
            entry.at("layout"),
            entry.at("gradient"),
            entry.at("state"),
            entry.at("dims"),
            entry.value("zero", 0),
            entry.value("readers", std::vector<std::string>()),
            entry.value("group", "")};
  });
  report.tensorCollectives = listOf<planner::TensorCollective>(
      json.value("tensor_collectives", Json::array()), [](const Json &entry) -> planner::TensorCollective {
        return {entry.at("tensor"), entry.at("alike"), entry.at("op"),     entry.at("axes"),
                entry.at("why"),    entry.at("bytes"), entry.at("seconds")};
      });
  report.nodes = listOf<ReportedNode>(json.at("nodes"), [](const Json &entry) -> ReportedNode {
    return {entry.value("part", ""),
            {entry.at("op"), entry.at("rule"), entry.at("names"),
             listOf<CandidateCost>(entry.at("candidates"), candidateOf)}};
  });
  report.notes = json.at("notes").get<std::vector<std::string>>();
  if (json.contains("proof")) {
    const Json &proof = json.at("proof");
    report.proof = {proof.at("outcome") == "proved", proof.at("rounds_elsewhere"), proof.at("why"),
                    proof.value("verified_steps", int64_t(0))};
  }
  report.source = json.value("source", "");
  report.import = json.value("import", "");
  report.tensors =
      listOf<ReportedTensor>(json.value("tensors", Json::array()), [](const Json &entry) -> ReportedTensor {
        return {entry.at("name"), entry.at("shape"), entry.at("role"), entry.at("why")};
      });
  return report;
}

} // namespace

std::string renderJson(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  Json json = {
      {"model", report.model},
      {"cluster", report.cluster},
      {"software", report.software},
      {"batch", report.batch},
      {"tokens_per_sample", report.tokensPerSample},
      {"mesh", meshJson(report.mesh)},
      {"zero", report.zero},
      {"schedule", report.schedule},
      {"microbatches", report.microbatches},
      {"recompute", report.recompute},
      {"offload", report.offload},
      {"chunks", report.chunks},
      {"like", report.like},
      {"given", splitRequestJson(report.given)},
      {"devices", report.devices},
      {"predicted",
       {{"step_time_s", predicted.stepSeconds},
        {"error", report.predictionError},
        {"compute_s", predicted.computeSeconds},
        {"exposed_communication_s", predicted.exposedCommunicationSeconds},
        {"hidden_communication_s", predicted.hiddenCommunicationSeconds},
        {"contention_s", report.contentionSeconds},
        {"bubble_s", predicted.bubbleSeconds},
        {"memory_bytes_per_device", predicted.memory.total()},
        {"memory_breakdown", memoryJson(predicted.memory)},
        {"memory_is_planned", report.memoryIsPlanned},
        {"estimated_memory_bytes_per_device", report.estimatedMemoryBytes},
        {"tflops_per_device", predicted.tflopsPerDevice},
        {"mfu", predicted.mfu},
        {"host_s", predicted.hostSeconds},
        {"exposed_host_s", predicted.exposedHostSeconds}}},
      {"device_memory_bytes", report.deviceMemoryBytes},
      {"reserved_memory_bytes", report.reservedMemoryBytes},
      {"search",
       {{"seconds", report.searchSeconds},
        {"gap", report.gap},
        {"moves", movesJson(report.moves)},
        {"candidates", report.candidates}}},
      {"stages", Json::array()},
      {"collectives", Json::array()},
      {"collectives_are_planned", report.collectivesArePlanned},
      {"tensor_collectives", Json::array()},
      {"alternatives", Json::array()},
      {"time", Json::array()},
      {"memory_over_time", pointsJson(report.memoryOverTime)},
      {"rank_memory", Json::array()},
      {"sensitivity", Json::array()},
      {"notes", report.notes},
      {"parameters", Json::array()},
      {"nodes", Json::array()},
      {"source", report.source},
  };
  if (!report.import.empty()) {
    json["import"] = report.import;
    json["tensors"] = Json::array();
    for (const ReportedTensor &one : report.tensors)
      json["tensors"].push_back({{"name", one.name}, {"shape", one.shape}, {"role", one.role}, {"why", one.why}});
  }
  if (!report.command.empty()) json["command"] = report.command;
  if (!report.version.empty()) json["version"] = report.version;
  if (!report.recipe.empty()) json["recipe"] = report.recipe;
  if (report.lowerZero >= 0) json["lower_zero"] = report.lowerZero;
  if (report.pricePerHour > 0) json["price_per_hour"] = report.pricePerHour;
  for (const Stage &stage : report.stages) json["stages"].push_back(stageJson(stage));
  for (const planner::TimePart &row : report.timeParts)
    json["time"].push_back({{"part", row.part},
                            {"op", row.op},
                            {"count", row.count},
                            {"compute_s", row.computeSeconds},
                            {"exposed_s", row.communicationSeconds},
                            {"beside_compute_s", row.besideSeconds}});
  for (const RankMemory &rank : report.rankMemory) json["rank_memory"].push_back(rankMemoryJson(rank));
  for (const planner::Sensitivity &row : report.sensitivities)
    json["sensitivity"].push_back({{"twice", row.what}, {"step_time_s", row.stepSeconds}});
  for (const CollectiveTotal &row : report.collectives) json["collectives"].push_back(collectiveJson(row));
  if (const auto &proof = report.proof)
    json["proof"] = {{"outcome", proof->isProved            ? "proved"
                                 : proof->verifiedSteps > 0 ? "verified by running"
                                                            : "not proved"},
                     {"rounds_elsewhere", proof->roundsElsewhere},
                     {"why", proof->why},
                     {"verified_steps", proof->verifiedSteps}};
  if (report.simulatedSeconds > 0) json["simulated_step_time_s"] = report.simulatedSeconds;
  if (!report.simulatedShape.empty()) json["simulated_shape"] = report.simulatedShape;
  if (!report.notSimulated.empty()) json["not_simulated"] = report.notSimulated;
  for (const CommandTotal &row : report.commands)
    json["commands"].push_back(
        {{"kind", row.kind}, {"count", row.count}, {"launches", row.launches}, {"bytes", row.bytes}});
  for (const Alternative &row : report.alternatives) json["alternatives"].push_back(alternativeJson(row));
  for (const TriedSplit &one : report.tried) {
    Json row = alternativeJson(one.split);
    row["simulated_step_time_s"] = one.simulatedSeconds;
    row["measured_step_time_s"] = one.measuredSeconds;
    row["chosen"] = one.isChosen;
    json["tried"].push_back(std::move(row));
  }
  for (const ParameterLayout &row : report.parameters) {
    json["parameters"].push_back({{"name", row.name},
                                  {"dims", row.dims},
                                  {"layout", row.parameter},
                                  {"gradient", row.gradient},
                                  {"state", row.state},
                                  {"zero", row.zero},
                                  {"readers", row.readers}});
    if (!row.group.empty()) json["parameters"].back()["group"] = row.group;
  }
  for (const planner::TensorCollective &row : report.tensorCollectives)
    json["tensor_collectives"].push_back({{"tensor", row.tensor},
                                          {"alike", row.alike},
                                          {"op", row.op},
                                          {"axes", row.axes},
                                          {"why", row.why},
                                          {"bytes", row.bytes},
                                          {"seconds", row.seconds}});
  for (const ReportedNode &node : report.nodes) {
    const planner::NodeExplanation &choice = node.choice;
    Json entry = {{"part", node.part},
                  {"op", choice.op},
                  {"rule", choice.rule},
                  {"names", choice.nodes},
                  {"candidates", Json::array()}};
    if (!choice.stages.empty()) entry["stages"] = choice.stages;
    for (const CandidateCost &row : choice.candidates) entry["candidates"].push_back(candidateJson(row));
    json["nodes"].push_back(std::move(entry));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Report> fromJson(const std::string &text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return {inputError("the report is no JSON")};
  try {
    return reportOf(json);
  } catch (const Json::exception &failure) {
    // "[json.exception.out_of_range.403] key 'model' not found"
    const std::string what = failure.what();
    const size_t id = what.find("] ");
    return {inputError(fmt::format("the report is not one that this version reads: {}",
                                   id == std::string::npos ? what : what.substr(id + 2)))};
  }
}

} // namespace cleave::report
