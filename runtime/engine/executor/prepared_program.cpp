#include "runtime/engine/executor/prepared_program.h"
#include "runtime/plan/collective_parts.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/lr_schedule.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace cleave::runtime {

Status inCommand(const plan::Command &command, const Status &status) {
  return {static_cast<ErrorKind>(status.exitStatus()),
          fmt::format("command '{}' ({}): {}", command.name(), kindName(command), status.message())};
}

namespace {
// The copy of a slice of a dense global array into a dense local one, and the byte where it begins.
StridedCopy sliceCopy(const google::protobuf::RepeatedField<int64_t> &shape, const Shard &shard, int64_t element,
                      int64_t &sourceOffset) {
  const std::vector<int64_t> global(shape.begin(), shape.end());
  sourceOffset = BoxPlace{global, shard.begin}.offset() * element;
  return {shard.size, rowMajorStrides(global), rowMajorStrides(shard.size), element};
}
} // namespace

Status PreparedProgram::prepare(const dist::Mesh &mesh, std::span<const std::vector<ActionWaits>> orders) {
  source = &plan.programs(programOf(plan, mesh, id));
  for (const plan::Fragment &fragment : source->fragments()) CLEAVE_RETURN_IF_ERROR(loadConstants(fragment, mesh));
  routines.resize(static_cast<size_t>(source->routines_size()));
  for (int r = 0; r < source->routines_size(); ++r) {
    const plan::Routine &routine = source->routines(r);
    PreparedRoutine &out = routines[static_cast<size_t>(r)];
    std::vector<const plan::InputBinding *> inputs = inputsOf(plan, routine.name());
    out.inputs = inputs.size();
    for (int a = 0; a < routine.actions_size(); ++a) {
      const plan::Action &action = routine.actions(a);
      const plan::Fragment &fragment = source->fragments(action.fragment());
      auto [found, added] = fragments.try_emplace({action.fragment(), action.slot()});
      if (added) CLEAVE_RETURN_IF_ERROR(prepareFragment(fragment, action.slot(), mesh, found->second));
      PreparedAction &prepared = out.actions.emplace_back();
      prepared.fragment = &found->second;
      prepared.source = &action;
      prepared.waits = orders[static_cast<size_t>(r)][static_cast<size_t>(a)];
      for (const plan::InputBinding &input : fragment.inputs())
        for (size_t i = 0; i < inputs.size(); ++i)
          if (inputs[i]->name() == input.name()) prepared.inputs.push_back(i);
      for (const plan::HostScalar &scalar : source->host_scalars())
        if (isSetBefore(scalar, static_cast<size_t>(a))) prepared.given.push_back(scalar.buffer().offset());
      for (const PreparedFragment::Input &input : found->second.inputs) prepared.given.push_back(input.targetOffset);
    }
  }
  return device.finishPreparing();
}

Status PreparedProgram::loadConstants(const plan::Fragment &fragment, const dist::Mesh &mesh) {
  for (const plan::ConstantData &constant : fragment.constants()) {
    int64_t element = byteSize(constant.buffer().dtype());
    if (constant.dims_size() == 0) {
      CLEAVE_RETURN_IF_ERROR(device.write(constant.buffer().offset(), constant.data().data(),
                                          static_cast<int64_t>(constant.data().size())));
      continue;
    }
    CLEAVE_ASSIGN_OR_RETURN(Shard shard, shardOf(constant.global_shape(), constant.dims(), mesh, id));
    int64_t from = 0;
    StridedCopy copy = sliceCopy(constant.global_shape(), shard, element, from);
    std::vector<std::byte> local(static_cast<size_t>(copy.bytes()));
    copy.run(reinterpret_cast<const std::byte *>(constant.data().data()) + from, local.data());
    CLEAVE_RETURN_IF_ERROR(device.write(constant.buffer().offset(), local.data(), copy.bytes()));
  }
  return Status::ok();
}

Status PreparedProgram::prepareFragment(const plan::Fragment &fragment, int32_t slot, const dist::Mesh &mesh,
                                        PreparedFragment &out) {
  out.source = &fragment;
  for (const plan::InputBinding &input : fragment.inputs()) {
    CLEAVE_ASSIGN_OR_RETURN(Shard shard, shardOf(input.global_shape(), input.dims(), mesh, id));
    PreparedFragment::Input prepared;
    prepared.slice = sliceCopy(input.global_shape(), shard, byteSize(input.buffer().dtype()), prepared.sourceOffset);
    prepared.targetOffset = placeOf(input.buffer(), *source, fragment, slot);
    out.inputs.push_back(std::move(prepared));
  }
  const LaneCommands order = laneCommandsOf(fragment);
  for (const plan::Command &command : fragment.commands()) {
    const int lane = laneOf(command);
    std::vector<LaneItem> &items = out.lanes[static_cast<size_t>(lane)];
    LaneItem item;
    item.source = &command;
    for (auto [other, at] : order[static_cast<size_t>(lane)][items.size()].waits)
      item.waits.push_back(out.lanes[static_cast<size_t>(other)][static_cast<size_t>(at)].record);
    if (command.record_event()) item.record = &out.events.emplace_back();
    plan::Command placed = inSlot(command, *source, fragment, slot);
    Result<Prepared> prepared = placed.has_collective() ? fabric.prepare(id, lane, placed.collective())
                                : placed.has_transfer() ? fabric.prepareTransfer(id, lane, placed.transfer())
                                                        : device.prepare(placed);
    if (!prepared) return inCommand(command, prepared.status());
    item.command = std::move(*prepared);
    if (std::string warning = item.command->warning(); !warning.empty())
      warnings[warning].push_back(fmt::format("'{}' ({})", command.name(), command.phase()));
    bool isSend = command.has_transfer() && command.transfer().direction() == plan::Transfer::SEND &&
                  evaluate(command.transfer().peer(), mesh, id) != id;
    if (isSend) item.sentBytes = byteSize(command.transfer().buffer());
    if (command.has_collective())
      if (auto group = groupOf(command.collective(), mesh, id); group)
        item.sentBytes = sentBytes(command.collective().op(), *group);
    if (command.has_collective() || isSend) item.traffic = &trafficOf(fragment, command);
    items.push_back(std::move(item));
  }
  return Status::ok();
}

Status PreparedProgram::fillInputs(const PreparedRoutine &routine, size_t number, const RankWork &work, std::byte *base,
                                   std::span<const int64_t> offsets) {
  const PreparedAction &action = routine.actions[number];
  const int64_t microbatch = action.source->microbatch();
  auto offset = offsets.begin();
  for (const plan::HostScalar &scalar : program().host_scalars()) {
    if (!isSetBefore(scalar, number)) continue;
    const int64_t step = scalar.kind() == plan::HostScalar::STEP ? work.stepOf(*action.source) : work.step;
    CLEAVE_RETURN_IF_ERROR(hostScalarBytes(scalar, plan.training(), step, work.skipped, microbatch, scalarBytes));
    if (static_cast<int64_t>(scalarBytes.size()) > byteSize(scalar.buffer()))
      return inputError("a host scalar is larger than its buffer");
    if (base) std::memcpy(base + *offset++, scalarBytes.data(), scalarBytes.size());
  }
  if (!base) return Status::ok();
  const std::byte *const *inputs = work.inputsOf(*action.source) + static_cast<size_t>(microbatch) * routine.inputs;
  for (size_t i = 0; i < action.inputs.size(); ++i) {
    const PreparedFragment::Input &input = action.fragment->inputs[i];
    input.slice.run(inputs[action.inputs[i]] + input.sourceOffset, base + *offset++);
  }
  return Status::ok();
}

Traffic &PreparedProgram::trafficOf(const plan::Fragment &fragment, const plan::Command &command) {
  Traffic kind{fragment.name(), command.has_transfer() ? "send" : kindName(command), {}, command.phase()};
  if (command.has_collective()) kind.axes = {command.collective().axes().begin(), command.collective().axes().end()};
  std::deque<Traffic> &known = sent[static_cast<size_t>(laneOf(command))];
  for (Traffic &traffic : known)
    if (traffic.isAlike(kind)) return traffic;
  return known.emplace_back(kind);
}

const plan::Action *PreparedProgram::lastAction(int routine) const {
  const auto &actions = source->routines(routine).actions();
  return actions.empty() ? nullptr : &*actions.rbegin();
}

std::vector<PreparedProgram::Output> PreparedProgram::outputsOf(int routine) const {
  std::vector<Output> outputs;
  const plan::Action *last = lastAction(routine);
  if (!last) return outputs;
  const plan::Fragment &fragment = source->fragments(last->fragment());
  for (const plan::OutputBinding &output : fragment.outputs())
    outputs.push_back({placeOf(output.buffer(), *source, fragment, last->slot()),
                       elementCount(output.buffer().shape()) * byteSize(output.buffer().dtype()),
                       output.buffer().dtype()});
  return outputs;
}

void PreparedProgram::Output::appendTo(std::vector<double> &values, const std::byte *from) const {
  const int64_t unit = byteSize(dtype);
  for (int64_t at = 0; at < bytes; at += unit) values.push_back(loadNumber(dtype, from + at));
}

Status PreparedProgram::readOutputs(int routine, std::vector<double> &values) const {
  values.clear();
  std::vector<std::byte> bytes;
  for (const Output &output : outputsOf(routine)) {
    bytes.resize(static_cast<size_t>(output.bytes));
    CLEAVE_RETURN_IF_ERROR(device.read(output.place, bytes.data(), output.bytes));
    output.appendTo(values, bytes.data());
  }
  return Status::ok();
}

std::map<std::string, double> PreparedProgram::named(int routine, std::span<const double> values,
                                                     std::map<std::string, std::vector<double>> &tensors) const {
  std::map<std::string, double> numbers;
  tensors.clear();
  const plan::Action *last = lastAction(routine);
  if (!last || values.empty()) return numbers;
  for (const plan::OutputBinding &output : source->fragments(last->fragment()).outputs()) {
    const auto own = values.first(static_cast<size_t>(elementCount(output.buffer().shape())));
    values = values.subspan(own.size());
    if (own.size() == 1)
      numbers[output.name()] = own.front();
    else
      tensors[output.name()] = {own.begin(), own.end()};
  }
  return numbers;
}

std::vector<Traffic> PreparedProgram::traffic() const {
  std::vector<Traffic> all;
  for (const std::deque<Traffic> &lane : sent)
    for (const Traffic &one : lane) {
      auto found = std::find_if(all.begin(), all.end(), [&](const Traffic &seen) { return seen.isAlike(one); });
      if (found == all.end())
        all.push_back(one);
      else
        found->count += one.count, found->bytes += one.bytes;
    }
  return all;
}

} // namespace cleave::runtime
