#include "test/unit/memory/plan_liveness.h"
#include "runtime/plan/accesses.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <map>

namespace cleave {
namespace {

struct Touch {
  int64_t begin = 0, end = 0; // bytes of the arena
  int at = 0;                 // command
  bool reads = false, writes = false;
};

class Liveness {
public:
  Liveness(const plan::Plan &plan, const plan::Program &program) : plan(plan), program(program) {}

  PlanMemory run() {
    for (const plan::Routine &routine : program.routines())
      if (routine.name() == "step")
        for (const plan::Action &action : routine.actions()) addAction(action);
    std::vector<double> more(memory.moments.size() + 1, 0.0); // bytes that come into use with a command
    for (const auto &[first, last, bytes] : uses()) {
      more[size_t(first)] += bytes;
      more[size_t(last) + 1] -= bytes;
    }
    double bytes = double(program.persistent_bytes()) + double(program.library_workspace_bytes());
    for (size_t i = 0; i < memory.moments.size(); ++i) memory.moments[i].bytes = bytes += more[i];
    std::erase_if(memory.moments, [](const PlanMemory::Moment &moment) { return moment.phase.empty(); });
    bool isOver = true; // the last backward pass
    for (size_t i = memory.moments.size(); i-- > 0;) {
      std::string &phase = memory.moments[i].phase;
      isOver = isOver && phase != "backward";
      if (phase == "update" && !isOver) phase = "backward";
    }
    return std::move(memory);
  }

private:
  int now() const { return int(memory.moments.size()); }

  void touch(const plan::Buffer &buffer, int at, bool reads, bool writes, int slot) {
    if (buffer.on_host()) return;
    int64_t begin = buffer.offset();
    if (buffer.in_slot()) {
      const plan::SlotRegion &region = program.slot_regions(fragment->slot_region());
      begin += region.offset() + slot * region.bytes();
    }
    const int64_t end = begin + int64_t(runtime::byteSize(buffer));
    if (begin >= program.persistent_bytes()) touches.push_back({begin, end, at, reads, writes});
  }

  // Does it leave what else is in a buffer that it writes?
  static bool writesPart(const plan::Command &command, const plan::Buffer &buffer) {
    int64_t written = 1, all = 1;
    if (command.has_contract()) {
      if (command.contract().accumulate()) return true;
      for (int64_t size : command.contract().batch()) written *= size;
      written *= command.contract().m() * command.contract().n();
    } else if (command.has_copy()) {
      for (int64_t size : command.copy().sizes()) written *= size;
    } else {
      return false;
    }
    for (int64_t size : buffer.shape()) all *= size;
    return written < all;
  }

  void addAction(const plan::Action &action) {
    fragment = &program.fragments(action.fragment());
    memory.moments.push_back({"", 0}); // the executor fills the inputs
    const int first = now() - 1, last = first + fragment->commands_size() + 1;
    for (const plan::InputBinding &input : fragment->inputs()) touch(input.buffer(), first, false, true, action.slot());
    for (const plan::ConstantData &constant : fragment->constants()) {
      touch(constant.buffer(), 0, false, true, action.slot());
      constants.push_back(touches.back());
    }
    std::map<int, int> waited; // by event: who waits for it first, on the compute stream
    for (int c = 0; c < fragment->commands_size(); ++c)
      if (fragment->commands(c).stream() == runtime::computeLane)
        for (int event : fragment->commands(c).wait_events()) waited.try_emplace(event, first + 1 + c);
    for (const plan::Command &command : fragment->commands()) {
      const int at = now();
      const bool isCompute = command.stream() == runtime::computeLane;
      const auto waits = waited.find(command.record_event());
      const int done = isCompute ? at : waits == waited.end() || command.record_event() == 0 ? last : waits->second;
      for (const runtime::Access &access : runtime::accessesOf(command, &plan)) {
        touch(*access.buffer, at, !access.write || writesPart(command, *access.buffer), access.write, action.slot());
        if (!isCompute) touch(*access.buffer, done, true, false, action.slot());
      }
      memory.moments.push_back({isCompute ? command.phase() : "", 0});
    }
    memory.moments.push_back({"", 0}); // and reads the outputs
    for (const plan::OutputBinding &output : fragment->outputs())
      touch(output.buffer(), last, true, false, action.slot());
  }

  struct Use {
    int first = 0, last = 0;
    double bytes = 0;
  };
  // Uses of the arena's pieces; every touch has all of a piece or nothing.
  std::vector<Use> uses() {
    for (Touch constant : constants) {
      constant.at = now() - 1;
      constant.reads = true;
      constant.writes = false;
      touches.push_back(constant);
    }
    std::vector<int64_t> borders;
    for (const Touch &one : touches) borders.insert(borders.end(), {one.begin, one.end});
    std::ranges::sort(borders);
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::ranges::stable_sort(touches, [](const Touch &a, const Touch &b) { return a.at < b.at; });
    struct Piece {
      int first = -1, last = -1; // of the value that is there
    };
    std::vector<Piece> pieces(borders.size());
    std::vector<Use> all;
    auto close = [&](size_t piece) {
      if (pieces[piece].first >= 0)
        all.push_back({pieces[piece].first, pieces[piece].last, double(borders[piece + 1] - borders[piece])});
    };
    for (const Touch &one : touches) {
      const auto begin = size_t(std::ranges::lower_bound(borders, one.begin) - borders.begin());
      for (size_t piece = begin; borders[piece] < one.end; ++piece) {
        const bool isNew = one.writes && !one.reads;
        if (isNew && pieces[piece].last < one.at) {
          close(piece);
          pieces[piece] = {one.at, one.at};
        } else if (pieces[piece].first >= 0) {
          pieces[piece].last = std::max(pieces[piece].last, one.at);
        } else {
          pieces[piece] = {one.at, one.at};
        }
      }
    }
    for (size_t piece = 0; piece + 1 < borders.size(); ++piece) close(piece);
    return all;
  }

  const plan::Plan &plan;
  const plan::Program &program;
  const plan::Fragment *fragment = nullptr;
  std::vector<Touch> touches, constants;
  PlanMemory memory;
};

} // namespace

double PlanMemory::most(const std::string &phase) const {
  double bytes = 0;
  for (const Moment &moment : moments)
    if (phase.empty() || moment.phase == phase) bytes = std::max(bytes, moment.bytes);
  return bytes;
}

double PlanMemory::most() const { return most(""); }

PlanMemory memoryOf(const plan::Plan &plan, const plan::Program &program) { return Liveness(plan, program).run(); }

} // namespace cleave
