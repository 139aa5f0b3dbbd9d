#include "compiler/annotations/annotations.h"
#include "compiler/annotations/results.h"
#include "compiler/annotations/tensor_spec.h"
#include "compiler/import/model_tables.h"
#include "compiler/import/whole_model.h"
#include "compiler/report/pricing_source.h"
#include "compiler/report/report.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unordered_map>

namespace cleave::annotations {
namespace {

namespace fs = std::filesystem;
using import_::Parameter;

constexpr int64_t annotationsIr = 11; // the first IR version with device configurations
constexpr const char *configuration = "cleave";

class SplitWriter {
public:
  SplitWriter(const import_::ModelTables &tables, const plan::Plan &plan, const report::Report &report,
              ::onnx::ModelProto &proto)
      : tables(tables), plan(plan), report(report), proto(proto), mesh(report.mesh) {}

  Status run() {
    proto.set_ir_version(std::max(proto.ir_version(), annotationsIr));
    ::onnx::DeviceConfigurationProto &devices = *proto.add_configuration();
    devices.set_name(configuration);
    devices.set_num_devices(static_cast<int32_t>(mesh.numDevices()));
    Result<report::PricingSource> unpacked = report::unpackSource(report.source);
    if (!unpacked) return unpacked.status();
    problem = std::move(unpacked->problem);
    readStages();
    writeMetadata();
    findNodes();
    CLEAVE_RETURN_IF_ERROR(writeParameters());
    writeInputs();
    writeResults();
    for (const auto &[at, stage] : stageOf) place(at).set_pipeline_stage(stage);
    return Status::ok();
  }

private:
  void writeMetadata() {
    auto set = [&](const char *key, const std::string &value) {
      ::onnx::StringStringEntryProto &entry = *proto.add_metadata_props();
      entry.set_key(std::string("cleave.") + key);
      entry.set_value(value);
    };
    set("mesh", mesh.str());
    set("zero", std::to_string(report.zero));
    set("microbatches", std::to_string(report.microbatches));
    set("schedule", report.schedule);
    const std::string recompute = report::requestOf(report).split.recompute; // by block, where it was given by block
    set("recompute", recompute.empty() ? report.recompute : recompute);
    set("offload", report.offload);
    if (!report.like.empty()) set("like", report.like);
    // These are operations of the planner, because a node of the file may lie in two stages: its product in one, its
    // bias in the next.
    std::string stageBegins;
    int stage = 0;
    const std::vector<bool> needsGradient = problem.needsGradient();
    for (const planner::Node &node : problem.nodes) {
      auto found = stageOfOperation.find(node.name);
      const bool hasGradient =
          std::ranges::any_of(node.results, [&](int result) { return needsGradient[static_cast<size_t>(result)]; });
      if (found == stageOfOperation.end() || found->second <= stage || !hasGradient) continue;
      stage = found->second;
      stageBegins += node.name + "\n";
    }
    if (!stageBegins.empty()) set("split_at", stageBegins);
  }

  void readStages() {
    for (const auto &[part, node] : report.nodes)
      for (size_t i = 0; i < node.stages.size(); ++i) stageOfOperation[node.nodes[i]] = node.stages[i];
    for (const planner::Node &node : problem.nodes) // a node's first operation tells its stage
      if (auto stage = stageOfOperation.find(node.name); stage != stageOfOperation.end())
        stageOfNode.emplace(node.name.substr(0, node.name.rfind(':')), stage->second);
    for (const report::Stage &stage : report.stages) ranks.push_back(stage.rank);
  }

  // The file's own nodes; those of function bodies have no place for annotations.
  void findNodes() {
    std::unordered_map<const ::onnx::NodeProto *, int> places;
    const ::onnx::GraphProto &original = tables.model.proto.graph();
    for (int i = 0; i < original.node_size(); ++i) places[&original.node(i)] = i;
    for (size_t i = 0; i < tables.flat.nodes.size(); ++i) {
      auto found = places.find(tables.flat.nodes[i].node);
      if (found == places.end() || found->second >= proto.graph().node_size()) continue;
      protoIndexOf[i] = found->second;
      if (auto stage = stageOfNode.find(tables.flat.nodes[i].name); stage != stageOfNode.end())
        stageOf[found->second] = stage->second;
    }
  }

  ::onnx::NodeDeviceConfigurationProto &place(int at) {
    ::onnx::NodeProto &node = *proto.mutable_graph()->mutable_node(at);
    if (node.device_configurations_size() == 0) node.add_device_configurations()->set_configuration_id(configuration);
    return *node.mutable_device_configurations(0);
  }

  // The devices of a node's stage that have each shard, row-major over the axes.
  std::vector<std::vector<int64_t>> devicesOf(int at, const dist::Axes &axes) const {
    auto stage = stageOf.find(at);
    const int64_t rank = stage == stageOf.end() ? -1 : ranks[static_cast<size_t>(stage->second)];
    std::vector<std::vector<int64_t>> devices(static_cast<size_t>(mesh.groupSize(axes)));
    for (int64_t device = 0; device < mesh.numDevices(); ++device)
      if (rank < 0 || mesh.indexAlong(device, {dist::pipelineAxis}) == rank)
        devices[static_cast<size_t>(mesh.indexAlong(device, axes))].push_back(device);
    return devices;
  }

  Status writeParameters() {
    std::map<std::string, const report::ParameterLayout *> layouts;
    for (const report::ParameterLayout &row : report.parameters) layouts[row.name] = &row;
    for (const Parameter &parameter : tables.parameters.parameters) {
      auto row = layouts.find(parameter.symbol());
      if (row == layouts.end()) continue;
      dist::Sharding layout;
      std::string fault;
      if (!dist::Sharding::parse(row->second->parameter, layout, fault))
        return inputError(fmt::format("the plan's layout of '{}': {}", row->first, fault));
      for (const import_::Use &use : parameter.uses) {
        auto at = protoIndexOf.find(use.node);
        if (at == protoIndexOf.end()) continue;
        const std::string &name = tables.flat.nodes[use.node].node->input(use.operand);
        const bool isTransposed =
            std::ranges::find(parameter.transposedAliases, name) != parameter.transposedAliases.end();
        std::optional<TensorSpec> spec =
            specOfParameter(at->second, name, parameter.tensor.shape, row->second->dims, layout, isTransposed);
        if (spec) add(at->second, *spec);
      }
    }
    return Status::ok();
  }

  // Normalization gives a parameter more dimensions than the file's: each of the file's is some of these.
  std::optional<TensorSpec> specOfParameter(int at, const std::string &name, const std::vector<int64_t> &shape,
                                            const std::vector<int64_t> &dims, const dist::Sharding &layout,
                                            bool isTransposed) const {
    TensorSpec spec{.node = "", .tensor = name, .parts = {}, .devices = {}};
    dist::Axes all;
    size_t next = 0;
    std::vector<std::vector<ShardedPart>> byAxis;
    std::vector<std::vector<dist::Axes>> axesByAxis;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      int64_t product = 1;
      byAxis.emplace_back(), axesByAxis.emplace_back();
      while (next < dims.size() && (product < shape[axis] || (byAxis.back().empty() && dims[next] == shape[axis]))) {
        dist::Axes axes = next < layout.dims.size() ? layout.dims[next] : dist::Axes{};
        std::erase_if(axes, isOfSamples); // between steps alone, as metadata says
        byAxis.back().push_back({static_cast<int64_t>(axis), dims[next], mesh.groupSize(axes)});
        axesByAxis.back().push_back(axes);
        product *= dims[next++];
      }
      if (product != shape[axis]) return {}; // stored otherwise than the file has it
    }
    if (isTransposed) {
      std::ranges::reverse(byAxis), std::ranges::reverse(axesByAxis);
      for (size_t axis = 0; axis < byAxis.size(); ++axis)
        for (ShardedPart &part : byAxis[axis]) part.axis = static_cast<int64_t>(axis);
    }
    for (size_t axis = 0; axis < byAxis.size(); ++axis) {
      const bool isCut = std::ranges::any_of(byAxis[axis], [](const ShardedPart &part) { return part.shards > 1; });
      if (!isCut) continue;
      spec.parts.insert(spec.parts.end(), byAxis[axis].begin(), byAxis[axis].end());
      for (const dist::Axes &axes : axesByAxis[axis]) all.insert(all.end(), axes.begin(), axes.end());
    }
    spec.devices = devicesOf(at, all);
    return spec;
  }

  // A tensor that has the file's dimensions.
  TensorSpec specOf(int at, const std::string &name, const std::vector<dist::Axes> &dims) const {
    TensorSpec spec{.node = "", .tensor = name, .parts = {}, .devices = {}};
    dist::Axes all;
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (dims[dim].empty()) continue;
      spec.parts.push_back({static_cast<int64_t>(dim), 0, mesh.groupSize(dims[dim])});
      all.insert(all.end(), dims[dim].begin(), dims[dim].end());
    }
    spec.devices = devicesOf(at, all);
    return spec;
  }

  // Samples lie over the axes that the plan's inputs are cut by.
  void writeInputs() {
    std::map<std::string, const plan::InputBinding *> bindings;
    for (const plan::Program &program : plan.programs())
      for (const plan::Fragment &fragment : program.fragments())
        for (const plan::InputBinding &input : fragment.inputs()) bindings.emplace(input.name(), &input);
    for (const auto &[flat, at] : protoIndexOf) {
      const ::onnx::NodeProto &node = *tables.flat.nodes[flat].node;
      for (const std::string &name : std::set<std::string>(node.input().begin(), node.input().end())) {
        auto found = bindings.find(name);
        if (found == bindings.end()) continue;
        std::vector<dist::Axes> dims;
        for (const plan::DimSharding &dim : found->second->dims())
          dims.emplace_back(dim.axes().begin(), dim.axes().end());
        add(at, specOf(at, name, dims));
      }
    }
  }

  // Results that one operation of the step makes, where they are no partial sums, which no spec can say.
  void writeResults() {
    const std::unordered_map<std::string, size_t> last = lastOperations(problem);
    std::unordered_map<std::string, const planner::CandidateCost *> splits;
    for (const auto &[part, node] : report.nodes)
      for (const planner::CandidateCost &candidate : node.candidates)
        if (candidate.chosen)
          for (const std::string &name : node.nodes) splits[name] = &candidate;
    std::unordered_map<std::string, const ::onnx::TensorShapeProto *> shapes;
    for (const auto &value : proto.graph().value_info())
      if (value.type().tensor_type().has_shape()) shapes[value.name()] = &value.type().tensor_type().shape();
    for (const auto &[flat, at] : protoIndexOf) {
      const import_::FlatNode &node = tables.flat.nodes[flat];
      auto found = last.find(node.name);
      auto shape = shapes.find(node.node->output(0));
      if (found == last.end() || node.node->output_size() != 1 || shape == shapes.end()) continue;
      const planner::Node &operation = problem.nodes[found->second];
      auto split = splits.find(operation.name);
      if (split == splits.end() || !isOf(problem.tensors[static_cast<size_t>(operation.results[0])], *shape->second))
        continue;
      const dist::Sharding lies = dist::resultSharding(operation.rule, split->second->split, 0);
      if (!lies.partial.empty() || !split->second->passesPartial.empty()) continue;
      add(at, specOf(at, node.node->output(0), lies.dims));
    }
  }

  // Does the step compute it in the file's form?
  static bool isOf(const planner::Tensor &tensor, const ::onnx::TensorShapeProto &shape) {
    if (static_cast<int>(tensor.dims.size()) != shape.dim_size()) return false;
    for (int dim = 0; dim < shape.dim_size(); ++dim)
      if (shape.dim(dim).has_dim_value() && shape.dim(dim).dim_value() != tensor.dims[static_cast<size_t>(dim)])
        return false;
    return true;
  }

  void add(int at, const TensorSpec &spec) { writeSpec(spec, *place(at).add_sharding_spec()); }

  const import_::ModelTables &tables;
  const plan::Plan &plan;
  const report::Report &report;
  ::onnx::ModelProto &proto;
  const dist::Mesh &mesh;
  planner::Problem problem; // that the plan was searched for
  std::unordered_map<std::string, int> stageOfOperation, stageOfNode;
  std::vector<int64_t> ranks;         // by stage: where it lies along pp
  std::map<size_t, int> protoIndexOf; // index in the file's graph, by flat node
  std::map<int, int> stageOf;         // of the file's nodes
};

} // namespace

Status writeSplit(const plan::Plan &plan, const std::string &model, const std::string &output) {
  Result<report::Report> report = report::fromJson(plan.report_json());
  if (!report) return report.status();
  auto recipe = recipe::parseRecipeText(plan.recipe_yaml(), "the plan's recipe");
  if (!recipe) return recipe.status();
  auto tables = import_::readTables(model.empty() ? plan.model_path() : model, import_::ImportOptions::of(*recipe));
  if (!tables)
    return inputError(tables.status().message() +
                      (model.empty() ? "; --model gives another place of the model that was compiled" : ""));
  auto proto = import_::readWhole((*tables)->model);
  if (!proto) return proto.status();
  CLEAVE_RETURN_IF_ERROR(SplitWriter(**tables, plan, *report, *proto).run());
  const fs::path folder = fs::absolute(output).lexically_normal().parent_path();
  if (folder != fs::path((*tables)->model.folder).lexically_normal()) {
    auto embedded = import_::embedData((*tables)->model, *proto);
    if (!embedded) return embedded.status();
    if (*embedded > import_::mostEmbeddedBytes)
      return inputError("the weights do not fit into one ONNX file (2 GiB): write it beside the model, whose files it "
                        "then shares");
  }
  return import_::writeWhole(*proto, output);
}

} // namespace cleave::annotations
