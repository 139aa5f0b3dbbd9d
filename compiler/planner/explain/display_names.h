// Operations and tensors as a person who trains the model knows them: by PyTorch's modules, repetitions as one.
//
//   node_MatMul_283, which reads transformer.h.0.attn.c_attn.weight     transformer.h.0.attn.c_attn
//   node_Softmax_40, of the module transformer.h.0.attn                 transformer.h.0.attn (Softmax)
//   node_Mul_7, of which nothing is known                               node_Mul_7
#pragma once
#include "compiler/planner/problem/problem.h"
#include <functional>
#include <map>

namespace cleave::planner {

class DisplayNames {
public:
  explicit DisplayNames(const Problem &problem);
  const std::string &ofNode(int node) const { return nodes[size_t(node)]; }
  // The module that the node is of, or whose parameter it reads; "": nobody tells.
  const std::string &moduleOf(int node) const { return modules[size_t(node)]; }
  std::string moduleOf(const std::string &node) const;
  // By the name of a node or a parameter, "a+b" of several; any other name is itself. `alike`: with its repetitions in
  // so many blocks.
  std::string of(const std::string &name, int64_t alike = 1) const;
  // The same for all repetitions of a node or parameter: the name of the first.
  std::string firstOf(const std::string &name) const;
  // A text with `shown(name)` in place of every word that names a node or a parameter.
  std::string replaced(const std::string &text, const std::function<std::string(const std::string &)> &shown) const;
  int64_t repetitions(const std::string &name) const;

private:
  std::vector<std::string> nodeNames, nodes, modules; // by node; nodes: as they are shown
  struct Place {
    int node = -1, operand = -1; // operand: of a parameter
  };
  std::map<std::string, Place> places; // by name
  std::vector<Repeat> repeats;
  const std::string &shown(const Place &place, const std::string &name) const;
  std::vector<int> repetitionsOf(int node) const;
  // The name of one node or parameter, without "+". Repetitions are folded ("h.0..11.mlp"), or counted ("(12 x)").
  std::string ofSingleName(const std::string &name, int64_t alike) const;
  std::vector<std::vector<std::string>> operands; // of each node: names of parameters, "" of the others
};

} // namespace cleave::planner
