// Actions that have run before: of another microbatch they do the same, if they find the same.
//
// The first run of an action is noted: the cells and messages that it read, and those that it left. A cell that has to
// do with other microbatches, such as a sum of gradients, is read as a leaf that stands for it. Where the action comes
// up again and all that it read is what it was, but for the number of the microbatch and for such sums, what it leaves
// is known without running its commands.
#include "runtime/check/proof/machine.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::proof {
namespace {
constexpr size_t mostRuns = 3; // of one fragment, that are noted
}

// The cell of an action where another one has it: the same, but in its own slot.
Cell Machine::moved(const Rank &rank, Cell cell, const plan::Action &from, const plan::Action &to) const {
  const plan::Fragment &fragment = rank.program->fragments(from.fragment());
  if (from.slot() == to.slot() || fragment.slot_region() >= rank.program->slot_regions_size()) return cell;
  const plan::SlotRegion &region = rank.program->slot_regions(fragment.slot_region());
  const int64_t begin = cell.place.onHost ? region.host_offset() : region.offset();
  const int64_t bytes = cell.place.onHost ? region.host_bytes() : region.bytes();
  const int64_t first = begin + from.slot() * bytes;
  if (cell.place.byte < first || cell.end > first + bytes) return cell;
  const int64_t by = (to.slot() - from.slot()) * bytes;
  cell.place.byte += by;
  cell.end += by;
  return cell;
}

void Machine::startRecording(Rank &rank) {
  const plan::Action &action = rank.routine->actions(rank.action);
  const auto &actions = rank.routine->actions();
  const bool returns = std::any_of(actions.begin() + rank.action + 1, actions.end(),
                                   [&](const plan::Action &later) { return later.fragment() == action.fragment(); });
  // A routine's first action sets host scalars, too.
  if (!returns || rank.action == 0 || rank.runs[action.fragment()].size() >= mostRuns) return;
  rank.recording = Run{.microbatch = store.microbatch(action.microbatch()), .action = &action};
  rank.memory.record([this, &rank](const Cell &cell) {
    const Term value = rank.memory.valueOf(cell);
    if (store.isOf(value, rank.recording->microbatch)) return value;
    if (!runtime::isFloat(cell.place.dtype)) { // rows of tables are looked up by it, and these have no stand-ins
      rank.recording->isKept = false;
      return value;
    }
    const Term leaf = store.standIn(fmt::format("stands in, {}", standIns++), cell.variables);
    rank.recording->originals[store.term(leaf).definition] = {cell.variables, value};
    return leaf;
  });
}

// Ends the note without keeping it.
void Machine::stopRecording(Rank &rank) {
  if (!rank.recording) return;
  (void)rank.memory.recorded([&](Term t) { return store.withOriginals(t, originalsOf(*rank.recording)); });
  rank.recording.reset();
}

void Machine::finishRecording(Rank &rank) {
  if (!rank.recording) return;
  if (!rank.recording->isKept) return stopRecording(rank);
  Run run = std::move(*rank.recording);
  rank.recording.reset();
  run.effect = rank.memory.recorded([&](Term t) { return store.withOriginals(t, originalsOf(run)); });
  std::map<Term, size_t> standing; // the needed cell that a leaf stands for
  for (size_t i = 0; i < run.effect.needed.size(); ++i)
    if (const auto &seen = run.effect.needed[i].seen; seen && isStandIn(*seen)) standing[*seen] = i;
  for (const Cell &cell : run.effect.left) {
    std::optional<Sum> &sum = run.sums.emplace_back();
    if (!store.hasStandIns(cell.value)) continue;
    for (Term part : store.open(cell.value))
      if (auto found = standing.find(part); found != standing.end())
        if (std::optional<Term> each = store.addedTo(part, cell.value)) sum = Sum{found->second, *each};
  }
  rank.runs[run.action->fragment()].push_back(std::move(run));
}

void Machine::send(Rank &rank, Parcel parcel) {
  Message message = parcel.message;
  if (rank.recording) {
    message.value = store.withOriginals(message.value, originalsOf(*rank.recording));
    rank.recording->sent.push_back(parcel);
  }
  messages[{rank.number, parcel.program}][parcel.channel].push_back(std::move(message));
}

// Whether the action that comes now finds what the run found; then, what it leaves and sends.
bool Machine::isLike(Rank &rank, const Run &run, std::vector<Cell> &left, std::vector<Parcel> &sent) {
  const plan::Action &action = rank.routine->actions(rank.action);
  const Atom own = store.microbatch(action.microbatch());
  auto same = [&](Term then) { return store.ofMicrobatch(then, run.microbatch, own); };
  std::map<std::pair<int, int32_t>, size_t> taken;
  for (const Parcel &parcel : run.received) {
    const auto &queue = messages[{parcel.program, rank.number}][parcel.channel];
    const Message &message = queue[taken[{parcel.program, parcel.channel}]++];
    if (message.dtype != parcel.message.dtype || message.shape != parcel.message.shape ||
        message.tag != parcel.message.tag || message.value != same(parcel.message.value)) {
      return false;
    }
  }
  Effect effect = run.effect;
  for (Effect::Needed &needed : effect.needed) needed.cell = moved(rank, needed.cell, *run.action, action);
  const std::optional<std::vector<const Cell *>> found = rank.memory.find(effect);
  if (!found) return false;
  std::map<Definition, const Cell *> standing; // what a leaf stands for
  for (size_t i = 0; i < found->size(); ++i) {
    if (!effect.needed[i].seen) continue;
    const Term then = *effect.needed[i].seen;
    const Cell &now = *(*found)[i];
    if (isStandIn(then)) {
      standing[store.term(then).definition] = &now;
    } else if (!now.of.empty() || rank.memory.valueOf(now) != same(then)) {
      return false;
    }
  }
  const Store::Originals originals = [&](Definition leaf) {
    const Cell &cell = *standing.at(leaf);
    return Store::Original{cell.variables, rank.memory.valueOf(cell)};
  };
  for (size_t i = 0; i < run.effect.left.size(); ++i) {
    Cell cell = moved(rank, run.effect.left[i], *run.action, action);
    if (const std::optional<Sum> &sum = run.sums[i]) {
      const Cell &before = *(*found)[sum->needed];
      if (before.each == sum->each && before.eachFrom == run.microbatch)
        cell.value = before.value, cell.from = before.from, cell.to = before.to, cell.of = before.of;
      else
        cell.value = rank.memory.valueOf(before);
      cell.each = sum->each, cell.eachFrom = run.microbatch;
      cell.of.push_back(action.microbatch());
    } else if (store.hasStandIns(cell.value))
      cell.value = store.withOriginals(same(cell.value), originals);
    else if (store.dependsOn(cell.value, run.microbatch))
      cell.from = run.microbatch, cell.to = own;
    left.push_back(std::move(cell));
  }
  for (Parcel parcel : run.sent) {
    parcel.message.value = store.withOriginals(same(parcel.message.value), originals);
    sent.push_back(std::move(parcel));
  }
  return true;
}

Machine::Replay Machine::replay(Rank &rank) {
  const plan::Action &action = rank.routine->actions(rank.action);
  auto known = rank.runs.find(action.fragment());
  if (known == rank.runs.end()) return Replay::Unknown;
  for (const Run &run : known->second) {
    std::map<std::pair<int, int32_t>, size_t> wanted;
    for (const Parcel &parcel : run.received) ++wanted[{parcel.program, parcel.channel}];
    for (auto [from, count] : wanted)
      if (messages[{from.first, rank.number}][from.second].size() < count)
        return isPatient ? Replay::Waits : Replay::Unknown;
    std::vector<Cell> left;
    std::vector<Parcel> sent;
    if (!isLike(rank, run, left, sent)) continue;
    for (auto [from, count] : wanted) {
      auto &queue = messages[{from.first, rank.number}][from.second];
      queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
    }
    rank.memory.leave(std::move(left));
    for (Parcel &parcel : sent) send(rank, std::move(parcel));
    return Replay::Done;
  }
  return Replay::Unknown;
}

} // namespace cleave::proof
