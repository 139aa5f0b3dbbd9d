// Routines of one program: actions in range, slot regions apart from everything else, and what an action reads from its
// slot was written there before, for the same microbatch. Where steps run into each other, over the end of a step, too.
#include "runtime/plan/accesses.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/previous_weights.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

namespace cleave::runtime {
namespace {

struct Place {
  int64_t begin, end;
  std::string what;
};

// The slot regions of one routine, in the arena and in the host's memory: apart from each other, from persistent
// tensors and from all that its fragments have outside a slot. Routines never run at the same time, so the regions of
// two may share bytes.
class RoutineRegions {
public:
  explicit RoutineRegions(const plan::Program &program, const plan::Routine &routine) : program(program) {
    for (const plan::Action &action : routine.actions())
      if (action.fragment() >= 0 && action.fragment() < program.fragments_size()) fragments.insert(action.fragment());
    std::set<int> numbers;
    for (int fragment : fragments)
      if (int region = program.fragments(fragment).slot_region(); region >= 0 && region < program.slot_regions_size())
        if (region > 0 || usesSlot(program.fragments(fragment)))
          numbers.insert(region); // 0 is of those without slots, too
    for (int r : numbers) {
      const plan::SlotRegion &region = program.slot_regions(r);
      if (int64_t bytes = region.bytes() * region.count(); bytes > 0)
        regions.push_back({region.offset(), region.offset() + bytes, fmt::format("slot region {}", r)});
      if (int64_t bytes = region.host_bytes() * region.count(); bytes > 0)
        regions.push_back({hostMemory + region.host_offset(), hostMemory + region.host_offset() + bytes,
                           fmt::format("slot region {} of the host's memory", r)});
    }
    std::sort(regions.begin(), regions.end(), [](const Place &a, const Place &b) { return a.begin < b.begin; });
  }

  Status verify(const plan::Plan &plan, const dist::Mesh &mesh, int number) const {
    for (size_t r = 1; r < regions.size(); ++r)
      if (regions[r - 1].end > regions[r].begin)
        return inputError(fmt::format("{} overlaps {}", regions[r - 1].what, regions[r].what));
    for (const plan::Parameter &parameter : plan.parameters())
      if (std::optional<int64_t> offset = offsetIn(parameter, number)) {
        CLEAVE_RETURN_IF_ERROR(
            apart(*offset, blockBytes(parameter, mesh), fmt::format("parameter '{}'", parameter.name())));
      }
    for (const plan::HostScalar &scalar : program.host_scalars())
      CLEAVE_RETURN_IF_ERROR(apart(scalar.buffer().offset(), byteSize(scalar.buffer()), "a host scalar"));
    for (int fragment : fragments) CLEAVE_RETURN_IF_ERROR(verify(program.fragments(fragment), plan));
    return Status::ok();
  }

private:
  Status verify(const plan::Fragment &fragment, const plan::Plan &plan) const {
    auto check = [&](const plan::Buffer &buffer, const std::string &what) {
      int64_t begin = buffer.offset() + (buffer.on_host() ? hostMemory : 0);
      return buffer.in_slot() ? Status::ok() : apart(begin, byteSize(buffer), what);
    };
    for (const plan::InputBinding &input : fragment.inputs())
      CLEAVE_RETURN_IF_ERROR(
          check(input.buffer(), fmt::format("fragment '{}', input '{}'", fragment.name(), input.name())));
    for (const plan::OutputBinding &output : fragment.outputs())
      CLEAVE_RETURN_IF_ERROR(
          check(output.buffer(), fmt::format("fragment '{}', output '{}'", fragment.name(), output.name())));
    for (const plan::ConstantData &constant : fragment.constants())
      CLEAVE_RETURN_IF_ERROR(check(constant.buffer(), fmt::format("fragment '{}', a constant", fragment.name())));
    for (int c = 0; c < fragment.commands_size(); ++c)
      for (const Access &access : accessesOf(fragment.commands(c), &plan))
        if (Status status = check(*access.buffer, access.role); !status)
          return inputError(fmt::format("{}: {}", showCommand(fragment, c), status.message()));
    return Status::ok();
  }

  Status apart(int64_t begin, int64_t bytes, const std::string &what) const {
    auto after =
        std::partition_point(regions.begin(), regions.end(), [&](const Place &region) { return region.end <= begin; });
    if (bytes <= 0 || after == regions.end() || after->begin >= begin + bytes) return Status::ok();
    return inputError(fmt::format("{} overlaps {}", what, after->what));
  }

  const plan::Program &program;
  std::set<int> fragments;
  std::vector<Place> regions; // by where they begin
};

Status verifyRegions(const plan::Program &program, const plan::Plan &plan, const dist::Mesh &mesh, int number) {
  for (int r = 0; r < program.slot_regions_size(); ++r) {
    const plan::SlotRegion &region = program.slot_regions(r);
    __int128 end = region.offset() + static_cast<__int128>(region.bytes()) * region.count();
    if (region.offset() < 0 || region.bytes() < 0 || region.count() < 0 || end > program.arena_bytes())
      return inputError(fmt::format("slot region {}: {} copies of {} bytes at {} are not inside the arena of {} bytes",
                                    r, region.count(), region.bytes(), region.offset(), program.arena_bytes()));
    end = region.host_offset() + static_cast<__int128>(region.host_bytes()) * region.count();
    if (region.host_offset() < 0 || region.host_bytes() < 0 || end > program.host_bytes())
      return inputError(fmt::format("slot region {}: {} copies of {} bytes at {} are not inside the {} bytes of the "
                                    "host's memory",
                                    r, region.count(), region.host_bytes(), region.host_offset(),
                                    program.host_bytes()));
    if (region.offset() % 8 || region.host_offset() % 8 ||
        (region.count() > 1 && (region.bytes() % 8 || region.host_bytes() % 8)))
      return inputError(fmt::format("slot region {} is not aligned to 8 bytes", r));
    constexpr int64_t vector = 16; // bytes that a GPU's kernel reads at once
    if (plan.has_cuda() && (region.offset() % vector || (region.count() > 1 && region.bytes() % vector)))
      return inputError(fmt::format("slot region {} is not aligned to {} bytes", r, vector));
  }
  if (program.slot_regions().empty()) return Status::ok();
  for (const plan::Routine &routine : program.routines())
    if (Status status = RoutineRegions(program, routine).verify(plan, mesh, number); !status)
      return inputError(fmt::format("routine '{}': {}", routine.name(), status.message()));
  return Status::ok();
}

// Which microbatch wrote the bytes of one slot: ranges in order, each whole with its writer; nobody wrote the gaps.
class SlotContent {
public:
  void write(int64_t begin, int64_t end, int64_t microbatch) {
    if (begin >= end) return;
    cut(begin);
    cut(end);
    ranges.erase(ranges.lower_bound(begin), ranges.lower_bound(end));
    ranges[begin] = {end, microbatch};
  }
  // Whether the microbatch wrote all of it last. If not, `other` is who wrote the first byte that it did not; -1:
  // nobody.
  bool has(int64_t begin, int64_t end, int64_t microbatch, int64_t &other) const {
    auto at = ranges.upper_bound(begin);
    if (at != ranges.begin()) --at;
    for (int64_t done = begin; done < end; ++at) {
      other = -1;
      if (at == ranges.end() || at->first > done || at->second.first <= done) return false;
      other = at->second.second;
      if (other != microbatch) return false;
      done = at->second.first;
    }
    return true;
  }

private:
  void cut(int64_t at) { // a range that goes across `at` becomes two
    auto found = ranges.upper_bound(at);
    if (found == ranges.begin()) return;
    --found;
    auto [end, microbatch] = found->second;
    if (found->first == at || end <= at) return;
    found->second.first = at;
    ranges[at] = {end, microbatch};
  }
  std::map<int64_t, std::pair<int64_t, int64_t>> ranges; // begin: end, microbatch
};

// An action's access to its slot, in issue order. As with places, the host's memory begins at hostMemory.
struct SlotAccess {
  int64_t begin, end;
  bool write;
  int command; // -1: an input, filled by the host
  const char *role;
};

std::vector<SlotAccess> slotAccesses(const plan::Fragment &fragment, const plan::Plan &plan) {
  std::vector<SlotAccess> all;
  auto add = [&](const plan::Buffer &buffer, bool write, int command, const char *role) {
    if (!buffer.in_slot()) return;
    int64_t begin = buffer.offset() + (buffer.on_host() ? hostMemory : 0);
    all.push_back({begin, begin + byteSize(buffer), write, command, role});
  };
  for (const plan::InputBinding &input : fragment.inputs()) add(input.buffer(), true, -1, "input");
  for (int c = 0; c < fragment.commands_size(); ++c) {
    std::vector<Access> accesses = accessesOf(fragment.commands(c), &plan);
    for (bool write : {false, true})
      for (const Access &access : accesses)
        if (access.write == write) add(*access.buffer, write, c, access.role);
  }
  for (const plan::OutputBinding &output : fragment.outputs()) add(output.buffer(), false, -1, "output");
  return all;
}

// The owner of a slot's content: a microbatch of one of the chain's steps.
int64_t ownerOf(const ChainAction &at) { return at.step << 31 | at.action->microbatch(); }
std::string showOwner(int64_t owner, bool oneStep) {
  std::string microbatch = fmt::format("microbatch {}", owner & ((int64_t(1) << 31) - 1));
  return oneStep ? microbatch : fmt::format("{} of step {} of them", microbatch, (owner >> 31) + 1);
}

Status verifyActions(const plan::Routine &routine, const plan::Program &program, bool runsOn) {
  int64_t actions = 0;
  for (const plan::Routine &each : program.routines()) actions += each.actions_size();
  for (int a = 0; a < routine.actions_size(); ++a) {
    const plan::Action &action = routine.actions(a);
    if (action.fragment() < 0 || action.fragment() >= program.fragments_size())
      return inputError(
          fmt::format("action {} runs fragment {} of {}", a, action.fragment(), program.fragments_size()));
    if (action.microbatch() < 0 || action.microbatch() >= actions) // each has an action of its own
      return inputError(
          fmt::format("action {} is of microbatch {}, and there are {} actions", a, action.microbatch(), actions));
    if (action.ahead() && !(runsOn && routine.name() == "step"))
      return inputError(
          fmt::format("action {} is of the next step, which only a 'step' between 'fill' and 'drain' has", a));
  }
  return Status::ok();
}

Status verifySlots(const std::vector<std::string> &chain, const plan::Program &program, const plan::Plan &plan) {
  std::vector<std::vector<SlotAccess>> accesses(static_cast<size_t>(program.fragments_size()));
  std::vector<bool> known(accesses.size(), false);
  std::map<std::pair<int32_t, int32_t>, SlotContent> slots; // by region and slot
  bool oneStep = chain.size() == 1;
  int routine = 0, a = -1;
  for (const ChainAction &at : actionsOf(program, chain)) {
    const plan::Action &action = *at.action;
    a = at.routine == routine ? a + 1 : 0;
    routine = at.routine;
    auto f = static_cast<size_t>(action.fragment());
    const plan::Fragment &fragment = program.fragments(action.fragment());
    if (!known[f]) accesses[f] = slotAccesses(fragment, plan), known[f] = true;
    if (accesses[f].empty()) continue;
    const plan::SlotRegion &region = program.slot_regions(fragment.slot_region());
    auto where = [&](const SlotAccess &access) {
      std::string name =
          fmt::format("action {} ({}, slot {})", a, actionName(fragment, action.microbatch()), action.slot());
      if (!oneStep) name += fmt::format(" of '{}'", chain[static_cast<size_t>(at.routine)]);
      if (access.command < 0) return fmt::format("{}: its {}", name, access.role);
      const plan::Command &command = fragment.commands(access.command);
      return fmt::format("{}: command {} '{}', {}", name, access.command, command.name(), access.role);
    };
    if (action.slot() < 0 || action.slot() >= region.count())
      return inputError(fmt::format("action {} ({}) uses slot {} of {}", a, actionName(fragment, action.microbatch()),
                                    action.slot(), region.count()));
    SlotContent &content = slots[{fragment.slot_region(), action.slot()}];
    for (const SlotAccess &access : accesses[f]) {
      int64_t other = -1;
      if (access.write)
        content.write(access.begin, access.end, ownerOf(at));
      else if (!content.has(access.begin, access.end, ownerOf(at), other))
        return inputError(
            fmt::format("{} reads bytes {} to {} of the slot{}, which {}", where(access), access.begin % hostMemory,
                        access.end % hostMemory, access.begin >= hostMemory ? " in the host's memory" : "",
                        other < 0 ? "no earlier action wrote" : showOwner(other, oneStep) + " has overwritten"));
    }
  }
  return Status::ok();
}

// Places that an action of the next step must leave alone: sums that this step still uses, and the weights at which
// this step's gradients are taken.
Status verifyAhead(const plan::Program &program, const plan::Plan &plan, const dist::Mesh &mesh, int number) {
  struct Kept {
    int64_t begin, end;
    const plan::Parameter *parameter;
  };
  std::vector<Kept> sums, weights;
  for (const plan::Parameter &parameter : plan.parameters())
    if (std::optional<int64_t> offset = offsetIn(parameter, number); offset && !parameter.on_host()) {
      const int64_t bytes = blockBytes(parameter, mesh);
      if (parameter.role() == plan::Parameter::ACCUMULATOR) sums.push_back({*offset, *offset + bytes, &parameter});
      if (parameter.name().starts_with(previousPrefix)) weights.push_back({*offset, *offset + bytes, &parameter});
    }
  std::set<int> seen;
  for (const plan::Action &action : findRoutine(program, "step")->actions()) {
    if (!action.ahead() || !seen.insert(action.fragment()).second) continue;
    const plan::Fragment &fragment = program.fragments(action.fragment());
    for (int c = 0; c < fragment.commands_size(); ++c)
      for (const Access &access : accessesOf(fragment.commands(c), &plan)) {
        if (access.buffer->in_slot() || access.buffer->on_host()) continue;
        int64_t begin = access.buffer->offset(), end = begin + byteSize(*access.buffer);
        for (const auto *all : {&sums, &weights})
          for (const Kept &kept : *all)
            if (begin < kept.end && kept.begin < end)
              return inputError(fmt::format("{}: {} touches '{}' in an action of the next step, and this step still "
                                            "needs it",
                                            showCommand(fragment, c), access.role, kept.parameter->name()));
      }
  }
  return Status::ok();
}

} // namespace

Status verifyRoutines(const plan::Program &program, const plan::Plan &plan, const dist::Mesh &mesh, int number) {
  CLEAVE_RETURN_IF_ERROR(verifyRegions(program, plan, mesh, number));
  std::set<std::string> names;
  bool isOn = stepsOverlap(plan);
  for (const plan::Routine &routine : program.routines()) {
    if (!names.insert(routine.name()).second)
      return inputError(fmt::format("routine '{}' appears twice", routine.name()));
    if (Status status = verifyActions(routine, program, isOn); !status)
      return inputError(fmt::format("routine '{}', {}", routine.name(), status.message()));
  }
  for (const std::vector<std::string> &chain : routineChains(plan)) {
    for (const std::string &part : chain)
      if (!names.contains(part))
        return inputError(findRoutine(plan.programs(0), part)
                              ? fmt::format("not every program has the routine '{}'", part)
                              : fmt::format("there is a routine 'fill', but none '{}'", part));
    if (Status status = verifySlots(chain, program, plan); !status)
      return inputError(fmt::format("{}, {}", chainName(chain), status.message()));
  }
  return isOn ? verifyAhead(program, plan, mesh, number) : Status::ok();
}

} // namespace cleave::runtime
