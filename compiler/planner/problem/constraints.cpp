#include "compiler/planner/problem/constraints.h"
#include "compiler/planner/problem/text_reader.h"
#include "compiler/schedule/schedule.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

Status usage(std::string message) { return {ErrorKind::Usage, std::move(message)}; }

// From the outermost, as they usually lie.
constexpr std::pair<const char *, std::optional<int64_t> Constraints::*> meshAxes[] = {
    {"pp", &Constraints::pp}, {"dp", &Constraints::dp}, {"fsdp", &Constraints::fsdp},
    {"cp", &Constraints::cp}, {"ep", &Constraints::ep}, {"tp", &Constraints::tp}};

Status parseMesh(const std::string &text, const Cluster &cluster, Constraints &constraints) {
  int64_t product = 1;
  std::vector<std::string> seen;
  for (const std::string &entry : splitAt(text, ',')) {
    size_t equals = entry.find('=');
    std::string axis = entry.substr(0, equals);
    if (equals == std::string::npos || axis.empty())
      return usage(fmt::format("--mesh {}: '{}' is not AXIS=SIZE", text, entry));
    if (std::find(seen.begin(), seen.end(), axis) != seen.end())
      return usage(fmt::format("--mesh {}: axis '{}' twice", text, axis));
    seen.push_back(axis);
    std::string size = entry.substr(equals + 1);
    if (size == "?" || size == "*") continue; // a hole: searched
    int64_t value = 0;
    if (!parseInteger(size, value) || value < 1)
      return usage(fmt::format("--mesh {}: size '{}' of axis '{}' is not a number from 1 up", text, size, axis));
    const auto *known = std::ranges::find_if(meshAxes, [&](const auto &one) { return axis == one.first; });
    if (known == std::end(meshAxes))
      return usage(fmt::format("--mesh {}: no axis '{}'; the axes are dp, fsdp, tp, pp, cp, ep", text, axis));
    constraints.*known->second = value;
    if (product > cluster.numDevices() / value)
      product = cluster.numDevices() + 1; // too many; said below
    else
      product *= value;
  }
  if (product > cluster.numDevices() || cluster.numDevices() % product != 0)
    return usage(fmt::format("--mesh {}: the product of the sizes must divide the {} devices of {}", text,
                             cluster.numDevices(), cluster.name));
  return Status::ok();
}

Status parseCut(const std::string &text, Constraints &constraints) {
  StageCut cut{text, text, false};
  for (auto [suffix, after] : {std::pair{":before", false}, {":after", true}})
    if (text.ends_with(suffix)) {
      cut.glob = text.substr(0, text.size() - std::string(suffix).size());
      cut.after = after;
    }
  if (cut.glob.empty()) return usage(fmt::format("--split-at {}: not GLOB, GLOB:before or GLOB:after", text));
  constraints.cuts.push_back(std::move(cut));
  return Status::ok();
}

Status parseBalance(const std::string &text, Constraints &constraints) {
  for (const std::string &entry : splitAt(text, ',')) {
    int64_t value = 0;
    if (!parseInteger(entry, value) || value < 1)
      return usage(fmt::format("--balance {}: '{}' is not a number from 1 up", text, entry));
    constraints.balance.push_back(value);
  }
  return Status::ok();
}

Status parsePipeline(const SplitFlags &flags, Constraints &constraints) {
  for (const std::string &cut : flags.splitAt) CLEAVE_RETURN_IF_ERROR(parseCut(cut, constraints));
  if (!flags.balance.empty()) CLEAVE_RETURN_IF_ERROR(parseBalance(flags.balance, constraints));
  if (!constraints.cuts.empty() && !constraints.balance.empty())
    return usage("--split-at and --balance both say where the stages are");
  if (!flags.schedule.empty()) constraints.schedule = flags.schedule;
  std::string schedule = constraints.schedule.value_or("1f1b");
  if (schedule == "none") {
    if (constraints.pp.value_or(1) > 1 || !constraints.cuts.empty() || !constraints.balance.empty())
      return usage("--schedule none is the one without pipeline stages");
    constraints.pp = 1;
    return Status::ok();
  }
  int64_t stages = constraints.stages();
  // How many ranks so many stages lie on, or the other way round.
  int64_t ranks = constraints.pp.value_or(2);
  Result<ScheduleShape> shape = scheduleShape(schedule, int(ranks));
  if (!shape) return shape.status();
  int64_t chunks = shape->stages / std::max<int64_t>(1, ranks);
  if (stages > 1 && !constraints.pp && stages % chunks == 0) constraints.pp = stages / chunks;
  if (stages > 1 && constraints.pp.value_or(ranks) * chunks != stages)
    return usage(fmt::format("{} stages are asked for, --schedule {} has {} on pp={}: ask for as many stages (a number "
                             "for each in --balance, or one --split-at fewer), or for another --mesh pp",
                             stages, schedule, ranks * chunks, ranks));
  return Status::ok();
}

Status parsePin(const std::string &text, Constraints &constraints) {
  size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0)
    return usage(fmt::format("--pin {}: not GLOB=dp,-,tp with one entry a dimension", text));
  Pin pin{text, text.substr(0, equals), {}, {}};
  std::vector<std::string> seen;
  for (std::string entry : splitAt(text.substr(equals + 1), ',')) {
    if (size_t colon = entry.find(':'); colon != std::string::npos) {
      int64_t size = 0;
      if (!parseInteger(entry.substr(0, colon), size) || size < 1 || pin.sizes.size() != pin.dims.size())
        return usage(fmt::format("--pin {}: '{}' is no SIZE:AXIS, which all dimensions have or none", text, entry));
      pin.sizes.push_back(size);
      entry = entry.substr(colon + 1);
    }
    pin.dims.emplace_back();
    if (entry == "-") continue;
    for (const std::string &axis : splitAt(entry, '+')) {
      if (axis != "dp" && axis != "tp" && axis != "fsdp")
        return usage(fmt::format("--pin {}: '{}' is neither '-' nor an axis dp, fsdp, tp (joined by '+')", text, axis));
      if (std::find(seen.begin(), seen.end(), axis) != seen.end())
        return usage(fmt::format("--pin {}: axis '{}' twice", text, axis));
      seen.push_back(axis);
      pin.dims.back().push_back(axis);
    }
  }
  if (!pin.sizes.empty() && pin.sizes.size() != pin.dims.size())
    return usage(fmt::format("--pin {}: all dimensions have a size, or none", text));
  constraints.pins.push_back(std::move(pin));
  return Status::ok();
}

// "full", or an entry a stage or block "full,full,selective,none"; with ":except-last" the last microbatch keeps all.
Status parseRecomputation(const std::string &text, Constraints &constraints) {
  constexpr std::string_view suffix = ":except-last";
  std::string modes = text == suffix.substr(1) ? "full:except-last" : text;
  if (modes.ends_with(suffix)) {
    constraints.exceptLast = true;
    constraints.leastRanks = 2;
    modes.resize(modes.size() - suffix.size());
  }
  for (const std::string &entry : splitAt(modes, ',')) {
    Recompute mode;
    if (!parseRecompute(entry, mode))
      return usage(
          fmt::format("--recompute {}: '{}' must be none, activations, selective or full: one for all, or one for "
                      "each stage or block (full,selective,none); ':except-last' behind it keeps the last microbatch's",
                      text, entry));
    constraints.recomputeOf.push_back(mode);
  }
  if (constraints.exceptLast &&
      std::ranges::all_of(constraints.recomputeOf, [](Recompute mode) { return mode == Recompute::None; }))
    return usage(fmt::format("--recompute {}: nothing is computed again that the last microbatch could keep", text));
  if (constraints.recomputeOf.size() > 1) return Status::ok();
  constraints.recompute = constraints.recomputeOf.front();
  constraints.recomputeOf.clear();
  return Status::ok();
}

// A preset sets what is still open and contradicts what is set otherwise.
template <typename T> Status fix(std::optional<T> &slot, T value, const std::string &like, const char *what) {
  if (slot && *slot != value) return usage(fmt::format("--like {} and the given {} contradict each other", like, what));
  slot = value;
  return Status::ok();
}

// 2d: side * side devices; 2.5d: `depth` such planes, at most as many as the side (Tesseract), more than one where it
// goes; 3d: side planes. False when so many devices form no such grid.
bool formGrid(const std::string &like, int64_t devices, int64_t &side, int64_t &depth) {
  for (int64_t s = 2; s * s <= devices; ++s) {
    if (devices % (s * s) != 0) continue;
    int64_t d = devices / (s * s);
    bool fits = like == "2d" ? d == 1 : like == "3d" ? d == s : d <= s;
    if (!fits || (side > 1 && d == 1)) continue; // 2.5d: planes of their own rather than one large one
    side = s;
    depth = d;
  }
  return side > 1;
}

Status layGrid(const std::string &like, const Cluster &cluster, Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.fsdp, 1, like, "--mesh fsdp"));
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.cp, 1, like, "--mesh cp"));
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.ep, 1, like, "--mesh ep"));
  if (constraints.sequenceSplit == SequenceSplit::On)
    return usage(fmt::format("--like {} splits features and samples; leave --sequence-parallel out", like));
  int64_t devices = cluster.numDevices() / (constraints.pp.value_or(1) * constraints.dp.value_or(1));
  // Without a number: as large as it can be inside a node; if no grid is so small, as small as it can be.
  bool forms = false;
  auto attempt = [&](int64_t tp) {
    if (forms || devices % tp != 0) return;
    forms = formGrid(like, tp, constraints.gridSide, constraints.gridDepth);
    if (forms) constraints.tp = tp;
  };
  if (constraints.tp)
    forms = formGrid(like, *constraints.tp, constraints.gridSide, constraints.gridDepth);
  else {
    for (int64_t tp = std::min(devices, cluster.devicesPerNode); tp > 1; --tp) attempt(tp);
    for (int64_t tp = 2; tp <= devices; ++tp) attempt(tp);
  }
  if (!forms)
    return usage(fmt::format("--like {} needs tp = {}; {}={} is not, give --mesh tp=... and the rest to dp", like,
                             like == "2d"     ? "q*q (4, 9, 16, ...)"
                             : like == "2.5d" ? "d*q*q with d up to q (4, 8, 16, 18, ...)"
                                              : "q*q*q (8, 27, ...)",
                             constraints.tp ? "tp" : "devices", constraints.tp.value_or(devices)));
  constraints.grid = like == "3d" ? TensorGrid::Cube : TensorGrid::Plane;
  constraints.sequenceSplit = SequenceSplit::Off;
  return Status::ok();
}

Status layCopies(const std::string &like, const Cluster &cluster, Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.tp, 1, like, "--mesh tp"));
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.fsdp, 1, like, "--mesh fsdp"));
  return fix<int64_t>(constraints.dp, cluster.numDevices(), like, "--mesh dp");
}

// Shards inside a node, replicas between nodes; on one node two replicas, where it divides.
Status layShards(const std::string &like, const Cluster &cluster, Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.tp, 1, like, "--mesh tp"));
  const int64_t devices = cluster.numDevices();
  int64_t inside = cluster.nodes > 1 ? cluster.devicesPerNode : devices % 2 == 0 ? devices / 2 : devices;
  if (!constraints.fsdp) constraints.fsdp = constraints.dp ? devices / *constraints.dp : inside;
  if (!constraints.dp) constraints.dp = devices / *constraints.fsdp;
  return *constraints.dp * *constraints.fsdp == devices
             ? Status::ok()
             : usage("--like hsdp: dp times fsdp must be the number of devices");
}

// Tensor parallel inside a node unless the mesh says otherwise; between nodes pipeline and data parallel, as the memory
// asks for.
Status layTensor(const std::string &like, const Cluster &cluster, Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.fsdp, 1, like, "--mesh fsdp"));
  if (!constraints.tp) {
    const int64_t ways = cluster.numDevices() / (constraints.dp.value_or(1) * constraints.pp.value_or(1));
    int64_t tp = constraints.dp ? ways : std::min(ways, cluster.devicesPerNode);
    while (tp > 1 && ways % tp != 0) --tp;
    constraints.tp = std::max<int64_t>(1, tp);
  }
  constraints.schedules = {"1f1b", "interleaved"};
  if (like == "megatron-2021" && constraints.sequenceSplit == SequenceSplit::On)
    return usage("--like megatron-2021 with --sequence-parallel is --like megatron-sp");
  constraints.mustSplitSequence |= like == "megatron-sp";
  constraints.sequenceSplit = like == "megatron-2021" ? SequenceSplit::Off : SequenceSplit::On;
  return Status::ok();
}

// Pipeline stages that run all forward passes first, copies of the pipeline beside it.
Status layStages(const std::string &like, const Cluster &, Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.tp, 1, like, "--mesh tp"));
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.fsdp, 1, like, "--mesh fsdp"));
  CLEAVE_RETURN_IF_ERROR(fix(constraints.schedule, std::string("gpipe"), like, "--schedule"));
  if (constraints.pp == 1) return usage("--like gpipe needs pipeline stages, and pp is 1");
  constraints.leastRanks = 2;
  return Status::ok();
}

// The sequence inside a node, data parallel between nodes, unless the mesh says otherwise.
Status laySequence(const std::string &like, const Cluster &cluster, Constraints &constraints) {
  CLEAVE_RETURN_IF_ERROR(fix<int64_t>(constraints.fsdp, 1, like, "--mesh fsdp"));
  if (!constraints.tp) constraints.tp = 1;
  int64_t ways = cluster.numDevices() / (constraints.pp.value_or(1) * *constraints.tp);
  if (!constraints.cp)
    constraints.cp = constraints.dp ? ways / *constraints.dp : std::min(ways, cluster.devicesPerNode);
  if (!constraints.dp && ways % *constraints.cp == 0) constraints.dp = ways / *constraints.cp;
  constraints.attentionSplit = like == "ring" ? AttentionSplit::Ring : AttentionSplit::Ulysses;
  return Status::ok();
}

struct Preset {
  const char *name;
  Status (*lay)(const std::string &like, const Cluster &cluster, Constraints &constraints); // on the devices
  std::optional<int> zero = {}; // none: any that is asked for, or `usualZero`
  TensorSplit tensorSplit = TensorSplit::None;
  std::optional<Offload> offload = {};
  int usualZero = 0;
};

// Parameters of a grid lie in parts on one axis and are gathered where they are used, as under ZeRO-3.
constexpr Preset presets[] = {
    {"ddp", layCopies, 0},
    {"zero1", layCopies, 1},
    {"zero2", layCopies, 2},
    {"zero3", layCopies, 3},
    {"fsdp", layCopies, 3},
    {"hsdp", layShards, 3},
    {"megatron", layTensor, {}, TensorSplit::Megatron, {}, 1}, // Megatron-Core, with its distributed optimizer
    {"megatron-sp", layTensor, {}, TensorSplit::Megatron},     // Korthikanti et al. 2022
    {"gpipe", layStages},                                      // Huang et al. 2019
    {"ulysses", laySequence, {}, TensorSplit::Searched},
    {"ring", laySequence, {}, TensorSplit::Searched},
    {"2d", layGrid, 3},
    {"2.5d", layGrid, 3},
    {"3d", layGrid, 3},
    {"megatron-2021", layTensor, {}, TensorSplit::Megatron}, // Narayanan et al. 2021
    {"zero2-offload", layCopies, 2, TensorSplit::None,
     Offload::Optimizer}, // Ren et al. 2021: state in the hosts' memory
    {"zero3-offload", layCopies, 3, TensorSplit::None, Offload::Optimizer},
};

Status applyPreset(const std::string &like, const Cluster &cluster, Constraints &constraints) {
  const auto *preset = std::ranges::find_if(presets, [&](const Preset &one) { return like == one.name; });
  if (preset == std::end(presets))
    return usage(fmt::format("--like {}: no such preset; the presets are {}", like, fmt::join(presetNames(), ", ")));
  if (preset->offload) CLEAVE_RETURN_IF_ERROR(fix(constraints.offload, *preset->offload, like, "--offload"));
  CLEAVE_RETURN_IF_ERROR(preset->lay(like, cluster, constraints));
  constraints.tensorSplit = preset->tensorSplit;
  return fix(constraints.zero, preset->zero.value_or(constraints.zero.value_or(preset->usualZero)), like, "--zero");
}

} // namespace

const std::vector<std::string> &presetNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Preset &preset : presets) all.emplace_back(preset.name);
    return all;
  }();
  return names;
}

Result<Constraints> parseConstraints(const SplitFlags &flags, const Cluster &cluster) {
  Constraints constraints;
  constraints.like = flags.like;
  if (!flags.mesh.empty()) CLEAVE_RETURN_IF_ERROR(parseMesh(flags.mesh, cluster, constraints));
  if (!flags.meshOrder.empty()) {
    Result<std::vector<Axis>> order = parseAxisOrder(flags.meshOrder);
    if (!order) return order.status();
    constraints.order = std::move(*order);
  }
  int64_t number = 0;
  if (!flags.zero.empty()) {
    if (!parseInteger(flags.zero, number) || number < 0 || number > 3)
      return usage(fmt::format("--zero {}: must be 0, 1, 2 or 3", flags.zero));
    constraints.zero = int(number);
  }
  if (!flags.microbatches.empty()) {
    if (!parseInteger(flags.microbatches, number) || number < 1)
      return usage(fmt::format("--microbatches {}: must be a number from 1 up", flags.microbatches));
    constraints.microbatches = number;
  }
  if (!flags.recompute.empty()) CLEAVE_RETURN_IF_ERROR(parseRecomputation(flags.recompute, constraints));
  if (!flags.offload.empty() && !parseOffload(flags.offload, constraints.offload.emplace()))
    return usage(fmt::format("--offload {}: must be none, optimizer, activations or all", flags.offload));
  if (flags.chunk == "none") {
    constraints.chunks = 1;
  } else if (!flags.chunk.empty() && flags.chunk != "auto") {
    if (!parseInteger(flags.chunk, number) || number < 1)
      return usage(fmt::format("--chunk {}: must be none, auto or a number of chunks", flags.chunk));
    constraints.chunks = number;
  }
  CLEAVE_RETURN_IF_ERROR(parsePipeline(flags, constraints));
  if (constraints.chunks.value_or(1) > 1 && constraints.pp.value_or(1) > 1)
    return usage(fmt::format("--chunk {}: the last stage of a pipeline runs its loss in one piece; leave it out, or "
                             "stages (--mesh pp=1)",
                             flags.chunk));
  if (constraints.exceptLast && (constraints.pp == 1 || cluster.numDevices() == 1))
    return usage(fmt::format("--recompute {}: without pipeline stages the last microbatch alone would need the memory "
                             "that is to be saved; leave ':except-last' out or ask for stages (--mesh pp=N)",
                             flags.recompute));
  if (constraints.exceptLast && constraints.microbatches == 1)
    return usage(
        fmt::format("--recompute {} --microbatches 1: the last microbatch is the only one, and nothing would be "
                    "computed again; leave ':except-last' out or ask for more microbatches",
                    flags.recompute));
  if (constraints.exceptLast && constraints.offload && movesActivations(*constraints.offload))
    return usage(fmt::format("--recompute {} --offload {}: what the last microbatch keeps is not offloaded yet; leave "
                             "':except-last' out or offload the optimizer only",
                             flags.recompute, flags.offload));
  constraints.acceptsRepeatedWork = flags.allowRepeatedWork;
  if (flags.sequenceParallel) constraints.sequenceSplit = SequenceSplit::On, constraints.mustSplitSequence = true;
  for (const std::string &pin : flags.pins) CLEAVE_RETURN_IF_ERROR(parsePin(pin, constraints));
  if (!flags.like.empty()) CLEAVE_RETURN_IF_ERROR(applyPreset(flags.like, cluster, constraints));
  return constraints;
}

std::string Constraints::str() const {
  std::vector<std::string> parts;
  std::string mesh;
  for (auto [axis, size] : meshAxes)
    if (this->*size) mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", axis, *(this->*size));
  if (!like.empty()) parts.push_back("like " + like);
  if (!mesh.empty()) parts.push_back("mesh " + mesh);
  std::string outermost;
  for (Axis axis : order) outermost += (outermost.empty() ? "" : ",") + std::string(name(axis));
  if (!order.empty()) parts.push_back("mesh-order " + outermost);
  if (zero) parts.push_back(fmt::format("zero {}", *zero));
  if (microbatches) parts.push_back(fmt::format("microbatches {}", *microbatches));
  std::vector<std::string> modes;
  for (Recompute mode : recomputeOf) modes.emplace_back(name(mode));
  if (recompute) modes.emplace_back(name(*recompute));
  if (!modes.empty())
    parts.push_back(fmt::format("recompute {}{}", fmt::join(modes, ","), exceptLast ? ":except-last" : ""));
  if (offload) parts.push_back(fmt::format("offload {}", name(*offload)));
  if (chunks) parts.push_back(fmt::format("chunk {}", *chunks));
  if (schedule) parts.push_back("schedule " + *schedule);
  for (const StageCut &cut : cuts) parts.push_back("split-at " + cut.text);
  if (!balance.empty()) parts.push_back(fmt::format("balance {}", fmt::join(balance, ",")));
  if (sequenceSplit == SequenceSplit::On) parts.push_back("sequence-parallel");
  for (const Pin &pin : pins) parts.push_back("pin " + pin.text);
  return fmt::format("{}", fmt::join(parts, "; "));
}

} // namespace cleave::planner
