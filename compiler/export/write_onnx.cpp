#include "compiler/export/write_onnx.h"
#include "compiler/export/state_tensors.h"
#include "compiler/import/types.h"
#include "compiler/import/whole_model.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>

namespace cleave {
namespace {

using import_::Parameter;
using import_::Use;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

Status checkFits(int64_t bytes) {
  if (bytes <= import_::mostEmbeddedBytes) return Status::ok();
  return inputError("the weights do not fit into one ONNX file (2 GiB): export to .safetensors instead");
}

void collectReads(const GraphProto &graph, std::set<std::string> &reads) {
  for (const NodeProto &node : graph.node()) {
    reads.insert(node.input().begin(), node.input().end());
    for (const ::onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g()) collectReads(attribute.g(), reads);
  }
  for (const ::onnx::ValueInfoProto &output : graph.output()) reads.insert(output.name());
}

class OnnxWriter {
public:
  OnnxWriter(const TrainedModel &model, ::onnx::ModelProto &proto)
      : model(model), parameters(model.tables().parameters), graph(*proto.mutable_graph()) {}

  Status run() {
    for (size_t i = 0; i < parameters.parameters.size(); ++i) sharers[model.parameter(i).tensor.name].push_back(i);
    for (const auto &[name, among] : sharers) keeperOf[name] = keeper(name, among);
    CLEAVE_RETURN_IF_ERROR(replaceAll());
    if (total == 0) return inputError(model.tables().model.path + " has none of the snapshot's parameters");
    return separate();
  }

  int64_t total = 0;    // bytes of weights
  int64_t replaced = 0; // tensors

private:
  // Which of the parameters that share an initializer keeps it.
  size_t keeper(const std::string &name, const std::vector<size_t> &among) const {
    auto named = std::ranges::find_if(among, [&](size_t i) { return model.parameter(i).name == name; });
    return named == among.end() ? among.front() : *named;
  }

  // The tensors of the file: initializers, and Constant nodes.
  Status replaceAll() {
    std::map<std::string, std::pair<size_t, bool>> aliases; // of which parameter, and whether transposed
    for (const auto &[name, at] : keeperOf) {
      for (const std::string &alias : model.parameter(at).aliases) aliases[alias] = {at, false};
      for (const std::string &alias : model.parameter(at).transposedAliases) aliases[alias] = {at, true};
    }
    auto replaceNamed = [&](const std::string &name, TensorProto &tensor) {
      if (auto alias = aliases.find(name); alias != aliases.end())
        return replace(alias->second.first, alias->second.second, tensor);
      auto found = keeperOf.find(name);
      return found == keeperOf.end() ? Status::ok() : replace(found->second, false, tensor);
    };
    for (TensorProto &tensor : *graph.mutable_initializer())
      CLEAVE_RETURN_IF_ERROR(replaceNamed(tensor.name(), tensor));
    for (NodeProto &node : *graph.mutable_node())
      if (node.op_type() == "Constant" && node.attribute_size() == 1 && node.attribute(0).has_t())
        CLEAVE_RETURN_IF_ERROR(replaceNamed(node.output(0), *node.mutable_attribute(0)->mutable_t()));
    return Status::ok();
  }

  Status replace(size_t at, bool isTransposed, TensorProto &tensor) {
    if (!model.isTrained(at)) return Status::ok();
    const std::vector<int64_t> &shape = model.parameter(at).tensor.shape;
    const plan::DType from = model.dtype(at), to = import_::planType(tensor.data_type());
    const auto width = size_t(runtime::byteSize(from)), target = size_t(runtime::byteSize(to));
    const auto count = size_t(runtime::elementCount(shape));
    total += int64_t(count * target);
    CLEAVE_RETURN_IF_ERROR(checkFits(total));
    std::vector<std::byte> data(count * width);
    CLEAVE_RETURN_IF_ERROR(model.read(at, {std::vector<int64_t>(shape.size(), 0), shape}, data));
    std::string raw(count * target, '\0');
    auto *out = reinterpret_cast<std::byte *>(raw.data());
    const size_t rows = isTransposed ? size_t(shape[0]) : 1, columns = count / std::max<size_t>(rows, 1);
    for (size_t i = 0; i < count; ++i) {
      std::byte *element = out + (isTransposed ? i % columns * rows + i / columns : i) * target;
      if (from == to)
        std::memcpy(element, data.data() + i * width, width);
      else
        runtime::storeFloat(to, runtime::loadFloat(from, data.data() + i * width), element);
    }
    tensor.clear_float_data();
    tensor.clear_double_data();
    tensor.clear_int32_data();
    tensor.clear_external_data();
    tensor.clear_data_location();
    tensor.set_raw_data(std::move(raw));
    ++replaced;
    return Status::ok();
  }

  // New initializers for what the file has only once.
  Status separate() {
    for (const auto &[name, among] : sharers)
      for (size_t i : among)
        if (i != keeperOf.at(name) && model.isTrained(i)) apart.push_back(i);
    if (apart.empty()) return Status::ok();
    std::unordered_map<const NodeProto *, int> places;
    const GraphProto &original = model.tables().model.proto.graph();
    for (int i = 0; i < original.node_size(); ++i) places[&original.node(i)] = i;
    std::map<size_t, std::vector<std::pair<NodeProto *, int>>> uses;
    for (size_t i : apart)
      for (const Use &use : model.parameter(i).uses) {
        auto place = places.find(model.tables().flat.nodes[use.node].node);
        if (place == places.end() || place->second >= graph.node_size())
          return inputError(fmt::format("'{}' shares the initializer '{}' and is read inside of a function: export to "
                                        ".safetensors instead",
                                        model.parameter(i).name, model.parameter(i).tensor.name));
        uses[i].emplace_back(graph.mutable_node(place->second), use.operand);
        uses[i].back().first->set_input(use.operand, "");
      }
    takeNames();
    for (size_t i : apart) {
      const Parameter &parameter = model.parameter(i);
      const std::string name = newName(i);
      for (const auto &[node, operand] : uses[i]) node->set_input(operand, name);
      TensorProto &tensor = *graph.add_initializer();
      tensor.set_name(name);
      tensor.set_data_type(parameter.tensor.dataType);
      for (int64_t size : parameter.tensor.shape) tensor.add_dims(size);
      CLEAVE_RETURN_IF_ERROR(replace(i, false, tensor));
    }
    auto &nodes = *graph.mutable_node();
    nodes.erase(std::remove_if(nodes.begin(), nodes.end(),
                               [&](const NodeProto &node) {
                                 return node.op_type() == "Identity" && unread.contains(node.output(0));
                               }),
                nodes.end());
    return Status::ok();
  }

  // Names that other values have: an Identity that nothing reads any more leaves its own to a parameter.
  void takeNames() {
    collectReads(graph, taken);
    for (const NodeProto &node : graph.node())
      if (node.op_type() == "Identity" && !taken.contains(node.output(0))) unread.insert(node.output(0));
    for (const TensorProto &tensor : graph.initializer()) taken.insert(tensor.name());
    for (const NodeProto &node : graph.node())
      for (const std::string &name : node.output())
        if (!unread.contains(name)) taken.insert(name);
  }

  // PyTorch's name, unless the matrix lies otherwise there; then that is said as the exporter says it.
  std::string newName(size_t at) {
    const Parameter &parameter = model.parameter(at);
    const import_::StateEntry *entry = nullptr;
    for (const import_::StateEntry &one : parameters.state.entries)
      if (one.source == import_::StateEntry::Source::Parameter && one.parameter == at && !entry) entry = &one;
    const bool isTurned = entry && entry->isTransposed;
    const std::string wanted =
        isTurned || parameter.name.starts_with(parameter.tensor.name + "#") ? parameter.tensor.name : parameter.name;
    std::string name = wanted;
    for (int number = 2; !taken.insert(name).second; ++number) name = fmt::format("{}_{}", wanted, number);
    if (isTurned) {
      ::onnx::ValueInfoProto &value = *graph.add_value_info();
      value.set_name(name);
      auto &type = *value.mutable_type()->mutable_tensor_type();
      type.set_elem_type(parameter.tensor.dataType);
      for (int64_t size : parameter.tensor.shape) type.mutable_shape()->add_dim()->set_dim_value(size);
      ::onnx::StringStringEntryProto &origin = *value.add_metadata_props();
      origin.set_key("pkg.onnxscript.optimizer.folded_from");
      origin.set_value("['" + entry->key + "']");
    }
    return name;
  }

  const TrainedModel &model;
  const import_::ParameterTable &parameters;
  GraphProto &graph;
  std::map<std::string, std::vector<size_t>> sharers; // by initializer
  std::map<std::string, size_t> keeperOf;
  std::vector<size_t> apart;
  std::set<std::string> taken, unread; // names; outputs of Identity nodes
};

} // namespace

Result<Exported> writeOnnxOf(const TrainedModel &model, const std::string &output) {
  auto read = import_::readWhole(model.tables().model);
  if (!read) return read.status();
  OnnxWriter writer(model, *read);
  CLEAVE_RETURN_IF_ERROR(writer.run());
  // The file may go elsewhere: constants that are not trained come along.
  auto embedded = import_::embedData(model.tables().model, *read);
  if (!embedded) return embedded.status();
  CLEAVE_RETURN_IF_ERROR(checkFits(writer.total + *embedded));
  CLEAVE_RETURN_IF_ERROR(import_::writeWhole(*read, output));
  return Exported{{output}, writer.replaced, model.manifest().step};
}

} // namespace cleave
