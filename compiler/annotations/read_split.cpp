#include "compiler/annotations/annotations.h"
#include "compiler/annotations/tensor_spec.h"
#include "compiler/import/model_tables.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <set>
#include <sstream>
#include <unordered_map>

namespace cleave::annotations {
namespace {

using import_::FlatNode;

class SplitReader {
public:
  SplitReader(const import_::ModelTables &tables, planner::SplitFlags &flags, std::vector<ResultLayout> &results,
              std::vector<std::string> &notes)
      : tables(tables), flags(flags), results(results), notes(notes) {}

  Status run(const planner::Cluster &cluster) {
    CLEAVE_RETURN_IF_ERROR(choose(cluster.numDevices()));
    readShapes();
    CLEAVE_RETURN_IF_ERROR(readNodes());
    CLEAVE_RETURN_IF_ERROR(placeStages());
    CLEAVE_RETURN_IF_ERROR(findMesh());
    CLEAVE_RETURN_IF_ERROR(pinAll());
    takeAll();
    return Status::ok();
  }

private:
  Status error(const std::string &message) const { return inputError(tables.model.path + ": " + message); }

  Status choose(int64_t devices) {
    std::vector<std::string> all;
    for (const ::onnx::DeviceConfigurationProto &one : tables.model.proto.configuration()) {
      all.push_back(fmt::format("'{}' has {}", one.name(), one.num_devices()));
      if (one.num_devices() == devices && configuration.empty()) configuration = one.name();
    }
    numDevices = devices;
    if (!configuration.empty()) return Status::ok();
    return error(fmt::format("no device configuration has the cluster's {} devices ({}): another --cluster, or "
                             "--no-annotations",
                             devices, fmt::join(all, ", ")));
  }

  void readShapes() {
    const ::onnx::GraphProto &graph = tables.model.proto.graph();
    auto take = [&](const ::onnx::ValueInfoProto &value) {
      if (!value.type().tensor_type().has_shape()) return;
      std::vector<int64_t> &shape = shapes[value.name()];
      for (const auto &dim : value.type().tensor_type().shape().dim()) shape.push_back(dim.dim_value());
    };
    for (const auto &value : graph.value_info()) take(value);
    for (const auto &value : graph.output()) take(value);
    for (const auto &value : graph.input()) take(value), inputs.insert(value.name());
    for (const ::onnx::TensorProto &tensor : graph.initializer()) {
      shapes[tensor.name()] = {tensor.dims().begin(), tensor.dims().end()};
      inputs.erase(tensor.name());
    }
  }

  // Axes count from the front and have their sizes, where the file tells them.
  Status complete(TensorSpec &spec, const std::string &where) const {
    auto shape = shapes.find(spec.tensor);
    const int64_t rank = shape == shapes.end() ? -1 : static_cast<int64_t>(shape->second.size());
    std::map<int64_t, int64_t> factors; // of an axis
    for (ShardedPart &part : spec.parts) {
      if (rank < 0) continue; // a result: the step tells its dimensions
      if (part.axis < -rank || part.axis >= rank)
        return inputError(fmt::format("{}: the sharding of '{}' cuts axis {}, the tensor has {} dimensions", where,
                                      spec.tensor, part.axis, rank));
      if (part.axis < 0) part.axis += rank;
      ++factors[part.axis];
    }
    for (ShardedPart &part : spec.parts) {
      const int64_t size = rank < 0 || factors[part.axis] > 1 ? 0 : shape->second[static_cast<size_t>(part.axis)];
      if (part.size == 0) part.size = size;
      if (size > 0 && (part.size != size || size % part.shards != 0))
        return inputError(fmt::format("{}: the sharding of '{}' cuts axis {} of {} elements as {} in {} parts", where,
                                      spec.tensor, part.axis, size, part.size, part.shards));
    }
    return Status::ok();
  }

  Status readNodes() {
    for (size_t i = 0; i < tables.flat.nodes.size(); ++i) {
      const FlatNode &node = tables.flat.nodes[i];
      for (const std::string &output : node.node->output()) producers[output] = i;
      const std::string where = fmt::format("{}: node '{}'", tables.model.path, node.name);
      for (const ::onnx::NodeDeviceConfigurationProto &one : node.node->device_configurations()) {
        if (one.configuration_id() != configuration) continue;
        if (one.has_pipeline_stage()) stageOf[i] = one.pipeline_stage();
        for (const ::onnx::ShardingSpecProto &proto : one.sharding_spec()) {
          const auto &in = node.node->input(), &out = node.node->output();
          if (std::ranges::find(in, proto.tensor_name()) == in.end() &&
              std::ranges::find(out, proto.tensor_name()) == out.end())
            return inputError(fmt::format("{}: a sharding is of '{}', which the node neither reads nor makes", where,
                                          proto.tensor_name()));
          Result<TensorSpec> spec = readSpec(proto, where, node.name, numDevices);
          if (!spec) return spec.status();
          CLEAVE_RETURN_IF_ERROR(complete(*spec, where));
          specs.emplace_back(i, std::move(*spec));
        }
      }
    }
    return Status::ok();
  }

  // Which devices each stage has, from the specs of its nodes.
  Status placeStages() {
    std::set<int64_t> stages;
    for (const auto &[node, stage] : stageOf) stages.insert(stage);
    numStages = std::max<int64_t>(1, static_cast<int64_t>(stages.size()));
    if (numStages > 1 && (*stages.begin() != 0 || *stages.rbegin() != numStages - 1))
      return error(fmt::format("pipeline stages are not numbered from 0: {}", fmt::join(stages, ", ")));
    everyDevice.resize(static_cast<size_t>(numDevices));
    std::iota(everyDevice.begin(), everyDevice.end(), 0);
    if (numStages == 1) return Status::ok();
    std::map<int64_t, std::set<int64_t>> devices;
    for (const auto &[node, spec] : specs)
      if (auto stage = stageOf.find(node); stage != stageOf.end())
        for (const std::vector<int64_t> &group : spec.devices)
          devices[stage->second].insert(group.begin(), group.end());
    std::vector<std::set<int64_t>> ranks; // several stages may lie on the same devices
    for (const auto &[stage, set] : devices) {
      auto rank = std::ranges::find(ranks, set);
      if (rank == ranks.end()) rank = ranks.insert(rank, set);
      members[stage] = {set.begin(), set.end()};
    }
    numRanks = ranks.empty() ? numStages : static_cast<int64_t>(ranks.size());
    if (ranks.size() < 2) return members.clear(), Status::ok();
    Parts rankOf(everyDevice.size(), -1);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (int64_t device : ranks[rank]) rankOf[static_cast<size_t>(device)] = static_cast<int64_t>(rank);
    rankStride = strideOf(rankOf, numRanks);
    return rankStride ? Status::ok() : error("the devices of the pipeline stages do not follow an axis of a mesh");
  }

  const std::vector<int64_t> &membersOf(size_t node) const {
    auto stage = stageOf.find(node);
    if (stage == stageOf.end()) return everyDevice;
    auto found = members.find(stage->second);
    return found == members.end() ? everyDevice : found->second;
  }
  // A node without a stage lies on all devices.
  const dist::Mesh &meshOf(size_t node) const { return &membersOf(node) == &everyDevice ? fullMesh : mesh; }
  int64_t devicesOfStage() const { return members.empty() ? numDevices : numDevices / numRanks; }

  // The mesh of one stage: that of the metadata, or of the axes along which tensors are cut.
  Status findMesh() {
    for (const ::onnx::StringStringEntryProto &entry : tables.model.proto.metadata_props())
      if (entry.key().starts_with("cleave.")) metadata[entry.key().substr(7)] = entry.value();
    auto named = metadata.find("mesh");
    return named == metadata.end() ? inferMesh() : takeMesh(named->second);
  }

  Status takeMesh(const std::string &text) {
    std::string fault;
    if (!dist::Mesh::parse(text, fullMesh, fault))
      return error(fmt::format("metadata cleave.mesh '{}': {}", text, fault));
    if (fullMesh.numDevices() != numDevices)
      return error(fmt::format("metadata cleave.mesh '{}' has {} devices, the configuration {}", text,
                               fullMesh.numDevices(), numDevices));
    for (const dist::MeshAxis &axis : fullMesh.axes)
      if (!dist::isPipelineAxis(axis.name) || members.empty()) mesh.axes.push_back(axis);
    return Status::ok();
  }

  // An axis of devices, and the tensors that are cut along it.
  struct CutAxis {
    int64_t size = 1;
    bool cutsInputs = false;     // a graph input along its first dimension
    bool cutsFirstsAlone = true; // nothing but results, along their first dimensions
    bool dividesSamples = false;
  };

  std::map<int64_t, CutAxis> cutAxes() const { // by stride
    std::map<int64_t, CutAxis> axes;
    for (const auto &[node, spec] : specs)
      for (size_t i = 0; i < spec.parts.size(); ++i) {
        const ShardedPart &part = spec.parts[i];
        if (part.shards == 1) continue;
        std::optional<int64_t> stride = strideOf(spec.partsAlong(i, membersOf(node)), part.shards);
        if (!stride) continue; // several axes, or a fault: pins tell
        CutAxis &axis = axes[*stride];
        axis.size = part.shards;
        axis.cutsInputs |= part.axis == 0 && inputs.count(spec.tensor) != 0;
        axis.cutsFirstsAlone &= part.axis == 0 && producers.count(spec.tensor) != 0;
      }
    const bool tellsInputs = std::ranges::any_of(axes, [](const auto &axis) { return axis.second.cutsInputs; });
    for (auto &[stride, axis] : axes) axis.dividesSamples = tellsInputs ? axis.cutsInputs : axis.cutsFirstsAlone;
    return axes;
  }

  Status inferMesh() {
    const std::map<int64_t, CutAxis> axes = cutAxes();
    std::set<std::string> taken;
    auto add = [&](const std::string &name, int64_t size) {
      mesh.axes.insert(mesh.axes.begin(), {name, size});
      return taken.insert(name).second;
    };
    int64_t inner = 1;
    bool isSound = true;
    for (const auto &[stride, axis] : axes) {
      if (stride % inner != 0) return error("the axes along which tensors are cut form no mesh");
      if (stride > inner) isSound &= add(axis.dividesSamples ? "tp" : "dp", stride / inner);
      isSound &= add(axis.dividesSamples ? "dp" : "tp", axis.size);
      inner = stride * axis.size;
    }
    if (devicesOfStage() % inner != 0) return error("the axes along which tensors are cut form no mesh");
    if (!axes.empty() && devicesOfStage() > inner)
      isSound &= add(taken.count("dp") ? "tp" : "dp", devicesOfStage() / inner);
    fullMesh = mesh;
    if (numRanks > 1) fullMesh.axes.insert(fullMesh.axes.begin() + placeOfRanks(), {dist::pipelineAxis, numRanks});
    if (isSound) return Status::ok();
    return error(
        fmt::format("tensors are cut along more axes of devices than dp and tp ({}): metadata cleave.mesh names "
                    "others",
                    mesh.str()));
  }

  Status pinAll() {
    std::set<std::string> made; // results whose own node says how they lie come before what readers say
    for (const auto &[node, spec] : specs)
      if (auto producer = producers.find(spec.tensor); producer != producers.end() && producer->second == node)
        made.insert(spec.tensor);
    for (const auto &[node, spec] : specs) {
      std::vector<dist::Axes> axes;
      for (size_t i = 0; i < spec.parts.size(); ++i) {
        std::optional<dist::Axes> along = dist::Axes{};
        if (spec.parts[i].shards > 1) along = axesOf(spec.partsAlong(i, membersOf(node)), meshOf(node));
        if (!along)
          return error(fmt::format("node '{}': the devices of axis {} of '{}' follow no axis of the mesh {}", spec.node,
                                   spec.parts[i].axis, spec.tensor, meshOf(node).str()));
        axes.push_back(*along);
      }
      auto producer = producers.find(spec.tensor);
      if (const import_::Reading *reading = readingOf(node, spec.tensor))
        CLEAVE_RETURN_IF_ERROR(pinParameter(spec, axes, *reading));
      else if (producer != producers.end() && (producer->second == node || made.insert(spec.tensor).second))
        addResult(spec, axes, tables.flat.nodes[producer->second]);
    }
    return Status::ok();
  }

  const import_::Reading *readingOf(size_t node, const std::string &tensor) const {
    const auto &operands = tables.flat.nodes[node].node->input();
    for (int operand = 0; operand < operands.size(); ++operand) {
      if (operands[operand] != tensor) continue;
      auto use = tables.parameters.byUse.find({node, operand});
      if (use != tables.parameters.byUse.end()) return &use->second;
    }
    auto value = tables.parameters.byValue.find(tensor);
    return value == tables.parameters.byValue.end() ? nullptr : &value->second;
  }

  // The axes of experts, positions and grids follow from the mesh: no pin asks for them.
  static bool canPin(const std::vector<dist::Axes> &all) {
    return std::ranges::all_of(all, [](const dist::Axes &axes) {
      return std::ranges::all_of(axes, [](const std::string &axis) { return isOfSamples(axis) || axis == "tp"; });
    });
  }

  Status pinParameter(const TensorSpec &spec, std::vector<dist::Axes> axes, const import_::Reading &reading) {
    const import_::Parameter &parameter = tables.parameters.parameters[reading.parameter];
    if (parameter.role != import_::Role::Parameter) return Status::ok();
    for (dist::Axes &one : axes) dividesParameters |= std::erase_if(one, isOfSamples) > 0; // ZeRO's
    if (!canPin(axes)) return Status::ok();
    std::vector<std::vector<std::string>> dims; // of the file's shape, each in one entry or several
    for (int64_t size : shapes.at(spec.tensor)) dims.push_back({fmt::format("{}:-", size)});
    std::set<int64_t> cut;
    for (size_t i = 0; i < spec.parts.size(); ++i) {
      std::vector<std::string> &entries = dims[static_cast<size_t>(spec.parts[i].axis)];
      if (cut.insert(spec.parts[i].axis).second) entries.clear();
      entries.push_back(
          fmt::format("{}:{}", spec.parts[i].size, axes[i].empty() ? "-" : fmt::format("{}", fmt::join(axes[i], "+"))));
    }
    if (reading.transposed) std::ranges::reverse(dims);
    std::vector<std::string> all;
    for (const std::vector<std::string> &entries : dims) all.insert(all.end(), entries.begin(), entries.end());
    if (all.empty()) return Status::ok();
    const std::string pin = fmt::format("{}", fmt::join(all, ","));
    auto [known, isNew] = pinOf.try_emplace(parameter.symbol(), pin, spec.node);
    if (isNew) pins.push_back(parameter.symbol() + "=" + pin);
    if (known->second.first == pin) return Status::ok();
    return error(fmt::format("'{}' lies as {} by node '{}', and as {} by node '{}'", spec.tensor, known->second.first,
                             known->second.second, pin, spec.node));
  }

  void addResult(const TensorSpec &spec, const std::vector<dist::Axes> &axes, const FlatNode &maker) {
    if (maker.node->output_size() != 1 || !canPin(axes)) return;
    ResultLayout result{maker.name, {}};
    for (size_t i = 0; i < spec.parts.size(); ++i) {
      if (result.dims.count(spec.parts[i].axis)) return; // several dimensions of the step's are one of the file's
      result.dims[spec.parts[i].axis] = axes[i];
    }
    results.push_back(std::move(result));
  }

  // The annotations' flags, where the command line leaves them open.
  void takeAll() {
    std::vector<std::string> taken;
    auto take = [&](const std::string &name, std::string &flag, const std::string &value) {
      if (value.empty() || !flag.empty()) return;
      flag = value;
      taken.push_back(name + " " + value);
    };
    std::vector<std::string> sizes, order;
    int64_t grid = 1; // of --like 2d and its kin, whose axes are one on the command line
    for (const dist::MeshAxis &axis : fullMesh.axes) {
      const bool isOfGrid = axis.name.starts_with("tp_");
      if (isOfGrid) grid *= axis.size;
      if (!isOfGrid) sizes.push_back(fmt::format("{}={}", axis.name, axis.size));
      if (axis.size > 1) order.push_back(axis.name);
    }
    if (grid > 1) sizes.push_back(fmt::format("tp={}", grid));
    take("like", flags.like, metadata["like"]);
    take("mesh", flags.mesh, fmt::format("{}", fmt::join(sizes, ",")));
    if (order.size() > 1 && grid == 1) take("mesh order", flags.meshOrder, fmt::format("{}", fmt::join(order, ",")));
    if (dividesParameters) take("zero", flags.zero, metadata.count("zero") ? metadata["zero"] : "3");
    take("zero", flags.zero, metadata["zero"]);
    take("microbatches", flags.microbatches, metadata["microbatches"]);
    take("schedule", flags.schedule, metadata["schedule"]);
    take("recompute", flags.recompute, metadata["recompute"]);
    take("offload", flags.offload, metadata["offload"]);
    if (numStages > 1 && flags.splitAt.empty() && flags.balance.empty()) {
      std::map<int64_t, size_t> first;
      for (const auto &[node, stage] : stageOf) first.try_emplace(stage, node);
      for (const auto &[stage, node] : first)
        if (stage > 0) flags.splitAt.push_back(tables.flat.nodes[node].name + ":before");
      std::istringstream exact(metadata["split_at"]);
      if (metadata.count("split_at")) flags.splitAt.clear();
      for (std::string name; std::getline(exact, name);) flags.splitAt.push_back(name + ":before");
      taken.push_back(fmt::format("{} stages", numStages));
    }
    flags.pins.insert(flags.pins.end(), pins.begin(), pins.end());
    if (!pins.empty()) taken.push_back(fmt::format("the layout of {} parameters", pins.size()));
    if (!results.empty()) taken.push_back(fmt::format("the layout of {} results", results.size()));
    if (!taken.empty())
      notes.push_back(fmt::format("from the annotations of '{}': {}", configuration, fmt::join(taken, "; ")));
  }

  // Where axis pp stands among those of a stage's mesh: outermost, unless its neighbours are nearer.
  std::ptrdiff_t placeOfRanks() const {
    size_t place = rankStride ? mesh.axes.size() : 0;
    for (int64_t inner = 1; rankStride && place > 0 && inner < *rankStride;) inner *= mesh.axes[--place].size;
    return static_cast<std::ptrdiff_t>(place);
  }

  const import_::ModelTables &tables;
  planner::SplitFlags &flags;
  std::vector<ResultLayout> &results;
  std::vector<std::string> &notes;
  std::string configuration;
  int64_t numDevices = 0, numStages = 1, numRanks = 1;
  std::optional<int64_t> rankStride;
  std::unordered_map<std::string, std::vector<int64_t>> shapes; // 0: not told
  std::set<std::string> inputs;
  std::unordered_map<std::string, size_t> producers;
  std::map<size_t, int64_t> stageOf;
  std::map<int64_t, std::vector<int64_t>> members; // by stage
  std::vector<int64_t> everyDevice;
  std::vector<std::pair<size_t, TensorSpec>> specs; // with the node that they stand at
  std::map<std::string, std::string> metadata;
  dist::Mesh mesh, fullMesh; // of one stage; of all devices, where the metadata names it
  std::vector<std::string> pins;
  std::map<std::string, std::pair<std::string, std::string>> pinOf; // by parameter, and the node that says so
  bool dividesParameters = false;
};

} // namespace

Status readSplit(const std::string &model, const recipe::Recipe &recipe, const planner::Cluster &cluster,
                 planner::SplitFlags &flags, std::vector<ResultLayout> &results, std::vector<std::string> &notes) {
  auto file = import_::openModel(model);
  if (!file) return file.status();
  if (file->proto.configuration_size() == 0) return Status::ok();
  auto tables = import_::readTables(model, import_::ImportOptions::of(recipe));
  if (!tables) return tables.status();
  return SplitReader(**tables, flags, results, notes).run(cluster);
}

} // namespace cleave::annotations
