// Notes the work of commands on a memory, and does it again: runtime/check/proof/replay.cpp.
#include "runtime/check/proof/memory.h"
#include <algorithm>
#include <unordered_map>

namespace cleave::proof {

bool Cell::overlaps(const Cell &other) const {
  return place.onHost == other.place.onHost && place.byte < other.end && other.place.byte < end;
}
bool Cell::isSamePlace(const Cell &other) const {
  return place.onHost == other.place.onHost && place.byte == other.place.byte && place.dtype == other.place.dtype &&
         end == other.end && sizes == other.sizes && strides == other.strides && variables == other.variables;
}

Term Memory::valueOf(const Cell &cell) const {
  Term value = store.ofMicrobatch(cell.value, cell.from, cell.to);
  std::vector<int64_t> of = cell.of;
  std::ranges::sort(of);
  for (auto first = of.begin(); first != of.end();) {
    auto end = std::next(first);
    while (end != of.end() && *end == *std::prev(end) + 1) ++end;
    value = store.sum(value, store.gathered(cell.eachFrom, *first, *std::prev(end) + 1, cell.each));
    first = end;
  }
  return value;
}

void Memory::record(std::function<Term(const Cell &)> seen) {
  recording = Recording{.before = written, .first = writes, .seen = std::move(seen), .read = {}};
}

// The value of a cell for whoever reads it.
Term Memory::seen(const Cell &cell) {
  if (!recording || cell.number >= recording->first) return valueOf(cell);
  auto [found, isNew] = recording->read.try_emplace(cell.number);
  if (isNew) found->second = recording->seen(cell);
  return found->second;
}

namespace {
// Calls `meet` with each two of the cells that overlap, by their place in the list.
void forEachOverlap(const std::vector<const Cell *> &cells, const std::function<void(size_t, size_t)> &meet) {
  std::vector<size_t> order(cells.size()), open;
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(cells[i]->place.onHost, cells[i]->place.byte); });
  for (size_t i : order) {
    std::erase_if(open, [&](size_t j) { return !cells[j]->overlaps(*cells[i]); });
    for (size_t j : open) meet(i, j);
    open.push_back(i);
  }
}
} // namespace

Effect Memory::recorded(const std::function<Term(Term)> &original) {
  Effect effect;
  const std::vector<Cell> &before = recording->before;
  std::vector<const Cell *> cells;
  std::vector<bool> isRead, isNeeded;
  for (const Cell &cell : before) {
    cells.push_back(&cell);
    isRead.push_back(recording->read.count(cell.number) > 0);
  }
  isNeeded = isRead;
  std::vector<std::pair<size_t, size_t>> pairs; // older, newer
  forEachOverlap(cells, [&](size_t i, size_t j) {
    const auto [older, newer] = std::minmax(i, j);
    if (!isRead[older]) return;
    isNeeded[newer] = true;
    pairs.emplace_back(older, newer);
  });
  std::vector<size_t> place(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    place[i] = effect.needed.size();
    if (!isNeeded[i]) continue;
    effect.needed.push_back({before[i], {}});
    if (isRead[i]) effect.needed.back().seen = recording->read.at(before[i].number);
  }
  for (auto [older, newer] : pairs) effect.ordered.emplace_back(place[older], place[newer]);
  for (Cell &cell : written) {
    if (cell.number < recording->first) continue;
    effect.left.push_back(cell);
    cell.value = original(cell.value); // it has been written since, so this is all of it
  }
  recording.reset();
  return effect;
}

std::optional<std::vector<const Cell *>> Memory::find(const Effect &effect) const {
  std::unordered_map<int64_t, std::vector<size_t>> starting; // cells of `written`, by their first byte
  for (size_t i = 0; i < written.size(); ++i) starting[written[i].place.byte].push_back(i);
  std::vector<const Cell *> found;
  for (const Effect::Needed &needed : effect.needed) {
    const Cell *own = nullptr; // the newest
    if (auto candidates = starting.find(needed.cell.place.byte); candidates != starting.end())
      for (size_t i : candidates->second)
        if (written[i].isSamePlace(needed.cell)) own = &written[i];
    if (!own) return std::nullopt;
    found.push_back(own);
  }
  for (auto [older, newer] : effect.ordered)
    if (found[older]->number >= found[newer]->number) return std::nullopt;
  // Nothing newer lies over what is read, but for what is needed, too.
  std::vector<const Cell *> all;
  for (const Cell &cell : written) all.push_back(&cell);
  std::unordered_map<const Cell *, bool> isRead;
  for (size_t i = 0; i < found.size(); ++i) isRead[found[i]] = isRead[found[i]] || effect.needed[i].seen;
  bool isCovered = false;
  forEachOverlap(all, [&](size_t i, size_t j) {
    const auto [older, newer] = std::minmax(i, j);
    auto own = isRead.find(all[older]);
    isCovered = isCovered || (own != isRead.end() && own->second && !isRead.count(all[newer]));
  });
  if (isCovered) return std::nullopt;
  return found;
}

void Memory::leave(std::vector<Cell> cells) {
  std::vector<std::pair<std::pair<bool, int64_t>, int64_t>> covered; // first byte, end; of dense cells, joined
  for (const Cell &cell : cells)
    if (cell.isDense) covered.emplace_back(std::pair(cell.place.onHost, cell.place.byte), cell.end);
  std::ranges::sort(covered);
  size_t joined = 0;
  for (const auto &[begin, end] : covered) {
    if (joined > 0 && covered[joined - 1].first.first == begin.first && covered[joined - 1].second >= begin.second)
      covered[joined - 1].second = std::max(covered[joined - 1].second, end);
    else
      covered[joined++] = {begin, end};
  }
  covered.resize(joined);
  std::erase_if(written, [&](const Cell &old) {
    auto after = std::ranges::upper_bound(covered, std::pair(old.place.onHost, old.place.byte), {},
                                          [](const auto &span) { return span.first; });
    if (after == covered.begin()) return false;
    const auto &[begin, end] = *std::prev(after);
    return begin.first == old.place.onHost && old.end <= end;
  });
  for (Cell &cell : cells) {
    cell.number = writes++;
    written.push_back(std::move(cell));
  }
}

} // namespace cleave::proof
