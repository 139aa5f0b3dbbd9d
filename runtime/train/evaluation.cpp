#include "runtime/train/evaluation.h"
#include <cmath>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace cleave::runtime {

Result<EvaluationRules> readEvaluationRules(const plan::Training &training) {
  EvaluationRules rules;
  for (const plan::LossPart &part : training.losses()) rules.parts.push_back({part.name(), part.scale()});
  try {
    const YAML::Node eval = YAML::Load(training.eval_yaml());
    if (!eval.IsMap()) return rules;
    rules.every = eval["every"].as<int64_t>(0), rules.batches = eval["batches"].as<int64_t>(10);
    for (const YAML::Node metric : eval["metrics"])
      rules.metrics.push_back({metric["name"].as<std::string>(), metric["kind"].as<std::string>(),
                               metric["loss"].as<std::string>(""), metric["binary"].as<bool>(false)});
    rules.monitor = eval["monitor"].as<std::string>("loss");
    rules.patience = eval["patience"].as<int64_t>(0), rules.minDelta = eval["min_delta"].as<double>(0);
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("the plan's eval map is not valid: {}", error.what()));
  }
  return rules;
}

double EvaluationRules::score(const EvaluationResult &result) const {
  const auto found = result.metrics.find(monitor);
  if (found == result.metrics.end()) return result.loss;
  for (const Metric &metric : metrics)
    if (metric.name == monitor && (metric.kind == "mae" || metric.kind == "perplexity")) return found->second;
  return -found->second;
}

void EvaluationSums::add(const std::map<std::string, double> &numbers,
                         const std::map<std::string, std::vector<double>> &tensors, double share, int64_t samples) {
  auto add = [&](Mean &mean, const std::string &name, const std::string &weightName, double unweighted) {
    const auto weight = numbers.find(weightName);
    mean.sum += numbers.at(name) * (weight == numbers.end() ? 1 : weight->second);
    mean.weight += weight == numbers.end() ? unweighted : weight->second;
  };
  add(loss, "loss", "loss_weight", share);
  count += samples;
  for (const auto &[name, value] : numbers) {
    if (name.starts_with("metric.")) sums[name] += value;
    if (name.starts_with("loss.")) add(losses[name.substr(5)], name, "loss_weight." + name.substr(5), 1);
  }
  for (const auto &[name, values] : tensors) {
    std::vector<double> &table = tables[name];
    table.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) table[i] += values[i];
  }
}

EvaluationResult EvaluationSums::result(const EvaluationRules &rules) const {
  EvaluationResult result;
  result.loss = rules.parts.empty() ? loss.value() : 0, result.samples = count;
  for (const EvaluationRules::Part &part : rules.parts) {
    result.losses[part.name] = losses.at(part.name).value();
    result.loss += part.scale * result.losses[part.name];
  }
  for (const EvaluationRules::Metric &metric : rules.metrics) {
    const std::string name = "metric." + metric.name;
    if (metric.kind == "perplexity") {
      result.metrics[metric.name] = std::exp(metric.loss.empty() ? result.loss : result.losses.at(metric.loss));
    } else if (const auto table = tables.find(name); table != tables.end()) {
      const auto classes = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(table->second.size()))));
      std::vector<std::vector<double>> rows(classes);
      for (size_t row = 0; row < classes; ++row) {
        const auto begin = table->second.begin() + static_cast<std::ptrdiff_t>(row * classes);
        rows[row].assign(begin, begin + static_cast<std::ptrdiff_t>(classes));
      }
      if (metric.kind == "f1")
        result.metrics[metric.name] = f1Of(rows, metric.isBinary);
      else
        result.confusion[metric.name] = std::move(rows);
    } else if (const auto sum = sums.find(name); sum != sums.end()) {
      result.metrics[metric.name] = sum->second / sums.at(name + ".count");
    }
  }
  return result;
}

double f1Of(const std::vector<std::vector<double>> &confusion, bool isBinary) {
  double sum = 0, classes = 0;
  for (size_t c = isBinary ? 1 : 0; c < confusion.size(); ++c) {
    double wanted = 0, said = 0;
    for (size_t other = 0; other < confusion.size(); ++other) wanted += confusion[c][other], said += confusion[other][c];
    if (wanted + said == 0) continue;
    sum += 2 * confusion[c][c] / (wanted + said), ++classes;
  }
  return classes > 0 ? sum / classes : 0;
}

} // namespace cleave::runtime
