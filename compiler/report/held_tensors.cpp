#include "compiler/report/held_tensors.h"
#include "runtime/plan/accesses.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace cleave::report {
namespace {

// A tensor in scratch, from the command that makes it to the last that reads it.
struct ScratchLife {
  std::string name;
  int64_t begin = 0, end = 0; // bytes of the arena
  int first = 0, last = 0;    // commands
  bool isRead = false;
};

// The lives of a fragment's scratch, in the order of its commands.
class ScratchLives {
public:
  ScratchLives(const plan::Plan &plan, const plan::Program &program, const plan::Fragment &fragment)
      : persistent(program.persistent_bytes()) {
    for (const plan::InputBinding &input : fragment.inputs()) write(input.buffer(), input.name(), 0);
    for (int position = 0; position < fragment.commands_size(); ++position) {
      const plan::Command &command = fragment.commands(position);
      const std::vector<runtime::Access> accesses = runtime::accessesOf(command, &plan);
      for (const runtime::Access &access : accesses)
        if (!access.write) read(*access.buffer, position);
      for (const runtime::Access &access : accesses)
        if (access.write) write(*access.buffer, command.name(), position);
    }
    for (const plan::OutputBinding &output : fragment.outputs()) read(output.buffer(), fragment.commands_size() - 1);
  }

  std::vector<ScratchLife> lives;

private:
  bool isScratch(const plan::Buffer &buffer) const {
    return !buffer.in_slot() && !buffer.on_host() && buffer.offset() >= persistent;
  }
  // Those that overlap the buffer and are not over.
  std::vector<size_t> overlapping(const plan::Buffer &buffer) const {
    std::vector<size_t> found;
    const int64_t end = buffer.offset() + runtime::byteSize(buffer);
    auto at = open.upper_bound(buffer.offset());
    if (at != open.begin()) --at;
    for (; at != open.end() && at->first < end; ++at)
      if (lives[at->second].end > buffer.offset()) found.push_back(at->second);
    return found;
  }
  void read(const plan::Buffer &buffer, int position) {
    if (!isScratch(buffer)) return;
    for (size_t i : overlapping(buffer)) lives[i].last = position, lives[i].isRead = true;
  }
  // What is written in parts, before anything reads it, is one tensor.
  void write(const plan::Buffer &buffer, const std::string &name, int position) {
    if (!isScratch(buffer)) return;
    const int64_t begin = buffer.offset(), end = begin + runtime::byteSize(buffer);
    const std::vector<size_t> found = overlapping(buffer);
    if (found.size() == 1) {
      ScratchLife &one = lives[found[0]];
      if (one.begin <= begin && end <= one.end && (!one.isRead || one.last == position)) {
        one.last = position;
        return;
      }
    }
    for (size_t i : found) open.erase(lives[i].begin);
    open[begin] = lives.size();
    lives.push_back({name, begin, end, position, position});
  }

  const int64_t persistent;
  std::map<int64_t, size_t> open; // by where they begin; they do not overlap
};

const char *heldKind(const plan::Parameter &parameter) {
  if (parameter.role() == plan::Parameter::OPTIMIZER_STATE) return "optimizer state";
  return parameter.role() == plan::Parameter::ACCUMULATOR ? "gradient" : "parameter";
}

// What an action of the step leaves in its slot for a later one of its microbatch.
void addKept(std::vector<HeldTensor> &held, const plan::Plan &plan, const plan::Program &program,
             const std::set<int> &fragments) {
  std::map<std::pair<int, int64_t>, HeldTensor> kept; // by slot region and place in it
  for (int index : fragments) {
    const plan::Fragment &fragment = program.fragments(index);
    for (const plan::Command &command : fragment.commands())
      for (const runtime::Access &access : runtime::accessesOf(command, &plan)) {
        const plan::Buffer &buffer = *access.buffer;
        if (!access.write || !buffer.in_slot() || buffer.on_host()) continue;
        const int64_t copies = program.slot_regions(fragment.slot_region()).count();
        HeldTensor &one = kept[{fragment.slot_region(), buffer.offset()}];
        const double bytes = double(copies) * double(runtime::byteSize(buffer));
        if (bytes > one.bytes) one = {"kept", command.name(), copies, bytes};
      }
  }
  for (auto &[place, one] : kept) held.push_back(std::move(one));
}

// The largest of each kind, repetitions together.
std::vector<HeldTensor> largestOf(const std::vector<HeldTensor> &all, const planner::DisplayNames &names) {
  struct Group {
    HeldTensor sum;
    int64_t alike = 0;
  };
  std::map<std::tuple<std::string, std::string, int64_t>, Group> groups; // by kind, first repetition, copies
  for (const HeldTensor &one : all) {
    Group &group = groups[{one.kind, names.firstOf(one.name), one.copies}];
    if (group.alike++ == 0) group.sum = {one.kind, one.name, one.copies, 0};
    group.sum.bytes += one.bytes;
  }
  std::vector<HeldTensor> together;
  for (auto &[key, group] : groups) {
    group.sum.name = names.of(group.sum.name, group.alike);
    together.push_back(std::move(group.sum));
  }
  std::ranges::stable_sort(together, std::ranges::greater(), &HeldTensor::bytes);
  std::vector<HeldTensor> largest;
  for (const char *kind : {"parameter", "optimizer state", "gradient", "kept", "in use"}) {
    size_t shown = 0;
    for (const HeldTensor &one : together)
      if (one.kind == kind && shown++ < mostHeldTensors) largest.push_back(one);
  }
  return largest;
}

} // namespace

double shardBytes(const dist::Mesh &mesh, const plan::Parameter &parameter) {
  double bytes = double(runtime::byteSize(parameter.dtype()));
  for (int64_t dim : parameter.shape()) bytes *= double(dim);
  for (const plan::DimSharding &dim : parameter.dims()) bytes /= double(mesh.groupSize(runtime::axesOf(dim.axes())));
  return bytes;
}

bool isOnDevice(const plan::Parameter &parameter, int program) {
  const auto &held = parameter.pp_coordinates();
  return !parameter.on_host() && (held.empty() || std::ranges::count(held, program) > 0);
}

void nameHeldTensors(RankMemory &rank, const plan::Plan &plan, const dist::Mesh &mesh, int number,
                     const planner::DisplayNames &names) {
  const plan::Program &program = plan.programs(number);
  std::vector<HeldTensor> all;
  for (const plan::Parameter &parameter : plan.parameters())
    if (isOnDevice(parameter, number))
      all.push_back({heldKind(parameter), parameter.name(), 1, shardBytes(mesh, parameter)});
  std::set<int> ran; // fragments of the step
  if (const plan::Routine *step = runtime::findRoutine(program, "step"))
    for (const plan::Action &action : step->actions()) ran.insert(action.fragment());
  addKept(all, plan, program, ran);
  int64_t most = 0;
  std::vector<HeldTensor> fullest;
  for (int index : ran) {
    const plan::Fragment &fragment = program.fragments(index);
    if (fragment.commands().empty()) continue;
    const std::vector<ScratchLife> lives = ScratchLives(plan, program, fragment).lives;
    std::vector<int64_t> alive(size_t(fragment.commands_size()) + 1);
    for (const ScratchLife &one : lives) {
      alive[size_t(one.first)] += one.end - one.begin;
      alive[size_t(one.last) + 1] -= one.end - one.begin;
    }
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    const int position = int(std::ranges::max_element(alive) - alive.begin());
    if (alive[size_t(position)] <= most) continue;
    most = alive[size_t(position)];
    rank.fullestAt = names.of(fragment.commands(position).name());
    rank.phase = fragment.commands(position).phase();
    fullest.clear();
    for (const ScratchLife &one : lives)
      if (one.first <= position && position <= one.last)
        fullest.push_back({"in use", one.name, 1, double(one.end - one.begin)});
  }
  all.insert(all.end(), fullest.begin(), fullest.end());
  rank.held = largestOf(all, names);
}

} // namespace cleave::report
