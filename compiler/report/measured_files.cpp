// Traces and metrics of a run, read into the report's rows.
#include "compiler/report/measured.h"
#include "compiler/report/pricing_source.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace cleave::report {
namespace {

using nlohmann::json;

double medianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The key of a row: "" and a part of the model, or the kind of a collective with axes and reason.
using CollectiveKey = std::tuple<std::string, dist::Axes, std::string>;

CollectiveKey keyOf(const std::string &op, dist::Axes axes, const std::string &why) {
  std::ranges::sort(axes);
  return {op, axes, why};
}

// The part of the model that a command is of, by the name of its node or parameter.
class PartNames {
public:
  explicit PartNames(const Report &report) {
    for (const ReportedNode &node : report.nodes)
      for (const std::string &name : node.choice.nodes) {
        parts.emplace(name, node.part);
        parts.emplace(name.substr(0, name.rfind(':')), node.part); // one of those that an exported node becomes
      }
    for (const ParameterLayout &row : report.parameters)
      if (!row.readers.empty())
        if (const auto reader = parts.find(row.readers[0]); reader != parts.end())
          parts.emplace(row.name, reader->second);
  }
  // "lm_head.weight and 3 more" and "a+b" are several, of which the first counts.
  std::string of(const std::string &command) const {
    for (const std::string &end : {std::string(), std::string(" and "), std::string("+")}) {
      const auto found = parts.find(end.empty() ? command : command.substr(0, command.find(end)));
      if (found != parts.end()) return found->second;
    }
    return "the whole step";
  }

private:
  std::map<std::string, std::string> parts;
};

// Seconds by step: of all traced devices together.
struct StepSums {
  std::map<std::string, double> layers;
  std::map<CollectiveKey, double> collectives;
  int64_t commands = 0;
};

class TraceReader {
public:
  explicit TraceReader(const Report &report) : parts(report), names(displayNames(report.source)) {}

  void add(const json &trace) {
    int64_t first = -1;                                 // device of the file, whose begins tell how long steps take
    std::map<int64_t, std::pair<double, double>> times; // by step: begin, end
    for (const json &event : trace.at("traceEvents")) {
      if (event.value("ph", "") != "X") continue;
      const json &arguments = event.at("args");
      if (!arguments.contains("step")) continue;
      const int64_t device = event.at("pid"), step = arguments.at("step");
      const std::string action = arguments.contains("kind") ? arguments.value("action", "") : event.value("name", "");
      if (action.starts_with("evaluate")) continue;
      if (first < 0) first = device;
      devices.insert(device);
      const double begin = event.at("ts").get<double>() * 1e-6, seconds = event.at("dur").get<double>() * 1e-6;
      if (device == first) {
        auto &time = times.try_emplace(step, begin, begin).first->second;
        time = {std::min(time.first, begin), std::max(time.second, begin + seconds)};
      }
      if (arguments.contains("kind")) addCommand(steps[step], event, arguments, seconds);
    }
    for (auto at = times.begin(); at != times.end(); ++at) {
      const auto next = std::next(at);
      const bool follows = next != times.end() && next->first == at->first + 1;
      lengths[at->first].push_back((follows ? next->second.first : at->second.second) - at->second.first);
    }
  }

  Result<Measured> take(const Report &report) {
    if (steps.empty()) return inputError("the trace has no commands of a step; it is not one of `cleave run --trace`");
    if (steps.size() > 1 && steps.begin()->first == 1) steps.erase(steps.begin()); // warms up
    // Where the trace was full before the step was over.
    if (steps.size() > 1 && steps.rbegin()->second.commands < std::next(steps.rbegin())->second.commands)
      steps.erase(std::prev(steps.end()));
    Measured measured;
    measured.firstStep = steps.begin()->first, measured.lastStep = steps.rbegin()->first;
    measured.devices = int64_t(devices.size());
    std::vector<double> seconds;
    for (const auto &[step, sums] : steps) seconds.insert(seconds.end(), lengths[step].begin(), lengths[step].end());
    measured.step.measured = medianOf(seconds);
    addLayers(report, measured);
    addCollectives(report, measured);
    return measured;
  }

private:
  void addCommand(StepSums &sums, const json &event, const json &arguments, double seconds) {
    ++sums.commands;
    if (arguments.contains("axes"))
      sums.collectives[keyOf(arguments.at("kind"), arguments.at("axes"), firstOf(arguments.value("why", "")))] +=
          seconds;
    else if (arguments.value("direction", "") == "send")
      sums.collectives[keyOf("send", {dist::pipelineAxis}, firstOf(arguments.value("why", "")))] += seconds;
    else if (!arguments.contains("direction") && event.at("tid") == 0) // a receive only waits
      sums.layers[parts.of(event.at("name"))] += seconds;
  }

  template <typename Key> double median(std::map<Key, double> StepSums::*of, const Key &key) const {
    std::vector<double> values;
    for (const auto &[step, sums] : steps) {
      const auto found = (sums.*of).find(key);
      values.push_back(found == (sums.*of).end() ? 0 : found->second / double(devices.size()));
    }
    return medianOf(values);
  }
  template <typename Key> std::set<Key> keys(std::map<Key, double> StepSums::*of) const {
    std::set<Key> all;
    for (const auto &[step, sums] : steps)
      for (const auto &[key, seconds] : sums.*of) all.insert(key);
    return all;
  }

  void addLayers(const Report &report, Measured &measured) const {
    MeasuredRow sum{"compute", {}, {}, report.predicted.computeSeconds};
    std::set<std::string> left = keys(&StepSums::layers);
    auto add = [&](const std::string &part, double predicted) {
      measured.layers.push_back({part, {}, {}, predicted, median(&StepSums::layers, part)});
      sum.measured += measured.layers.back().measured;
    };
    for (const planner::TimePart &part : timeSums(report, true))
      add(part.part, part.computeSeconds), left.erase(part.part);
    for (const std::string &part : left) add(part, 0);
    measured.sums.push_back(sum);
  }

  void addCollectives(const Report &report, Measured &measured) const {
    MeasuredRow sum{"collectives, if nothing hid them"};
    std::set<CollectiveKey> left = keys(&StepSums::collectives);
    auto add = [&](const CollectiveKey &key, double predicted) {
      const auto &[op, axes, why] = key;
      measured.collectives.push_back({op, axes, why, predicted, median(&StepSums::collectives, key)});
      sum.predicted += predicted, sum.measured += measured.collectives.back().measured;
    };
    for (const planner::CollectiveTotal &row : report.collectives) {
      const CollectiveKey key = keyOf(row.op, row.axes, firstOf(row.why));
      add(key, row.seconds), left.erase(key);
    }
    for (const CollectiveKey &key : left) add(key, 0);
    measured.sums.push_back(sum);
  }

  // Repetitions share a row.
  std::string firstOf(const std::string &why) const {
    return names.replaced(why, [&](const std::string &name) { return names.firstOf(name); });
  }

  PartNames parts;
  const planner::DisplayNames names;
  std::map<int64_t, StepSums> steps;
  std::map<int64_t, std::vector<double>> lengths; // of a step, in each file
  std::set<int64_t> devices;
};

// Lines of JSON or of CSV with a head.
Result<Measured> readMetrics(const std::string &file, const std::string &text) {
  std::map<int64_t, double> seconds; // by step
  Measured measured;
  auto add = [&](double step, double length, double bytes) {
    seconds[int64_t(step)] = length;
    measured.memoryBytes = std::max(measured.memoryBytes, bytes);
  };
  std::istringstream lines(text);
  std::vector<std::string> heads;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line[0] == '{') {
      const json row = json::parse(line, nullptr, false);
      if (row.is_object() && row.contains("step_time_s"))
        add(row.value("step", 0.0), row.value("step_time_s", 0.0), row.value("peak_bytes_per_device", 0.0));
      continue;
    }
    std::map<std::string, double> cells;
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; std::getline(words, word, ',');) row.push_back(word);
    for (size_t i = 0; i < std::min(row.size(), heads.size()); ++i)
      cells[heads[i]] = std::strtod(row[i].c_str(), nullptr);
    if (heads.empty())
      heads = row;
    else
      add(cells["step"], cells["step_time_s"], cells["peak_bytes_per_device"]);
  }
  if (seconds.empty() || !std::ranges::any_of(seconds, [](const auto &entry) { return entry.second > 0; }))
    return {inputError(fmt::format("{}: neither a trace nor metrics of `cleave run`", file))};
  if (seconds.size() > 1) seconds.erase(seconds.begin()); // warms up
  measured.firstStep = seconds.begin()->first, measured.lastStep = seconds.rbegin()->first;
  std::vector<double> lengths;
  for (const auto &[step, length] : seconds) lengths.push_back(length);
  measured.step.measured = medianOf(lengths);
  return measured;
}

void sortByDistance(std::vector<MeasuredRow> &rows, double stepSeconds) {
  auto place = [&](const MeasuredRow &row) {
    const bool isSmall = std::max(row.predicted, row.measured) < 0.01 * stepSeconds;
    const double distance = row.predicted > 0 && row.measured > 0 ? std::abs(std::log(row.ratio())) : INFINITY;
    return std::tuple(isSmall, -distance, -std::max(row.predicted, row.measured));
  };
  std::ranges::stable_sort(rows, {}, place);
}

} // namespace

Result<Measured> readMeasured(const Report &report, const std::vector<std::string> &files) {
  TraceReader traces(report);
  bool hasTrace = false;
  Measured ofMetrics;
  for (const std::string &file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) return {inputError(fmt::format("{}: cannot be read", file))};
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    const json whole = json::parse(text, nullptr, false);
    if (whole.is_object() && whole.contains("traceEvents")) {
      try {
        traces.add(whole);
      } catch (const json::exception &) {
        return {inputError(fmt::format("{}: not a trace of `cleave run --trace`", file))};
      }
      hasTrace = true;
      continue;
    }
    Result<Measured> read = readMetrics(file, text);
    if (!read) return read;
    ofMetrics = std::move(*read);
  }
  Measured measured = ofMetrics;
  if (hasTrace) {
    Result<Measured> read = traces.take(report);
    if (!read) return read;
    measured = std::move(*read);
    measured.memoryBytes = ofMetrics.memoryBytes;
    if (ofMetrics.step.measured > 0) measured.step = ofMetrics.step; // not slowed down by the trace
  }
  measured.step.predicted = report.predicted.stepSeconds;
  measured.sums.insert(measured.sums.begin(), measured.step);
  sortByDistance(measured.layers, measured.step.measured);
  sortByDistance(measured.collectives, measured.step.measured);
  return measured;
}

} // namespace cleave::report
