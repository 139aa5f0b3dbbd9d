// Between programs: inputs and routines that fit together, sends that meet their receives, and that all devices reach
// the end of every routine.
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

namespace cleave::runtime {
namespace {

bool sameInput(const plan::InputBinding &a, const plan::InputBinding &b) {
  return a.buffer().dtype() == b.buffer().dtype() && a.label() == b.label() &&
         std::equal(a.global_shape().begin(), a.global_shape().end(), b.global_shape().begin(), b.global_shape().end());
}

// Ascending, each with its step. A ramp's last shape goes on for ever.
Status verifyShapes(const plan::Plan &plan) {
  const bool ramps = isRamp(plan);
  for (int i = 0; i < plan.shapes_size(); ++i) {
    auto place = [&](int of) { return ramps ? plan.shapes(of).until() : plan.shapes(of).length(); };
    const bool isLast = i + 1 == plan.shapes_size();
    if (ramps && isLast ? place(i) != 0 : place(i) <= (i > 0 ? place(i - 1) : 0))
      return inputError(ramps ? "the stages of the ramp do not rise" : "the lengths of samples do not rise");
    if (!isLast && plan.shapes(i).global_batch() < 1)
      return inputError("a shape of the step does not say how many samples it has");
    const std::string step = routineOf(plan, "step", static_cast<size_t>(i));
    if (!findRoutine(plan.programs(0), step)) return inputError(fmt::format("there is no routine '{}'", step));
  }
  return Status::ok();
}

// An input has one shape in all routines of one suffix; every program has the same routines.
Status verifyInputs(const plan::Plan &plan) {
  for (const plan::Program &program : plan.programs()) {
    for (const plan::Routine &routine : program.routines())
      if (!findRoutine(plan.programs(0), routine.name()))
        return inputError(fmt::format("not every program has the routine '{}'", routine.name()));
    for (const plan::Routine &routine : plan.programs(0).routines())
      if (!findRoutine(program, routine.name()))
        return inputError(fmt::format("not every program has the routine '{}'", routine.name()));
  }
  std::map<std::pair<std::string_view, std::string_view>, const plan::InputBinding *> known; // by suffix and name
  for (const plan::Program &program : plan.programs())
    for (const plan::Routine &routine : program.routines()) {
      std::set<int> fragments;
      for (const plan::Action &action : routine.actions()) fragments.insert(action.fragment());
      for (int number : fragments)
        for (const plan::InputBinding &read : program.fragments(number).inputs())
          if (auto at = known.try_emplace({suffixIn(routine.name()), read.name()}, &read).first;
              !sameInput(read, *at->second))
            return inputError(fmt::format("input '{}' of fragment '{}' has another shape or type than elsewhere",
                                          read.name(), program.fragments(number).name()));
    }
  return verifyShapes(plan);
}

template <typename Visit> Status forEachTransfer(const plan::Program &program, Visit &&visit) {
  for (const plan::Fragment &fragment : program.fragments())
    for (int c = 0; c < fragment.commands_size(); ++c)
      if (fragment.commands(c).has_transfer())
        if (Status status = visit(fragment.commands(c)); !status)
          return inputError(fmt::format("{}: {}", showCommand(fragment, c), status.message()));
  return Status::ok();
}

// Devices between neighbours along "pp", where every transfer goes between devices that differ along "pp" only; else 0.
// Then devices with equal coordinates along pp do the same at the same time, each among those with its own other
// coordinates: one of them stands for all.
int64_t columnStride(const plan::Plan &plan, const dist::Mesh &mesh) {
  int64_t column = mesh.numDevices(), ranks = mesh.axisSize(dist::pipelineAxis);
  size_t pp = 0;
  while (pp < mesh.axes.size() && (column /= mesh.axes[pp].size, !dist::isPipelineAxis(mesh.axes[pp].name))) ++pp;
  if (plan.programs_size() < 2 || pp == mesh.axes.size()) return 0;
  auto isRank = [&](int64_t device) { return device % column == 0 && device >= 0 && device < ranks * column; };
  for (const plan::Program &program : plan.programs()) {
    Status stays = forEachTransfer(program, [&](const plan::Command &command) {
      const plan::AffineOfCoordinate &peer = command.transfer().peer();
      std::vector<int64_t> factors = *factorsOf(peer, mesh); // the command has passed verification
      int64_t stride = mesh.numDevices();
      bool same = isRank(peer.base()) && isRank(peer.base() + factors[pp] * (ranks - 1)) && factors[pp] % column == 0;
      for (size_t a = 0; a < mesh.axes.size(); ++a) {
        stride /= mesh.axes[a].size;
        same &= a == pp || factors[a] == stride || mesh.axes[a].size == 1;
      }
      return same ? Status::ok() : inputError("");
    });
    if (!stays) return 0;
  }
  return column;
}

struct Message {
  const plan::Fragment *fragment;
  int command;
  int64_t microbatch, step;
  const plan::Transfer &transfer() const { return fragment->commands(command).transfer(); }
  std::string show() const {
    std::string of = step > 0 ? fmt::format("{} of step {}", microbatch, step + 1) : fmt::format("{}", microbatch);
    return fmt::format("{}: command {} '{}' (tag {}, microbatch {}, {}, {} bytes)", actionName(*fragment, microbatch),
                       command, fragment->commands(command).name(), transfer().tag(), of,
                       name(transfer().buffer().dtype()), byteSize(transfer().buffer()));
  }
  bool fits(const Message &other) const {
    return transfer().tag() == other.transfer().tag() && microbatch == other.microbatch && step == other.step &&
           transfer().buffer().dtype() == other.transfer().buffer().dtype() &&
           byteSize(transfer().buffer()) == byteSize(other.transfer().buffer());
  }
};

// By sender, receiver and channel, in order: what is sent and what is received.
using Sequences = std::map<std::tuple<int64_t, int64_t, int>, std::array<std::vector<Message>, 2>>;
// Transports number their messages by channel.
constexpr int mostChannels = 1024;

Status collectMessages(const plan::Plan &plan, const dist::Mesh &mesh, const std::vector<std::string> &chain,
                       int64_t device, Sequences &sequences) {
  const plan::Program &program = plan.programs(programOf(plan, mesh, device));
  std::map<std::tuple<int64_t, int, bool>, int> lanes;
  int64_t mostBuffers = 0; // twice what all routines send
  for (const plan::Routine &routine : program.routines())
    for (const plan::Action &action : routine.actions())
      mostBuffers += 2 * program.fragments(action.fragment()).commands_size();
  for (const ChainAction &at : actionsOf(program, chain)) {
    const plan::Fragment &fragment = program.fragments(at.action->fragment());
    for (int c = 0; c < fragment.commands_size(); ++c) {
      if (!fragment.commands(c).has_transfer()) continue;
      const plan::Transfer &transfer = fragment.commands(c).transfer();
      bool receives = transfer.direction() == plan::Transfer::RECEIVE;
      int64_t peer = evaluate(transfer.peer(), mesh, device);
      if (peer < 0 || peer >= mesh.numDevices())
        return inputError(fmt::format("{}: device {} has the peer {} of {} devices", showCommand(fragment, c), device,
                                      peer, mesh.numDevices()));
      int lane = laneOf(fragment.commands(c)), channel = transfer.channel();
      if (channel < 0 || channel >= mostChannels || transfer.buffers() < 0 || transfer.buffers() > mostBuffers)
        return inputError(fmt::format("{}: channel {} (of {}) with {} message buffers", showCommand(fragment, c),
                                      channel, mostChannels, transfer.buffers()));
      if (lanes.try_emplace({peer, channel, receives}, lane).first->second != lane)
        return inputError(fmt::format("{}: device {} {} device {} on several threads, which have no order",
                                      showCommand(fragment, c), device, receives ? "receives from" : "sends to", peer));
      auto key = receives ? std::tuple{peer, device, channel} : std::tuple{device, peer, channel};
      sequences[key][receives].push_back({&fragment, c, at.action->microbatch(), at.step});
    }
  }
  return Status::ok();
}

Status verifyMessages(const Sequences &sequences) {
  for (const auto &[key, sides] : sequences) {
    const auto &[sent, received] = sides;
    auto [from, to, channel] = key;
    for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i)
      if (!sent[i].fits(received[i]))
        return inputError(
            fmt::format("send {} of device {} to device {}, in {}, meets that device's receive {} from it, "
                        "in {}",
                        i, from, to, sent[i].show(), i, received[i].show()));
    if (sent.size() > received.size())
      return inputError(fmt::format("send {} of device {} to device {}, in {}, meets no receive", received.size(), from,
                                    to, sent[received.size()].show()));
    if (received.size() > sent.size())
      return inputError(fmt::format("receive {} of device {} from device {}, in {}, meets no send", sent.size(), to,
                                    from, received[sent.size()].show()));
  }
  return Status::ok();
}

} // namespace

Status verifyPipeline(const plan::Plan &plan, const dist::Mesh &mesh) {
  CLEAVE_RETURN_IF_ERROR(verifyInputs(plan));
  bool transfers = false;
  for (const plan::Program &program : plan.programs())
    CLEAVE_RETURN_IF_ERROR(forEachTransfer(program, [&](const plan::Command &) {
      transfers = true;
      return Status::ok();
    }));
  // One program and no transfers: all devices issue the same collectives in the same order (verifyCollectives), and
  // every wait is for something issued before. Nothing can go wrong.
  if (plan.programs_size() == 1 && !transfers) return Status::ok();
  const int64_t column = columnStride(plan, mesh);
  std::vector<int64_t> devices(static_cast<size_t>(column ? plan.programs_size() : mesh.numDevices()));
  std::iota(devices.begin(), devices.end(), int64_t(0));
  if (column)
    for (int64_t &device : devices) device *= column;
  auto together = [&](int64_t device, const plan::Collective &collective) {
    if (!column) return mesh.group(device, axesOf(collective.axes()));
    bool across = std::ranges::any_of(collective.axes(), dist::isPipelineAxis);
    return across ? devices : std::vector<int64_t>{device};
  };
  for (const std::vector<std::string> &chain : routineChains(plan)) {
    Status status;
    Sequences sequences;
    for (size_t d = 0; status && d < devices.size(); ++d)
      status = collectMessages(plan, mesh, chain, devices[d], sequences);
    if (status) status = verifyMessages(sequences);
    if (status) status = verifyProgress(plan, mesh, chain, devices, together);
    if (!status) return inputError(fmt::format("{}: {}", chainName(chain), status.message()));
  }
  return Status::ok();
}

} // namespace cleave::runtime
