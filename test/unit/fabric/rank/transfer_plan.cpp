#include "test/unit/fabric/rank/transfer_plan.h"
#include "runtime/plan/routine.h"
#include "test/unit/fabric/rank/collective_plan.h"
#include <fmt/format.h>

namespace cleave::runtime::test {
namespace {

struct Channel {
  int number, from, to, buffers, messages;
  int64_t elements; // of the first; later ones have one less each
  int sendLane = communicationLane, receiveLane = runtime::receiveLane;
};

} // namespace

TransferPlan::TransferPlan(const dist::Mesh &mesh) {
  *plan.mutable_mesh() = planMesh(mesh);
  for (int stage : {0, 1}) {
    plan::Program &program = *plan.add_programs();
    program.add_fragments()->set_name(fmt::format("stage {}", stage));
    plan::Routine &step = *program.add_routines();
    step.set_name("step");
    step.add_actions();
  }
  int64_t top = 0;
  auto open = [&](const Channel &channel) {
    const int64_t peers = mesh.axisSize("dp");
    for (int i = 0; i < channel.messages; ++i) {
      const std::string name = fmt::format("channel {}, message {}", channel.number, i);
      const int64_t elements = channel.elements - i;
      for (bool receives : {false, true}) {
        const plan::Buffer buffer =
            addTensor(plan, name + (receives ? ", received" : ", sent"), plan::F32, {elements}, top);
        const int stage = receives ? channel.to : channel.from, peer = receives ? channel.from : channel.to;
        plan::Parameter &parameter = *plan.mutable_parameters(plan.parameters_size() - 1);
        parameter.add_pp_coordinates(stage), parameter.add_offsets(buffer.offset());
        plan::Command &command = *plan.mutable_programs(stage)->mutable_fragments(0)->add_commands();
        command.set_name(name), command.set_phase("forward");
        command.set_stream(receives ? channel.receiveLane : channel.sendLane);
        plan::Transfer &transfer = *command.mutable_transfer();
        transfer.set_direction(receives ? plan::Transfer::RECEIVE : plan::Transfer::SEND);
        transfer.mutable_peer()->set_base(peer * peers);
        plan::AffineOfCoordinate::Term &term = *transfer.mutable_peer()->add_terms();
        term.add_axes("dp"), term.set_stride(1);
        *transfer.mutable_buffer() = buffer;
        transfer.set_tag(static_cast<int32_t>(tensors.size())), transfer.set_channel(channel.number);
        transfer.set_buffers(channel.buffers);
      }
      tensors.push_back({name, std::ssize(tensors), elements, channel.from, channel.to});
    }
  };
  open({0, 0, 1, 1, 40, 500});
  open({1, 0, 1, 3, 5, 3 << 18}); // 3 MiB
  open({2, 1, 0, 2, 20, 3000});
  open({3, 0, 0, 5, 5, 1000}); // to itself
  // Full, with its sender waiting, until all else has been received.
  open({.number = 4, .from = 0, .to = 1, .buffers = 1, .messages = 6, .elements = 1 << 18, .sendLane = computeLane});
  for (plan::Program &program : *plan.mutable_programs()) program.set_arena_bytes(top);
  plan.mutable_training()->set_global_batch(1), plan.mutable_training()->set_microbatches(1);
  plan.mutable_training()->mutable_lr()->set_kind("constant");
}

} // namespace cleave::runtime::test
