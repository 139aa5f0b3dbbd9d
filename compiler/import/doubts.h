// What cannot be known from a file and would change the numbers: `cleave compile` ends with these, unless the recipe
// settles them or --accept-doubts takes what is concluded here.
//
//     'mean', 'std': read beside the model's input, before any weight: numbers that normalise the data, or parameters?
//     Taken as constants; the recipe's `roles: {"mean": buffer, "std": buffer}` says what they are
#pragma once
#include <string>
#include <vector>

namespace cleave::import_ {

struct Doubt {
  std::string kind; // what is not known, the same text for all tensors of a kind
  std::string name; // of a tensor, module or node
  std::string settled; // by "buffer", "parameter" or "computed" of `roles`, "frozen", "ties", "accept"; by the "batch" of
                       // another export, or "": another export
};

// The kinds, as they follow the names.
namespace doubts {
inline constexpr char
    table[] = "a table of positions or a mask that trains, or a frozen one? It is taken as frozen",
    ofData[] =
        "read beside the model's input, before any weight: numbers that normalise the data, or parameters? Taken "
        "as constants",
    unknown[] = "parameters or buffers? Neither names nor readers tell",
    folded[] = "read like weights, but written as constants by the exporter: they do not train",
    computed[] = "parameters that train as what the exporter computed from them",
    lost[] = "parameters that do not train, since the exporter computed constants from them",
    partial[] = "parameters that lose a part of their gradient, since the exporter computed constants from them",
    leftOut[] = "parameters that do not train, since the exporter left them out, being zero or neutral",
    merged[] =
        "parameters that the exporter lists and that are not in the file, where operations were merged with equal "
        "ones: what they computed may train as another's",
    foldedNorm[] = "BatchNorms in train() that the exporter folded into the layers before them: the statistics of the "
                   "batch are lost",
    foldedUnknown[] =
        "BatchNorms that the exporter folded into the layers before them: it does not say whether they were "
        "in train(), and their scales do not train",
    foldedInit[] =
        "BatchNorms that the exporter folded into the layers before them: a checkpoint's weights are not the "
        "folded ones",
    detached[] = "the gradient ends here in PyTorch, and the file has no node for it: it goes on",
    lostOperation[] =
        "sums, products or powers that the exporter left out, since they changed nothing: a parameter may be "
        "lost with them",
    computedOperand[] =
        "numbers that were computed from a parameter, perhaps, and that the exporter merged with an equal "
        "parameter: they do not train",
    drawnMask[] = "a random mask that is no dropout: the recipe's `dropout` does not reach it, and evaluation draws it, "
                  "too",
    otherBatch[] = "a batch size for which the module's forward takes another way than the file",
    shared[] = "read by several layers: one parameter, or several that began with equal numbers?";
} // namespace doubts

struct DoubtsOfKind {
  std::string text; // one line: the first names, and the line of the recipe that settles it
  std::vector<std::string> tensors;
};
std::vector<DoubtsOfKind> byKind(const std::vector<Doubt> &doubts);

} // namespace cleave::import_
