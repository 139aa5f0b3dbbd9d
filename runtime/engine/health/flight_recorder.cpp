#include "runtime/engine/health/flight_recorder.h"
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

namespace cleave::runtime {

namespace {
constexpr int64_t bytesOfRank = numLanes * 4;
constexpr int64_t betweenMarks = 16; // commands that compute
constexpr const char *atItsEnd = "at its end";
} // namespace

Status FlightRecorder::open(const std::vector<cuda::CudaDevice *> &ranks, const plan::Mesh &planMesh) {
  devices = ranks;
  mesh = &planMesh;
  CLEAVE_RETURN_IF_ERROR(seen.allocate(devices.front()->gpu(), bytesOfRank * static_cast<int64_t>(devices.size())));
  for (cuda::CudaDevice *device : devices) {
    CLEAVE_RETURN_IF_ERROR(marks.emplace_back().allocate(device->gpu(), bytesOfRank, device->stream(computeLane)));
    CLEAVE_RETURN_IF_ERROR(device->synchronize());
  }
  return Status::ok();
}

Status FlightRecorder::clear(size_t rank) {
  const cuda::Gpu &gpu = devices[rank]->gpu();
  return gpu.check(gpu.driver.memsetD32Async(marks[rank].address(), 0, numLanes, devices[rank]->stream(computeLane)),
                   "cannot clear the marks of progress");
}

Status FlightRecorder::write(size_t rank, int lane, unsigned value) {
  cuda::Address word = marks[rank].address() + static_cast<cuda::Address>(lane * 4);
  const cuda::Gpu &gpu = devices[rank]->gpu();
  return gpu.check(gpu.driver.memsetD32Async(word, value, 1, devices[rank]->stream(lane)),
                   "cannot mark a lane's progress");
}

Status FlightRecorder::waits(Log &log, size_t rank, int lane, const Name &name) {
  const Lane &own = log[rank][static_cast<size_t>(lane)];
  bool isKnown = own.commands == 0 || (!own.marks.empty() && own.marks.back().commands == own.commands);
  return isKnown ? Status::ok() : mark(log, rank, lane, "before " + name());
}

Status FlightRecorder::begins(Log &log, size_t rank, int lane, const Name &name, bool isExchange) {
  return isExchange ? mark(log, rank, lane, "in " + name()) : Status::ok();
}

Status FlightRecorder::ended(Log &log, size_t rank, int lane, const Name &name, bool isExchange) {
  Lane &own = log[rank][static_cast<size_t>(lane)];
  ++own.commands;
  int64_t marked = own.marks.empty() ? 0 : own.marks.back().commands;
  bool isDue = isExchange || lane != computeLane || own.commands - marked >= betweenMarks;
  return isDue ? mark(log, rank, lane, "after " + name()) : Status::ok();
}

Status FlightRecorder::finished(Log &log, size_t rank, int lane) {
  const Lane &own = log[rank][static_cast<size_t>(lane)];
  return own.commands > 0 ? mark(log, rank, lane, atItsEnd) : Status::ok();
}

Status FlightRecorder::mark(Log &log, size_t rank, int lane, const std::string &what) {
  Lane &own = log[rank][static_cast<size_t>(lane)];
  own.marks.push_back({what, own.commands});
  return write(rank, lane, static_cast<unsigned>(own.marks.size()));
}

// A command that is stuck holds only its own streams. False: the GPU does not answer within a second.
bool FlightRecorder::read(size_t rank) const {
  const cuda::Gpu &gpu = devices[rank]->gpu();
  cuda::Stream stream = devices[rank]->copies();
  // To a place of its own: a GPU that does not answer may do so later.
  cuda::Address to = seen.address() + static_cast<cuda::Address>(rank * bytesOfRank);
  if (!gpu.enter() || gpu.driver.memcpyAsync(to, marks[rank].address(), bytesOfRank, stream)) return false;
  for (int turn = 0; turn < 1000; ++turn) {
    int state = gpu.driver.streamQuery(stream);
    if (state != cuda::errorNotReady) return state == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string FlightRecorder::text(const Log &log) const {
  std::string text;
  for (size_t r = 0; r < devices.size(); ++r) {
    text += fmt::format("\n  rank {}:", devices[r]->deviceId());
    if (!read(r)) {
      text += " its GPU does not answer";
      continue;
    }
    bool first = true;
    for (int lane = 0; lane < numLanes; ++lane) {
      const Lane &own = log[r][static_cast<size_t>(lane)];
      if (own.commands == 0) continue;
      uint32_t reached = 0;
      std::memcpy(&reached, seen.data() + static_cast<int64_t>(r) * bytesOfRank + lane * 4, sizeof reached);
      if (reached > own.marks.size()) reached = 0; // of a routine before this one
      const Lane::Mark *last = reached ? &own.marks[reached - 1] : nullptr;
      text += fmt::format("{} {}: {} ({} of {} commands done)", first ? "" : ";", laneName(lane, *mesh),
                          last ? last->what : "at its beginning", last ? last->commands : 0, own.commands);
      if (lane == computeLane && reached < own.marks.size() && own.marks[reached].what != atItsEnd)
        text += fmt::format(", not yet {} ({})", own.marks[reached].what, own.marks[reached].commands);
      first = false;
    }
  }
  return text;
}

} // namespace cleave::runtime
