#include "runtime/plan/action_order.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <map>

namespace cleave::runtime {
namespace {

struct Range {
  int64_t begin, end;
};

// Disjoint ranges, in order.
class RangeSet {
public:
  void add(Range range) {
    if (range.begin < range.end) ranges.push_back(range);
  }
  void merge() {
    std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (const Range &range : ranges) {
      if (kept && range.begin <= ranges[kept - 1].end)
        ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
      else
        ranges[kept++] = range;
    }
    ranges.resize(kept);
  }
  bool meets(Range range) const {
    auto after =
        std::partition_point(ranges.begin(), ranges.end(), [&](const Range &r) { return r.end <= range.begin; });
    return after != ranges.end() && after->begin < range.end && range.begin < range.end;
  }
  bool empty() const { return ranges.empty(); }

private:
  std::vector<Range> ranges;
};

struct Touch {
  int item;
  Range range;
  bool write;
};

// The bytes one lane of a fragment in one slot touches, and which other lanes it is behind when it is done.
struct LaneBytes {
  std::vector<Touch> touches; // in the order of items
  RangeSet written, touched;
  int items = 0;
  // For another lane: 0 none of its commands of this action are known done at this lane's end, 1 some (and so all of
  // earlier actions), 2 all.
  std::array<int, numLanes> joined{};

  void add(int item, int64_t begin, int64_t bytes, bool write) {
    Range range{begin, begin + bytes};
    touches.push_back({item, range, write});
    touched.add(range);
    if (write) written.add(range);
  }
  // The first of these items that must not run beside those of `other`; INT32_MAX: none.
  int firstConflict(const LaneBytes &other) const {
    for (const Touch &touch : touches)
      if ((touch.write ? other.touched : other.written).meets(touch.range)) return touch.item;
    return INT32_MAX;
  }
};

using FragmentBytes = std::array<LaneBytes, numLanes>;

FragmentBytes bytesOf(const plan::Plan &plan, const plan::Program &program, const plan::Fragment &fragment,
                      int32_t slot) {
  FragmentBytes lanes;
  for (const plan::InputBinding &input : fragment.inputs())
    lanes[computeLane].add(-1, placeOf(input.buffer(), program, fragment, slot), byteSize(input.buffer()), true);
  for (const plan::HostScalar &scalar : program.host_scalars())
    lanes[computeLane].add(-1, scalar.buffer().offset(), byteSize(scalar.buffer()), true);
  struct Clock {
    std::array<int, numLanes> known; // by lane: the last of its items known to be done; -1: none
    Clock() { known.fill(-1); }
  };
  std::array<Clock, numLanes> now;
  std::map<int32_t, Clock> events;
  for (const plan::Command &command : fragment.commands()) {
    int lane = laneOf(command);
    LaneBytes &bytes = lanes[static_cast<size_t>(lane)];
    Clock &clock = now[static_cast<size_t>(lane)];
    for (const Access &access : accessesOf(command, &plan))
      bytes.add(bytes.items, placeOf(*access.buffer, program, fragment, slot), byteSize(*access.buffer), access.write);
    for (int32_t event : command.wait_events())
      for (size_t l = 0; l < numLanes; ++l) clock.known[l] = std::max(clock.known[l], events[event].known[l]);
    clock.known[static_cast<size_t>(lane)] = bytes.items++;
    if (command.record_event()) events[command.record_event()] = clock;
  }
  for (size_t l = 0; l < numLanes; ++l) {
    for (size_t m = 0; m < numLanes; ++m)
      if (int known = now[l].known[m]; known >= 0) lanes[l].joined[m] = known + 1 == lanes[m].items ? 2 : 1;
    lanes[l].written.merge();
    lanes[l].touched.merge();
  }
  return lanes;
}

class Orderer {
public:
  Orderer(const plan::Plan &plan, const plan::Program &program)
      : plan(plan), program(program), used(lanesOf(program)) {}

  std::vector<ActionWaits> run(const plan::Routine &routine) {
    std::vector<ActionWaits> waits(static_cast<size_t>(routine.actions_size()));
    std::vector<size_t> kinds;
    for (const plan::Action &action : routine.actions()) kinds.push_back(kindOf(action));
    conflicts.assign(kindBytes.size() * used.size() * kindBytes.size() * used.size(), unknown);
    std::vector<int> newest(kindBytes.size(), -1); // of the actions so far, of each kind
    std::vector<size_t> recent;                    // the kinds that were there, that of the newest action first
    int known[numLanes][numLanes]; // by lane and other lane: the last action whose commands there are done
    for (auto &row : known) std::fill(row, row + numLanes, -1);
    for (int a = 0; a < routine.actions_size(); ++a) {
      const size_t kind = kinds[static_cast<size_t>(a)];
      for (size_t l = 0; l < used.size(); ++l) {
        auto lane = static_cast<size_t>(used[l]);
        const LaneBytes &mine = bytesOn(kind, l);
        auto &list = waits[static_cast<size_t>(a)][lane];
        if (mine.touches.empty()) continue;
        for (size_t o = 0; o < used.size(); ++o) {
          auto other = static_cast<size_t>(used[o]);
          if (other == lane) continue;
          int least = INT32_MAX, last = -1;
          for (size_t earlier : recent) { // older actions of its kind say no more
            const int b = newest[earlier];
            if (b <= known[lane][other] || least == -1) break;
            int item = conflict(kind, l, earlier, o);
            if (item >= least) continue;
            least = item;
            last = std::max(last, b);
            list.push_back({item, static_cast<int>(other), b});
          }
          known[lane][other] = std::max(known[lane][other], last);
          if (int joined = mine.joined[other])
            known[lane][other] = std::max(known[lane][other], joined == 2 ? a : a - 1);
        }
        std::sort(list.begin(), list.end(), [](const ActionWait &x, const ActionWait &y) { return x.item < y.item; });
      }
      newest[kind] = a;
      std::erase(recent, kind);
      recent.insert(recent.begin(), kind);
    }
    return waits;
  }

private:
  size_t kindOf(const plan::Action &action) {
    auto [found, added] = kindNumbers.emplace(std::pair{action.fragment(), action.slot()}, kindBytes.size());
    if (added) kindBytes.push_back(bytesOf(plan, program, program.fragments(action.fragment()), action.slot()));
    return found->second;
  }
  // A lane by its number among those used.
  const LaneBytes &bytesOn(size_t kind, size_t lane) const { return kindBytes[kind][static_cast<size_t>(used[lane])]; }
  int conflict(size_t kind, size_t lane, size_t earlier, size_t other) {
    int &found = conflicts[((kind * used.size() + lane) * kindBytes.size() + earlier) * used.size() + other];
    if (found == unknown) found = bytesOn(kind, lane).firstConflict(bytesOn(earlier, other));
    return found;
  }

  const plan::Plan &plan;
  const plan::Program &program;
  const std::vector<int> used;                               // lanes
  std::map<std::pair<int32_t, int32_t>, size_t> kindNumbers; // fragment and slot
  std::vector<FragmentBytes> kindBytes;
  static constexpr int unknown = -2;
  std::vector<int> conflicts; // by kind, lane, earlier kind, other lane
};

} // namespace

std::vector<ActionWaits> orderActions(const plan::Plan &plan, const plan::Program &program,
                                      const plan::Routine &routine) {
  return Orderer(plan, program).run(routine);
}

} // namespace cleave::runtime
