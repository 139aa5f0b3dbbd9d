#include "runtime/plan/verify/verify.h"
#include "runtime/plan/accesses.h"
#include "runtime/plan/code_digest.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/staged_inputs.h"
#include "runtime/plan/weight_files.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::runtime {
namespace {

Status at(const std::string &where, const Status &status) {
  return status.isOk() ? status : Status(static_cast<ErrorKind>(status.exitStatus()), where + ": " + status.message());
}

// The memory that offsets may reach: the arena; for in_slot buffers one copy of the fragment's slot region, for on_host
// buffers the device's part of the host's memory, for both the copy's part there. -1: none.
struct Space {
  int64_t arenaBytes, slotBytes = -1, hostBytes = -1, hostSlotBytes = -1;

  int64_t roomFor(const plan::Buffer &buffer) const {
    if (buffer.on_host()) return buffer.in_slot() ? hostSlotBytes : hostBytes;
    return buffer.in_slot() ? slotBytes : arenaBytes;
  }
};

Status verifyBuffer(const plan::Buffer &buffer, const Space &space) {
  int64_t bytes = byteSize(buffer), element = byteSize(buffer.dtype());
  if (bytes < 0) return inputError(fmt::format("{} is not a valid buffer", describe(buffer)));
  if (buffer.shape_size() > 16) return inputError(fmt::format("{} has more than 16 dimensions", describe(buffer)));
  int64_t room = space.roomFor(buffer);
  if (buffer.on_host() && space.hostBytes < 0)
    return inputError(
        fmt::format("{} lies in the host's memory, which only parameters and copies reach", describe(buffer)));
  if (room < 0) return inputError(fmt::format("{} lies in a slot, where there is none", describe(buffer)));
  if (buffer.offset() < 0 || buffer.offset() > room - bytes)
    return inputError(fmt::format("{} ({} bytes) is not inside the {} of {} bytes", describe(buffer), bytes,
                                  buffer.in_slot()   ? "slot"
                                  : buffer.on_host() ? "host's memory"
                                                     : "arena",
                                  room));
  if (buffer.offset() % element) return inputError(fmt::format("{} is not aligned to its elements", describe(buffer)));
  return Status::ok();
}

// Which programs hold it.
Status verifyHolders(const plan::Parameter &parameter, int programs) {
  if (parameter.pp_coordinates_size() != parameter.offsets_size())
    return inputError(fmt::format("{} pipeline coordinates hold it, at {} offsets", parameter.pp_coordinates_size(),
                                  parameter.offsets_size()));
  std::set<int64_t> seen;
  for (int64_t coordinate : parameter.pp_coordinates())
    if (coordinate < 0 || coordinate >= programs || !seen.insert(coordinate).second)
      return inputError(
          fmt::format("pipeline coordinate {} holds it: there are {}, each at most once", coordinate, programs));
  return Status::ok();
}

// So many elements in a file of the model's folder, or the checkpoint's.
Status verifySlice(const plan::Source &file, int64_t elements) {
  if (!staysInFolder(file.path()))
    return inputError(fmt::format("its file '{}' is outside of the {}'s folder", file.path(),
                                  file.in_checkpoint() ? "checkpoint" : "model"));
  int64_t expected = 0;
  const int64_t width = byteSize(file.dtype());
  if (elements >= 0 && width > 0 && !__builtin_mul_overflow(elements, width, &expected) && file.offset() >= 0 &&
      file.length() == expected)
    return Status::ok();
  return inputError(fmt::format("its file slice has {} bytes at {}, its shape needs {} elements", file.length(),
                                file.offset(), elements));
}

// Where its data comes from has as many bytes as it needs, in a file of the model's folder.
Status verifySource(const plan::Parameter &parameter) {
  if (!parameter.pieces().empty()) {
    if (parameter.shape().empty() || parameter.shape(0) != parameter.pieces_size())
      return inputError(fmt::format("its {} pieces are not its first dimension", parameter.pieces_size()));
    for (const plan::Parameter &piece : parameter.pieces()) {
      std::string where = fmt::format("piece '{}'", piece.name());
      if (!std::equal(piece.shape().begin(), piece.shape().end(), parameter.shape().begin() + 1,
                      parameter.shape().end()) ||
          piece.dtype() != parameter.dtype() || !piece.pieces().empty())
        return inputError(where + " is of another form than the parameter");
      CLEAVE_RETURN_IF_ERROR(at(where, verifySource(piece)));
    }
  }
  if (!parameter.has_file()) return Status::ok();
  const plan::Source &file = parameter.file();
  const int64_t elements = elementCount(parameter.shape());
  if (file.runs().empty()) {
    const auto &original = parameter.original_shape();
    if (file.transposed() && (original.size() != 2 || elementCount(original) != elements))
      return inputError("its file slice is transposed, and it is no matrix");
    return verifySlice(file, elements);
  }
  int64_t left = elements;
  for (const plan::Source &run : file.runs()) {
    const int64_t width = byteSize(run.dtype()), count = width > 0 ? run.length() / width : 0;
    if (count <= 0 || count > left || run.transposed() || !run.runs().empty())
      return inputError("the runs of its file slice are not of its elements");
    CLEAVE_RETURN_IF_ERROR(verifySlice(run, count));
    left -= count;
  }
  return left == 0 ? Status::ok() : inputError("the runs of its file slice are not of its elements");
}

Status verifyParameters(const plan::Plan &plan, int program, const dist::Mesh &mesh, const Space &space) {
  std::vector<std::pair<int64_t, const plan::Parameter *>> places;
  std::set<std::string> names;
  for (const plan::Parameter &parameter : plan.parameters()) {
    std::string where = fmt::format("parameter '{}'", parameter.name());
    if (!names.insert(parameter.name()).second) return inputError(where + " appears twice");
    CLEAVE_RETURN_IF_ERROR(at(where, verifyHolders(parameter, plan.programs_size())));
    std::optional<int64_t> offset = offsetIn(parameter, program);
    if (!offset) continue;
    plan::Buffer whole;
    whole.set_dtype(parameter.dtype());
    *whole.mutable_shape() = paddedShape(parameter);
    if (byteSize(whole) < 0) return inputError(where + " has no valid shape or type");
    Result<Shard> shard = shardOf(parameter, mesh, 0);
    if (!shard) return at(where, shard.status());
    CLEAVE_ASSIGN_OR_RETURN(std::vector<int64_t> block, blockOf(parameter, mesh));
    plan::Buffer buffer;
    buffer.set_offset(*offset - (parameter.on_host() ? hostMemory : 0));
    buffer.set_on_host(parameter.on_host());
    buffer.set_dtype(parameter.dtype());
    for (int64_t size : block) buffer.add_shape(size);
    CLEAVE_RETURN_IF_ERROR(at(where, verifyBuffer(buffer, space)));
    CLEAVE_RETURN_IF_ERROR(at(where, verifySource(parameter)));
    places.emplace_back(*offset, &parameter);
    if (byteSize(buffer) == 0) places.pop_back();
  }
  std::sort(places.begin(), places.end(), [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first < b.first : a.second->name() < b.second->name();
  });
  for (size_t i = 1; i < places.size(); ++i) {
    const plan::Parameter &before = *places[i - 1].second;
    if (places[i - 1].first + blockBytes(before, mesh) > places[i].first)
      return inputError(fmt::format("parameters '{}' and '{}' overlap in the {}", before.name(),
                                    places[i].second->name(), before.on_host() ? "host's memory" : "arena"));
  }
  return Status::ok();
}

Status verifyInput(const plan::InputBinding &input, const dist::Mesh &mesh, const Space &space) {
  CLEAVE_RETURN_IF_ERROR(verifyBuffer(input.buffer(), space));
  if (elementCount(input.global_shape()) < 0) return inputError("its global shape is not valid");
  if (!input.without_samples() && (input.sample_dim() < 0 || input.sample_dim() >= input.global_shape_size()))
    return inputError(fmt::format("it has no dimension {} of samples", input.sample_dim()));
  CLEAVE_ASSIGN_OR_RETURN(Shard shard, shardOf(input.global_shape(), input.dims(), mesh, 0));
  if (!std::equal(shard.size.begin(), shard.size.end(), input.buffer().shape().begin(), input.buffer().shape().end()))
    return inputError(
        fmt::format("its buffer {} is not the device's slice of the global shape", describe(input.buffer())));
  return Status::ok();
}

Status verifyConstant(const plan::ConstantData &constant, const dist::Mesh &mesh, int64_t arenaBytes) {
  CLEAVE_RETURN_IF_ERROR(verifyBuffer(constant.buffer(), {arenaBytes})); // the same for all microbatches
  int64_t expected = byteSize(constant.buffer());
  if (constant.dims_size()) {
    CLEAVE_ASSIGN_OR_RETURN(Shard shard, shardOf(constant.global_shape(), constant.dims(), mesh, 0));
    if (!std::equal(shard.size.begin(), shard.size.end(), constant.buffer().shape().begin(),
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

Status verifyFragment(const plan::Fragment &fragment, const plan::Plan &plan, const plan::Program &program,
                      const dist::Mesh &mesh) {
  bool hasSlots = fragment.slot_region() >= 0 && fragment.slot_region() < program.slot_regions_size();
  Space space{program.arena_bytes(), hasSlots ? program.slot_regions(fragment.slot_region()).bytes() : -1};
  Space copied = space;
  copied.hostBytes = program.host_bytes();
  if (hasSlots) copied.hostSlotBytes = program.slot_regions(fragment.slot_region()).host_bytes();
  std::set<std::string> names;
  for (const plan::InputBinding &input : fragment.inputs()) {
    CLEAVE_RETURN_IF_ERROR(at(fmt::format("input '{}'", input.name()), verifyInput(input, mesh, space)));
    if (!names.insert(input.name()).second) return inputError(fmt::format("input '{}' appears twice", input.name()));
  }
  for (const plan::OutputBinding &output : fragment.outputs())
    CLEAVE_RETURN_IF_ERROR(at(fmt::format("output '{}'", output.name()), verifyBuffer(output.buffer(), space)));
  for (const plan::ConstantData &constant : fragment.constants())
    CLEAVE_RETURN_IF_ERROR(at("constant", verifyConstant(constant, mesh, program.arena_bytes())));
  for (int i = 0; i < fragment.commands_size(); ++i) {
    const plan::Command &command = fragment.commands(i);
    auto check = [&]() -> Status {
      if (command.stream() < 0 || command.stream() >= numLanes)
        return inputError(fmt::format("its stream is {}, of 0 to {}", command.stream(), numLanes - 1));
      if (command.kind_case() == plan::Command::KIND_NOT_SET)
        return inputError("it has no kind, or one that a newer cleave knows");
      for (const Access &access : accessesOf(command, &plan))
        CLEAVE_RETURN_IF_ERROR(at(access.role, verifyBuffer(*access.buffer, command.has_copy() ? copied : space)));
      for (const plan::Launch &launch : command.launches())
        for (const plan::Buffer &buffer : launch.buffers())
          CLEAVE_RETURN_IF_ERROR(at("launch", verifyBuffer(buffer, space)));
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

// As many bytes as the host writes (executor/schedule.h).
Status verifyHostScalar(const plan::HostScalar &scalar, int64_t arenaBytes) {
  CLEAVE_RETURN_IF_ERROR(verifyBuffer(scalar.buffer(), {arenaBytes}));
  const plan::DType dtype = scalar.buffer().dtype();
  const bool isCount = scalar.kind() == plan::HostScalar::STEP || scalar.kind() == plan::HostScalar::SEED;
  const bool isInteger = dtype == plan::I32 || dtype == plan::U32 || dtype == plan::I64 || dtype == plan::U64;
  const int64_t count = elementCount(scalar.buffer().shape());
  if (!plan::HostScalar::Kind_IsValid(scalar.kind()) ||
      (isCount ? !isInteger : dtype != plan::F32 && dtype != plan::F64) ||
      (count != 1 && !(count == 2 && scalar.kind() == plan::HostScalar::STEP)))
    return inputError(fmt::format("{} is not what the host writes", describe(scalar.buffer())));
  return Status::ok();
}

constexpr int mostThreads = 4096;               // of a device
constexpr int64_t mostBytes = int64_t(1) << 58; // of one memory: sums of two stay numbers

Status verifyMemory(const plan::Program &program, bool hasFaultWord) {
  for (int64_t bytes : {program.arena_bytes(), program.host_bytes(), program.library_workspace_bytes()})
    if (bytes < 0 || bytes > mostBytes) return inputError(fmt::format("the plan wants a memory of {} bytes", bytes));
  if (program.persistent_bytes() < 0 || program.persistent_bytes() > program.arena_bytes())
    return inputError("its persistent tensors are not inside the arena");
  const int64_t fault = program.fault_offset();
  if (fault < 0 || fault % 4 || (hasFaultWord && fault > program.arena_bytes() - 4))
    return inputError("its fault word is not inside the arena");
  return Status::ok();
}

// No more samples a step than its inputs have.
Status verifyBatch(const plan::Plan &plan) {
  __int128 most = 1;
  for (const plan::InputBinding *input : inputsOf(plan, "step"))
    if (!input->without_samples())
      most = std::max(most, static_cast<__int128>(input->global_shape(static_cast<int>(input->sample_dim()))) *
                                microbatchesOf(plan, "step"));
  const int64_t batch = plan.training().global_batch();
  if (batch >= 0 && batch <= most) return Status::ok();
  return inputError(
      fmt::format("a global batch of {} samples, and the inputs of a step have {}", batch, static_cast<int64_t>(most)));
}

Status verifyProgram(const plan::Plan &plan, int number, const dist::Mesh &mesh) {
  const plan::Program &program = plan.programs(number);
  CLEAVE_RETURN_IF_ERROR(verifyMemory(program, plan.has_cuda()));
  CLEAVE_RETURN_IF_ERROR(verifyParameters(plan, number, mesh, {program.arena_bytes(), -1, program.host_bytes()}));
  for (const plan::HostScalar &scalar : program.host_scalars())
    CLEAVE_RETURN_IF_ERROR(at("host scalar", verifyHostScalar(scalar, program.arena_bytes())));
  std::set<std::string> names;
  for (const plan::Fragment &fragment : program.fragments()) {
    if (!names.insert(fragment.name()).second)
      return inputError(fmt::format("fragment '{}' appears twice", fragment.name()));
    CLEAVE_RETURN_IF_ERROR(
        at(fmt::format("fragment '{}'", fragment.name()), verifyFragment(fragment, plan, program, mesh)));
  }
  CLEAVE_RETURN_IF_ERROR(verifyRoutines(program, plan, mesh, number));
  int64_t needed = program.arena_bytes() + program.library_workspace_bytes() + stagedBytes(plan, program);
  if (plan.device_memory_bytes() > 0 && needed > plan.device_memory_bytes())
    return {ErrorKind::NoFit,
            fmt::format("a device needs {:.3f} GiB, and the cluster grants it {:.3f} (memory_gib): compile with more "
                        "devices, pipeline stages (--mesh pp=N), --zero 3 or --recompute full",
                        static_cast<double>(needed) / (1 << 30),
                        static_cast<double>(plan.device_memory_bytes()) / (1 << 30))};
  return verifyGroupTables(program, plan);
}

} // namespace

Status verifyPlan(const plan::Plan &plan) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  if (!mesh) return at("plan", mesh.status());
  CLEAVE_RETURN_IF_ERROR(verifyCode(plan));
  if (plan.threads_per_device() < 0 || plan.threads_per_device() > mostThreads)
    return inputError(fmt::format("the plan wants {} threads a device", plan.threads_per_device()));
  int programs = plan.programs_size();
  if (programs < 1 || (programs > 1 && programs != mesh->axisSize(dist::pipelineAxis)))
    return inputError(fmt::format("the plan has {} programs, and the mesh axis pp has size {}: one program, or one for "
                                  "each coordinate along pp, is needed",
                                  programs, mesh->axisSize(dist::pipelineAxis)));
  for (int number = 0; number < programs; ++number)
    CLEAVE_RETURN_IF_ERROR(
        programs == 1 ? verifyProgram(plan, number, *mesh)
                      : at(fmt::format("program {} (pp={})", number, number), verifyProgram(plan, number, *mesh)));
  CLEAVE_RETURN_IF_ERROR(verifyPipeline(plan, *mesh));
  return verifyBatch(plan);
}

} // namespace cleave::runtime
