#include "runtime/plan/verify.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::runtime {
namespace {

Status at(const std::string &where, const Status &status) {
  return status.isOk() ? status : Status(static_cast<ErrorKind>(status.exitStatus()), where + ": " + status.message());
}

Status verifyBuffer(const plan::Buffer &buffer, int64_t arenaBytes) {
  int64_t bytes = byteSize(buffer), element = byteSize(buffer.dtype());
  if (bytes < 0) return inputError(fmt::format("{} is not a valid buffer", describe(buffer)));
  if (buffer.shape_size() > 16) return inputError(fmt::format("{} has more than 16 dimensions", describe(buffer)));
  if (buffer.offset() < 0 || buffer.offset() > arenaBytes - bytes)
    return inputError(
        fmt::format("{} ({} bytes) is not inside the arena of {} bytes", describe(buffer), bytes, arenaBytes));
  if (buffer.offset() % element) return inputError(fmt::format("{} is not aligned to its elements", describe(buffer)));
  return Status::ok();
}

Status verifyParameters(const plan::Plan &plan, const dist::Mesh &mesh, int64_t arenaBytes) {
  std::vector<std::pair<int64_t, const plan::Parameter *>> places;
  std::set<std::string> names;
  for (const plan::Parameter &parameter : plan.parameters()) {
    std::string where = fmt::format("parameter '{}'", parameter.name());
    if (!names.insert(parameter.name()).second) return inputError(where + " appears twice");
    if (elementCount(parameter.shape()) < 0) return inputError(where + " has no valid shape");
    Result<Shard> shard = shardOf(parameter.shape(), parameter.dims(), mesh, 0);
    if (!shard) return at(where, shard.status());
    plan::Buffer buffer;
    buffer.set_offset(parameter.offset());
    buffer.set_dtype(parameter.dtype());
    for (int64_t size : shard->size) buffer.add_shape(size);
    CLEAVE_RETURN_IF_ERROR(at(where, verifyBuffer(buffer, arenaBytes)));
    if (parameter.has_file()) {
      const plan::Source &file = parameter.file();
      int64_t expected = elementCount(parameter.shape()) * byteSize(file.dtype());
      if (byteSize(file.dtype()) == 0 || file.offset() < 0 || file.length() != expected)
        return inputError(fmt::format("{}: its file slice has {} bytes at {}, its shape needs {}", where, file.length(),
                                      file.offset(), expected));
    }
    places.emplace_back(parameter.offset(), &parameter);
    if (byteSize(buffer) == 0) places.pop_back();
  }
  std::sort(places.begin(), places.end(), [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first < b.first : a.second->name() < b.second->name();
  });
  for (size_t i = 1; i < places.size(); ++i) {
    const plan::Parameter &before = *places[i - 1].second;
    int64_t bytes = elementCount(shardOf(before.shape(), before.dims(), mesh, 0)->size) * byteSize(before.dtype());
    if (places[i - 1].first + bytes > places[i].first)
      return inputError(
          fmt::format("parameters '{}' and '{}' overlap in the arena", before.name(), places[i].second->name()));
  }
  return Status::ok();
}

Status verifyInput(const plan::InputBinding &input, const dist::Mesh &mesh, int64_t arenaBytes) {
  CLEAVE_RETURN_IF_ERROR(verifyBuffer(input.buffer(), arenaBytes));
  if (elementCount(input.global_shape()) < 0) return inputError("its global shape is not valid");
  Result<Shard> shard = shardOf(input.global_shape(), input.dims(), mesh, 0);
  if (!shard) return shard.status();
  if (!std::equal(shard->size.begin(), shard->size.end(), input.buffer().shape().begin(), input.buffer().shape().end()))
    return inputError(
        fmt::format("its buffer {} is not the device's slice of the global shape", describe(input.buffer())));
  return Status::ok();
}

Status verifyConstant(const plan::ConstantData &constant, const dist::Mesh &mesh, int64_t arenaBytes) {
  CLEAVE_RETURN_IF_ERROR(verifyBuffer(constant.buffer(), arenaBytes));
  int64_t expected = byteSize(constant.buffer());
  if (constant.dims_size()) {
    Result<Shard> shard = shardOf(constant.global_shape(), constant.dims(), mesh, 0);
    if (!shard) return shard.status();
    if (!std::equal(shard->size.begin(), shard->size.end(), constant.buffer().shape().begin(),
                    constant.buffer().shape().end()))
      return inputError(fmt::format("its buffer {} is not the device's slice", describe(constant.buffer())));
    int64_t elements = elementCount(constant.global_shape());
    expected = elements < 0 ? -1 : elements * byteSize(constant.buffer().dtype());
  }
  if (static_cast<int64_t>(constant.data().size()) != expected)
    return inputError(fmt::format("a constant of {} bytes for {}, which needs {}", constant.data().size(),
                                  describe(constant.buffer()), expected));
  return Status::ok();
}

Status verifyFragment(const plan::Fragment &fragment, const plan::Plan &plan, const dist::Mesh &mesh,
                      int64_t arenaBytes) {
  for (const plan::InputBinding &input : fragment.inputs())
    CLEAVE_RETURN_IF_ERROR(at(fmt::format("input '{}'", input.name()), verifyInput(input, mesh, arenaBytes)));
  for (const plan::OutputBinding &output : fragment.outputs())
    CLEAVE_RETURN_IF_ERROR(at(fmt::format("output '{}'", output.name()), verifyBuffer(output.buffer(), arenaBytes)));
  for (const plan::ConstantData &constant : fragment.constants())
    CLEAVE_RETURN_IF_ERROR(at("constant", verifyConstant(constant, mesh, arenaBytes)));
  for (int i = 0; i < fragment.commands_size(); ++i) {
    const plan::Command &command = fragment.commands(i);
    auto check = [&]() -> Status {
      if (command.stream() < 0) return inputError("its stream is negative");
      if (command.kind_case() == plan::Command::KIND_NOT_SET)
        return inputError("it has no kind, or one that a newer cleave knows");
      if (command.has_transfer()) return inputError("transfers between stages: this runtime runs plans of one stage");
      for (const Access &access : accessesOf(command, &plan))
        CLEAVE_RETURN_IF_ERROR(at(access.role, verifyBuffer(*access.buffer, arenaBytes)));
      return verifyCommand(command, plan, mesh);
    };
    if (Status status = check(); !status) {
      std::string kind = "no kind";
      if (const auto *field = plan::Command::descriptor()->FindFieldByNumber(command.kind_case())) kind = field->name();
      return at(fmt::format("command {} '{}' ({})", i, command.name(), kind), status);
    }
  }
  CLEAVE_RETURN_IF_ERROR(verifyOrder(fragment, plan));
  return verifyCollectives(fragment);
}

} // namespace

Status verifyPlan(const plan::Plan &plan) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  if (!mesh) return at("plan", mesh.status());
  if (plan.programs_size() != 1)
    return inputError(
        fmt::format("the plan has {} programs: this runtime runs plans of one stage", plan.programs_size()));
  const plan::Program &program = plan.programs(0);
  if (program.arena_bytes() < 0) return inputError("the plan's arena has a negative size");
  CLEAVE_RETURN_IF_ERROR(verifyParameters(plan, *mesh, program.arena_bytes()));
  for (const plan::HostScalar &scalar : program.host_scalars()) {
    CLEAVE_RETURN_IF_ERROR(at("host scalar", verifyBuffer(scalar.buffer(), program.arena_bytes())));
    int64_t count = elementCount(scalar.buffer().shape());
    if (count != 1 && !(count == 2 && scalar.kind() == plan::HostScalar::STEP))
      return inputError(fmt::format("host scalar {} of {} elements", describe(scalar.buffer()), count));
  }
  std::set<std::string> names;
  for (const plan::Fragment &fragment : program.fragments()) {
    if (!names.insert(fragment.name()).second)
      return inputError(fmt::format("fragment '{}' appears twice", fragment.name()));
    CLEAVE_RETURN_IF_ERROR(at(fmt::format("fragment '{}'", fragment.name()),
                              verifyFragment(fragment, plan, *mesh, program.arena_bytes())));
  }
  return Status::ok();
}

} // namespace cleave::runtime
