// All devices' lanes run on paper, over routines that follow each other. Sends fill message buffers, receives empty
// them, collectives wait for their members; the result does not depend on who goes first, so one order of progress
// proves it for all.
#include "runtime/plan/action_order.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
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

// A command that can wait or be waited for; the last node of a lane is its end, without a command.
struct Node {
  int item = 0;                            // its number on the lane
  int command = -1;                        // in the fragment
  std::vector<std::pair<int, int>> events; // lane and item that must be done, in the same action
};
using FragmentNodes = std::array<std::vector<Node>, numLanes>;

FragmentNodes nodesOf(const plan::Fragment &fragment) {
  FragmentNodes nodes;
  std::array<int, numLanes> items{};
  std::map<int32_t, std::pair<int, int>> recorded;
  for (int c = 0; c < fragment.commands_size(); ++c) {
    const plan::Command &command = fragment.commands(c);
    int lane = laneOf(command);
    Node node{items[static_cast<size_t>(lane)]++, c, {}};
    for (int32_t event : command.wait_events())
      if (recorded[event].first != lane) node.events.push_back(recorded[event]);
    if (command.record_event()) recorded[command.record_event()] = {lane, node.item};
    if (!node.events.empty() || command.record_event() || command.has_collective() || command.has_transfer())
      nodes[static_cast<size_t>(lane)].push_back(std::move(node));
  }
  for (size_t lane = 0; lane < numLanes; ++lane) nodes[lane].push_back({items[lane], -1, {}});
  return nodes;
}

// The part that devices of one program share.
struct Script {
  const plan::Program *program;
  std::vector<ChainAction> actions;
  std::vector<FragmentNodes> fragments;
  std::vector<ActionWaits> waits; // by action, of actions of the whole chain
  std::vector<int> begins;        // of each action: the first one of its routine, with which all lanes begin together
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
      for (const plan::Fragment &fragment : program.fragments()) script.fragments.push_back(nodesOf(fragment));
      for (const std::string &routine : chain) {
        auto begin = static_cast<int>(script.waits.size());
        for (ActionWaits &waits : orderActions(plan, program, *findRoutine(program, routine))) {
          for (std::vector<ActionWait> &lane : waits)
            for (ActionWait &wait : lane) wait.action += begin;
          script.waits.push_back(std::move(waits));
          script.begins.push_back(begin);
        }
      }
    }
    for (int64_t device : devices) {
      Rank &rank = ranks[device];
      rank.device = device;
      rank.script = &scripts[static_cast<size_t>(programOf(plan, mesh, device))];
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
        if (!rank.isDone(lane)) waiting.push_back(describe(rank, lane));
    if (waiting.empty()) return Status::ok();
    size_t more = waiting.size() > 8 ? waiting.size() - 8 : 0;
    waiting.resize(waiting.size() - more);
    return inputError(
        fmt::format("a deadlock: {}{}", fmt::join(waiting, "; "), more ? fmt::format("; and {} more", more) : ""));
  }

private:
  struct Lane {
    int action = 0;
    size_t node = 0;
    bool arrived = false; // at the current collective
  };
  struct Rank {
    int64_t device = 0;
    const Script *script = nullptr;
    std::array<Lane, numLanes> lanes;
    bool queued = true;
    bool isDone(int lane) const {
      return lanes[static_cast<size_t>(lane)].action >= static_cast<int>(script->actions.size());
    }
    const plan::Action &action(int lane) const {
      return *script->actions[static_cast<size_t>(lanes[static_cast<size_t>(lane)].action)].action;
    }
    const std::vector<Node> &nodes(int lane) const {
      return script->fragments[static_cast<size_t>(action(lane).fragment())][static_cast<size_t>(lane)];
    }
    const Node &node(int lane) const { return nodes(lane)[lanes[static_cast<size_t>(lane)].node]; }
    const plan::Fragment &fragment(int lane) const { return script->program->fragments(action(lane).fragment()); }
    // Whether the lane is done with an item of an action.
    bool isPast(int lane, int action, int item) const {
      const Lane &at = lanes[static_cast<size_t>(lane)];
      return at.action > action || (at.action == action && !isDone(lane) && node(lane).item > item);
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

  // The lane's reason to wait within its device; none: it does not.
  std::optional<std::string> blockedWithin(const Rank &rank, int lane) const {
    const Lane &at = rank.lanes[static_cast<size_t>(lane)];
    const Node &node = rank.node(lane);
    for (int other = 0; other < numLanes; ++other)
      if (rank.lanes[static_cast<size_t>(other)].action < rank.script->begins[static_cast<size_t>(at.action)])
        return fmt::format("the {} thread to end the routine before", laneName(other, plan.mesh()));
    for (const ActionWait &wait : rank.script->waits[static_cast<size_t>(at.action)][static_cast<size_t>(lane)])
      if (wait.item <= node.item && rank.lanes[static_cast<size_t>(wait.lane)].action <= wait.action) {
        const plan::Action &earlier = *rank.script->actions[static_cast<size_t>(wait.action)].action;
        return fmt::format("bytes that the {} thread uses in {}", laneName(wait.lane, plan.mesh()),
                           actionName(rank.script->program->fragments(earlier.fragment()), earlier.microbatch()));
      }
    for (auto [other, item] : node.events)
      if (!rank.isPast(other, at.action, item))
        return fmt::format("an event of the {} thread", laneName(other, plan.mesh()));
    return std::nullopt;
  }

  // Executes one node; false: it has to wait.
  bool step(Rank &rank, int lane) {
    if (rank.isDone(lane) || !fault) return false;
    Lane &at = rank.lanes[static_cast<size_t>(lane)];
    if (at.arrived || blockedWithin(rank, lane)) return false;
    const Node &node = rank.node(lane);
    if (node.command < 0) {
      at.node = 0;
      ++at.action;
      return true;
    }
    const plan::Command &command = rank.fragment(lane).commands(node.command);
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
    ++at.node;
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
      ++theirs.node;
      if (member != rank.device) wake(member);
    }
    meeting.arrived.clear();
    return true;
  }

  static std::string place(const Rank &rank, int lane) {
    const Node &node = rank.node(lane);
    std::string name = actionName(rank.fragment(lane), rank.action(lane).microbatch());
    if (node.command < 0) return name;
    return fmt::format("{}: command {} '{}'", name, node.command, rank.fragment(lane).commands(node.command).name());
  }

  std::string describe(const Rank &rank, int lane) const {
    std::string what = "its turn";
    if (auto within = blockedWithin(rank, lane)) {
      what = *within;
    } else if (int number = rank.node(lane).command; number >= 0) {
      const plan::Command &command = rank.fragment(lane).commands(number);
      if (command.has_collective())
        what = fmt::format("the other members of {}", signature(command.collective()));
      else if (command.has_transfer()) {
        int64_t peer = evaluate(command.transfer().peer(), mesh, rank.device);
        what = command.transfer().direction() == plan::Transfer::RECEIVE
                   ? fmt::format("a message of device {}", peer)
                   : fmt::format("device {} to take one of the messages on the way", peer);
      }
    }
    return fmt::format("device {}, {}, waits for {}", rank.device, place(rank, lane), what);
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
