#include "compiler/recipe/schema.h"
#include <charconv>

namespace cleave::recipe {
namespace {

bool isBinary(const Loss &loss) { return loss.kind == LossKind::Bce || loss.kind == LossKind::BceWithLogits; }

void readMetricKind(MapReader &reader, const Key<Metric> &, Metric &metric) {
  std::string word;
  reader.read("kind", word);
  if (word.starts_with("top_")) {
    const char *end = word.data() + word.size();
    const auto [rest, failure] = std::from_chars(word.data() + 4, end, metric.k);
    if (failure != std::errc() || rest != end || metric.k < 1)
      reader.fail("kind", fmt::format("the metric '{}' must be top_K with a number, such as top_5", word));
    metric.kind = MetricKind::TopK;
    return;
  }
  reader.read("kind", metric.kind);
}

// Errors: a kind that the loss has no numbers for.
void checkMetric(MapReader &reader, const Metric &metric, const Loss &loss) {
  using M = MetricKind;
  using K = LossKind;
  const bool hasClasses = loss.kind == K::SoftmaxCrossEntropy || loss.kind == K::Nll || loss.kind == K::MultiMargin;
  auto fail = [&](const std::string &why) {
    reader.fail("kind", fmt::format("the metric '{}' {}; the loss is {}", toString(metric), why, toString(loss.kind)));
  };
  if (metric.kind == M::Mean && !metric.output)
    reader.fail("output", "the metric 'mean' needs an 'output' of the graph");
  if (metric.kind == M::Mean && metric.labels) reader.fail("labels", "the metric 'mean' reads no labels");
  if (metric.kind == M::Perplexity) {
    if (metric.output || metric.labels)
      reader.fail("kind", "the metric 'perplexity' is the exponential of the loss: it takes no output and no labels");
    if (loss.kind != K::SoftmaxCrossEntropy && loss.kind != K::Nll && loss.kind != K::Output)
      fail("is the exponential of a cross-entropy");
    if (loss.labelSmoothing != 0 || loss.zLoss != 0 || !loss.weight.empty() || loss.reduction != Reduction::Mean)
      fail("is the exponential of a mean cross-entropy without label_smoothing, z_loss and weight");
  }
  if (metric.labels || metric.kind == M::Mean || metric.kind == M::Perplexity) return;
  if (loss.kind == K::Output) fail("needs 'output' and 'labels': an output of the graph and one of its inputs");
  if (metric.kind == M::MeanAbsoluteError && hasClasses) fail("compares numbers, and labels are classes");
  if (metric.kind == M::TopK && !hasClasses) fail("needs labels that are classes");
  if (metric.kind != M::MeanAbsoluteError && !hasClasses && !isBinary(loss)) fail("needs labels that are classes");
}

// Which of several losses it is of. Error: it does not say so, and reads that loss's output or labels.
void readLossOf(MapReader &reader, const std::vector<Loss> &losses, Metric &metric) {
  const bool isOwn = metric.output && (metric.labels || metric.kind == MetricKind::Mean);
  if (!reader.has("loss")) {
    if (losses.size() > 1 && !isOwn)
      reader.fail("loss", fmt::format("the metric '{}' needs 'loss', the name of one of the losses", toString(metric)));
    return;
  }
  std::string name;
  reader.read("loss", name);
  const auto found = std::ranges::find(losses, name, &Loss::name);
  if (found == losses.end() || name.empty())
    reader.fail("loss",
                fmt::format("the metric '{}' is of the loss '{}', and none is called so", toString(metric), name));
  metric.loss = static_cast<size_t>(found - losses.begin());
}

void checkMetricOf(MapReader &reader, Metric &metric) {
  if (metric.labels && !metric.output) reader.fail("labels", "a metric with 'labels' needs the 'output' that it reads");
  if (!reader.has("name"))
    metric.name = metric.kind == MetricKind::Mean && metric.output ? *metric.output : toString(metric);
  if (metric.name.empty() || metric.name == "loss" || !isPlainName(metric.name))
    reader.fail("name", fmt::format("the metric '{}' needs a 'name' of letters, digits, '_' and '-', other than loss",
                                    metric.name));
  const std::vector<Loss> &losses = reader.recipe().losses;
  readLossOf(reader, losses, metric);
  const Loss &loss = losses[metric.loss];
  checkMetric(reader, metric, loss);
  metric.isBinary = isBinary(loss) && !metric.labels;
}

void writeMetricKind(MapWriter &writer, const Key<Metric> &, const Metric &metric) {
  writer.write("kind", toString(metric), {.words = "accuracy"});
}

// The runtime reads no losses: it is told what their labels are.
void writeLossOf(MapWriter &writer, const Key<Metric> &key, const Metric &metric) {
  if (writer.recipe.sumsLosses()) writer.write(key.name, writer.recipe.losses[metric.loss].name);
  if (writer.isForRuntime && metric.isBinary) writer.write("binary", true);
}

// A word is a map of the kind alone.
void readMetrics(MapReader &reader, const Key<Eval> &key, Eval &eval) {
  if (!reader.has(key.name)) return;
  YAML::Node metrics = reader.node(key.name);
  if (!metrics.IsSequence()) reader.fail(key.name, "'eval.metrics' must be a list, such as [accuracy]");
  for (YAML::Node entry : metrics) {
    YAML::Node map(YAML::NodeType::Map);
    map["kind"] = entry;
    Metric metric;
    readMap(reader.entry(key.name, entry.IsScalar() ? map : entry), Schema<Metric>::of, metric);
    if (std::ranges::find(eval.metrics, metric.name, &Metric::name) != eval.metrics.end())
      reader.fail(key.name, fmt::format("two of 'eval.metrics' are called '{}': give one a 'name'", metric.name));
    eval.metrics.push_back(std::move(metric));
  }
}

void checkEval(MapReader &reader, Eval &eval) {
  if (eval.monitor != "loss") {
    const auto found = std::ranges::find(eval.metrics, eval.monitor, &Metric::name);
    if (found == eval.metrics.end())
      reader.fail("monitor",
                  fmt::format("'eval.monitor' must be loss or one of 'eval.metrics', is '{}'", eval.monitor));
    if (found->kind == MetricKind::Confusion || found->kind == MetricKind::Mean)
      reader.fail("monitor", fmt::format("'eval.monitor' cannot judge by a metric of kind {}", toString(*found)));
  }
  if (eval.every == 0 && eval.patience > 0) reader.fail("patience", "'eval.patience' needs evaluations: 'eval.every'");
}

} // namespace

// clang-format off
template <> const Schema<Metric> Schema<Metric>::of = {.keys = {
    {"kind", at<&Metric::kind>.readBy(readMetricKind).writtenBy(writeMetricKind), "`accuracy`, `top_K` (as `top_5`), `f1`, `confusion`, `mae`, `perplexity`, or `mean` of an output", "required", {.required = "each of 'eval.metrics' is a word, such as accuracy, or a map with a 'kind'"}},
    {"name", at<&Metric::name>, "its name in the metrics: `eval_NAME`", "the kind; of `mean` the output"},
    {"loss", {.read = [](MapReader &, const Key<Metric> &, Metric &) {}, .write = writeLossOf}, "of several losses the one whose output and labels it compares", "required there"},
    {"output", at<&Metric::output>, "the graph output that it reads", "the loss's"},
    {"labels", at<&Metric::labels>, "the model's input that it compares the output with", "the loss's labels"},
}, .check = checkMetricOf};
template <> const Schema<Eval> Schema<Eval>::of = {.keys = {
    {"every", at<&Eval::every>, "steps between two evaluations; 0: none", "0", {.range = {.min = 0}}},
    {"batches", at<&Eval::batches>, "batches of one evaluation", "10", {.range = {.min = 1}}},
    {"metrics", at<&Eval::metrics>.readBy(readMetrics), "a list of what is measured beside the loss ([below](#evaluation))", "none", {.isQuiet = true}},
    {"monitor", at<&Eval::monitor>, "`loss`, or the metric by which `run --keep-best` and `patience` judge", "`loss`", {.isQuiet = true}},
    {"patience", at<&Eval::patience>, "evaluations in a row without a better one, after which the run ends (early stopping); 0: never", "0", {.range = {.min = 0}, .isQuiet = true}},
    {"min_delta", at<&Eval::minDelta>, "how much better one has to be", "0", {.range = {.min = 0}}},
}, .check = checkEval, .isWritten = [](const Eval &eval, std::string_view key) { return key != "min_delta" || eval.patience > 0; }};
// clang-format on

} // namespace cleave::recipe
