#include "compiler/import/inspect.h"
#include "runtime/base/names/first_few.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::import_ {
namespace {

using Json = nlohmann::ordered_json;

template <typename Sizes> std::string bracketed(const Sizes &sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

std::string count(int64_t number) { // 1234567 -> "1,234,567"
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string bytesText(int64_t bytes) {
  if (bytes < 1 << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  if (bytes < int64_t(1) << 30) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (int64_t(1) << 30));
}

Json valuesJson(const std::vector<InspectedValue> &values) {
  Json list = Json::array();
  for (const InspectedValue &value : values)
    list.push_back({{"name", value.name}, {"dtype", value.dtype}, {"shape", value.shape}});
  return list;
}

Json parametersJson(const std::vector<InspectedParameter> &parameters) {
  Json list = Json::array();
  for (const InspectedParameter &p : parameters)
    list.push_back({{"name", p.name},
                    {"dtype", p.dtype},
                    {"shape", p.shape},
                    {"elements", p.elements},
                    {"bytes", p.bytes},
                    {"role", p.role},
                    {"kind", p.kind},
                    {"trainable", p.trainable},
                    {"why", p.why},
                    {"nodes", p.nodes},
                    {"aliases", p.aliases},
                    {"folded_from", p.foldedFrom},
                    {"pytorch", p.stateKeys},
                    {"file", p.file}});
  return list;
}

} // namespace

std::string Inspection::text(bool notesInFull) const {
  std::string out = fmt::format("{}\n  made by {}, IR version {}, opset {}\n", path, producer, irVersion, opset);
  for (const InspectedValue &value : inputs)
    out += fmt::format("  input   {} {} {}\n", value.name, value.dtype, bracketed(value.shape));
  for (const InspectedValue &value : outputs)
    out += fmt::format("  output  {} {} {}\n", value.name, value.dtype, bracketed(value.shape));
  out += fmt::format("  import: {}\n", source);
  for (const InspectedDoubt &doubt : doubts) {
    out += fmt::format("  doubt: {}\n", doubt.text);
    for (const std::string &tensor : doubt.tensors)
      if (notesInFull) out += fmt::format("    {}\n", tensor);
  }
  for (const std::string &note : notes) out += fmt::format("  note: {}\n", note);
  if (flops)
    out +=
        fmt::format("  one forward pass: {:.4g} GFLOP{}\n", *flops / 1e9, flopsAt.empty() ? "" : " (" + flopsAt + ")");

  out += fmt::format(
      "\nparameters: {} trained ({} numbers), {} numbers frozen, {} running statistics; {}\n",
      std::count_if(parameters.begin(), parameters.end(), [](const InspectedParameter &p) { return p.trainable; }),
      count(trainedElements), count(frozenElements), count(statisticElements), bytesText(parameterBytes));
  size_t width = 4;
  for (const InspectedParameter &p : parameters) width = std::max(width, std::min<size_t>(p.name.size(), 60));
  for (const InspectedParameter &p : parameters) {
    out += fmt::format("  {:<{}} {:<16} {:<8} {:<9} used by {}; {}\n", p.name, width, bracketed(p.shape), p.dtype,
                       p.kind, names::firstFew(p.nodes, 3), p.why);
    if (!p.aliases.empty()) out += fmt::format("  {:<{}} tied with {}\n", "", width, names::firstFew(p.aliases, 4));
    if (!p.stateKeys.empty())
      out += fmt::format("  {:<{}} in PyTorch {}\n", "", width, names::firstFew(p.stateKeys, 4));
    const bool isNamed = std::ranges::count(p.stateKeys, p.foldedFrom.empty() ? "" : p.foldedFrom.front()) > 0;
    if (p.foldedFrom.size() == 1 && !isNamed)
      out += fmt::format("  {:<{}} made from {}\n", "", width, p.foldedFrom.front());
    if (p.foldedFrom.size() > 1 && p.trainable && p.stateKeys.empty())
      out += fmt::format("  {:<{}} computed by the exporter from {}, and trained as it is\n", "", width,
                         names::firstFew(p.foldedFrom, 4));
  }
  if (!ties.empty()) out += "\nshared initializers:\n";
  for (const std::string &tie : ties) out += fmt::format("  {}\n", tie);
  const auto integers = std::ranges::count(constants, false, &InspectedConstant::isFloat);
  if (!constants.empty())
    out += fmt::format("\nconstants of two numbers and more: {} of real numbers, {} of integers (--json lists them)\n",
                       std::ssize(constants) - integers, integers);
  for (const InspectedConstant &constant : constants)
    if (constant.isFloat)
      out += fmt::format("  {} {} {}: {}, {}\n", constant.name, bracketed(constant.shape), constant.dtype,
                         constant.kind, constant.why);

  int64_t nodes = 0;
  for (const auto &[name, number] : operators) nodes += number;
  out += fmt::format("\noperators: {} nodes of {} kinds\n ", nodes, operators.size());
  for (const auto &[name, number] : operators)
    out += fmt::format(" {} {}{}", name, number, name == operators.rbegin()->first ? "\n" : ",");
  if (!blocks.empty()) out += "\nrepeated blocks:\n";
  for (const RepeatedBlock &block : blocks)
    out += fmt::format("  {} times{}: {} nodes and {} parameters ({} numbers) each, from {} to {}\n", block.count,
                       block.first.empty() ? "" : ", " + block.first + " to " + block.last, block.firstNodes.size(),
                       block.parameters, count(block.elements), block.firstNodes.front(), block.firstNodes.back());
  if (unsupported.empty()) return out + "\nevery operator is supported\n";
  out += fmt::format("\nnot supported: {} operators\n", unsupported.size());
  for (const UnsupportedOperator &op : unsupported) {
    out += fmt::format("  {}{} (version {}): {}", op.domain.empty() ? "" : op.domain + ".", op.op, op.version,
                       fmt::join(op.nodes, ", "));
    if (op.outputs.size() < outputs.size())
      out += op.outputs.empty() ? "; no output needs it"
                                : fmt::format("; only {} needs it: with another as loss.output the model trains",
                                              fmt::join(op.outputs, ", "));
    out += "\n";
  }
  return out;
}

std::string Inspection::json() const {
  Json out = {{"path", path}, {"producer", producer}, {"ir_version", irVersion}, {"opset", opset}};
  out["inputs"] = valuesJson(inputs);
  out["outputs"] = valuesJson(outputs);
  out["parameters"] = parametersJson(parameters);
  out["totals"] = {{"trained", trainedElements},
                   {"frozen", frozenElements},
                   {"running_statistics", statisticElements},
                   {"bytes", parameterBytes}};
  out["operators"] = operators;
  out["unsupported"] = Json::array();
  for (const UnsupportedOperator &op : unsupported)
    out["unsupported"].push_back(
        {{"domain", op.domain}, {"op", op.op}, {"version", op.version}, {"nodes", op.nodes}, {"outputs", op.outputs}});
  out["ties"] = ties;
  out["source"] = source;
  out["doubts"] = Json::array();
  for (const InspectedDoubt &doubt : doubts)
    out["doubts"].push_back({{"text", doubt.text}, {"tensors", doubt.tensors}});
  out["constants"] = Json::array();
  for (const InspectedConstant &c : constants)
    out["constants"].push_back({{"name", c.name},
                                {"dtype", c.dtype},
                                {"shape", c.shape},
                                {"elements", c.elements},
                                {"kind", c.kind},
                                {"why", c.why}});
  out["notes"] = notes;
  if (flops) out["flops"] = *flops;
  if (!flopsAt.empty()) out["flops_at"] = flopsAt;
  out["repeated_blocks"] = Json::array();
  for (const RepeatedBlock &block : blocks)
    out["repeated_blocks"].push_back({{"count", block.count},
                                      {"first", block.first},
                                      {"last", block.last},
                                      {"parameters", block.parameters},
                                      {"elements", block.elements},
                                      {"nodes", block.firstNodes}});
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace cleave::import_
