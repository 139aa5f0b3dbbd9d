#include "runtime/plan/action_order.h"
#include "runtime/plan/accesses.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <map>

namespace cleave::runtime {
namespace {

struct Touch {
  int item;
  ByteRange range;
  bool write;
};

// The bytes one lane of a fragment in one slot touches, and which other lanes it is behind when it is done.
struct LaneBytes {
  std::vector<Touch> touches; // in the order of items
  ByteRanges written, touched;
  int items = 0;
  // For another lane: 0 none of its commands of this action are known done at this lane's end, 1 some (and so all of
  // earlier actions), 2 all.
  std::array<int, numLanes> joined{};

  void add(int item, int64_t begin, int64_t bytes, bool write) {
    const ByteRange range{begin, begin + bytes};
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
  const std::vector<LaneClock> clocks = *clocksOf(fragment);
  std::array<int, numLanes> last;
  last.fill(-1);
  for (int c = 0; c < fragment.commands_size(); ++c) {
    const plan::Command &command = fragment.commands(c);
    auto lane = static_cast<size_t>(laneOf(command));
    LaneBytes &bytes = lanes[lane];
    for (const Access &access : accessesOf(command, &plan))
      bytes.add(bytes.items, placeOf(*access.buffer, program, fragment, slot), byteSize(*access.buffer), access.write);
    ++bytes.items;
    last[lane] = c;
  }
  for (size_t l = 0; l < numLanes; ++l)
    for (size_t m = 0; m < numLanes && last[l] >= 0; ++m)
      if (int done = clocks[static_cast<size_t>(last[l])].done[m]; done >= 0)
        lanes[l].joined[m] = done == last[m] ? 2 : 1;
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
