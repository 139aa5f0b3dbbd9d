#include "runtime/train/prometheus_file.h"
#include "runtime/base/atomic_file.h"
#include "runtime/train/metric_values.h"
#include <cmath>
#include <fmt/format.h>
#include <tuple>

namespace cleave::runtime {
namespace {

std::string numberOf(const nlohmann::json &value) {
  if (!value.is_number_float()) return value.dump();
  const double number = value.get<double>();
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", number);
}

std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

// Keys with a name of the recipe's in them are series with a label: {"cleave_grad_norm_of_group", "{group=\"heads\"}"}.
std::pair<std::string, std::string> seriesOf(const std::string &key) {
  constexpr std::tuple<std::string_view, const char *, const char *> named[] = {
      {"grad_norm.", "cleave_grad_norm_of_group", "group"},
      {"loss.", "cleave_loss_of", "loss"},
      {"eval_loss.", "cleave_eval_loss_of", "loss"},
      {"eval_", "cleave_eval_metric", "metric"}};
  for (const auto &[prefix, name, label] : named)
    if (key.starts_with(prefix) && key != "eval_loss")
      return {name, fmt::format("{{{}=\"{}\"}}", label, escaped(key.substr(prefix.size())))};
  return {"cleave_" + key, ""};
}

} // namespace

void takeLatest(StepMetrics &latest, const StepMetrics &step) {
  StepMetrics before = std::exchange(latest, step);
  auto keep = [](auto &now, const auto &then) {
    if (!now) now = then;
  };
  keep(latest.gradNorm, before.gradNorm), keep(latest.evaluation, before.evaluation);
  keep(latest.lossScale, before.lossScale), keep(latest.skipped, before.skipped);
  for (const auto &[name, value] : before.named) keep(latest.named[name], value);
}

std::string prometheusText(const StepMetrics &latest) {
  if (latest.step == 0) return "# no step is done yet\n";
  std::string text, last;
  for (const auto &[key, meaning, value] : metricValues(latest)) {
    if (!value.is_number()) continue;
    const auto [name, label] = seriesOf(key);
    if (name != last) text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, meaning);
    last = name;
    text += fmt::format("{}{} {}\n", name, label, numberOf(value));
  }
  return text;
}

Status PrometheusFile::open(const std::string &where) {
  if (!where.ends_with(".prom"))
    return inputError(fmt::format("--prometheus {}: the node exporter reads files whose names end in .prom", where));
  path = where;
  return writeFileAtomically(prometheusText(latest), path);
}

Status PrometheusFile::write(const StepMetrics &metrics) {
  if (path.empty()) return Status::ok();
  takeLatest(latest, metrics);
  isWritten = false;
  return std::chrono::steady_clock::now() < next ? Status::ok() : flush();
}

// Not waited for until it is on the disk: after a crash of the machine nobody misses it.
Status PrometheusFile::flush() {
  if (path.empty() || isWritten) return Status::ok();
  constexpr auto apart = std::chrono::seconds(1);
  next = std::chrono::steady_clock::now() + apart;
  isWritten = true;
  CLEAVE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  CLEAVE_RETURN_IF_ERROR(file.write(prometheusText(latest)));
  return file.commit(/*isDurable=*/false);
}

} // namespace cleave::runtime
