#include "compiler/driver/repeated_blocks.h"
#include <algorithm>
#include <set>

namespace cleave {
namespace {

using Names = std::vector<std::string>;

// "h.0.attn.weight" -> "h", "h.0", "h.0.attn"; "/h.0/attn/MatMul" -> "/h", "/h.0", "/h.0/attn".
Names pathsOf(const std::string &name) {
  Names paths;
  for (size_t at = 1; at < name.size(); ++at)
    if (name[at] == '.' || name[at] == '/') paths.push_back(name.substr(0, at));
  return paths;
}

// The longest path that more than half of the names that have one begin with.
std::string commonPath(const Names &names) {
  std::map<std::string, size_t> counts;
  size_t named = 0;
  for (const std::string &name : names) {
    Names paths = pathsOf(name);
    named += !paths.empty();
    for (const std::string &path : paths) ++counts[path];
  }
  std::string best;
  for (const auto &[path, count] : counts)
    if (2 * count > named && path.size() > best.size()) best = path;
  return best;
}

// The exported node: the problem calls further operations of a node "node:Op" and "node:Op.2".
std::string exportedNode(const planner::Node &node) {
  size_t at = node.name.rfind(":" + node.op);
  return at == std::string::npos ? node.name : node.name.substr(0, at);
}

struct Block {
  Names nodes;              // exported ones, in order
  std::set<int> parameters; // tensors

  Block(const planner::Problem &problem, int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const planner::Node &node = problem.nodes[size_t(i)];
      std::string name = exportedNode(node);
      if (std::find(nodes.begin(), nodes.end(), name) == nodes.end()) nodes.push_back(std::move(name));
      for (int operand : node.operands)
        if (problem.tensors[size_t(operand)].kind == planner::TensorKind::Parameter) parameters.insert(operand);
    }
  }

  std::string name(const planner::Problem &problem) const {
    Names names;
    for (int parameter : parameters) names.push_back(problem.tensors[size_t(parameter)].name);
    return commonPath(names.empty() ? nodes : names);
  }
};

} // namespace

std::vector<import_::RepeatedBlock> repeatedBlocks(const planner::Problem &problem) {
  std::vector<import_::RepeatedBlock> blocks;
  for (const planner::Repeat &repeat : problem.findRepeats()) {
    Block first(problem, repeat.first, repeat.first + repeat.period);
    Block last(problem, repeat.end() - repeat.period, repeat.end());
    if (first.nodes == last.nodes) continue; // a repetition inside one exported node
    import_::RepeatedBlock block;
    block.count = repeat.count;
    block.first = first.name(problem);
    block.last = last.name(problem);
    if (block.first == block.last) block.first = block.last = ""; // such a name does not tell blocks apart
    block.firstNodes = std::move(first.nodes);
    block.parameters = int64_t(first.parameters.size());
    for (int parameter : first.parameters) block.elements += problem.tensors[size_t(parameter)].elements();
    blocks.push_back(std::move(block));
  }
  return blocks;
}

} // namespace cleave
