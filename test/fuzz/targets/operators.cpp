// Models of one to three nodes with random attributes, shapes, element types and missing inputs, of every operator of
// every opset that ONNX's schemas know: `cleave inspect` takes them or says what is wrong, naming the node. The input's
// bytes are the choices of which the model is made.
#include "compiler/driver/compile.h"
#include "compiler/normalize/normalize.h"
#include "compiler/normalize/operator_demands.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"
#include "test/fuzz/chance.h"
#include "test/fuzz/input_file.h"
#include "test/fuzz/target.h"
#include <limits>
#include <map>

namespace cleave::fuzz {
namespace {

using namespace ::onnx;

constexpr int opsets[] = {9, 11, 13, 15, 17, 18, 20, 21, 22, 23, 24};
constexpr int64_t extremes[] = {-7,
                                5,
                                64,
                                1 << 16,
                                (1LL << 31) - 1,
                                1LL << 32,
                                1LL << 40,
                                1LL << 53,
                                1LL << 62,
                                std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()};
constexpr int64_t usual[] = {0, 0, 1, 1, 1, 2, 2, 3, 4, -1, -1, -2};
constexpr int64_t sizes[] = {1, 1, 2, 2, 3, 4, 4, 6, 8};

const char *typeNames[] = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)", "tensor(int64)",
                           "tensor(int32)", "tensor(int8)",   "tensor(uint8)",   "tensor(bool)"};

int dataType(const std::string &name) {
  static const std::map<std::string, int> types = {
      {"tensor(float)", 1},    {"tensor(uint8)", 2},   {"tensor(int8)", 3},    {"tensor(uint16)", 4},
      {"tensor(int16)", 5},    {"tensor(int32)", 6},   {"tensor(int64)", 7},   {"tensor(bool)", 9},
      {"tensor(float16)", 10}, {"tensor(double)", 11}, {"tensor(uint32)", 12}, {"tensor(uint64)", 13},
      {"tensor(bfloat16)", 16}};
  auto found = types.find(name);
  return found == types.end() ? 0 : found->second;
}
int64_t bytesOf(int type) {
  static const std::map<int, int64_t> bytes = {{1, 4}, {2, 1},  {3, 1},  {4, 2},  {5, 2},  {6, 4}, {7, 8},
                                               {9, 1}, {10, 2}, {11, 8}, {12, 4}, {13, 8}, {16, 2}};
  return bytes.at(type);
}

class Maker {
public:
  explicit Maker(std::span<const uint8_t> choices) : chance(choices) {}

  ModelProto model() {
    ModelProto model;
    model.set_ir_version(8);
    opset = chance.pick(opsets);
    auto *import = model.add_opset_import();
    import->set_domain("");
    import->set_version(opset);
    graph = model.mutable_graph();
    graph->set_name("g");
    // Shapes and types that several operands share, as most operators want it.
    for (size_t i = 0, rank = chance.below(6); i < rank; ++i) shared.push_back(chance.pick(sizes));
    std::string last;
    for (uint64_t i = 0, count = 1 + chance.below(3); i < count; ++i) last = node(std::string(1, "nmo"[i]), last);
    auto *output = graph->add_output();
    output->set_name(last);
    output->mutable_type()->mutable_tensor_type()->set_elem_type(1);
    return model;
  }

private:
  const OpSchema *schema() {
    static const std::vector<OpSchema> all = OpSchemaRegistry::get_all_schemas_with_history();
    while (true) {
      const OpSchema &any = all[chance.below(all.size())];
      const OpSchema *found = OpSchemaRegistry::Schema(any.Name(), opset, any.domain());
      if (!found || any.domain() != "") {
        if (chance.once(50)) return &any; // of another opset
        continue;
      }
      // Few of what nothing supports: it ends early.
      if (!normalize::isSupported("", any.Name(), opset) && !chance.once(50)) continue;
      return found;
    }
  }

  std::string node(const std::string &name, const std::string &before) {
    const OpSchema *op = schema();
    NodeProto &made = *graph->add_node();
    made.set_name(name);
    made.set_op_type(op->Name());
    made.set_domain(op->domain());
    size_t formals = op->inputs().size();
    size_t count = formals;
    if (formals && op->inputs().back().GetOption() == OpSchema::Variadic)
      count += chance.below(4) - (chance.once(3) ? 1 : 0);
    if (chance.once(2) && count > size_t(std::max(0, op->min_input()))) count = size_t(op->min_input());
    if (chance.once(12)) count = chance.below(count + 3);
    std::map<std::string, std::string> bound;
    for (size_t i = 0; i < count; ++i) {
      const OpSchema::FormalParameter *formal = formals ? &op->inputs()[std::min(i, formals - 1)] : nullptr;
      if (chance.once(formal && formal->GetOption() == OpSchema::Optional ? 4 : 40))
        made.add_input("");
      else if (!before.empty() && chance.once(i == 0 ? 2 : 6))
        made.add_input(before);
      else
        made.add_input(operand(formal, bound, name + std::to_string(i), i == 0));
    }
    for (const auto &[key, declared] : op->attributes())
      if (declared.required ? !chance.once(20) : chance.once(3)) attribute(made, key, declared.type);
    if (chance.once(40)) attribute(made, "equation", AttributeProto::INT);
    uint64_t outputs = uint64_t(std::max(1, op->min_output())) + (chance.once(4) ? chance.below(4) : 0);
    for (uint64_t i = 0; i < outputs; ++i) made.add_output(name + "_y" + std::to_string(i));
    return name + "_y0";
  }

  std::string operand(const OpSchema::FormalParameter *formal, std::map<std::string, std::string> &bound,
                      const std::string &name, bool isFirst) {
    std::string type = chance.pick(typeNames);
    if (formal && !chance.once(20)) {
      std::vector<std::string> allowed;
      for (const std::string *each : formal->GetTypes())
        if (dataType(*each)) allowed.push_back(*each);
      std::sort(allowed.begin(), allowed.end());
      if (!allowed.empty()) type = chance.pick(allowed);
      if (llvm::is_contained(allowed, "tensor(float)") && !chance.once(3)) type = "tensor(float)";
      type = bound.try_emplace(formal->GetTypeStr(), type).first->second;
    }
    std::vector<int64_t> shape = shared;
    bool isList = type == "tensor(int64)" && !isFirst && !chance.once(4);
    if (isList) shape = {int64_t(chance.below(7))};
    if (isList && chance.once(4)) shape.clear();
    if (!isList && chance.once(3)) {
      shape.clear();
      for (size_t i = 0, rank = chance.below(6); i < rank; ++i)
        shape.push_back(chance.once(20) ? 0 : chance.pick(sizes));
    }
    if (!isList && !shape.empty() && chance.once(6)) shape.erase(shape.begin() + chance.below(shape.size()));
    if (!isList && chance.once(2)) {
      input(name, type, shape);
    } else {
      TensorProto &tensor = *graph->add_initializer();
      fill(tensor, dataType(type), shape);
      tensor.set_name(name);
    }
    return name;
  }

  void input(const std::string &name, const std::string &type, const std::vector<int64_t> &shape) {
    auto *value = graph->add_input();
    value->set_name(name);
    auto *tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(dataType(type));
    auto *dims = tensor->mutable_shape();
    for (size_t d = 0; d < shape.size(); ++d) {
      auto *dim = dims->add_dim();
      if (chance.once(8))
        dim->set_dim_param(d == 0 ? "batch" : "");
      else
        dim->set_dim_value(chance.once(60) ? chance.pick(extremes) : shape[d]);
    }
  }

  void fill(TensorProto &tensor, int type, const std::vector<int64_t> &shape) {
    int64_t count = 1;
    for (int64_t size : shape) {
      tensor.add_dims(size);
      count *= size;
    }
    tensor.set_data_type(type);
    std::string bytes(size_t(count * bytesOf(type)), '\0');
    for (int64_t i = 0; i < count; ++i) {
      char *at = bytes.data() + i * bytesOf(type);
      auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
      int64_t value = chance.once(12) ? chance.pick(extremes) : chance.pick(usual);
      if (type == 7 || type == 13)
        put(value);
      else if (type == 1)
        put(chance.once(30) ? std::numeric_limits<float>::quiet_NaN() : float(value));
      else if (type == 11)
        put(chance.once(30) ? 1e300 : double(value));
      else if (bytesOf(type) == 4)
        put(int32_t(value));
      else if (bytesOf(type) == 2)
        put(int16_t(value));
      else
        *at = type == 9 ? char(value & 1) : char(value);
    }
    tensor.set_raw_data(bytes);
  }

  std::string word() {
    std::vector<std::string> words = {"",        "zero",   "ij,jk->ik", "...ij,...jk->...ik",
                                      "ii->i",   "......", "i->ii",     "a,b,c",
                                      "forward", "Relu",   "Sigmoid",   "Tanh",
                                      "linear",  "cubic",  "L",         "STRING"};
    for (const normalize::WordDemand &demand : normalize::wordDemands()) {
      llvm::SmallVector<llvm::StringRef> parts;
      demand.words.split(parts, '|');
      for (llvm::StringRef part : parts) words.push_back(part.str());
    }
    return chance.pick(words);
  }
  // One of the attribute's own words, mostly.
  std::string wordFor(const std::string &op, const std::string &name) {
    for (const normalize::WordDemand &demand : normalize::wordDemands())
      if (demand.attribute == name && (demand.op.empty() || demand.op == op) && !chance.once(10)) {
        llvm::SmallVector<llvm::StringRef> parts;
        demand.words.split(parts, '|');
        return chance.pick(parts).str();
      }
    return word();
  }
  int64_t number() { return chance.once(6) ? chance.pick(extremes) : chance.pick(usual); }
  int64_t numberFor(const std::string &op, const std::string &name) {
    for (const normalize::NumberDemand &demand : normalize::numberDemands())
      if (demand.attribute == name && (demand.op.empty() || demand.op == op) && !chance.once(10))
        return demand.least + int64_t(chance.below(uint64_t(std::min<int64_t>(demand.most - demand.least, 4)) + 1));
    return name == "to" || name == "dtype" || name == "stash_type" ? int64_t(chance.below(18)) : number();
  }

  void attribute(NodeProto &node, const std::string &name, AttributeProto::AttributeType type) {
    AttributeProto &made = *node.add_attribute();
    made.set_name(name);
    constexpr AttributeProto::AttributeType kinds[] = {
        AttributeProto::FLOAT, AttributeProto::INT,     AttributeProto::STRING, AttributeProto::FLOATS,
        AttributeProto::INTS,  AttributeProto::STRINGS, AttributeProto::TENSOR, AttributeProto::GRAPH};
    if (chance.once(25)) type = chance.pick(kinds);
    made.set_type(type);
    constexpr float floats[] = {
        0, 1, -1, 0.5F, 1e-5F, 1e38F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
    uint64_t length = chance.once(3) ? chance.below(7) : shared.size() > 2 ? shared.size() - 2 : 1;
    if (name == "pads" && !chance.once(4)) length *= 2;
    if (name == "perm" && !chance.once(4)) {
      for (size_t d = shared.size(); d-- > 0;) made.add_ints(int64_t(d));
      return;
    }
    switch (type) {
    case AttributeProto::FLOAT:
      return made.set_f(chance.pick(floats));
    case AttributeProto::INT:
      return made.set_i(numberFor(node.op_type(), name));
    case AttributeProto::STRING:
      return made.set_s(wordFor(node.op_type(), name));
    case AttributeProto::FLOATS:
      for (uint64_t i = 0; i < length; ++i) made.add_floats(chance.pick(floats));
      return;
    case AttributeProto::INTS:
      for (uint64_t i = 0; i < length; ++i) made.add_ints(chance.once(4) ? number() : 1 + int64_t(chance.below(2)));
      return;
    case AttributeProto::STRINGS:
      for (uint64_t i = 0; i < length; ++i) made.add_strings(word());
      return;
    case AttributeProto::TENSOR:
      return fill(*made.mutable_t(), dataType(chance.pick(typeNames)),
                  chance.once(2) ? std::vector<int64_t>{1} : std::vector<int64_t>(chance.below(3), 2));
    case AttributeProto::GRAPH:
      return subgraph(*made.mutable_g());
    default:
      return;
    }
  }

  void subgraph(GraphProto &body) {
    body.set_name("b");
    uint64_t inputs = chance.below(5);
    std::string last = graph->input_size() && chance.once(2) ? graph->input(0).name() : "";
    for (uint64_t i = 0; i < inputs; ++i) {
      last = "b_in" + std::to_string(i);
      auto *value = body.add_input();
      value->set_name(last);
      value->mutable_type()->mutable_tensor_type()->set_elem_type(i == 0 ? 7 : i == 1 ? 9 : 1);
    }
    for (uint64_t i = 0, outputs = chance.below(4); i < outputs; ++i) {
      NodeProto &made = *body.add_node();
      constexpr const char *ops[] = {"Identity", "Relu", "Shape", "Neg"};
      made.set_op_type(chance.pick(ops));
      if (!last.empty()) made.add_input(inputs ? "b_in" + std::to_string(chance.below(inputs)) : last);
      made.add_output("b_out" + std::to_string(i));
      body.add_output()->set_name("b_out" + std::to_string(i));
    }
  }

  Chance chance;
  int opset = 0;
  GraphProto *graph = nullptr;
  std::vector<int64_t> shared;
};

} // namespace
} // namespace cleave::fuzz

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace cleave;
  onnx::ModelProto model = fuzz::Maker({data, size}).model();
  auto seen = inspect(fuzz::fileOf(model.SerializeAsString()), {});
  if (seen) return 0;
  const std::string &message = seen.status().message();
  bool saysWhere = false;
  for (const char *told : {"node '", "tensor '", "parameter '", "input '", "output '"})
    saysWhere |= message.find(told) != std::string::npos;
  fuzz::require(saysWhere, "says not where: " + message);
  return fuzz::refused(seen.status());
}
