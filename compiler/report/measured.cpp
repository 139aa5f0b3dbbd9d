// Measured beside predicted, as text, JSON and rows of the page.
#include "compiler/report/measured.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

std::string ratioText(const MeasuredRow &row) { return row.ratio() > 0 ? fmt::format("{:.2f} x", row.ratio()) : "-"; }

Row cells(std::vector<std::string> names, const MeasuredRow &row) {
  names.insert(names.end(), {formatSeconds(row.predicted), formatSeconds(row.measured), ratioText(row)});
  return names;
}

nlohmann::ordered_json rowJson(const MeasuredRow &row, bool isCollective) {
  nlohmann::ordered_json json;
  json[isCollective ? "op" : "name"] = row.what;
  if (isCollective) json["axes"] = row.axes, json["why"] = row.why;
  json["predicted_s"] = row.predicted, json["measured_s"] = row.measured;
  json["ratio"] = row.predicted > 0 ? nlohmann::ordered_json(row.ratio()) : nlohmann::ordered_json(nullptr);
  return json;
}

} // namespace

std::string verdict(const Measured &measured) {
  std::string text = fmt::format("The step takes {}, {} the predicted {}.", formatSeconds(measured.step.measured),
                                 ratioText(measured.step), formatSeconds(measured.step.predicted));
  const MeasuredRow *worst = nullptr;
  for (const std::vector<MeasuredRow> *rows : {&measured.layers, &measured.collectives})
    for (const MeasuredRow &row : *rows) {
      if (std::max(row.predicted, row.measured) < 0.01 * measured.step.measured || row.ratio() <= 0) continue;
      auto distance = [](const MeasuredRow &one) { return std::max(one.ratio(), 1 / one.ratio()); };
      if (!worst || distance(row) > distance(*worst)) worst = &row;
    }
  if (!worst) return text;
  return text + fmt::format(" Most off: {}{}, {}.", worst->what,
                            worst->axes.empty() ? "" : fmt::format(" over {}", fmt::join(worst->axes, ",")),
                            ratioText(*worst));
}

std::vector<Row> sumRows(const Measured &measured) {
  std::vector<Row> rows = {{"a step", "predicted", "measured", "ratio"}};
  for (const MeasuredRow &row : measured.sums) rows.push_back(cells({row.what}, row));
  return rows;
}

std::vector<Row> layerRows(const Measured &measured) {
  std::vector<Row> rows = {{"compute of", "predicted", "measured", "ratio"}};
  for (const MeasuredRow &row : measured.layers) rows.push_back(cells({row.what}, row));
  return rows;
}

std::vector<Row> collectiveRows(const Measured &measured) {
  std::vector<Row> rows = {{"collective", "over", "predicted", "measured", "ratio", "why"}};
  for (const MeasuredRow &row : measured.collectives) {
    rows.push_back(cells({row.what, fmt::format("{}", fmt::join(row.axes, ","))}, row));
    rows.back().push_back(row.why);
  }
  return rows;
}

std::string renderText(const Measured &measured) {
  std::string out = fmt::format("{}\nsteps {} to {}", verdict(measured), measured.firstStep, measured.lastStep);
  if (measured.devices > 0)
    out += fmt::format(", the mean of {} device{}", measured.devices, measured.devices == 1 ? "" : "s");
  if (measured.memoryBytes > 0) out += fmt::format("; {} on the fullest device", formatBytes(measured.memoryBytes));
  out += "\n";
  for (const std::vector<Row> &rows : {sumRows(measured), layerRows(measured), collectiveRows(measured)}) {
    if (rows.size() < 2) continue;
    constexpr size_t shown = 16; // those most off; JSON has all
    const std::vector<Row> some(rows.begin(), rows.begin() + long(std::min(rows.size(), shown + 1)));
    out += "\n";
    for (const std::string &line : tableLines(some, "  ", "  ")) out += line;
    if (some.size() < rows.size())
      out += fmt::format("  and {} more (--format json lists them)\n", rows.size() - some.size());
  }
  if (!measured.collectives.empty()) out += "\nA collective's measured time has the wait for other devices in it.\n";
  return out;
}

std::string renderJson(const Measured &measured) {
  nlohmann::ordered_json json = {{"first_step", measured.firstStep},
                                 {"last_step", measured.lastStep},
                                 {"devices", measured.devices},
                                 {"memory_bytes_per_device", measured.memoryBytes},
                                 {"sums", nlohmann::ordered_json::array()},
                                 {"layers", nlohmann::ordered_json::array()},
                                 {"collectives", nlohmann::ordered_json::array()}};
  for (const MeasuredRow &row : measured.sums) json["sums"].push_back(rowJson(row, false));
  for (const MeasuredRow &row : measured.layers) json["layers"].push_back(rowJson(row, false));
  for (const MeasuredRow &row : measured.collectives) json["collectives"].push_back(rowJson(row, true));
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

} // namespace cleave::report
