// All devices' lanes run on paper, over routines that follow each other. Sends fill message buffers, receives empty
// them, collectives wait for their members; the result does not depend on who goes first, so one order of progress
// proves it for all.
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/lane_cursor.h"
#include "runtime/plan/message_routes.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave::runtime {
namespace {

// The part that devices of one program share: a chain for LaneCursor.
struct Script {
  const plan::Program *program;
  std::vector<ChainAction> actions;
  std::vector<LaneCommands> fragments;
  std::vector<ActionWaits> waitsOf; // by action, for actions of the whole chain

  size_t size() const { return actions.size(); }
  const std::vector<ActionWait> &waits(size_t action, int lane) const {
    return waitsOf[action][static_cast<size_t>(lane)];
  }
  const plan::Fragment &fragment(size_t action) const { return program->fragments(actions[action].action->fragment()); }
  const std::vector<LaneCommand> &items(size_t action, int lane) const {
    return fragments[static_cast<size_t>(actions[action].action->fragment())][static_cast<size_t>(lane)];
  }
  std::string name(size_t action) const { return actionName(fragment(action), actions[action].action->microbatch()); }
};

std::string signature(const plan::Collective &collective) {
  std::string text = plan::Collective::Op_Name(collective.op());
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  text += fmt::format(" {} over {{{}}}", plan::Collective::Reduce_Name(collective.reduce()),
                      fmt::join(collective.axes(), ","));
  for (int i = 0; i < collective.inputs_size(); ++i) {
    const plan::Buffer &buffer = collective.inputs(i);
    text += fmt::format(" {}[{}]", name(buffer.dtype()), fmt::join(buffer.shape(), "x"));
    if (i < collective.dims_size() && collective.dims(i) >= 0) text += fmt::format(" dim {}", collective.dims(i));
    if (i < collective.split_dims_size()) text += fmt::format(" from {}", collective.split_dims(i));
  }
  return text;
}

class Progress {
public:
  Progress(const plan::Plan &plan, const dist::Mesh &mesh, const std::vector<std::string> &chain,
           std::span<const int64_t> devices,
           const std::function<std::vector<int64_t>(int64_t, const plan::Collective &)> &together)
      : plan(plan), mesh(mesh), together(together) {
    for (const plan::Program &program : plan.programs()) {
      Script &script = scripts.emplace_back();
      script.program = &program;
      script.actions = actionsOf(program, chain);
      for (const plan::Fragment &fragment : program.fragments()) script.fragments.push_back(laneCommandsOf(fragment));
      for (const std::string &routine : chain) {
        const size_t begin = script.waitsOf.size();
        const auto last = static_cast<int>(begin) - 1;
        for (ActionWaits &waits : orderActions(plan, program, *findRoutine(program, routine))) {
          for (std::vector<ActionWait> &lane : waits) {
            for (ActionWait &wait : lane) wait.action += static_cast<int>(begin);
            if (begin == 0 || script.waitsOf.size() > begin) continue;
            for (int other = numLanes; other-- > 0;) // all lanes begin a routine together
              lane.insert(lane.begin(), {-1, other, last});
          }
          script.waitsOf.push_back(std::move(waits));
        }
      }
    }
    for (int64_t device : devices) {
      Rank &rank = ranks[device];
      rank.device = device;
      rank.script = &scripts[static_cast<size_t>(programOf(plan, mesh, device))];
      for (int lane = 0; lane < numLanes; ++lane) rank.lanes[static_cast<size_t>(lane)].cursor = LaneCursor(lane);
      for (const MessageRoute &route : routesOf(plan, mesh, device))
        if (route.from == device) routes[{route.from, route.to, route.channel}].buffers = route.buffers;
      ready.push_back(device);
    }
  }

  Status run() {
    while (!ready.empty()) {
      Rank &rank = ranks.at(ready.front());
      ready.pop_front();
      rank.queued = false;
      for (bool moved = true; moved;) {
        moved = false;
        for (int lane = 0; lane < numLanes; ++lane)
          while (step(rank, lane)) moved = true;
        if (!fault) return fault;
      }
    }
    std::vector<std::string> waiting;
    for (auto &[device, rank] : ranks)
      for (int lane = 0; lane < numLanes; ++lane)
        if (rank.next(lane) != LaneStep::End)
          waiting.push_back(fmt::format("device {}, {}, waits for {}", device, place(rank, lane), awaited(rank, lane)));
    if (waiting.empty()) return Status::ok();
    size_t more = waiting.size() > 8 ? waiting.size() - 8 : 0;
    waiting.resize(waiting.size() - more);
    return inputError(
        fmt::format("a deadlock: {}{}", fmt::join(waiting, "; "), more ? fmt::format("; and {} more", more) : ""));
  }

private:
  struct Lane {
    LaneCursor cursor;
    bool arrived = false; // at the current collective
  };
  struct Rank {
    int64_t device = 0;
    const Script *script = nullptr;
    std::array<Lane, numLanes> lanes;
    bool queued = true;
    const LaneCursor &cursor(int lane) const { return lanes[static_cast<size_t>(lane)].cursor; }
    LaneStep next(int lane) const { return cursor(lane).next(*script); }
    // Null: the lane has none left in its action.
    const LaneCommand *item(int lane) const {
      const std::vector<LaneCommand> &items = script->items(cursor(lane).action(), lane);
      return cursor(lane).item() < items.size() ? &items[cursor(lane).item()] : nullptr;
    }
    const plan::Command &command(int lane) const {
      return script->fragment(cursor(lane).action()).commands(item(lane)->command);
    }
  };
  struct Route {
    int buffers = 0, inFlight = 0;
  };
  struct Meeting {
    std::vector<int64_t> arrived; // devices, in the order of arrival
    std::string signature;
  };

  void wake(int64_t device) {
    Rank &rank = ranks.at(device);
    if (rank.queued) return;
    rank.queued = true;
    ready.push_back(device);
  }

  // Does what is next on a lane; false: it has to wait.
  bool step(Rank &rank, int lane) {
    if (!fault) return false;
    Lane &at = rank.lanes[static_cast<size_t>(lane)];
    const LaneStep next = rank.next(lane);
    if (next == LaneStep::End) return false;
    if (next == LaneStep::AwaitLane) {
      const ActionWait &wait = at.cursor.awaited(*rank.script);
      if (!rank.cursor(wait.lane).isPast(wait.action)) return false;
    } else if (next == LaneStep::AwaitEvent) {
      auto [other, item] = rank.item(lane)->waits[at.cursor.event()];
      if (!rank.cursor(other).isPast(at.cursor.action(), item)) return false;
    } else if (next == LaneStep::Command && (at.arrived || !run(rank, lane)))
      return false;
    at.cursor.pass(next);
    return true;
  }

  bool run(Rank &rank, int lane) {
    const plan::Command &command = rank.command(lane);
    if (command.has_transfer()) {
      int64_t peer = evaluate(command.transfer().peer(), mesh, rank.device);
      bool receives = command.transfer().direction() == plan::Transfer::RECEIVE;
      int channel = command.transfer().channel();
      Route &route = routes[receives ? std::tuple{peer, rank.device, channel} : std::tuple{rank.device, peer, channel}];
      if (receives ? route.inFlight == 0 : route.inFlight == route.buffers) return false;
      route.inFlight += receives ? -1 : 1;
      wake(peer);
    } else if (command.has_collective()) {
      std::vector<int64_t> members = together(rank.device, command.collective());
      if (members.size() > 1) return meet(rank, lane, command.collective(), members);
    }
    return true;
  }

  // Arrives at a collective; when all members have, they go on.
  bool meet(Rank &rank, int lane, const plan::Collective &collective, const std::vector<int64_t> &members) {
    Meeting &meeting = meetings[{members, lane}];
    std::string mine = signature(collective);
    if (meeting.arrived.empty()) meeting.signature = mine;
    if (mine != meeting.signature) {
      const Rank &first = ranks.at(meeting.arrived.front());
      fault =
          inputError(fmt::format("two collectives meet that differ: device {}, {}: {}; device {}, {}: {}", first.device,
                                 place(first, lane), meeting.signature, rank.device, place(rank, lane), mine));
      return false;
    }
    meeting.arrived.push_back(rank.device);
    rank.lanes[static_cast<size_t>(lane)].arrived = true;
    if (meeting.arrived.size() < members.size()) return false;
    for (int64_t member : members) {
      Lane &theirs = ranks.at(member).lanes[static_cast<size_t>(lane)];
      theirs.arrived = false;
      if (member == rank.device) continue;
      theirs.cursor.pass(LaneStep::Command);
      wake(member);
    }
    meeting.arrived.clear();
    return true;
  }

  static std::string place(const Rank &rank, int lane) {
    std::string name = rank.script->name(rank.cursor(lane).action());
    const LaneCommand *item = rank.item(lane);
    return item ? fmt::format("{}: command {} '{}'", name, item->command, rank.command(lane).name()) : name;
  }

  // What a lane that has not come to its end waits for.
  std::string awaited(const Rank &rank, int lane) const {
    const LaneCursor &at = rank.cursor(lane);
    const Script &script = *rank.script;
    const LaneStep next = rank.next(lane);
    if (next == LaneStep::AwaitLane) {
      const ActionWait &wait = at.awaited(script);
      const auto earlier = static_cast<size_t>(wait.action);
      const std::string other = laneName(wait.lane, plan.mesh());
      if (script.actions[earlier].routine != script.actions[at.action()].routine)
        return fmt::format("the {} thread to end the routine before", other);
      return fmt::format("bytes that the {} thread uses in {}", other, script.name(earlier));
    }
    if (next == LaneStep::AwaitEvent)
      return fmt::format("an event of the {} thread", laneName(rank.item(lane)->waits[at.event()].first, plan.mesh()));
    if (next != LaneStep::Command) return "its turn";
    const plan::Command &command = rank.command(lane);
    if (command.has_collective()) return fmt::format("the other members of {}", signature(command.collective()));
    if (!command.has_transfer()) return "its turn";
    int64_t peer = evaluate(command.transfer().peer(), mesh, rank.device);
    return command.transfer().direction() == plan::Transfer::RECEIVE
               ? fmt::format("a message of device {}", peer)
               : fmt::format("device {} to take one of the messages on the way", peer);
  }

  const plan::Plan &plan;
  const dist::Mesh &mesh;
  const std::function<std::vector<int64_t>(int64_t, const plan::Collective &)> &together;
  std::deque<Script> scripts; // by program
  std::map<int64_t, Rank> ranks;
  std::map<std::tuple<int64_t, int64_t, int>, Route> routes;
  std::map<std::pair<std::vector<int64_t>, int>, Meeting> meetings; // by members and lane
  std::deque<int64_t> ready;
  Status fault;
};

} // namespace

Status verifyProgress(const plan::Plan &plan, const dist::Mesh &mesh, const std::vector<std::string> &chain,
                      std::span<const int64_t> devices,
                      const std::function<std::vector<int64_t>(int64_t, const plan::Collective &)> &together) {
  return Progress(plan, mesh, chain, devices, together).run();
}

} // namespace cleave::runtime
