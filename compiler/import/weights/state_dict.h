// The names that PyTorch's state_dict has for a model's tensors, and how each entry lies in the model's own tensors.
//
//     entry                       parameter   form
//     ln_f.bias [32]              ln_f.bias   as it is
//     h.0.attn.q_proj.weight      val_8       transposed: the exporter wrote [in, out], PyTorch has [out, in]
//     wte.weight, lm_head.weight  wte.weight  both: they are tied
//     rnn.weight_ih_l0 [48, 8]    val_111     elements 0..96, 192..384, 96..192: ONNX has its gates in another order
//     out_proj.bias [32]          none        zeros: the exporter left it out
//
// PyTorch's `dynamo` exporter lists the whole state_dict, and says for every node which of its entries the operation
// reads. TorchScript says it by the names of initializers, and by the module in a node's name. Models of other origins
// keep their own names.
#pragma once
#include "compiler/import/flatten.h"
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace cleave::import_ {

struct RuleContext;
struct ParameterTable;

struct ElementRange {
  int64_t begin = 0, count = 0; // of the row-major tensor
};

struct StateEntry {
  enum class Source {
    Parameter,
    Fill,   // `fill` everywhere
    Updates // how many steps have moved the running statistics of its module
  };
  std::string key;
  Source source = Source::Parameter;
  size_t parameter = 0;             // in ParameterTable::parameters
  std::vector<int64_t> shape;       // PyTorch's
  bool isTransposed = false;        // the parameter is the transpose of this matrix
  std::vector<ElementRange> ranges; // of the parameter, one behind the other; empty: all of it
  bool isPart = false;              // some rows of a longer table
  bool isReshaped = false;          // PyTorch may have other dimensions, of as many elements
  bool isGuess = false;             // nothing but its module, or the exporter, says what it is called
  bool isCopy = false;              // tied to an entry before it
  double fill = 0;
  int64_t updates = 1;              // of Updates: in a step, as often as its module runs
};

struct StateDict {
  std::vector<StateEntry> entries; // in the order of the state_dict, as far as that is known
  std::vector<std::string> absent; // keys that the exporter lists and the file has nothing of
  std::vector<std::string> folded; // layers that hold a BatchNorm after them, of which nothing else is left
  std::vector<size_t> computed;    // weights of layers that a trace names where it does not compute them (weight_norm)
  std::vector<std::string> norms;  // modules of BatchNorms that were folded, written as norms that change nothing
  std::vector<std::string> notes;  // what cannot be exported, or only as a guess
  bool isOfFile = false;           // nothing tells PyTorch's names and shapes: these are the file's
};

StateDict stateDictOf(const RuleContext &context, const ParameterTable &table);
void finishState(StateDict &state); // tied entries, notes of absent ones
// Parameters and running statistics under their names in the file, each once, as they lie there.
StateDict fileNames(const ParameterTable &table);

// --- for the two ways of naming -------------------------------------------------------------------------------------

StateDict listedStateDict(const RuleContext &context, const ParameterTable &table);
StateDict tracedStateDict(const RuleContext &context, const ParameterTable &table);

// A parameter as it lies, or, a matrix, transposed.
StateEntry entryOf(const ParameterTable &table, size_t parameter, bool isTransposed);

// Entries of a recurrent node's operand (1: W [directions, gates * hidden, in], 2: R, 3: B) of layer `layer` of
// `module`: PyTorch's order of gates, one entry a direction; of B two, bias_ih and bias_hh. None where the shape is not
// theirs.
std::vector<StateEntry> recurrentEntries(const std::string &op, int operand, const std::vector<int64_t> &shape,
                                         const std::string &module, int layer);

// [n] of [1, n, 1]: what a vector is given to meet an image; other shapes are their own.
std::vector<int64_t> vectorShape(const std::vector<int64_t> &shape);

std::string moduleOfKey(const std::string &key); // "h.0.ln" of "h.0.ln.weight"; "" of "scale"
std::string leafOfKey(const std::string &key);   // "weight"

} // namespace cleave::import_
