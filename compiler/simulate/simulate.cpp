#include "compiler/simulate/simulate.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/lane_cursor.h"
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <map>

namespace cleave::simulate {
namespace {

using runtime::LaneStep;
using runtime::numLanes;

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
  // Where all devices are threads of a process, one thread issues the commands of a device's lanes in turn.
  const bool sharesThread;
  double thread = 0;
};

class Simulation {
public:
  Simulation(const plan::Plan &plan, const planner::Cluster &cluster, const dist::Mesh &mesh, bool keeps)
      : mesh(mesh), prices(plan, cluster, mesh), keeps(keeps) {
    const bool sharesThread = cluster.device.isCpu() && cluster.nodes == 1;
    for (int p = 0; p < plan.programs_size(); ++p)
      ranks.emplace_back(plan, plan.programs(p), deviceOf(plan, p), prices, sharesThread);
  }

  Result<SimulatedStep> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank &rank : ranks)
        for (auto &[number, lane] : rank.lanes)
          while (advance(rank, number, lane)) moved = true;
    }
    SimulatedStep step;
    for (Rank &rank : ranks) {
      double compute = 0, others = 0;
      for (auto &[number, lane] : rank.lanes) {
        if (lane.cursor.next(rank.chain) != LaneStep::End)
          return inputError(fmt::format("device {} waits for another one, which sends nothing", rank.device));
        step.seconds = std::max(step.seconds, lane.time);
      }
      for (int a = 0; a < rank.chain.routine->actions_size(); ++a) {
        const int number = rank.chain.routine->actions(a).fragment();
        const plan::Fragment &fragment = rank.program.fragments(number);
        for (int c = 0; c < fragment.commands_size(); ++c) {
          const plan::Command &command = fragment.commands(c);
          const CommandPrice &price = rank.chain.fragments[size_t(number)].prices[size_t(c)];
          (runtime::laneOf(command) == runtime::computeLane ? compute : others) += price.seconds;
          add(command, price);
          ++step.count;
        }
      }
      step.computeSeconds = std::max(step.computeSeconds, compute);
      step.communicationSeconds = std::max(step.communicationSeconds, others);
    }
    for (auto &[kind, total] : totals) {
      for (double *sum : {&total.count, &total.launches, &total.flops, &total.bytes, &total.seconds})
        *sum /= double(ranks.size());
      total.kind = kind;
      step.totals.push_back(total);
    }
    std::ranges::stable_sort(step.totals, std::ranges::greater(), &SimulatedTotal::seconds);
    step.commands = std::move(commands);
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

  void add(const plan::Command &command, const CommandPrice &price) {
    SimulatedTotal &total = totals[runtime::kindName(command)];
    ++total.count, total.launches += price.work.launches, total.bytes += price.work.bytes;
    total.flops += price.work.flops, total.seconds += price.seconds;
    for (double elements : price.work.elements) total.flops += elements;
  }

  // Does what is next on the lane; false: it waits for another one, or has ended.
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
      if (!execute(rank, number, lane)) return false;
    } else if (next == LaneStep::EndAction) {
      rank.ends[action].lane[size_t(number)] = lane.time;
    }
    lane.cursor.pass(next);
    return true;
  }

  bool execute(Rank &rank, int number, Lane &lane) {
    const size_t action = lane.cursor.action();
    const plan::Action &of = rank.chain.routine->actions(int(action));
    const plan::Fragment &fragment = rank.program.fragments(of.fragment());
    const int at = rank.chain.items(action, number)[lane.cursor.item()].command;
    const plan::Command &command = fragment.commands(at);
    const double seconds = rank.chain.fragments[size_t(of.fragment())].prices[size_t(at)].seconds;
    double begin = rank.sharesThread ? std::max(lane.time, rank.thread) : lane.time, end = begin + seconds;
    if (command.has_transfer()) {
      const plan::Transfer &transfer = command.transfer();
      const int own = rankOf(rank.device), peer = rankOf(runtime::evaluate(transfer.peer(), mesh, rank.device));
      const bool sends = transfer.direction() == plan::Transfer::SEND;
      std::deque<double> &arrivals = messages[{sends ? own : peer, sends ? peer : own, transfer.channel()}];
      if (sends) {
        arrivals.push_back(end);
      } else {
        if (arrivals.empty()) return false;
        begin = lane.time; // a receive is a wait, which holds no thread
        end = std::max(begin, arrivals.front());
        arrivals.pop_front();
      }
    } else if (command.has_collective() && ranks.size() > 1 &&
               std::ranges::count(command.collective().axes(), dist::pipelineAxis)) {
      const std::optional<double> met = meet(rank, command.collective(), begin);
      if (!met) return false;
      begin = *met, end = begin + seconds;
    }
    lane.time = end;
    if (rank.sharesThread && !command.has_transfer()) rank.thread = end;
    std::vector<double> &done = rank.ends[action].items[size_t(number)];
    done.push_back(end);
    if (keeps) commands.push_back({rank.device, number, &command, &of, &fragment, begin, end});
    return true;
  }

  // A collective of all programs begins when the last of them is there.
  std::optional<double> meet(const Rank &rank, const plan::Collective &collective, double begin) {
    std::string group;
    for (const std::string &axis : collective.axes()) group += axis + ",";
    Meeting &meeting = meetings[{group, counts[{rank.device, group}]}];
    meeting.begins[rank.device] = begin;
    if (meeting.begins.size() < ranks.size()) return std::nullopt;
    ++counts[{rank.device, group}];
    double last = 0;
    for (auto [device, at] : meeting.begins) last = std::max(last, at);
    return last;
  }
  struct Meeting {
    std::map<int64_t, double> begins;
  };

  const dist::Mesh &mesh;
  const CommandPrices prices;
  const bool keeps;
  std::deque<Rank> ranks;
  std::map<std::tuple<int, int, int>, std::deque<double>> messages; // sender, receiver, channel: arrivals
  std::map<std::pair<std::string, int64_t>, Meeting> meetings;      // group, which one of it
  std::map<std::pair<int64_t, std::string>, int64_t> counts;
  std::map<std::string, SimulatedTotal> totals;
  std::vector<SimulatedCommand> commands;
};

} // namespace

Result<SimulatedStep> simulateStep(const plan::Plan &plan, const planner::Cluster &cluster, bool keepsCommands) {
  CLEAVE_ASSIGN_OR_RETURN(dist::Mesh mesh, runtime::meshOf(plan.mesh()));
  if (mesh.numDevices() != cluster.numDevices())
    return inputError(fmt::format("the plan is for {} devices, and {} has {}", mesh.numDevices(), cluster.name,
                                  cluster.numDevices()));
  if (runtime::stepsOverlap(plan))
    return inputError("its steps run into each other (pipedream-2bw): none stands alone");
  for (const plan::Program &program : plan.programs())
    if (!runtime::findRoutine(program, "step")) return inputError("the plan has no routine 'step'");
  return Simulation(plan, cluster, mesh, keepsCommands).run();
}

} // namespace cleave::simulate
