#include "runtime/engine/health/liveness.h"
#include "runtime/engine/comm/tree_operation.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {

namespace {
constexpr double shareOfTimeout = 0.9; // so that all know it when the time is over
constexpr size_t mostNamed = 8;

std::string namesOf(const std::vector<std::string> &ranks) {
  auto shown = static_cast<ptrdiff_t>(std::min(mostNamed, ranks.size()));
  std::string names = fmt::format("{}", fmt::join(ranks.begin(), ranks.begin() + shown, ", "));
  return ranks.size() > mostNamed ? names + fmt::format(" and {} more", ranks.size() - mostNamed) : names;
}
} // namespace

void Liveness::heard(int rank, const RankReport &report) {
  Known &of = known[static_cast<size_t>(rank)];
  bool moved = !of.isHeard || of.report.progress != report.progress || of.report.state != report.state;
  if (moved) unmoved = 0;
  of.report = report;
  of.isHeard = true, of.silent = 0;
}

void Liveness::pass(double seconds) {
  if (!isRunning()) {
    for (Known &rank : known) rank.silent = 0;
    unmoved = 0;
    return;
  }
  for (Known &rank : known)
    if (!rank.hasLeft) rank.silent += seconds;
  unmoved += seconds;
}

bool Liveness::isRunning() const {
  return std::ranges::any_of(known, [&](const Known &rank) {
    return rank.isHeard && !rank.hasLeft && isFresh(rank) &&
           (rank.report.state == RankReport::Waiting || rank.report.state == RankReport::Busy);
  });
}

std::string Liveness::lastOf(int rank) const {
  const Known &of = known[static_cast<size_t>(rank)];
  if (!of.isHeard) return "nothing was heard of it";
  return fmt::format("host {}, last heard of {}", of.report.host,
                     of.report.where.empty() ? "before its first step" : "in " + of.report.where);
}

// What a rank says goes up the tree: one below a silent one cannot be heard.
bool Liveness::isHidden(int rank) const {
  for (int above = parentOf(rank); seesAll && above > 0; above = parentOf(above))
    if (const Known &of = known[static_cast<size_t>(above)]; !of.hasLeft && of.silent > shareOfTimeout * timeout / 2)
      return true;
  return false;
}

std::optional<std::string> Liveness::judge() const {
  std::vector<std::string> silent;
  for (size_t rank = 0; rank < known.size(); ++rank)
    if (!known[rank].hasLeft && known[rank].silent > shareOfTimeout * timeout && !isHidden(static_cast<int>(rank)))
      silent.push_back(fmt::format("rank {} does not answer for {:.1f} s ({}; --step-timeout)", rank,
                                   known[rank].silent, lastOf(static_cast<int>(rank))));
  if (!silent.empty()) return namesOf(silent);
  bool areAllThere = seesAll && std::ranges::none_of(known, [](const Known &rank) {
                       return !rank.hasLeft && rank.report.state == RankReport::Starting;
                     });
  if (areAllThere && unmoved > shareOfTimeout * timeout) return stuck();
  return std::nullopt;
}

// Those that do not wait for others; where all do, all.
std::string Liveness::stuck() const {
  auto listed = [&](auto isListed) {
    std::vector<std::string> ranks;
    for (size_t rank = 0; rank < known.size(); ++rank)
      if (const Known &of = known[rank]; !of.hasLeft && isListed(of))
        ranks.push_back(fmt::format("rank {} (host {}, {} {})", rank, of.report.host,
                                    of.report.state == RankReport::Outside ? "after" : "in", of.report.where));
    return ranks;
  };
  std::vector<std::string> guilty = listed([](const Known &rank) { return rank.report.state != RankReport::Waiting; });
  if (!guilty.empty())
    return fmt::format("the others wait for {}, which {} no progress for {:.1f} s (--step-timeout)", namesOf(guilty),
                       guilty.size() == 1 ? "makes" : "make", unmoved);
  return fmt::format("no rank makes progress for {:.1f} s (--step-timeout), each waits: {}", unmoved,
                     namesOf(listed([](const Known &) { return true; })));
}

} // namespace cleave::runtime
