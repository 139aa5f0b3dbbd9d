#include "compiler/import/weights/role_rules.h"
#include "compiler/import/tensor_values.h"
#include <algorithm>

namespace cleave::import_ {
namespace {

using Operands = std::map<std::string, std::set<int>>;

constexpr int64_t scanLimit = 1 << 20; // elements of a matrix up to which its numbers are looked at
constexpr size_t ancestorLimit = 256;  // nodes

const Operands configurations = {{"Resize", {1, 2}},
                                 {"Upsample", {1}},
                                 {"OneHot", {2}},
                                 {"Dropout", {1}},
                                 {"Pad", {2}},
                                 {"Clip", {1, 2}},
                                 {"Range", {0, 1, 2}},
                                 {"QuantizeLinear", {1}},
                                 {"DequantizeLinear", {1}},
                                 {"MatMulNBits", {2, 3}},
                                 {"RoiAlign", {1}},
                                 {"CastLike", {1}},
                                 {"EyeLike", {0}},
                                 {"NonMaxSuppression", {3, 4}},
                                 {"NegativeLogLikelihoodLoss", {2}},
                                 {"SoftmaxCrossEntropyLoss", {2}}};
const Operands weightOperands = {{"MatMul", {0, 1}},
                                 {"Gemm", {0, 1, 2}},
                                 {"Einsum", {0, 1, 2, 3}},
                                 {"Conv", {1, 2}},
                                 {"ConvTranspose", {1, 2}},
                                 {"BatchNormalization", {1, 2}},
                                 {"LayerNormalization", {1, 2}},
                                 {"PRelu", {1}},
                                 {"InstanceNormalization", {1, 2}},
                                 {"GroupNormalization", {1, 2}},
                                 {"RMSNormalization", {1}},
                                 {"LSTM", {1, 2, 3}},
                                 {"GRU", {1, 2, 3}},
                                 {"RNN", {1, 2, 3}}};
const Operands quantizedOperands = {{"DequantizeLinear", {0}}, {"MatMulNBits", {1}}};

bool has(const Operands &table, const std::string &op, int operand) {
  auto found = table.find(op);
  return found != table.end() && found->second.contains(operand);
}

// An initializer, or those of its uses that are one parameter in PyTorch.
struct Subject {
  const RuleContext &context;
  const std::string &name, &key;
  const std::vector<Use> &uses;
  const Initializer &initializer = context.initializers.at(name);
  const StoredTensor &tensor = initializer.tensor;

  bool isSigned() const { return context.metadata.isSigned(); }
  bool isNumber() const { return tensor.elements() <= 1; }
  bool isLarge() const {
    return tensor.elements() > scanLimit && (context.index.isGathered(uses) || context.index.isMultiplied(uses));
  }
  bool allRead(auto &&holds) const { return !uses.empty() && std::ranges::all_of(uses, holds); }
  bool anyRead(auto &&holds) const { return std::ranges::any_of(uses, holds); }
  bool isIn(const Operands &table, const Use &use) const { return has(table, context.index.op(use), use.operand); }
};

// --- what rows look at ---------------------------------------------------------------------------------------------

bool isQuantized(const Subject &s) {
  return !s.tensor.isFloat() && s.anyRead([&](const Use &use) { return s.isIn(quantizedOperands, use); });
}
bool isInteger(const Subject &s) { return !s.tensor.isFloat(); }
// By no node; an initializer that the model returns is a parameter, a Constant is not.
bool isUnread(const Subject &s) {
  return s.uses.empty() && (s.initializer.fromNode || !s.context.initializers.direct.contains(s.name));
}
bool configures(const Subject &s) {
  return s.allRead([&](const Use &use) { return s.isIn(configurations, use); });
}
bool isOnlyCompared(const Subject &s) {
  return s.allRead([&](const Use &use) { return isComparison(s.context.index.op(use)); });
}

bool isWeightOperand(const Subject &s);

bool isListedBuffer(const Subject &s) { return s.context.metadata.isBuffer(s.key.empty() ? s.name : s.key); }
bool isListed(const Subject &s) { return s.context.metadata.isParameter(s.key.empty() ? s.name : s.key); }
bool isMadeOfNoParameter(const Subject &s) {
  return s.isSigned() && !s.context.metadata.foldedFrom(s.name).empty() &&
         s.context.metadata.parametersOf(s.name).empty();
}
bool isMadeOfParameters(const Subject &s) { return !s.context.metadata.parametersOf(s.name).empty(); }
bool isCopy(const Subject &s) { return isMadeOfParameters(s) && s.context.isCopyOfOne(s.name); }
// The exporter joins the weights of a whole layer, gates in another order.
bool isOfRecurrence(const Subject &s) {
  return isMadeOfParameters(s) && s.allRead([&](const Use &use) {
    return isRecurrent(s.context.index.op(use)) && use.operand >= 1 && use.operand <= 3;
  });
}
bool isMergedParameter(const Subject &s) { return s.context.missing.contains(s.key); }
bool isLiteral(const Subject &s) {
  return s.isSigned() && s.allRead([&](const Use &use) { return s.context.metadata.isLiteral(use); });
}
bool isUnlisted(const Subject &s) { return s.isSigned() && s.context.missing.empty(); }

bool isTableOfPositions(const Subject &s) { return !s.isLarge() && isSinusoidal(s.tensor); }
bool isTableOfRotations(const Subject &s) {
  return s.name.ends_with("inv_freq") || (!s.isLarge() && isTableOfAngles(s.tensor));
}
bool isMask(const Subject &s) { return !s.isLarge() && looksLikeMask(s.tensor); }
bool isMaskNumber(const Subject &s) {
  return s.isNumber() && !isWeightOperand(s) &&
         (firstNumber(s.tensor).value_or(0) <= -100 ||
          s.allRead([&](const Use &use) { return s.context.index.op(use) == "Where"; }));
}

bool isMovement(const std::string &op) {
  static const std::set<std::string> names = {"Slice", "Concat", "Split", "Unsqueeze", "Squeeze", "Reshape", "Expand"};
  return isPassThrough(op) || names.contains(op);
}

// Compared with something past nodes that only move or cast it.
bool isCompared(const Subject &s) {
  auto keepsEntries = [](const std::string &op) { return isMovement(op) && op != "Concat" && op != "Split"; };
  return std::ranges::any_of(s.context.index.reached(s.uses, keepsEntries),
                             [&](const Use &use) { return isComparison(s.context.index.op(use)); });
}

// The scale and bias that a group normalization is given to be written as an InstanceNormalization: all elements
// equal, no module's dotted name, and a product with the layer's own scale after the Reshape back; or of a Constant
// node.
bool isNeutral(const Subject &s) {
  const GraphIndex &index = s.context.index;
  auto next = [&](size_t node, const char *op) -> std::optional<size_t> {
    std::optional<size_t> reader = index.onlyReader(index.flat.nodes[node].node->output(0));
    return reader && index.flat.nodes[*reader].node->op_type() == op ? reader : std::nullopt;
  };
  const bool isOwn = s.name.find('.') == std::string::npos || s.initializer.fromNode;
  return isOwn && allEqual(s.tensor) && s.allRead([&](const Use &use) {
    if (index.op(use) != "InstanceNormalization" || use.operand == 0) return false;
    if (s.initializer.fromNode) return true;
    const std::optional<size_t> back = next(use.node, "Reshape"), scaled = back ? next(*back, "Mul") : std::nullopt;
    return scaled && std::ranges::any_of(index.flat.nodes[*scaled].node->input(), [&](const std::string &value) {
             return s.context.initializers.resolved.contains(value);
           });
  });
}

// A matrix that is multiplied by or looked up in, a vector that is added to a product, the scale of a norm, ...; also
// past nodes that cut, join and turn it, but there not as the left side of a product, which may be anything.
bool isWeightOperand(const Subject &s) {
  if (!s.isNumber() && s.tensor.shape.size() == 2 && s.context.index.isGathered(s.uses)) return true;
  const bool isVector =
      !s.tensor.shape.empty() && std::ranges::count_if(s.tensor.shape, [](int64_t size) { return size > 1; }) <= 1;
  auto isAdded = [&](const Use &use) {
    const ::onnx::NodeProto &node = s.context.index.node(use);
    if (node.op_type() != "Add" || node.input_size() != 2 || !isVector) return false;
    auto other = s.context.index.producer.find(node.input(1 - use.operand));
    if (other == s.context.index.producer.end()) return false;
    const std::string &op = s.context.index.flat.nodes[other->second].node->op_type();
    return op == "MatMul" || op == "Einsum" || op == "Conv";
  };
  if (s.anyRead([&](const Use &use) { return s.isIn(weightOperands, use); })) return true;
  return std::ranges::any_of(s.context.index.reached(s.uses, isMovement), [&](const Use &use) {
    const bool isLeft = s.context.index.op(use) == "MatMul" && use.operand == 0;
    return isAdded(use) || (s.isIn(weightOperands, use) && !isLeft);
  });
}

// The nodes where it, or what is computed from it alone, meets other values.
std::vector<size_t> meetingsOf(const Subject &s) {
  std::set<std::string> own;
  auto isOwn = [&](const std::string &value) {
    return value.empty() || own.contains(value) || s.context.initializers.resolved.contains(value);
  };
  std::vector<size_t> meetings;
  std::vector<Use> open = s.uses;
  for (size_t step = 0; step < open.size() && step < GraphIndex::reachLimit; ++step) {
    const ::onnx::NodeProto &node = s.context.index.node(open[step]);
    if (!std::ranges::all_of(node.input(), isOwn)) {
      meetings.push_back(open[step].node);
      continue;
    }
    for (const std::string &output : node.output()) {
      auto next = own.insert(output).second ? s.context.index.consumers.find(output) : s.context.index.consumers.end();
      if (next == s.context.index.consumers.end()) continue;
      for (size_t reader : next->second) open.push_back({reader, 0});
    }
  }
  return meetings;
}

// No weight comes before it: it meets the model's input as it is.
bool meetsDataAlone(const Subject &s) {
  std::vector<size_t> open = meetingsOf(s);
  if (open.empty()) return false;
  std::set<size_t> seen(open.begin(), open.end());
  for (size_t step = 0; step < open.size(); ++step) {
    if (step == ancestorLimit) return false;
    const ::onnx::NodeProto &node = *s.context.index.flat.nodes[open[step]].node;
    for (int operand = 0; operand < node.input_size(); ++operand) {
      const std::string &value = node.input(operand);
      const bool isStored = s.context.initializers.resolved.contains(value);
      if (isStored && (has(weightOperands, node.op_type(), operand) || node.op_type() == "Gather") &&
          s.context.initializers.at(s.context.initializers.resolve(value)).tensor.isFloat())
        return false;
      if (auto from = s.context.index.producer.find(value); from != s.context.index.producer.end())
        if (seen.insert(from->second).second) open.push_back(from->second);
    }
  }
  return true;
}

bool isTorchScript(const Subject &s) { return s.context.producer == Producer::TorchScript; }
bool isWritten(const Subject &s) { return s.context.producer == Producer::Other && !s.isNumber(); }
// "layers.0.norm.weight"; but nn.BCEWithLogitsLoss calls a buffer pos_weight.
bool isCalledAsWeight(const Subject &s) {
  static const std::set<std::string> leaves = {"weight", "bias", "gamma", "beta"};
  return isTorchScript(s) && !s.isNumber() && isGivenName(s.name) && leaves.contains(leafOfKey(s.name));
}
// A weight by its reader, of a name that nn's layers give none: a Fourier matrix, a fixed filter, an adjacency.
bool isWeightOfOwnName(const Subject &s) {
  const std::string leaf = leafOfKey(s.name);
  const bool isLayers = leaf.ends_with("weight") || leaf.ends_with("bias") || leaf.starts_with("weight_ih") ||
                        leaf.starts_with("weight_hh") || leaf.starts_with("bias_ih") || leaf.starts_with("bias_hh") ||
                        leaf == "gamma" || leaf == "beta";
  return isTorchScript(s) && isGivenName(s.name) && !s.initializer.fromNode && !isLayers && isWeightOperand(s);
}
bool isVariable(const Subject &s) {
  return s.context.producer == Producer::TensorFlow && s.name.find("ReadVariableOp") != std::string::npos;
}
bool isOfNode(const Subject &s) { return s.initializer.fromNode && !s.context.weightsAreNodes; }
bool isWeightOfNode(const Subject &s) {
  return isOfNode(s) && !s.isNumber() && s.context.producer != Producer::Dynamo && isWeightOperand(s);
}
// "blocks.0.alpha" beside weights of "blocks".
bool isNumberOfModule(const Subject &s) {
  const size_t dot = s.name.find('.');
  return s.context.producer == Producer::Other && s.isNumber() && !s.initializer.fromNode && dot != std::string::npos &&
         s.context.modules.contains(s.name.substr(0, dot));
}
bool isPlainNumber(const Subject &s) { return s.isNumber() && !(isTorchScript(s) && !s.initializer.fromNode); }
bool holdsAlways(const Subject &) { return true; }

// --- the table -----------------------------------------------------------------------------------------------------

struct Rule {
  bool (*holds)(const Subject &); // what it looks at
  Conclusion conclusion;
  int64_t limit;     // bytes, of a constant
  const char *why;   // as `cleave inspect` says it
  const char *doubt; // null: sure
};
constexpr Conclusion constant = Conclusion::Constant, trained = Conclusion::Trained, frozen = Conclusion::Frozen;
constexpr int64_t integers = integerConstantLimit, masks = maskConstantLimit, small = frozenConstantLimit;

// What no recipe changes.
constexpr Rule facts[] = {
    {isQuantized, frozen, 0, "quantized: its integers do not train", nullptr},
    {isInteger, constant, integers, "integers do not train", nullptr},
    {isUnread, constant, small, "no node computes with it", nullptr},
    {configures, constant, masks, "configures its node", nullptr},
    {isOnlyCompared, constant, small, "only compared: no gradient reaches it", nullptr},
};
constexpr Rule rules[] = {
    // PyTorch's exporter says what it is.
    {isListedBuffer, constant, small, "a buffer, as the exporter says", nullptr},
    {isMadeOfNoParameter, constant, small, "computed from no parameter, as the exporter says", nullptr},
    {isMergedParameter, trained, 0, "a parameter, as the exporter says", nullptr},
    {isLiteral, constant, small, "a number of the operation's own, as the exporter says", nullptr},
    {[](const Subject &s) {
       return (isListed(s) || isCopy(s)) && (isTableOfPositions(s) || isTableOfRotations(s) || isMask(s));
     },
     constant, masks, "a table of positions or a mask", doubts::table},
    {isListed, trained, 0, "a parameter, as the exporter says", nullptr},
    {isCopy, trained, 0, "a parameter, written anew by the exporter", nullptr},
    {isOfRecurrence, trained, 0, "parameters of a layer, joined by the exporter", nullptr},
    {[](const Subject &s) { return isMadeOfParameters(s) && s.isNumber(); }, constant, small,
     "computed from a parameter by the exporter", doubts::lost},
    {isMadeOfParameters, trained, 0, "computed from a parameter by the exporter", doubts::computed},
    {isUnlisted, constant, small, "no parameter, as the exporter says", nullptr},
    // Numbers and readers tell.
    {isMask, constant, masks, "mask: of -inf, NaN or nothing but 0 and -100 or less", nullptr},
    {isMaskNumber, constant, masks, "the number that a mask fills in", nullptr},
    {isNeutral, constant, small, "neutral, the layer's own scale and bias follow", nullptr},
    {isTableOfRotations, constant, small, "a table of rotary positions", nullptr},
    {isCompared, constant, small, "compared with: a grid or a limit", nullptr},
    {[](const Subject &s) { return isTableOfPositions(s) && isTorchScript(s) && isGivenName(s.name); }, constant, small,
     "a table of sinusoidal positions", doubts::table},
    {isTableOfPositions, constant, small, "a table of sinusoidal positions", nullptr},
    {isWeightOfNode, constant, small, "folded to a constant by the exporter", doubts::folded},
    {isOfNode, constant, small, "folded to a constant by the exporter", nullptr},
    {isWeightOfOwnName, trained, 0, "read as a weight", doubts::unknown},
    {isWeightOperand, trained, 0, "read as a weight", nullptr},
    {isNumberOfModule, trained, 0, "a number of a module with weights", nullptr},
    {isPlainNumber, constant, masks, "a single number", nullptr},
    // Elementwise operands: names and conventions of the file's maker.
    {isWritten, trained, 0, "an initializer of real numbers", nullptr},
    {isVariable, trained, 0, "a variable, as its name says", nullptr},
    {isCalledAsWeight, trained, 0, "called as a weight", nullptr},
    {meetsDataAlone, constant, small, "meets the model's input as it is", doubts::ofData},
    {[](const Subject &s) { return s.isNumber() && !isGivenName(s.name); }, constant, masks, "a single number",
     doubts::unknown},
    {holdsAlways, trained, 0, "an initializer of real numbers", doubts::unknown},
};

} // namespace

bool isReadAsWeight(const GraphIndex &index, const std::vector<Use> &uses) {
  return std::ranges::any_of(uses, [&](const Use &use) { return has(weightOperands, index.op(use), use.operand); });
}

bool isStatistic(const GraphIndex &index, const Use &use) {
  return index.op(use) == "BatchNormalization" && use.operand >= 3;
}

Producer producerOf(const ModelFile &model, const GraphIndex &index, const ExporterMetadata &metadata) {
  const std::string &maker = model.proto.producer_name();
  if (maker == "tf2onnx" || maker == "keras2onnx") return Producer::TensorFlow;
  if (maker != "pytorch") return Producer::Other;
  if (metadata.isSigned()) return Producer::Dynamo;
  const bool isTraced =
      std::ranges::any_of(index.flat.nodes, [](const FlatNode &node) { return node.name.starts_with('/'); }) ||
      std::ranges::any_of(model.proto.graph().initializer(),
                          [](const ::onnx::TensorProto &tensor) { return tensor.name().starts_with("onnx::"); });
  return isTraced ? Producer::TorchScript : Producer::Other; // of the other exporter, without its metadata
}

bool RuleContext::isReadAsMatrix(const std::string &initializer) const {
  const std::vector<Use> &uses = initializers.at(initializer).uses;
  return initializers.isMatrix(initializer) &&
         (index.isMultiplied(uses) || index.isReadBy(uses, {"Gather", "GatherND"}));
}

std::string RuleContext::madeFrom(const std::string &initializer) const {
  const std::vector<std::string> &origins = metadata.foldedFrom(initializer);
  return origins.size() == 1 && initializers.at(initializer).tensor.elements() > 1 ? origins.front() : "";
}

bool RuleContext::isCopyOfOne(const std::string &initializer) const {
  if (metadata.parametersOf(initializer).size() != 1 || notCopies.contains(initializer)) return false;
  if (metadata.isRepeated(initializer)) return false;
  const std::string &parameter = metadata.parametersOf(initializer).front();
  auto isOfLayer = [&](const Use &use) { return metadata.isKnown(use.node) && metadata.keyOf(use) == parameter; };
  const std::vector<Use> &uses = initializers.at(initializer).uses;
  const StoredTensor &tensor = initializers.at(initializer).tensor;
  if (metadata.isLookup(initializer)) return metadata.isSlice(initializer) || !tensor.bytes || hasDistinctRows(tensor);
  if (metadata.isView(initializer) || (!uses.empty() && std::ranges::all_of(uses, isOfLayer))) return true;
  const std::string origin = madeFrom(initializer);
  if (origin.empty()) return false;
  // Beside matrices, what a dimension was put into: [32, 1, 1].
  const bool isUnsqueezed = tensor.shape.size() > 1 && std::ranges::count(tensor.shape, 1) > 0;
  return initializers.has(origin) || isReadAsMatrix(initializer) || isUnsqueezed;
}

Decision decideRole(const RuleContext &context, const std::string &name, const std::string &key,
                    const std::vector<Use> &uses) {
  const Subject subject{context, name, key, uses};
  for (const Rule &rule : facts)
    if (rule.holds(subject)) return {rule.conclusion, rule.limit, rule.why, rule.doubt, false};
  for (const Rule &rule : rules)
    if (rule.holds(subject)) return {rule.conclusion, rule.limit, rule.why, rule.doubt, true};
  return {};
}

} // namespace cleave::import_
