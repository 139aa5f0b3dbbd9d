#include "compiler/recipe/schema.h"

namespace cleave::recipe {
namespace {

void checkLabels(MapReader &reader, Labels &labels) {
  for (const char *key : {"name", "dtype", "shape"})
    if (labels.output && reader.has(key))
      reader.fail(key,
                  fmt::format("'loss.labels.{}' is of an input, and these labels are an output; leave it out", key));
}

void readLabels(MapReader &loss, const Key<Loss> &key, Loss &to) {
  if (loss.has(key.name) && loss.node(key.name).IsScalar()) return loss.read(key.name, to.labels.name);
  readValue(loss, key.name, key.rule, to.labels);
}

bool areProbabilities(const Labels &labels) { return labels.dtype && labels.dtype->starts_with("float"); }

void readIgnoreIndex(MapReader &reader, const Key<Loss> &key, Loss &loss) {
  const bool isSoft = areProbabilities(loss.labels);
  if (isSoft && reader.has(key.name))
    reader.fail(key.name, "'loss.ignore_index' is a class, and these labels are probabilities; leave it out");
  if (isOneOf(key.rule.kinds, toString(loss.kind)) && !isSoft && !reader.isNull(key.name)) loss.ignoreIndex = -100;
  readValue(reader, key.name, key.rule, loss.ignoreIndex);
}

void writeIgnoreIndex(MapWriter &writer, const Key<Loss> &key, const Loss &loss) {
  if (!loss.ignoreIndex) return writer.null(key.name);
  writer.write(key.name, *loss.ignoreIndex);
}

// The defaults are PyTorch's.
void startLoss(MapReader &reader, Loss &loss) {
  reader.read("kind", loss.kind);
  reader.checkUses(toString(loss.kind));
  loss.margin = loss.kind == LossKind::CosineEmbedding || loss.kind == LossKind::MarginRanking ? 0 : 1;
  loss.p = loss.kind == LossKind::MultiMargin ? 1 : 2;
}

// What a loss reads: outputs of the graph, and labels.
void checkOperands(MapReader &reader, const Loss &loss) {
  const size_t count = outputsOf(loss.kind);
  if (loss.outputs.size() != count && !(loss.outputs.empty() && count == 1))
    reader.fail("output", fmt::format("'loss' of kind {} reads {}", toString(loss.kind),
                                      count == 1   ? "one 'output'"
                                      : count == 2 ? "two outputs: 'output: [NAME, NAME]'"
                                                   : "three outputs: 'output: [ANCHOR, POSITIVE, NEGATIVE]'"));
  const bool isPlain = !loss.labels.dtype && !loss.labels.shape && !loss.labels.output;
  if (loss.kind == LossKind::Output && !isPlain)
    reader.fail("labels", "'loss.labels' of kind output is the name of the graph's input alone");
  if (loss.kind == LossKind::Ctc && (!loss.labels.shape || loss.labels.output))
    reader.fail("labels", "'loss' of kind ctc needs the shape of its targets, such as labels: {name: targets, shape: "
                          "[batch, 20]}");
  if (loss.kind == LossKind::Ctc && areProbabilities(loss.labels))
    reader.fail("labels", "'loss.labels' of kind ctc are class numbers, integers");
}

void checkLoss(MapReader &reader, Loss &loss) {
  if (!isPlainName(loss.name))
    reader.fail("name", fmt::format("'loss.name' is of letters, digits, '_' and '-', not '{}'", loss.name));
  checkOperands(reader, loss);
  if (loss.kind == LossKind::CosineEmbedding) reader.read("margin", loss.margin, {.range = {.min = -1, .max = 1}});
  if (loss.zLoss > 0 && !loss.weight.empty())
    reader.fail("z_loss", "'loss.z_loss' counts all labels alike, and 'loss.weight' does not: leave one out");
  if (loss.reduction == Reduction::BatchMean && loss.kind != LossKind::KlDiv)
    reader.fail("reduction", fmt::format("'loss.reduction' batchmean is for kl_div, this is {}", toString(loss.kind)));
}

} // namespace

// clang-format off
template <> const Schema<Labels> Schema<Labels>::of = {.keys = {
    {"name", at<&Labels::name>, "the input's name; several losses may share it", "`labels`"},
    {"dtype", at<&Labels::dtype>, "`int64`, `int32`, `float32`, `float64`", "follows from the loss", {.words = "int64 int32 float32 float64"}},
    {"shape", at<&Labels::shape>, "a list of sizes and of names that `dims` binds; `ctc` needs it: [batch, longest target]", "follows from the loss"},
    {"output", at<&Labels::output>, "a graph output in place of an input, such as a teacher's; it gets no gradient", "none"},
}, .check = checkLabels, .isWritten = [](const Labels &labels, std::string_view key) { return !labels.output || key == "output"; }};

template <> const Schema<Loss> Schema<Loss>::of = {.keys = {
    {"kind", at<&Loss::kind>, "`softmax_cross_entropy`, `nll`, `multi_margin`, `bce`, `bce_with_logits`, `mse`, `l1`, `huber`, `kl_div`, `hinge_embedding`, `cosine_embedding`, `margin_ranking`, `triplet`, `ctc`, each PyTorch's loss of that name, or `output`: the graph computes the loss", "required", {.required = "'loss' needs a 'kind', such as softmax_cross_entropy"}},
    {"name", at<&Loss::name>, "of one in a list: its metric is `loss.NAME`", "the kind"},
    {"scale", at<&Loss::scale>, "of one in a list: what it counts in the sum", "1"},
    {"output", at<&Loss::outputs>, "the graph output that the loss reads; `cosine_embedding` and `margin_ranking` read a list of two, `triplet` of three: anchor, positive, negative", "the only one", {.isQuiet = true, .takesOne = true}},
    {"labels", at<&Loss::labels>.readBy(readLabels), "the new input: its name, or a map of `name`, `dtype` and `shape`", "`labels`", {.kinds = "softmax_cross_entropy nll multi_margin bce bce_with_logits mse l1 huber kl_div hinge_embedding cosine_embedding margin_ranking ctc output"}},
    {"ignore_index", at<&Loss::ignoreIndex>.readBy(readIgnoreIndex).writtenBy(writeIgnoreIndex), "label that does not count; `null`: none", "-100", {.kinds = "softmax_cross_entropy nll"}},
    {"label_smoothing", at<&Loss::labelSmoothing>, "as in PyTorch, 0 to 1", "0", {.range = {.min = 0, .max = 1}, .kinds = "softmax_cross_entropy"}},
    {"reduction", at<&Loss::reduction>, "`mean`, `sum`; `kl_div` also `batchmean`: over the batch", "`mean`"},
    {"axis", at<&Loss::axis>, "axis of the classes", "-1", {.kinds = "softmax_cross_entropy nll multi_margin"}},
    {"delta", at<&Loss::huberDelta>, "where the square ends", "1", {.range = {.above = 0}, .kinds = "huber"}},
    {"weight", at<&Loss::weight>, "a weight for each class. A mean divides by the weights of the labels, as in PyTorch (`multi_margin`: by the batch)", "1 each", {.range = {.min = 0}, .kinds = "softmax_cross_entropy nll multi_margin", .isQuiet = true}},
    {"pos_weight", at<&Loss::posWeight>, "what positives count, one number or one for each entry of the last dimension", "1", {.range = {.min = 0}, .kinds = "bce_with_logits", .isQuiet = true, .takesOne = true}},
    {"z_loss", at<&Loss::zLoss>, "adds this times (log Σ eˣ)² of each label, which keeps logits small", "0", {.range = {.min = 0}, .kinds = "softmax_cross_entropy", .isQuiet = true}},
    {"log_target", at<&Loss::logTarget>, "`true`: labels are logarithms, as the output is", "`false`", {.kinds = "kl_div"}},
    {"margin", at<&Loss::margin>, "as in PyTorch", "0; `hinge_embedding`, `multi_margin`, `triplet` 1", {.kinds = "hinge_embedding cosine_embedding margin_ranking multi_margin triplet"}},
    {"p", at<&Loss::p>, "norm of the distance, or power of each term: 1 or 2", "2; `multi_margin` 1", {.range = {.min = 1, .max = 2}, .kinds = "triplet multi_margin"}},
    {"eps", at<&Loss::eps>, "added to each difference of two embeddings", "1e-6", {.range = {.min = 0}, .kinds = "triplet"}},
    {"swap", at<&Loss::swap>, "`true`: the positive's distance to the negative counts where it is smaller", "`false`", {.kinds = "triplet"}},
    {"blank", at<&Loss::blank>, "class of the blank", "0", {.range = {.min = 0}, .kinds = "ctc"}},
    {"zero_infinity", at<&Loss::zeroInfinity>, "`true`: a target that is too long for its input counts 0, without gradient, not infinity", "`false`", {.kinds = "ctc"}},
    {"input_lengths", at<&Loss::inputLengths>, "name of the input with the steps that count of each sample", "`input_lengths`", {.kinds = "ctc"}},
    {"target_lengths", at<&Loss::targetLengths>, "name of the input with the labels of each sample", "`target_lengths`", {.kinds = "ctc"}},
}, .start = startLoss, .check = checkLoss, .kind = [](const Loss &loss) { return toString(loss.kind); },
   .isWritten = [](const Loss &loss, std::string_view key) {
     return !loss.name.empty() || (key != "name" && key != "scale");
   }};
// clang-format on

} // namespace cleave::recipe
