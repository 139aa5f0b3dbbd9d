// The text form of a problem, a line a thing; entries of a tensor's dimensions are factors joined by '.', '-' for none:
//
//   cleave-problem 2
//   name "mlp"
//   batch 32 samples 32 precision fp32
//   meets_at_update             Problem::meetsAtUpdate, and so with writes_attention
//   tensor 0 input "x" 4 [32,64] batch 0
//   tensor 1 parameter "w" 4 [64,128] trainable optimizer 8
//     "products COUNT FLOP", and for each dimension "split FLOP GATHERS BYTES SUMS BYTES": UpdateWork
//   tensor 2 activation "y" 4 [32,128] saved
//   node "matmul" "Contract" form product flops 524288 backward 1048576
//     and "work KIND" of each element: OperationKind
//     factors 32 64:sum 128
//     linear one 11
//     reads 0 0 1
//     reads 1 1 2
//     makes 2 0 2
#include "compiler/planner/problem/problem.h"
#include "compiler/planner/problem/text_reader.h"
#include <fmt/format.h>

namespace cleave::planner {
namespace {

constexpr const char *kinds[] = {"parameter", "input", "label", "constant", "activation"};
constexpr const char *reductions[] = {"sum", "max", "min"};
constexpr const char *linearities[] = {"none", "jointly", "one"};

std::string factorText(const dist::Factor &factor) {
  if (factor.kind == dist::Factor::Whole) return fmt::format("{}:whole", factor.size);
  if (factor.kind == dist::Factor::Reduced)
    return fmt::format("{}:{}", factor.size, reductions[size_t(factor.reduction)]);
  return fmt::format("{}", factor.size);
}

std::string dimsText(const dist::TensorFactors &dims) {
  std::string text;
  for (const auto &dim : dims) {
    std::string joined;
    for (int64_t factor : dim) joined += fmt::format("{}{}", joined.empty() ? "" : ".", factor);
    text += " " + (joined.empty() ? "-" : joined);
  }
  return text;
}

Status readTensor(TextReader &reader, std::vector<Tensor> &tensors) {
  Tensor tensor;
  int64_t index = 0, kind = 0;
  CLEAVE_RETURN_IF_ERROR(reader.integer(index));
  if (index != int64_t(tensors.size()))
    return reader.error(fmt::format("tensor {} stands where {} is due", index, tensors.size()));
  CLEAVE_RETURN_IF_ERROR(reader.choice(kinds, kind));
  tensor.kind = TensorKind(kind);
  CLEAVE_RETURN_IF_ERROR(reader.quoted(tensor.name));
  CLEAVE_RETURN_IF_ERROR(reader.integer(tensor.elementBytes));
  CLEAVE_RETURN_IF_ERROR(reader.list(tensor.dims));
  while (reader.more()) {
    std::string word;
    CLEAVE_RETURN_IF_ERROR(reader.word(word));
    if (word == "saved")
      tensor.saved = true;
    else if (word == "trainable")
      tensor.trainable = true;
    else if (word == "optimizer")
      CLEAVE_RETURN_IF_ERROR(reader.number(tensor.optimizerBytes));
    else if (word == "update")
      CLEAVE_RETURN_IF_ERROR(reader.number(tensor.updateBytes));
    else if (word == "products") {
      CLEAVE_RETURN_IF_ERROR(reader.number(tensor.update.products));
      CLEAVE_RETURN_IF_ERROR(reader.number(tensor.update.flops));
    } else if (word == "split") {
      UpdateWork::Split &split = tensor.update.splits.emplace_back();
      for (double *number : {&split.wholeFlops, &split.gathers, &split.gathered, &split.sums, &split.summed})
        CLEAVE_RETURN_IF_ERROR(reader.number(*number));
    } else if (word == "gradient")
      CLEAVE_RETURN_IF_ERROR(reader.integer(tensor.gradientBytes));
    else if (word == "batch")
      CLEAVE_RETURN_IF_ERROR(reader.integer(tensor.batchDim));
    else
      return reader.error(fmt::format("unknown word '{}' of a tensor", word));
  }
  tensors.push_back(std::move(tensor));
  return Status::ok();
}

Status readNode(TextReader &reader, std::vector<Node> &nodes) {
  Node node;
  CLEAVE_RETURN_IF_ERROR(reader.quoted(node.name));
  CLEAVE_RETURN_IF_ERROR(reader.quoted(node.op));
  int64_t index = 0;
  while (reader.more()) {
    std::string word;
    CLEAVE_RETURN_IF_ERROR(reader.word(word));
    if (word == "flops")
      CLEAVE_RETURN_IF_ERROR(reader.number(node.flops));
    else if (word == "backward")
      CLEAVE_RETURN_IF_ERROR(reader.number(node.backwardFlops));
    else if (word == "cheap")
      node.cheap = true;
    else if (word == "stops-gradient")
      node.stopsGradient = true;
    else if (word == "form") {
      CLEAVE_RETURN_IF_ERROR(reader.choice(dist::formNames, index));
      node.kind.form = dist::Form(index);
    } else if (word == "work") {
      CLEAVE_RETURN_IF_ERROR(reader.choice(dist::elementWorkNames, index));
      node.kind.work = dist::ElementWork(index);
    } else
      return reader.error(fmt::format("unknown word '{}' of a node", word));
  }
  nodes.push_back(std::move(node));
  return Status::ok();
}

Status readFactors(TextReader &reader, dist::FactorRule &rule) {
  while (reader.more()) {
    std::string word;
    CLEAVE_RETURN_IF_ERROR(reader.word(word));
    size_t colon = word.find(':');
    dist::Factor factor;
    if (!parseInteger(word.substr(0, colon), factor.size) || factor.size < 0)
      return reader.error(fmt::format("'{}' is no factor: SIZE, SIZE:whole or SIZE:sum|max|min", word));
    std::string kind = colon == std::string::npos ? "" : word.substr(colon + 1);
    if (kind == "whole")
      factor.kind = dist::Factor::Whole;
    else if (!kind.empty()) {
      factor.kind = dist::Factor::Reduced;
      size_t found = 0;
      while (found < 3 && kind != reductions[found]) ++found;
      if (found == 3) return reader.error(fmt::format("unknown kind of factor '{}'", kind));
      factor.reduction = dist::Reduction(found);
    }
    rule.factors.push_back(factor);
  }
  return Status::ok();
}

Status readDims(TextReader &reader, std::vector<int> &tensors, std::vector<dist::TensorFactors> &all) {
  int64_t tensor = 0;
  CLEAVE_RETURN_IF_ERROR(reader.integer(tensor));
  dist::TensorFactors dims;
  while (reader.more()) {
    std::string word;
    CLEAVE_RETURN_IF_ERROR(reader.word(word));
    dims.emplace_back();
    for (size_t at = 0; word != "-" && at <= word.size();) {
      size_t dot = std::min(word.find('.', at), word.size());
      int64_t factor = 0;
      if (!parseInteger(word.substr(at, dot - at), factor))
        return reader.error(fmt::format("'{}' is no list of factors", word));
      dims.back().push_back(factor);
      at = dot + 1;
    }
  }
  tensors.push_back(int(tensor));
  all.push_back(std::move(dims));
  return Status::ok();
}

Status readLinear(TextReader &reader, dist::FactorRule &rule) {
  int64_t linearity = 0;
  CLEAVE_RETURN_IF_ERROR(reader.choice(linearities, linearity));
  rule.linearity = dist::FactorRule::Linearity(linearity);
  std::string bits;
  if (reader.more()) CLEAVE_RETURN_IF_ERROR(reader.word(bits));
  for (char bit : bits) {
    if (bit != '0' && bit != '1') return reader.error(fmt::format("'{}' must be 0 or 1 an operand", bits));
    rule.linearOperands.push_back(bit == '1');
  }
  return Status::ok();
}

} // namespace

std::string Problem::text() const {
  std::string out = fmt::format("cleave-problem 2\nname {}\nbatch {} samples {} precision {}\n", quote(name), batch,
                                samples, precision);
  if (meetsAtUpdate) out += "meets_at_update\n";
  if (writesAttention) out += "writes_attention\n";
  if (!lossMeetsAt.empty()) out += fmt::format("loss_meets_at {}\n", quote(lossMeetsAt));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor &tensor = tensors[i];
    out += fmt::format("tensor {} {} {} {} [{}]", i, kinds[size_t(tensor.kind)], quote(tensor.name),
                       tensor.elementBytes, joinIntegers(tensor.dims));
    if (tensor.saved) out += " saved";
    if (tensor.trainable) out += " trainable";
    if (tensor.optimizerBytes > 0) out += fmt::format(" optimizer {}", tensor.optimizerBytes);
    if (tensor.updateBytes > 0) out += fmt::format(" update {}", tensor.updateBytes);
    if (tensor.update.products > 0) out += fmt::format(" products {} {}", tensor.update.products, tensor.update.flops);
    for (const UpdateWork::Split &split : tensor.update.splits)
      out += fmt::format(" split {} {} {} {} {}", split.wholeFlops, split.gathers, split.gathered, split.sums,
                         split.summed);
    if (tensor.gradientBytes != 4) out += fmt::format(" gradient {}", tensor.gradientBytes);
    if (tensor.batchDim >= 0) out += fmt::format(" batch {}", tensor.batchDim);
    out += "\n";
  }
  for (const Node &node : nodes) {
    out += fmt::format("node {} {}", quote(node.name), quote(node.op));
    if (node.kind.form != dist::Form::Elementwise)
      out += fmt::format(" form {}", dist::formNames[size_t(node.kind.form)]);
    if (node.kind.work != dist::ElementWork::Arithmetic)
      out += fmt::format(" work {}", dist::elementWorkNames[size_t(node.kind.work)]);
    out += fmt::format(" flops {} backward {}{}{}\n  factors", node.flops, node.backwardFlops,
                       node.cheap ? " cheap" : "", node.stopsGradient ? " stops-gradient" : "");
    for (const dist::Factor &factor : node.rule.factors) out += " " + factorText(factor);
    out += fmt::format("\n  linear {} ", linearities[size_t(node.rule.linearity)]);
    for (bool bit : node.rule.linearOperands) out += bit ? '1' : '0';
    while (out.back() == ' ') out.pop_back();
    out += "\n";
    for (size_t o = 0; o < node.operands.size(); ++o)
      out += fmt::format("  reads {}{}\n", node.operands[o], dimsText(node.rule.operands[o]));
    for (size_t r = 0; r < node.results.size(); ++r)
      out += fmt::format("  makes {}{}\n", node.results[r], dimsText(node.rule.results[r]));
  }
  return out;
}

Result<Problem> Problem::parse(const std::string &text, const std::string &file) {
  Problem problem;
  TextReader reader(text, file);
  CLEAVE_RETURN_IF_ERROR(reader.header("cleave-problem", 2));
  while (reader.nextLine()) {
    std::string word;
    CLEAVE_RETURN_IF_ERROR(reader.word(word));
    if (word == "name")
      CLEAVE_RETURN_IF_ERROR(reader.quoted(problem.name));
    else if (word == "tensor")
      CLEAVE_RETURN_IF_ERROR(readTensor(reader, problem.tensors));
    else if (word == "node")
      CLEAVE_RETURN_IF_ERROR(readNode(reader, problem.nodes));
    else if (word == "batch") {
      CLEAVE_RETURN_IF_ERROR(reader.integer(problem.batch));
      CLEAVE_RETURN_IF_ERROR(reader.expect("samples"));
      CLEAVE_RETURN_IF_ERROR(reader.integer(problem.samples));
      CLEAVE_RETURN_IF_ERROR(reader.expect("precision"));
      CLEAVE_RETURN_IF_ERROR(reader.word(problem.precision));
    } else if (word == "meets_at_update")
      problem.meetsAtUpdate = true;
    else if (word == "writes_attention")
      problem.writesAttention = true;
    else if (word == "loss_meets_at")
      CLEAVE_RETURN_IF_ERROR(reader.quoted(problem.lossMeetsAt));
    else if (problem.nodes.empty())
      return reader.error(fmt::format("'{}' outside a node, or an unknown word", word));
    else if (Node &node = problem.nodes.back(); word == "factors")
      CLEAVE_RETURN_IF_ERROR(readFactors(reader, node.rule));
    else if (word == "linear")
      CLEAVE_RETURN_IF_ERROR(readLinear(reader, node.rule));
    else if (word == "reads")
      CLEAVE_RETURN_IF_ERROR(readDims(reader, node.operands, node.rule.operands));
    else if (word == "makes")
      CLEAVE_RETURN_IF_ERROR(readDims(reader, node.results, node.rule.results));
    else
      return reader.error(fmt::format("unknown word '{}'", word));
    CLEAVE_RETURN_IF_ERROR(reader.endOfLine());
  }
  if (Status status = problem.check(); !status) return inputError(fmt::format("{}: {}", file, status.message()));
  return problem;
}

} // namespace cleave::planner
