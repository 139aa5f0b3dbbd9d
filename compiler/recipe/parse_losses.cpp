#include "compiler/recipe/keys.h"
#include "compiler/recipe/parts.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::recipe {
namespace {

void readLabels(MapReader &loss, Labels &labels) {
  if (loss.has("labels") && loss.node("labels").IsScalar()) return loss.text("labels", labels.name);
  MapReader reader = loss.map("labels");
  reader.text("name", labels.name);
  if (reader.has("dtype")) reader.text("dtype", labels.dtype.emplace());
  if (reader.has("shape")) reader.texts("shape", labels.shape.emplace());
  if (reader.has("output")) reader.text("output", labels.output.emplace());
  for (const char *key : {"name", "dtype", "shape"})
    if (labels.output && reader.has(key))
      reader.fail(key,
                  fmt::format("'loss.labels.{}' is of an input, and these labels are an output; leave it out", key));
  static const std::vector<std::string> types = {"int64", "int32", "float32", "float64"};
  if (labels.dtype && std::find(types.begin(), types.end(), *labels.dtype) == types.end())
    reader.unknownWord("dtype", *labels.dtype, types);
  reader.finish();
}

// What a loss reads: outputs of the graph, and labels.
void readOperands(MapReader &reader, Loss &loss) {
  if (reader.has("output") && reader.node("output").IsScalar())
    reader.text("output", loss.outputs.emplace_back());
  else
    reader.texts("output", loss.outputs);
  const size_t count = outputsOf(loss.kind);
  if (loss.outputs.size() != count && !(loss.outputs.empty() && count == 1))
    reader.fail("output", fmt::format("'loss' of kind {} reads {}", toString(loss.kind),
                                      count == 1   ? "one 'output'"
                                      : count == 2 ? "two outputs: 'output: [NAME, NAME]'"
                                                   : "three outputs: 'output: [ANCHOR, POSITIVE, NEGATIVE]'"));
  readLabels(reader, loss.labels);
  const bool isPlain = !loss.labels.dtype && !loss.labels.shape && !loss.labels.output;
  if (loss.kind == LossKind::Output && !isPlain)
    reader.fail("labels", "'loss.labels' of kind output is the name of the graph's input alone");
  if (loss.kind == LossKind::Ctc && (!loss.labels.shape || loss.labels.output))
    reader.fail("labels", "'loss' of kind ctc needs the shape of its targets, such as labels: {name: targets, shape: "
                          "[batch, 20]}");
  if (loss.kind == LossKind::Ctc && loss.labels.dtype && loss.labels.dtype->starts_with("float"))
    reader.fail("labels", "'loss.labels' of kind ctc are class numbers, integers");
  reader.text("input_lengths", loss.inputLengths);
  reader.text("target_lengths", loss.targetLengths);
}

void readLoss(MapReader reader, Loss &loss) {
  if (!reader.has("kind")) reader.fail("kind", "'loss' needs a 'kind', such as softmax_cross_entropy");
  reader.word("kind", loss.kind);
  loss.where = reader.where("kind");
  reader.checkUses(toString(loss.kind));
  reader.text("name", loss.name);
  if (!isPlainName(loss.name))
    reader.fail("name", fmt::format("'loss.name' is of letters, digits, '_' and '-', not '{}'", loss.name));
  reader.number("scale", loss.scale);
  readOperands(reader, loss);
  const bool isSoft = loss.labels.dtype && loss.labels.dtype->starts_with("float");
  if (isSoft && reader.has("ignore_index"))
    reader.fail("ignore_index", "'loss.ignore_index' is a class, and these labels are probabilities; leave it out");
  const bool overClasses = useFault("loss.ignore_index", toString(loss.kind)).empty();
  if (overClasses && !isSoft && !reader.isNull("ignore_index")) loss.ignoreIndex = -100;
  if (reader.has("ignore_index")) reader.integer("ignore_index", loss.ignoreIndex.emplace());
  reader.number("label_smoothing", loss.labelSmoothing, {.least = 0, .most = 1});
  reader.word("reduction", loss.reduction);
  reader.integer("axis", loss.axis);
  reader.number("delta", loss.huberDelta, {.above = 0});
  reader.numbers("weight", loss.weight, {.least = 0});
  if (reader.has("pos_weight") && reader.node("pos_weight").IsScalar())
    reader.number("pos_weight", loss.posWeight.emplace_back(), {.least = 0});
  else
    reader.numbers("pos_weight", loss.posWeight, {.least = 0});
  reader.number("z_loss", loss.zLoss, {.least = 0});
  reader.boolean("log_target", loss.logTarget);
  const bool isCosine = loss.kind == LossKind::CosineEmbedding;
  loss.margin = isCosine || loss.kind == LossKind::MarginRanking ? 0 : 1; // PyTorch's
  reader.number("margin", loss.margin, isCosine ? Range{.least = -1, .most = 1} : Range{});
  loss.p = loss.kind == LossKind::MultiMargin ? 1 : 2;
  reader.integer("p", loss.p, {.least = 1, .most = 2});
  reader.number("eps", loss.eps, {.least = 0});
  reader.boolean("swap", loss.swap);
  reader.integer("blank", loss.blank, {.least = 0});
  reader.boolean("zero_infinity", loss.zeroInfinity);
  if (loss.zLoss > 0 && !loss.weight.empty())
    reader.fail("z_loss", "'loss.z_loss' counts all labels alike, and 'loss.weight' does not: leave one out");
  if (loss.reduction == Reduction::BatchMean && loss.kind != LossKind::KlDiv)
    reader.fail("reduction", fmt::format("'loss.reduction' batchmean is for kl_div, this is {}", toString(loss.kind)));
  reader.finish();
}

} // namespace

void readLosses(MapReader &recipe, Source &source, std::vector<Loss> &losses) {
  const YAML::Node node = recipe.node("loss");
  if (!node.IsSequence()) {
    Loss &loss = losses.front();
    readLoss(recipe.map("loss"), loss);
    for (const char *key : {"name", "scale"})
      if (source.given->count(fmt::format("loss.{}", key)))
        recipe.fail("loss", fmt::format("'loss.{}' is of one in a list of losses: write loss: [{{kind: {}, ...}}]", key,
                                        toString(loss.kind)));
    return;
  }
  losses.clear();
  for (const auto &entry : node) readLoss(MapReader(source, "loss", entry), losses.emplace_back());
  if (losses.empty()) recipe.fail("loss", "'loss' lists none");
  std::set<std::string> names;
  for (Loss &loss : losses) {
    if (loss.name.empty()) loss.name = toString(loss.kind);
    if (!names.insert(loss.name).second)
      throw Fault{fmt::format("{}: two losses are called '{}': give each a 'name'", loss.where, loss.name)};
    const bool isGraphs = loss.kind == LossKind::Output;
    if (isGraphs && std::ranges::count(losses, LossKind::Output, &Loss::kind) > 1)
      throw Fault{fmt::format("{}: one loss of a list may be of kind output; add up several in the graph", loss.where)};
  }
}

} // namespace cleave::recipe
