#include "runtime/plan/accesses.h"
#include "runtime/plan/attention_form.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace cleave::runtime {
namespace {

void addLaunch(const plan::Launch &launch, const plan::Plan *plan, std::vector<Access> &out) {
  int64_t outputs = 0;
  if (plan && launch.kernel() >= 0 && launch.kernel() < plan->kernels_size())
    outputs = plan->kernels(launch.kernel()).num_outputs();
  for (int i = 0; i < launch.buffers_size(); ++i)
    out.push_back({&launch.buffers(i), outputs <= 0 || i >= launch.buffers_size() - outputs, "buffer"});
}

} // namespace

std::vector<Access> accessesOf(const plan::Command &command, const plan::Plan *plan) {
  std::vector<Access> out;
  auto reads = [&](const plan::Buffer &buffer, const char *role) { out.push_back({&buffer, false, role}); };
  auto writes = [&](const plan::Buffer &buffer, const char *role) { out.push_back({&buffer, true, role}); };
  switch (command.kind_case()) {
  case plan::Command::kLaunch:
    addLaunch(command.launch(), plan, out);
    break;
  case plan::Command::kLaunchGroup:
    for (const plan::Launch &part : command.launch_group().parts()) addLaunch(part, plan, out);
    break;
  case plan::Command::kContract:
    reads(command.contract().lhs(), "lhs"), reads(command.contract().rhs(), "rhs"),
        writes(command.contract().out(), "out");
    if (command.contract().accumulate()) reads(command.contract().out(), "out");
    if (command.contract().has_bias()) reads(command.contract().bias(), "bias");
    if (const plan::Contract &c = command.contract(); c.has_pre_activation())
      out.push_back({&c.pre_activation(), c.activation() == plan::Contract::GELU, "pre_activation"});
    if (command.contract().has_lhs_sum()) writes(command.contract().lhs_sum(), "lhs_sum");
    if (command.contract().has_rhs_sum()) writes(command.contract().rhs_sum(), "rhs_sum");
    break;
  case plan::Command::kGroupedContract: {
    const plan::GroupedContract &c = command.grouped_contract();
    reads(c.lhs(), "lhs"), reads(c.rhs(), "rhs"), reads(c.group_of_row(), "group_of_row"), writes(c.out(), "out");
    break;
  }
  case plan::Command::kConvolution: {
    const plan::Convolution &c = command.convolution();
    out = {{&c.input(), c.pass() == plan::Convolution::GRAD_INPUT, "input"},
           {&c.weight(), c.pass() == plan::Convolution::GRAD_WEIGHT, "weight"},
           {&c.output(), c.pass() == plan::Convolution::FORWARD, "output"}};
    break;
  }
  case plan::Command::kAttention:
    return attentionAccesses(command.attention());
  case plan::Command::kPool: {
    const plan::Pool &c = command.pool();
    if (c.kind() <= plan::Pool::MAX_GRAD) reads(c.input(), "input");
    out.push_back({&c.output(), c.kind() < plan::Pool::MAX_GRAD, "output"});
    if (c.has_grad_input()) writes(c.grad_input(), "grad_input");
    break;
  }
  case plan::Command::kGather:
    reads(command.gather().table(), "table"), reads(command.gather().indices(), "indices"),
        writes(command.gather().out(), "out");
    break;
  case plan::Command::kScatterAdd:
    reads(command.scatter_add().indices(), "indices"), reads(command.scatter_add().updates(), "updates"),
        writes(command.scatter_add().out(), "out");
    break;
  case plan::Command::kCopy:
    reads(command.copy().source(), "source"), writes(command.copy().target(), "target");
    break;
  case plan::Command::kFill:
    writes(command.fill().target(), "target");
    break;
  case plan::Command::kCollective:
    for (const plan::Buffer &buffer : command.collective().inputs()) reads(buffer, "input");
    for (const plan::Buffer &buffer : command.collective().outputs()) writes(buffer, "output");
    break;
  case plan::Command::kTransfer:
    out.push_back({&command.transfer().buffer(), command.transfer().direction() == plan::Transfer::RECEIVE, "buffer"});
    break;
  case plan::Command::kCumsum:
    reads(command.cumsum().input(), "input"), writes(command.cumsum().output(), "output");
    break;
  case plan::Command::kCheckFinite:
    reads(command.check_finite().buffer(), "buffer");
    break;
  case plan::Command::KIND_NOT_SET:
    break;
  }
  return out;
}

ByteRange bytesOf(const plan::Buffer &buffer) { return {buffer.offset(), buffer.offset() + byteSize(buffer)}; }

bool overlap(const plan::Buffer &a, const plan::Buffer &b) {
  return a.in_slot() == b.in_slot() && a.on_host() == b.on_host() && bytesOf(a).meets(bytesOf(b));
}

Result<std::vector<LaneClock>> clocksOf(const plan::Fragment &fragment) {
  std::vector<LaneClock> clocks;
  std::map<int32_t, int> recorded; // by event: the command
  std::array<LaneClock, numLanes> last;
  for (int i = 0; i < fragment.commands_size(); ++i) {
    const plan::Command &command = fragment.commands(i);
    auto fault = [&](const char *what, int32_t event, const char *why) {
      return inputError(fmt::format("command {} '{}' {} event {}{}", i, command.name(), what, event, why));
    };
    auto lane = static_cast<size_t>(laneOf(command));
    LaneClock &clock = last[lane];
    for (int32_t event : command.wait_events()) {
      auto found = recorded.find(event);
      if (found == recorded.end()) return fault("waits for", event, ", which no command before it records");
      for (size_t l = 0; l < numLanes; ++l)
        clock.done[l] = std::max(clock.done[l], clocks[static_cast<size_t>(found->second)].done[l]);
    }
    clock.done[lane] = i;
    clocks.push_back(clock);
    if (command.record_event() < 0) return fault("records", command.record_event(), "");
    if (command.record_event() && !recorded.emplace(command.record_event(), i).second)
      return fault("records", command.record_event(), " again");
  }
  return clocks;
}

} // namespace cleave::runtime
