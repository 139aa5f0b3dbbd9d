#include "compiler/report/rendered_schedule.h"
#include "compiler/report/tables.h"
#include "compiler/schedule/csv.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

namespace cleave::report {
namespace {

// In pixels.
constexpr double left = 70, top = 92, rowHeight = 26, barHeight = 22, leastBar = 16, mostWidth = 12000,
                 leastWidth = 720;

struct Style {
  const char *name;
  std::array<int, 3> colour; // of the first chunk; later chunks are lighter
};
// In the order of planner::ActionKind; colours of Okabe and Ito, which most colour-blind people tell apart.
constexpr Style styles[] = {{"forward", {0, 114, 178}},
                            {"backward", {0, 158, 115}},
                            {"input gradient", {86, 180, 233}},
                            {"weight gradient", {230, 159, 0}}};

std::string colour(planner::ActionKind kind, double lighter) {
  auto mixed = [&](int part) { return static_cast<int>(std::lround(part + (255 - part) * lighter)); };
  const auto &base = styles[static_cast<size_t>(kind)].colour;
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(base[0]), mixed(base[1]), mixed(base[2]));
}

} // namespace

std::string renderSvg(const RenderedSchedule &rendered) {
  const planner::PipelineSchedule &schedule = rendered.schedule;
  double last = 0, shortest = rendered.simulation.makespan;
  std::array<bool, 4> used{};
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t cell = 0; cell < schedule.rows[rank].size(); ++cell) {
      const planner::ActionTime &time = rendered.simulation.actions[rank][cell];
      last = std::max(last, time.end);
      if (time.end > time.start) shortest = std::min(shortest, time.end - time.start);
      used[static_cast<size_t>(schedule.rows[rank][cell].kind)] = true;
    }
  const double perMs = last > 0 ? std::clamp(leastBar / shortest, leastWidth / last, mostWidth / last) : 1;
  const double width = left + last * perMs + 30, bottom = top + rowHeight * schedule.ranks, height = bottom + 40;

  std::string svg;
  auto add = [&]<typename... Arguments>(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
    fmt::format_to(std::back_inserter(svg), format, std::forward<Arguments>(arguments)...);
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  add("<text x=\"{}\" y=\"22\" font-size=\"15\">{}: {} ranks, {} stages, {} microbatches</text>\n", left,
      escape(schedule.kind), schedule.ranks, schedule.stages, schedule.microbatches);
  add("<text x=\"{}\" y=\"40\">step {:.6g} ms, bubble rate {:.4f}, peak live activations {}</text>\n", left,
      rendered.simulation.longestRankTime, rendered.simulation.bubble, fmt::join(planner::peakLive(schedule), " "));
  double x = left;
  for (size_t kind = 0; kind < used.size(); ++kind) {
    if (!used[kind]) continue;
    add("<rect x=\"{:.1f}\" y=\"54\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"64\">{}</text>\n",
        x, colour(static_cast<planner::ActionKind>(kind), 0), x + 17, styles[kind].name);
    x += 34 + 6.5 * static_cast<double>(std::string_view(styles[kind].name).size());
  }
  add("<rect x=\"{:.1f}\" y=\"54\" width=\"12\" height=\"12\" fill=\"#eeeeee\"/><text x=\"{:.1f}\" "
      "y=\"64\">idle{}</text>\n",
      x, x + 17, schedule.stages > schedule.ranks ? "; a lighter shade: a later chunk of the rank" : "");

  const double distance = tickDistance(80 / perMs); // 80 pixels at the least
  for (int64_t tick = 0; static_cast<double>(tick) * distance <= last; ++tick) {
    const double at = left + static_cast<double>(tick) * distance * perMs;
    add("<line x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#999999\"/><text x=\"{0:.2f}\" y=\"{3}\" "
        "text-anchor=\"middle\">{4:.6g}</text>\n",
        at, bottom, bottom + 5, bottom + 18, static_cast<double>(tick) * distance);
  }
  add("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">ms</text>\n", left - 14, bottom + 18);

  const int chunks = std::max(1, schedule.stages / schedule.ranks);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const double y = top + rowHeight * rank;
    add("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text><rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" "
        "height=\"{}\" "
        "fill=\"#eeeeee\"/>\n",
        left - 8, y + 15, rank, left, y, last * perMs, barHeight);
    for (size_t cell = 0; cell < schedule.rows[rank].size(); ++cell) {
      const planner::ScheduledAction &action = schedule.rows[rank][cell];
      const planner::ActionTime &time = rendered.simulation.actions[rank][cell];
      const double begin = left + time.start * perMs, size = (time.end - time.start) * perMs;
      const double lighter = 0.6 * std::min(action.stage / schedule.ranks, chunks - 1) / chunks;
      add("<g><title>{}: {} of stage {}, microbatch {}, {:.6g} to {:.6g} ms</title><rect x=\"{:.2f}\" y=\"{}\" "
          "width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"white\" stroke-width=\"0.5\"/>",
          planner::cellText(action), styles[static_cast<size_t>(action.kind)].name, action.stage, action.microbatch,
          time.start, time.end, begin, y, size, barHeight, colour(action.kind, lighter));
      const std::string number = fmt::format("{}", action.microbatch);
      if (size >= 3 + 6.5 * static_cast<double>(number.size()))
        add("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", begin + size / 2, y + 15, number);
      add("</g>\n");
    }
  }
  svg += "</svg>\n";
  return svg;
}

} // namespace cleave::report
