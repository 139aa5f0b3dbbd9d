// Launches: what a kernel reaches, for their extents and scalars, lies in the buffers that they give it.
#include "runtime/plan/accesses.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify/verify.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// Limits of every GPU that plans are made for (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability"): threads of a block, blocks in x, shared memory that a block may ask for (sm_80: 163 KiB).
Status verifyGrid(const plan::Launch &c, const plan::Kernel &kernel) {
  if (kernel.threads() < 1 || kernel.threads() > 1024)
    return inputError(fmt::format("kernel '{}' has blocks of {} threads", kernel.symbol(), kernel.threads()));
  if (kernel.shared_bytes() < 0 || kernel.shared_bytes() > (163 << 10))
    return inputError(
        fmt::format("kernel '{}' wants {} bytes of shared memory", kernel.symbol(), kernel.shared_bytes()));
  if (c.grain() < 1 || c.extent() / c.grain() >= (int64_t(1) << 31) - 1)
    return inputError(
        fmt::format("kernel '{}': an extent of {} by {} is no grid", kernel.symbol(), c.extent(), c.grain()));
  return Status::ok();
}

// A vector access needs a multiple of its size, and the scalar moves it.
bool keepsAlignment(const plan::AffineOfCoordinate &shift, const plan::KernelBuffer &reached) {
  auto fits = [&](int64_t elements) {
    return static_cast<__int128>(elements) * reached.element_bytes() % reached.alignment() == 0;
  };
  return fits(shift.base()) &&
         std::all_of(shift.terms().begin(), shift.terms().end(), [&](const auto &term) { return fits(term.stride()); });
}

Status verifyReach(const plan::KernelBuffer &reached, const plan::Buffer &buffer, const plan::Launch &launch,
                   const dist::Mesh &mesh) {
  if (reached.element_bytes() < 1 || reached.first() > 0 || reached.elements() < 0 || reached.per() < 0 ||
      reached.shift() < 0 || reached.shift() > launch.scalars_size() || reached.alignment() < 0)
    return inputError("what its kernel reaches of it is not valid");
  if (reached.element_bytes() != byteSize(buffer.dtype()))
    return inputError(
        fmt::format("its elements are {}, the kernel's have {} bytes", name(buffer.dtype()), reached.element_bytes()));
  if (reached.alignment() > 0 && buffer.offset() % reached.alignment() != 0)
    return inputError(fmt::format("it does not begin at a multiple of {} bytes", reached.alignment()));
  std::pair<int64_t, int64_t> shift{0, 0};
  if (reached.shift() > 0) {
    const plan::AffineOfCoordinate &scalar = launch.scalars(reached.shift() - 1);
    shift = *rangeOf(scalar, mesh); // verifyLaunch has asked for it
    if (reached.alignment() > 0 && !keepsAlignment(scalar, reached))
      return inputError(fmt::format("it is not read at multiples of {} bytes", reached.alignment()));
  }
  const __int128 times =
      reached.per() == 0 ? 1 : (static_cast<__int128>(launch.extent()) + reached.per() - 1) / reached.per();
  const __int128 least = shift.first + static_cast<__int128>(reached.first());
  const __int128 end = shift.second + reached.elements() * times, count = elementCount(buffer.shape());
  if (reached.elements() == 0 || (least >= 0 && end <= count)) return Status::ok();
  auto shown = [](__int128 value) { return static_cast<int64_t>(std::clamp<__int128>(value, INT64_MIN, INT64_MAX)); };
  return inputError(
      fmt::format("the kernel reaches elements {} to {} of its {}", shown(least), shown(end - 1), shown(count)));
}

// The table that a group's launch is given: of each part its first block, its extent, and where its buffers lie.
std::string tableOf(const plan::LaunchGroup &group, int64_t &blocks) {
  std::vector<int64_t> rows;
  blocks = 0;
  for (const plan::Launch &part : group.parts()) {
    rows.insert(rows.end(), {blocks, part.extent()});
    for (const plan::Buffer &buffer : part.buffers()) rows.push_back(buffer.offset());
    blocks += part.extent() / part.grain() + (part.extent() % part.grain() != 0);
  }
  return {reinterpret_cast<const char *>(rows.data()), rows.size() * sizeof(int64_t)};
}

// Where the table of a group's launch lies.
Result<ByteRange> verifyGroupLaunch(const plan::Command &command, const plan::Fragment &fragment,
                                    const plan::Plan &plan) {
  const plan::LaunchGroup &group = command.launch_group();
  if (command.launches_size() != 1) return inputError("a group of launches is done by one");
  const plan::Launch &launch = command.launches(0);
  const plan::Kernel &kernel = plan.kernels(launch.kernel());
  const plan::Launch &first = group.parts(0);
  int64_t blocks = 0;
  const std::string table = tableOf(group, blocks);
  bool hasScalars = launch.scalars_size() == first.scalars_size() + 1 &&
                    launch.scalars(first.scalars_size()).terms().empty() &&
                    launch.scalars(first.scalars_size()).base() == group.parts_size();
  if (!kernel.of_group() || !hasScalars || launch.buffers_size() != 2 || launch.extent() != blocks ||
      launch.grain() != 1)
    return inputError("its launch is not one of its parts");
  const plan::Buffer &arena = launch.buffers(0), &rows = launch.buffers(1);
  auto isTable = [&](const plan::ConstantData &constant) {
    return constant.buffer().offset() == rows.offset() && !constant.dims_size() && constant.data() == table;
  };
  if (arena.offset() != 0 || arena.in_slot() || rows.in_slot() || rows.dtype() != plan::I64 ||
      byteSize(rows) != static_cast<int64_t>(table.size()) ||
      std::none_of(fragment.constants().begin(), fragment.constants().end(), isTable))
    return inputError("its table does not say where its parts lie");
  return bytesOf(rows);
}

} // namespace

Status verifyLaunch(const plan::Launch &c, const plan::Plan &plan, const dist::Mesh &mesh) {
  if (c.kernel() < 0 || c.kernel() >= plan.kernels_size())
    return inputError(fmt::format("kernel {} of {}", c.kernel(), plan.kernels_size()));
  const plan::Kernel &kernel = plan.kernels(c.kernel());
  if (c.buffers_size() != kernel.num_buffers() || c.scalars_size() != kernel.num_scalars())
    return inputError(fmt::format("{} buffers and {} scalars for kernel '{}', which takes {} and {}", c.buffers_size(),
                                  c.scalars_size(), kernel.symbol(), kernel.num_buffers(), kernel.num_scalars()));
  for (const auto &scalar : c.scalars())
    if (Result<std::pair<int64_t, int64_t>> range = rangeOf(scalar, mesh); !range) return range.status();
  if (c.extent() < 0 || c.grain() < 1) return inputError("a negative extent, or a grain below 1");
  if (kernel.buffers_size() != kernel.num_buffers())
    return inputError(fmt::format("the plan does not say what kernel '{}' reaches, as those of older releases: compile "
                                  "it again",
                                  kernel.symbol()));
  bool grows = std::any_of(kernel.buffers().begin(), kernel.buffers().end(),
                           [](const plan::KernelBuffer &buffer) { return buffer.per() > 0 && buffer.elements() > 0; });
  if (!kernel.of_group() &&
      (c.grain() != kernel.grain() || (kernel.extent() != c.extent() && (kernel.extent() || !grows))))
    return inputError(fmt::format("an extent of {} by {} for kernel '{}', which is compiled for {} by {}", c.extent(),
                                  c.grain(), kernel.symbol(), kernel.extent(), kernel.grain()));
  for (int i = 0; i < c.buffers_size(); ++i)
    if (Status status = verifyReach(kernel.buffers(i), c.buffers(i), c, mesh); !status)
      return inputError(fmt::format("buffer {}, {}: {}", i, describe(c.buffers(i)), status.message()));
  return plan.has_cuda() ? verifyGrid(c, kernel) : Status::ok();
}

// Parts run at once, in any order: none may write what another reads or writes.
Status verifyLaunchGroup(const plan::LaunchGroup &group, const plan::Plan &plan, const dist::Mesh &mesh) {
  const auto &parts = group.parts();
  if (parts.empty()) return inputError("a group of no launches");
  struct Range : ByteRange {
    int part;
    bool written;
  };
  std::vector<Range> ranges;
  for (int i = 0; i < parts.size(); ++i) {
    CLEAVE_RETURN_IF_ERROR(verifyLaunch(parts[i], plan, mesh));
    if (parts[i].kernel() != parts[0].kernel() || plan.kernels(parts[i].kernel()).of_group())
      return inputError("a group of launches of different kernels");
    plan::Command one;
    *one.mutable_launch() = parts[i];
    for (const Access &access : accessesOf(one, &plan)) {
      if (access.buffer->in_slot()) return inputError("a group of launches with a buffer in a slot");
      ranges.push_back({bytesOf(*access.buffer), i, access.write});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t j = i + 1; j < ranges.size() && ranges[j].begin < ranges[i].end; ++j)
      if (ranges[i].part != ranges[j].part && (ranges[i].written || ranges[j].written))
        return inputError(fmt::format("parts {} and {} of a group of launches meet at byte {}", ranges[i].part,
                                      ranges[j].part, ranges[j].begin));
  return Status::ok();
}

Status verifyGroupTables(const plan::Program &program, const plan::Plan &plan) {
  std::vector<std::pair<ByteRange, std::string>> tables;
  for (const plan::Fragment &fragment : program.fragments())
    for (int c = 0; c < fragment.commands_size(); ++c) {
      const plan::Command &command = fragment.commands(c);
      if (!command.has_launch_group() || command.launches().empty()) {
        if (std::any_of(command.launches().begin(), command.launches().end(),
                        [&](const plan::Launch &launch) { return plan.kernels(launch.kernel()).of_group(); }) ||
            (command.has_launch() && plan.kernels(command.launch().kernel()).of_group()))
          return inputError(showCommand(fragment, c) + ": a group's kernel, and there is no group");
        continue;
      }
      Result<ByteRange> table = verifyGroupLaunch(command, fragment, plan);
      if (!table) return inputError(showCommand(fragment, c) + ": " + table.status().message());
      tables.emplace_back(*table, showCommand(fragment, c));
    }
  auto apart = [&](const ByteRange &written, const std::string &what) {
    for (const auto &[table, where] : tables)
      if (table.meets(written)) return inputError(fmt::format("{} writes over the table of {}", what, where));
    return Status::ok();
  };
  if (tables.empty()) return Status::ok();
  for (const plan::SlotRegion &region : program.slot_regions())
    CLEAVE_RETURN_IF_ERROR(
        apart({region.offset(), region.offset() + region.bytes() * region.count()}, "a slot region"));
  for (const plan::HostScalar &scalar : program.host_scalars())
    CLEAVE_RETURN_IF_ERROR(apart(bytesOf(scalar.buffer()), "a host scalar"));
  CLEAVE_RETURN_IF_ERROR(apart({0, program.persistent_bytes()}, "a persistent tensor"));
  for (const plan::Fragment &fragment : program.fragments()) {
    for (const plan::InputBinding &input : fragment.inputs())
      if (!input.buffer().in_slot()) CLEAVE_RETURN_IF_ERROR(apart(bytesOf(input.buffer()), "an input"));
    for (const plan::ConstantData &constant : fragment.constants())
      for (const auto &[table, where] : tables)
        if (ByteRange at = bytesOf(constant.buffer()); table.meets(at) && table.begin != at.begin)
          return inputError("a constant lies over the table of " + where);
    for (int c = 0; c < fragment.commands_size(); ++c) {
      const plan::Command &command = fragment.commands(c);
      for (const Access &access : accessesOf(command, &plan))
        if (access.write && !access.buffer->in_slot() && !access.buffer->on_host())
          CLEAVE_RETURN_IF_ERROR(apart(bytesOf(*access.buffer), showCommand(fragment, c)));
      for (const plan::Launch &launch : command.launches())
        for (const plan::Buffer &buffer : launch.buffers())
          if (!command.has_launch_group() && !buffer.in_slot())
            CLEAVE_RETURN_IF_ERROR(apart(bytesOf(buffer), showCommand(fragment, c)));
    }
  }
  return Status::ok();
}

} // namespace cleave::runtime
