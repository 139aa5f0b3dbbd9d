// The text form of a problem, a line a thing; entries of a tensor's dimensions are factors joined by '.', '-' for none:
//
//   cleave-problem 2
//   name "mlp"
//   batch 32 samples 32 precision fp32
//   meets_at_update             Problem::meetsAtUpdate, and so with writes_attention, chunks_samples
//   tensor 0 input "x" 4 [32,64] batch 0
//   tensor 1 parameter "w" 4 [64,128] trainable optimizer 8
//     "products COUNT FLOP", and for each dimension "split FLOP GATHERS BYTES SUMS BYTES": UpdateWork
//     "optimizer BYTES master BYTES means BYTES": Tensor::masterBytes, meansBytes
//   tensor 2 activation "y" 4 [32,128] saved     and "chunked": Tensor::chunked
//   node "matmul" "Contract" form product flops 524288 backward 1048576
//     and "work KIND" of each element: OperationKind; "module NAME": Node::module
//     factors 32 64:sum 128
//     linear one 11
//     reads 0 0 1
//     reads 1 1 2
//     makes 2 0 2
#include "compiler/planner/problem/problem.h"
#include "compiler/planner/problem/text_reader.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

constexpr const char *header = "cleave-problem 2";
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
  for (const auto &dim : dims) text += dim.empty() ? " -" : fmt::format(" {}", fmt::join(dim, "."));
  return text;
}

Tensor readTensor(TextReader &reader, size_t due) {
  Tensor tensor;
  if (const int64_t index = reader.integer(); index != int64_t(due))
    reader.fail(fmt::format("tensor {} stands where {} is due", index, due));
  tensor.kind = reader.choice<TensorKind>(kinds);
  tensor.name = reader.quoted();
  tensor.elementBytes = reader.integer();
  tensor.dims = reader.list();
  while (reader.more()) {
    const std::string word = reader.word();
    if (word == "saved")
      tensor.saved = true;
    else if (word == "chunked")
      tensor.chunked = true;
    else if (word == "trainable")
      tensor.trainable = true;
    else if (word == "optimizer")
      tensor.optimizerBytes = reader.number();
    else if (word == "master")
      tensor.masterBytes = reader.number();
    else if (word == "means")
      tensor.meansBytes = reader.number();
    else if (word == "update")
      tensor.updateBytes = reader.number();
    else if (word == "products") {
      tensor.update.products = reader.number();
      tensor.update.flops = reader.number();
    } else if (word == "split") {
      UpdateWork::Split &split = tensor.update.splits.emplace_back();
      for (double *number : {&split.wholeFlops, &split.gathers, &split.gathered, &split.sums, &split.summed})
        *number = reader.number();
    } else if (word == "gradient")
      tensor.gradientBytes = reader.integer();
    else if (word == "batch")
      tensor.batchDim = reader.integer();
    else
      reader.fail(fmt::format("unknown word '{}' of a tensor", word));
  }
  return tensor;
}

Node readNode(TextReader &reader) {
  Node node;
  node.name = reader.quoted();
  node.op = reader.quoted();
  while (reader.more()) {
    const std::string word = reader.word();
    if (word == "flops")
      node.flops = reader.number();
    else if (word == "backward")
      node.backwardFlops = reader.number();
    else if (word == "module")
      node.module = reader.quoted();
    else if (word == "cheap")
      node.cheap = true;
    else if (word == "stops-gradient")
      node.stopsGradient = true;
    else if (word == "form")
      node.kind.form = reader.choice<dist::Form>(dist::formNames);
    else if (word == "work")
      node.kind.work = reader.choice<dist::ElementWork>(dist::elementWorkNames);
    else
      reader.fail(fmt::format("unknown word '{}' of a node", word));
  }
  return node;
}

dist::Factor readFactor(TextReader &reader) {
  const std::string word = reader.word();
  const size_t colon = std::min(word.find(':'), word.size());
  dist::Factor factor;
  if (!parseInteger(word.substr(0, colon), factor.size) || factor.size < 0)
    reader.fail(fmt::format("'{}' is no factor: SIZE, SIZE:whole or SIZE:sum|max|min", word));
  if (colon == word.size()) return factor;
  const std::string kind = word.substr(colon + 1);
  const auto *reduction = std::ranges::find(reductions, kind);
  factor.kind = kind == "whole" ? dist::Factor::Whole : dist::Factor::Reduced;
  if (factor.kind == dist::Factor::Whole) return factor;
  if (reduction == std::end(reductions)) reader.fail(fmt::format("unknown kind of factor '{}'", kind));
  factor.reduction = dist::Reduction(reduction - reductions);
  return factor;
}

void readDims(TextReader &reader, std::vector<int> &tensors, std::vector<dist::TensorFactors> &all) {
  tensors.push_back(int(reader.integer()));
  dist::TensorFactors &dims = all.emplace_back();
  while (reader.more()) {
    const std::string word = reader.word();
    dims.emplace_back();
    if (word == "-") continue;
    for (const std::string &factor : splitAt(word, '.'))
      if (!parseInteger(factor, dims.back().emplace_back()))
        reader.fail(fmt::format("'{}' is no list of factors", word));
  }
}

void readLinear(TextReader &reader, dist::FactorRule &rule) {
  rule.linearity = reader.choice<dist::FactorRule::Linearity>(linearities);
  const std::string bits = reader.more() ? reader.word() : "";
  for (char bit : bits) {
    if (bit != '0' && bit != '1') reader.fail(fmt::format("'{}' must be 0 or 1 an operand", bits));
    rule.linearOperands.push_back(bit == '1');
  }
}

} // namespace

std::string Problem::text() const {
  std::string out =
      fmt::format("{}\nname {}\nbatch {} samples {} precision {}\n", header, quote(name), batch, samples, precision);
  if (meetsAtUpdate) out += "meets_at_update\n";
  if (chunksSamples) out += "chunks_samples\n";
  if (writesAttention) out += "writes_attention\n";
  if (!lossMeetsAt.empty()) out += fmt::format("loss_meets_at {}\n", quote(lossMeetsAt));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor &tensor = tensors[i];
    out += fmt::format("tensor {} {} {} {} [{}]", i, kinds[size_t(tensor.kind)], quote(tensor.name),
                       tensor.elementBytes, fmt::join(tensor.dims, ","));
    if (tensor.saved) out += " saved";
    if (tensor.chunked) out += " chunked";
    if (tensor.trainable) out += " trainable";
    if (tensor.optimizerBytes > 0) out += fmt::format(" optimizer {}", tensor.optimizerBytes);
    if (tensor.masterBytes > 0) out += fmt::format(" master {}", tensor.masterBytes);
    if (tensor.meansBytes > 0) out += fmt::format(" means {}", tensor.meansBytes);
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
    if (!node.module.empty()) out += fmt::format(" module {}", quote(node.module));
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
  TextReader reader(text, file, header);
  while (reader.nextLine()) {
    const std::string word = reader.word();
    if (word == "name")
      problem.name = reader.quoted();
    else if (word == "tensor")
      problem.tensors.push_back(readTensor(reader, problem.tensors.size()));
    else if (word == "node")
      problem.nodes.push_back(readNode(reader));
    else if (word == "batch") {
      problem.batch = reader.integer();
      reader.expect("samples");
      problem.samples = reader.integer();
      reader.expect("precision");
      problem.precision = reader.word();
    } else if (word == "meets_at_update")
      problem.meetsAtUpdate = true;
    else if (word == "chunks_samples")
      problem.chunksSamples = true;
    else if (word == "writes_attention")
      problem.writesAttention = true;
    else if (word == "loss_meets_at")
      problem.lossMeetsAt = reader.quoted();
    else if (problem.nodes.empty())
      reader.fail(fmt::format("'{}' outside a node, or an unknown word", word));
    else if (Node &node = problem.nodes.back(); word == "factors")
      while (reader.more()) node.rule.factors.push_back(readFactor(reader));
    else if (word == "linear")
      readLinear(reader, node.rule);
    else if (word == "reads")
      readDims(reader, node.operands, node.rule.operands);
    else if (word == "makes")
      readDims(reader, node.results, node.rule.results);
    else
      reader.fail(fmt::format("unknown word '{}'", word));
  }
  CLEAVE_RETURN_IF_ERROR(reader.status());
  if (Status status = problem.check(); !status) return inputError(fmt::format("{}: {}", file, status.message()));
  return problem;
}

} // namespace cleave::planner
