#include "compiler/recipe/parts.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace cleave::recipe {
namespace {

bool isBinary(const Loss &loss) { return loss.kind == LossKind::Bce || loss.kind == LossKind::BceWithLogits; }

void readMetricKind(MapReader &reader, Metric &metric) {
  std::string word;
  reader.text("kind", word);
  if (word.starts_with("top_")) {
    const char *end = word.data() + word.size();
    const auto [rest, failure] = std::from_chars(word.data() + 4, end, metric.k);
    if (failure != std::errc() || rest != end || metric.k < 1)
      reader.fail("kind", fmt::format("the metric '{}' must be top_K with a number, such as top_5", word));
    metric.kind = MetricKind::TopK;
    return;
  }
  reader.word("kind", metric.kind);
}

// Errors: a kind that the loss has no numbers for.
void checkMetric(MapReader &reader, const Metric &metric, const Loss &loss) {
  using M = MetricKind;
  using K = LossKind;
  const bool hasClasses = loss.kind == K::SoftmaxCrossEntropy || loss.kind == K::Nll || loss.kind == K::MultiMargin;
  auto fail = [&](const std::string &why) {
    reader.fail("kind", fmt::format("the metric '{}' {}; the loss is {}", toString(metric), why, toString(loss.kind)));
  };
  if (metric.kind == M::Mean && !metric.output) reader.fail("output", "the metric 'mean' needs an 'output' of the graph");
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
  reader.text("loss", name);
  const auto found = std::ranges::find(losses, name, &Loss::name);
  if (found == losses.end() || name.empty())
    reader.fail("loss", fmt::format("the metric '{}' is of the loss '{}', and none is called so", toString(metric), name));
  metric.loss = static_cast<size_t>(found - losses.begin());
}

void readMetric(MapReader reader, const std::vector<Loss> &losses, Metric &metric) {
  if (!reader.has("kind")) reader.fail("kind", "each of 'eval.metrics' is a word, such as accuracy, or a map with a 'kind'");
  readMetricKind(reader, metric);
  for (auto [key, value] : {std::pair("output", &metric.output), std::pair("labels", &metric.labels)})
    if (reader.has(key)) reader.text(key, value->emplace());
  if (metric.labels && !metric.output) reader.fail("labels", "a metric with 'labels' needs the 'output' that it reads");
  metric.name = metric.kind == MetricKind::Mean && metric.output ? *metric.output : toString(metric);
  reader.text("name", metric.name);
  if (metric.name.empty() || metric.name == "loss" || !isPlainName(metric.name))
    reader.fail("name", fmt::format("the metric '{}' needs a 'name' of letters, digits, '_' and '-', other than loss",
                                    metric.name));
  metric.where = reader.where("kind");
  readLossOf(reader, losses, metric);
  const Loss &loss = losses[metric.loss];
  checkMetric(reader, metric, loss);
  metric.isBinary = isBinary(loss) && !metric.labels;
  reader.finish();
}

} // namespace

void readEval(Source &source, MapReader reader, const std::vector<Loss> &losses, Eval &eval) {
  reader.integer("every", eval.every, {.least = 0});
  reader.integer("batches", eval.batches, {.least = 1});
  if (reader.has("metrics")) {
    if (!reader.node("metrics").IsSequence()) reader.fail("metrics", "'eval.metrics' must be a list, such as [accuracy]");
    for (YAML::Node entry : reader.node("metrics")) {
      YAML::Node map(YAML::NodeType::Map);
      map["kind"] = entry;
      Metric metric;
      readMetric(MapReader(source, "eval.metrics", entry.IsScalar() ? map : entry), losses, metric);
      if (std::ranges::find(eval.metrics, metric.name, &Metric::name) != eval.metrics.end())
        reader.fail("metrics", fmt::format("two of 'eval.metrics' are called '{}': give one a 'name'", metric.name));
      eval.metrics.push_back(std::move(metric));
    }
  }
  reader.text("monitor", eval.monitor);
  if (eval.monitor != "loss") {
    const auto found = std::ranges::find(eval.metrics, eval.monitor, &Metric::name);
    if (found == eval.metrics.end())
      reader.fail("monitor", fmt::format("'eval.monitor' must be loss or one of 'eval.metrics', is '{}'", eval.monitor));
    if (found->kind == MetricKind::Confusion || found->kind == MetricKind::Mean)
      reader.fail("monitor", fmt::format("'eval.monitor' cannot judge by a metric of kind {}", toString(*found)));
  }
  reader.integer("patience", eval.patience, {.least = 0});
  reader.number("min_delta", eval.minDelta, {.least = 0});
  if (eval.every == 0 && eval.patience > 0) reader.fail("patience", "'eval.patience' needs evaluations: 'eval.every'");
  reader.finish();
}

} // namespace cleave::recipe
