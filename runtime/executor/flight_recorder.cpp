#include "runtime/executor/flight_recorder.h"
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <thread>

namespace cleave::runtime {

namespace {
constexpr int64_t bytesOfRank = numLanes * 4;
}

Status FlightRecorder::open(const std::vector<cuda::CudaDevice *> &ranks) {
  devices = ranks;
  CLEAVE_RETURN_IF_ERROR(seen.allocate(devices.front()->gpu(), bytesOfRank * static_cast<int64_t>(devices.size())));
  for (cuda::CudaDevice *device : devices) {
    CLEAVE_RETURN_IF_ERROR(marks.emplace_back().allocate(device->gpu(), bytesOfRank, device->stream(computeLane)));
    CLEAVE_RETURN_IF_ERROR(device->synchronize());
  }
  return Status::ok();
}

Status FlightRecorder::write(size_t rank, int lane, unsigned value) {
  cuda::Address word = marks[rank].address() + static_cast<cuda::Address>(lane * 4);
  const cuda::Gpu &gpu = devices[rank]->gpu();
  return gpu.check(gpu.driver.memsetD32Async(word, value, 1, devices[rank]->stream(lane)),
                   "cannot mark a lane's progress");
}

Status FlightRecorder::mark(Log &log, size_t rank, int lane, const std::string &what) {
  std::vector<std::string> &own = log[rank][static_cast<size_t>(lane)];
  own.push_back(what);
  return write(rank, lane, static_cast<unsigned>(own.size()));
}

// What is stuck holds its own streams only. False: the GPU does not answer within a second.
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
      const std::vector<std::string> &own = log[r][static_cast<size_t>(lane)];
      if (own.empty()) continue;
      uint32_t reached = 0;
      std::memcpy(&reached, seen.data() + static_cast<int64_t>(r) * bytesOfRank + lane * 4, sizeof reached);
      text += fmt::format("{} {}: {} ({} of {})", first ? "" : ";", laneName(lane),
                          reached == 0 || reached > own.size() ? "before its first exchange" : own[reached - 1],
                          reached, own.size());
      first = false;
    }
  }
  return text;
}

} // namespace cleave::runtime
