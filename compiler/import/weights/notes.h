// Lines for ParameterTable::notes: how the exporter's tensors became parameters, where a person would be surprised.
#pragma once
#include "compiler/import/weights/parameters.h"
#include <set>

namespace cleave::import_ {

// A parameter that trains as what the exporter computed from it.
struct Computed {
  std::string origin, computed;
  bool isKept = false; // the file has the origin too
};

struct Computations {
  std::vector<Computed> changed;
  std::set<std::string> lost;    // parameters of which there is a constant only
  std::set<std::string> leftOut; // biases that were zero
};

// A glob over modules may name a layer's bias and miss its weight, which the exporter called otherwise.
void noteBiasesAlone(ParameterTable &table);
// TorchScript tells no buffers from parameters. A parameter that is only added or multiplied keeps its name, unless
// something was folded into it.
void noteAnonymous(const FlatGraph &flat, ParameterTable &table);
// The meaning of the exporter's computations, one line for all parameters that train as something else, one for those
// that do not.
void noteComputed(const Computations &all, ParameterTable &table);

} // namespace cleave::import_
