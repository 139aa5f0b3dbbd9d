#include "compiler/simulate/simulate.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/schedule/simulate.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/lane_cursor.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave::simulate {
namespace {

using runtime::LaneStep;
using runtime::numLanes;

constexpr double longestStep = 9e9; // seconds: nanoseconds in 64 bits

// From begin to end, seconds, in any order.
using Intervals = std::vector<std::pair<double, double>>;

// Those that overlap joined, in their order.
Intervals joined(Intervals intervals) {
  std::ranges::sort(intervals);
  Intervals apart;
  for (auto [begin, end] : intervals)
    if (apart.empty() || begin > apart.back().second)
      apart.emplace_back(begin, end);
    else
      apart.back().second = std::max(apart.back().second, end);
  return apart;
}
Intervals both(Intervals one, const Intervals &other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}
double covered(const Intervals &intervals) {
  double seconds = 0;
  for (auto [begin, end] : joined(intervals)) seconds += end - begin;
  return seconds;
}

// A lane of the device that stands for a program.
struct Lane {
  runtime::LaneCursor cursor;
  double time = 0; // until which it is busy
};

struct Fragment {
  runtime::LaneCommands lanes;
  std::vector<CommandPrice> prices; // by the command's number
};

// What LaneCursor asks of a chain of actions.
struct Chain {
  const plan::Routine *routine = nullptr;
  std::vector<runtime::ActionWaits> order;
  std::vector<Fragment> fragments; // by the program's number

  size_t size() const { return order.size(); }
  const std::vector<runtime::ActionWait> &waits(size_t action, int lane) const { return order[action][size_t(lane)]; }
  const std::vector<runtime::LaneCommand> &items(size_t action, int lane) const {
    return fragments[size_t(routine->actions(int(action)).fragment())].lanes[size_t(lane)];
  }
};

class Rank {
public:
  Rank(const plan::Plan &plan, const plan::Program &program, int64_t device, const CommandPrices &prices,
       bool sharesThread)
      : program(program), device(device), sharesThread(sharesThread) {
    chain.routine = runtime::findRoutine(program, "step");
    chain.order = runtime::orderActions(plan, program, *chain.routine);
    for (const plan::Fragment &fragment : program.fragments()) {
      Fragment &of = chain.fragments.emplace_back();
      of.lanes = runtime::laneCommandsOf(fragment);
      for (const plan::Command &command : fragment.commands()) of.prices.push_back(prices.of(command, device));
    }
    for (int lane : runtime::lanesOf(program)) lanes.emplace(lane, Lane{runtime::LaneCursor(lane)});
    ends.resize(chain.size());
  }

  const plan::Action &actionOf(const Lane &lane) const { return chain.routine->actions(int(lane.cursor.action())); }
  const plan::Fragment &fragmentOf(const Lane &lane) const { return program.fragments(actionOf(lane).fragment()); }
  const std::vector<runtime::LaneCommand> &itemsOf(int number) const {
    return chain.items(lanes.at(number).cursor.action(), number);
  }
  // The command that is next on the lane.
  int commandOf(int number) const { return itemsOf(number)[lanes.at(number).cursor.item()].command; }
  // When the lane can do something next.
  double readyAt(int number) const { return std::max(lanes.at(number).time, thread); }

  const plan::Program &program;
  const int64_t device;
  Chain chain;
  std::map<int, Lane> lanes;
  // By action and lane: when it has ended there, and when each of its items has.
  struct Ends {
    std::array<double, numLanes> lane{};
    std::array<std::vector<double>, numLanes> items;
  };
  std::vector<Ends> ends;
  Intervals compute, communication, hostCopies;
  Intervals collectives;              // of the communication
  std::map<std::string, int64_t> met; // collectives done, by group

  // Where all devices are threads of a process, one thread issues the commands of a device's lanes in turn: it is busy
  // until `thread`, and looks at the lane `turn` next.
  const bool sharesThread;
  double thread = 0;
  int turn = runtime::computeLane;
};

bool receives(const plan::Command &command) {
  return command.has_transfer() && command.transfer().direction() == plan::Transfer::RECEIVE;
}

class Simulation {
public:
  Simulation(const plan::Plan &plan, const planner::Cluster &cluster, const dist::Mesh &mesh, bool keeps)
      : cluster(cluster), mesh(mesh), prices(plan, cluster, mesh), interference(cluster.device.interference),
        keeps(keeps) {
    const bool sharesThread = cluster.device.isCpu() && cluster.nodes == 1;
    for (int p = 0; p < plan.programs_size(); ++p)
      ranks.emplace_back(plan, plan.programs(p), deviceOf(plan, p), prices, sharesThread);
  }

  Result<SimulatedStep> run() {
    do
      for (bool moved = true; moved;) {
        moved = false;
        for (Rank &rank : ranks)
          for (auto &[number, lane] : rank.lanes)
            while (advance(rank, number, lane)) moved = true;
      }
    while (takeTurn());
    for (const Rank &rank : ranks)
      for (auto &[number, lane] : rank.lanes)
        if (lane.cursor.next(rank.chain) != LaneStep::End)
          return runError(fmt::format("a fault of cleave: the simulated device {} does not get beyond fragment '{}'",
                                      rank.device, rank.fragmentOf(lane).name()));
    SimulatedStep step;
    double busiest = -1;
    for (const Rank &rank : ranks) {
      const double beside =
          covered(rank.compute) + covered(rank.collectives) - covered(both(rank.compute, rank.collectives));
      for (const auto &[number, lane] : rank.lanes)
        step.seconds = std::max(step.seconds, lane.time + interference * beside);
      for (const plan::Action &action : rank.chain.routine->actions()) addCommands(rank, action.fragment());
      const Intervals others = both(rank.communication, rank.hostCopies);
      const double busy = covered(both(rank.compute, others));
      if (busy <= busiest) continue;
      busiest = busy;
      step.fullest = {rank.device, covered(rank.compute), covered(rank.communication), covered(rank.hostCopies)};
      step.fullest.overlapped = step.fullest.compute + covered(others) - busy;
    }
    for (auto &[kind, total] : totals) {
      for (double *sum : {&total.count, &total.launches, &total.flops, &total.bytes, &total.seconds})
        *sum /= double(ranks.size());
      total.kind = kind;
      step.count += total.count;
      step.totals.push_back(total);
    }
    std::ranges::stable_sort(step.totals, std::ranges::greater(), &SimulatedTotal::seconds);
    step.commands = std::move(commands);
    takeTurnsOnCores(step);
    if (!(step.seconds < longestStep))
      return inputError(fmt::format("the step takes {:.3g} s, and a trace can hold {:.0e}", step.seconds, longestStep));
    return step;
  }

private:
  // The first device that runs a program.
  int64_t deviceOf(const plan::Plan &plan, int program) const {
    for (int64_t device = 0; device < mesh.numDevices(); ++device)
      if (runtime::programOf(plan, mesh, device) == program) return device;
    return 0;
  }
  int rankOf(int64_t device) const {
    for (size_t r = 0; r < ranks.size(); ++r)
      if (ranks.size() == 1 || programIndex(device) == programIndex(ranks[r].device)) return int(r);
    return 0;
  }
  int64_t programIndex(int64_t device) const { return mesh.indexAlong(device, {dist::pipelineAxis}); }

  void addCommands(const Rank &rank, int fragment) {
    for (int c = 0; c < rank.program.fragments(fragment).commands_size(); ++c) {
      const CommandPrice &price = rank.chain.fragments[size_t(fragment)].prices[size_t(c)];
      SimulatedTotal &total = totals[runtime::kindName(rank.program.fragments(fragment).commands(c))];
      ++total.count, total.launches += price.work.launches, total.bytes += price.work.bytes;
      total.flops += price.work.flops, total.seconds += price.seconds;
      for (double elements : price.work.elements) total.flops += elements;
    }
  }

  // Prices are those with all devices at work. Where devices share cores (Device::coreShare), all of the step goes
  // faster by what others leave while they wait, as in the search.
  void takeTurnsOnCores(SimulatedStep &step) const {
    if (cluster.device.coreShare >= 1 || ranks.size() == 1 || step.seconds <= 0) return;
    planner::Simulation work;
    work.makespan = step.seconds;
    for (const Rank &rank : ranks) {
      std::vector<planner::ActionTime> &actions = work.actions.emplace_back();
      for (auto [begin, end] : joined(both(rank.compute, rank.communication))) actions.push_back({begin, end});
    }
    const double turns =
        planner::makespanOnSharedCores(work, cluster.device.coreShare, planner::constants::unfilledWaits) /
        step.seconds;
    DeviceTimes &times = step.fullest;
    for (double *seconds : {&step.seconds, &times.compute, &times.communication, &times.hostCopies, &times.overlapped})
      *seconds *= turns;
    for (SimulatedTotal &total : step.totals) total.seconds *= turns;
    for (SimulatedCommand &command : step.commands) command.begin *= turns, command.end *= turns;
  }

  // Does what is next on the lane; false: it waits for another lane or for its turn, or has ended.
  bool advance(Rank &rank, int number, Lane &lane) {
    const LaneStep next = lane.cursor.next(rank.chain);
    const size_t action = lane.cursor.action();
    if (next == LaneStep::End) return false;
    if (next == LaneStep::AwaitLane) {
      const runtime::ActionWait &wait = lane.cursor.awaited(rank.chain);
      if (!rank.lanes.at(wait.lane).cursor.isPast(wait.action)) return false;
      lane.time = std::max(lane.time, rank.ends[size_t(wait.action)].lane[size_t(wait.lane)]);
    } else if (next == LaneStep::AwaitEvent) {
      const auto &item = rank.chain.items(action, number)[lane.cursor.item()];
      const auto [other, at] = item.waits[lane.cursor.event()];
      if (!rank.lanes.at(other).cursor.isPast(action, at)) return false;
      lane.time = std::max(lane.time, rank.ends[action].items[size_t(other)][size_t(at)]);
    } else if (next == LaneStep::Command) {
      // A receive is a wait, which holds no thread.
      if (rank.sharesThread && !receives(rank.fragmentOf(lane).commands(rank.commandOf(number)))) return false;
      return execute(rank, number);
    } else if (next == LaneStep::EndAction) {
      rank.ends[action].lane[size_t(number)] = lane.time;
    }
    lane.cursor.pass(next);
    return true;
  }

  // Does the first of all commands for which a device's thread is free: of several on a device as the runtime does
  // (Rank::issueRoutine), one of the compute lane, then those of the others. False: there is none.
  bool takeTurn() {
    Rank *first = nullptr;
    int chosen = 0;
    double earliest = 0;
    for (Rank &rank : ranks)
      for (int i = 0; rank.sharesThread && i < numLanes; ++i) {
        const int number = (rank.turn + i) % numLanes;
        if (!rank.lanes.contains(number)) continue;
        const std::optional<double> begin = beginOf(rank, number);
        if (begin && (!first || *begin < earliest)) first = &rank, chosen = number, earliest = *begin;
      }
    if (!first) return false;
    const bool yields =
        chosen == runtime::computeLane && first->lanes.at(chosen).cursor.item() + 1 < first->itemsOf(chosen).size();
    first->turn = chosen + yields;
    return execute(*first, chosen);
  }

  // When the command that is next on the lane can begin; none: it waits for another device, or there is none.
  std::optional<double> beginOf(Rank &rank, int number) {
    const Lane &lane = rank.lanes.at(number);
    if (lane.cursor.next(rank.chain) != LaneStep::Command) return std::nullopt;
    const plan::Command &command = rank.fragmentOf(lane).commands(rank.commandOf(number));
    if (receives(command)) {
      const std::deque<double> &arrivals = messagesOf(rank, command.transfer());
      return arrivals.empty() ? std::nullopt : std::optional(std::max(lane.time, arrivals.front()));
    }
    if (!meets(command)) return rank.readyAt(number);
    Meeting &meeting = meetingOf(rank, command.collective());
    meeting[&rank] = number;
    if (meeting.size() < ranks.size()) return std::nullopt;
    double last = 0; // all begin together
    for (auto [member, at] : meeting) last = std::max(last, member->readyAt(at));
    return last;
  }

  bool execute(Rank &rank, int number) {
    const std::optional<double> begin = beginOf(rank, number);
    if (!begin) return false;
    const plan::Command &command = rank.fragmentOf(rank.lanes.at(number)).commands(rank.commandOf(number));
    if (!meets(command)) {
      finish(rank, number, *begin);
      return true;
    }
    const Meeting members = meetingOf(rank, command.collective());
    for (auto [member, at] : members) {
      const plan::Command &own = member->fragmentOf(member->lanes.at(at)).commands(member->commandOf(at));
      ++member->met[groupName(own.collective())];
      finish(*member, at, *begin);
    }
    return true;
  }

  // The lane's next command, from `begin` on: it is done, and the lane goes on.
  void finish(Rank &rank, int number, double begin) {
    Lane &lane = rank.lanes.at(number);
    const plan::Action &action = rank.actionOf(lane);
    const plan::Fragment &fragment = rank.fragmentOf(lane);
    const int at = rank.commandOf(number);
    const plan::Command &command = fragment.commands(at);
    const double end = begin + rank.chain.fragments[size_t(action.fragment())].prices[size_t(at)].seconds;
    if (receives(command)) {
      messagesOf(rank, command.transfer()).pop_front();
      begin = lane.time; // it waits from here on
    } else {
      if (command.has_transfer()) messagesOf(rank, command.transfer()).push_back(end);
      if (rank.sharesThread && !command.has_transfer()) rank.thread = end;
      const bool isMessage = command.has_transfer() || command.has_collective();
      if (command.has_collective()) rank.collectives.emplace_back(begin, end);
      (isMessage ? rank.communication : isWithHost(command) ? rank.hostCopies : rank.compute).emplace_back(begin, end);
    }
    if (keeps) commands.push_back({rank.device, number, &command, &action, &fragment, begin, end});
    lane.time = end;
    rank.ends[lane.cursor.action()].items[size_t(number)].push_back(end);
    lane.cursor.pass(LaneStep::Command);
  }

  std::deque<double> &messagesOf(const Rank &rank, const plan::Transfer &transfer) {
    const int own = rankOf(rank.device), peer = rankOf(runtime::evaluate(transfer.peer(), mesh, rank.device));
    const bool sends = transfer.direction() == plan::Transfer::SEND;
    return messages[{sends ? own : peer, sends ? peer : own, transfer.channel()}];
  }

  // Is it a collective of all programs?
  bool meets(const plan::Command &command) const {
    return command.has_collective() && ranks.size() > 1 &&
           std::ranges::count(command.collective().axes(), dist::pipelineAxis);
  }
  using Meeting = std::map<Rank *, int>; // those that are there, and on which lane
  static std::string groupName(const plan::Collective &collective) {
    return fmt::format("{}", fmt::join(collective.axes(), ","));
  }
  Meeting &meetingOf(Rank &rank, const plan::Collective &collective) {
    const std::string group = groupName(collective);
    return meetings[{group, rank.met[group]}];
  }

  const planner::Cluster &cluster;
  const dist::Mesh &mesh;
  const CommandPrices prices;
  const double interference; // of collectives with compute beside them, a second
  const bool keeps;
  std::deque<Rank> ranks;
  std::map<std::tuple<int, int, int>, std::deque<double>> messages; // sender, receiver, channel: arrivals
  std::map<std::pair<std::string, int64_t>, Meeting> meetings;      // group, which one of it
  std::map<std::string, SimulatedTotal> totals;
  std::vector<SimulatedCommand> commands;
};

} // namespace

Result<SimulatedStep> simulateStep(const plan::Plan &plan, const planner::Cluster &cluster, bool keepsCommands) {
  for (const plan::Program &program : plan.programs())
    if (const plan::Routine *step = runtime::findRoutine(program, "step"); !step || step->actions().empty())
      return inputError("the plan has no routine 'step', or one without actions");
  CLEAVE_RETURN_IF_ERROR(runtime::verifyPlan(plan));
  CLEAVE_ASSIGN_OR_RETURN(dist::Mesh mesh, runtime::meshOf(plan.mesh()));
  if (mesh.numDevices() != cluster.numDevices())
    return inputError(fmt::format("the plan is for {} devices, and {} has {}", mesh.numDevices(), cluster.name,
                                  cluster.numDevices()));
  if (runtime::stepsOverlap(plan))
    return inputError("its steps run into each other (pipedream-2bw): none stands alone");
  return Simulation(plan, cluster, mesh, keepsCommands).run();
}

std::string simulatedShape(const plan::Plan &plan) {
  const size_t shapes = runtime::shapesOf(plan);
  if (shapes == 1) return "";
  return runtime::isRamp(plan) ? fmt::format("the last of {} batch sizes", shapes)
                               : fmt::format("the longest of {} lengths", shapes);
}

} // namespace cleave::simulate
