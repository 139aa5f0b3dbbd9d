#include "compiler/report/page/charts.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <ranges>

namespace cleave::report {
namespace {

// A picture with a frame for the data inside room for the axes, in pixels.
struct Frame {
  double width = 900, height = 260, left = 76, right = 20, top = 16, bottom = 40;
  double mostX = 1, mostY = 1; // of the data
  double x(double value) const { return left + (width - left - right) * value / mostX; }
  double y(double value) const { return height - bottom - (height - top - bottom) * value / mostY; }
};

class Svg {
public:
  // `role`: "img", or "group" of what has links within.
  explicit Svg(const Frame &frame, const std::string &title, const char *role = "img") : title(title) {
    add("<svg viewBox=\"0 0 {} {}\" role=\"{}\" aria-label=\"{}\">\n", frame.width, frame.height, role, escape(title));
  }
  template <typename... Arguments> void add(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Arguments>(arguments)...);
  }
  // In a region that scrolls where the screen is narrow.
  std::string take() {
    return fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">{}</svg></div>\n",
                       escape(title), text);
  }

private:
  std::string title, text;
};

// A distance between about `count` ticks of bytes, a power of two.
double byteDistance(double most, int count) { return std::exp2(std::ceil(std::log2(most / count))); }

void addAxes(Svg &svg, const Frame &frame, bool xIsSeconds) {
  const double bytes = byteDistance(frame.mostY, 4);
  for (double at = 0; at <= frame.mostY * 1.0001; at += bytes)
    svg.add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3:.1f}\" "
            "y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
            frame.x(0), frame.x(frame.mostX), frame.y(at), frame.left - 6, frame.y(at) + 4, formatBytes(at));
  if (!xIsSeconds) return;
  const double seconds = tickDistance(frame.mostX / 6);
  for (double at = 0; at <= frame.mostX * 1.0001; at += seconds)
    svg.add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/><text x=\"{0:.1f}\" "
            "y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
            frame.x(at), frame.y(0), frame.y(0) + 5, frame.y(0) + 20, formatSeconds(at));
}

void addLimit(Svg &svg, const Frame &frame, double bytes) {
  if (bytes > frame.mostY || bytes <= 0) return;
  svg.add("<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{1:.1f}\" "
          "y=\"{3:.1f}\" text-anchor=\"end\">a device has {4}</text>\n",
          frame.x(0), frame.x(frame.mostX), frame.y(bytes), frame.y(bytes) + 14, formatBytes(bytes));
}

struct Kind {
  const char *name;
  double planner::MemoryBreakdown::*bytes;
};
constexpr Kind memoryKinds[] = {{"parameters", &planner::MemoryBreakdown::parameters},
                                {"optimizer", &planner::MemoryBreakdown::optimizer},
                                {"gradients", &planner::MemoryBreakdown::gradients},
                                {"workspace", &planner::MemoryBreakdown::workspace},
                                {"activations", &planner::MemoryBreakdown::activations}};

} // namespace

std::string bar(const std::vector<BarPart> &parts) {
  double total = 0;
  for (const BarPart &part : parts) total += std::max(0.0, part.value);
  std::string segments, legend;
  for (const BarPart &part : parts) {
    if (part.value <= 0 || total <= 0) continue;
    segments += fmt::format("<span style=\"width:{:.3f}%;background:var(--{})\"></span>", 100 * part.value / total,
                            part.colour);
    legend += fmt::format("<li><i style=\"background:var(--{})\"></i>{} {} ({})</li>", part.colour, part.name,
                          part.label, percent(part.value, total));
  }
  return fmt::format("<div class=\"bar\" aria-hidden=\"true\">{}</div><ul class=\"legend\">{}</ul>\n", segments,
                     legend);
}

std::string memoryChart(const Report &report, const std::vector<planner::MemoryPoint> &points, bool hasHover) {
  if (points.size() < 2 || points.back().seconds <= 0) return "";
  const auto peak = std::ranges::max_element(points, {}, [](const auto &point) { return point.memory.total(); });
  const double most = peak->memory.total();
  if (most <= 0) return "";
  Frame frame{.mostX = points.back().seconds, .mostY = most * 1.1};
  if (report.deviceMemoryBytes < 3 * most) frame.mostY = std::max(frame.mostY, report.deviceMemoryBytes * 1.05);
  Svg svg(frame, "Memory in use over the step, by kind");
  // From the highest kind down: each covers the lower part of the one before.
  std::vector<double> heights(points.size());
  for (size_t i = 0; i < points.size(); ++i) heights[i] = points[i].memory.total();
  for (const Kind &kind : memoryKinds | std::views::reverse) {
    std::string line =
        fmt::format("{:.0f},{:.0f} {:.0f},{:.0f}", frame.x(0), frame.y(0), frame.x(0), frame.y(heights[0]));
    for (size_t i = 0; i < points.size(); ++i) {
      line += fmt::format(" {:.0f},{:.0f}", frame.x(points[i].seconds), frame.y(heights[i]));
      heights[i] -= points[i].memory.*kind.bytes;
    }
    svg.add("<polygon fill=\"var(--{})\" points=\"{} {:.0f},{:.0f}\"/>\n", kind.name, line, frame.x(frame.mostX),
            frame.y(0));
  }
  addAxes(svg, frame, true);
  addLimit(svg, frame, report.deviceMemoryBytes);
  svg.add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"var(--text)\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"{}\">peak {}</text>\n",
          frame.x(peak->seconds), frame.y(most), frame.x(peak->seconds), frame.y(most) - 7,
          peak->seconds > frame.mostX / 2 ? "end" : "start", formatBytes(most));
  for (size_t i = 0; i < points.size() && hasHover; ++i) {
    const double begin = frame.x(i == 0 ? 0 : points[i - 1].seconds), end = frame.x(points[i].seconds);
    std::string what;
    for (const Kind &kind : memoryKinds)
      what += fmt::format(", {} {}", kind.name, formatBytes(points[i].memory.*kind.bytes));
    svg.add("<rect class=\"hover\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{} to {}: "
            "{}{}</title></rect>\n",
            begin, frame.top, std::max(0.0, end - begin), frame.y(0) - frame.top,
            planner::stepPartNames[size_t(points[i].part)], formatSeconds(points[i].seconds),
            formatBytes(points[i].memory.total()), what);
  }
  std::string legend;
  for (const Kind &kind : memoryKinds)
    legend += fmt::format("<li><i style=\"background:var(--{0})\"></i>{0}</li>", kind.name);
  return fmt::format(
      "<figure><figcaption>Memory in use over the step, as the search estimates it{}{}</figcaption><ul "
      "class=\"legend\">{}</ul>"
      "{}</figure>\n",
      report.deviceMemoryBytes > frame.mostY ? fmt::format("; a device has {}", formatBytes(report.deviceMemoryBytes))
                                             : "",
      report.memoryIsPlanned ? "; the compiled plan above shares memory between more tensors" : "", legend, svg.take());
}

std::string alternativesChart(const Report &report) {
  struct Point {
    double seconds, bytes;
    std::string name;
    int row; // -1: the choice
    bool fits;
  };
  std::vector<Point> points = {{report.predicted.stepSeconds, report.predicted.memory.total(), "the choice", -1, true}};
  for (size_t i = 0; i < report.alternatives.size(); ++i) {
    const planner::Alternative &row = report.alternatives[i];
    if (!row.mesh.axes.empty() && row.stepSeconds > 0)
      points.push_back({row.stepSeconds, row.memoryBytes, row.name + " " + row.mesh.str(), int(i), row.fits});
  }
  if (points.size() < 2) return "";
  // Far ones would press the others together: what is far beyond the choice stands at the border.
  Frame frame{.height = 300};
  for (const Point &point : points)
    frame.mostX = point.row < 0 ? 1.1 * point.seconds
                                : std::max(frame.mostX, 1.05 * std::min(point.seconds, 2.5 * points[0].seconds));
  frame.mostY = 1.1 * points[0].bytes;
  for (const Point &point : points)
    frame.mostY =
        std::max(frame.mostY, 1.05 * std::min(point.bytes, 1.5 * std::max(points[0].bytes, report.deviceMemoryBytes)));
  Svg svg(frame, "Step time and memory of the alternatives", "group");
  addAxes(svg, frame, true);
  addLimit(svg, frame, report.deviceMemoryBytes);
  std::vector<Point> front = points;
  std::ranges::sort(front, {}, [](const Point &point) { return std::pair(point.seconds, point.bytes); });
  std::string line;
  double least = INFINITY;
  for (const Point &point : front)
    if (point.bytes < least) {
      least = point.bytes;
      line += fmt::format("{:.1f},{:.1f} ", frame.x(std::min(point.seconds, frame.mostX)),
                          frame.y(std::min(point.bytes, frame.mostY)));
    }
  svg.add("<polyline class=\"front\" points=\"{}\"/>\n", line);
  for (const Point &point : points) {
    const std::string circle = fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"var(--{})\"{}><title>{}: {}, {}{}</title></circle>",
        frame.x(std::min(point.seconds, frame.mostX)), frame.y(std::min(point.bytes, frame.mostY)),
        point.row < 0 ? 8 : 5,
        point.row < 0 ? "compute"
        : point.fits  ? "optimizer"
                      : "bubble",
        point.row < 0 ? " class=\"chosen\"" : "", escape(point.name), formatSeconds(point.seconds),
        formatBytes(point.bytes), point.fits ? "" : "; does not fit");
    if (point.row < 0)
      svg.add("{}\n", circle);
    else
      svg.add("<a href=\"#alternative-{}\" aria-label=\"{}\">{}</a>\n", point.row, escape(point.name), circle);
  }
  return "<figure><figcaption>Step time (to the right) and memory (up). The large point is the choice, grey ones do "
         "not "
         "fit, the line joins those that no other beats in both. A click leads to the row.</figcaption>" +
         svg.take() + "</figure>\n";
}

} // namespace cleave::report
