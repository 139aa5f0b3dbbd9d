#include "runtime/engine/executor/stream_trace.h"
#include "runtime/plan/routine.h"

namespace cleave::runtime {

using cuda::CuEvent;

StreamTrace::~StreamTrace() {
  for (size_t r = 0; r < events.size(); ++r)
    if (gpus[r]->enter())
      for (CuEvent event : events[r]) gpus[r]->driver.eventDestroy(event);
}

TraceLane &StreamTrace::laneOf(const Place &place) {
  TraceLane *&lane = lanes[{place.rank, place.lane}];
  if (!lane) lane = &trace.lane(place.id, place.lane);
  return *lane;
}

Result<CuEvent> StreamTrace::record(size_t rank, cuda::Stream stream) {
  const cuda::Gpu &gpu = *gpus[rank];
  if (used[rank] == events[rank].size()) {
    CuEvent made = nullptr;
    CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.eventCreate(&made, 0), "cannot make an event that keeps the time"));
    events[rank].push_back(made);
  }
  CuEvent event = events[rank][used[rank]++];
  CLEAVE_RETURN_IF_ERROR(gpu.check(gpu.driver.eventRecord(event, stream), "cannot record an event"));
  return event;
}

Status StreamTrace::beginRun(int64_t number, std::span<const cuda::Stream> streams) {
  step = number;
  started = nowNanoseconds();
  events.resize(gpus.size());
  used.assign(gpus.size(), 0);
  origins.clear();
  timed.clear();
  for (size_t r = 0; r < gpus.size(); ++r) {
    CLEAVE_RETURN_IF_ERROR(gpus[r]->enter());
    CLEAVE_ASSIGN_OR_RETURN(CuEvent origin, record(r, streams[r]));
    origins.push_back(origin);
  }
  return Status::ok();
}

Status StreamTrace::begin(const Place &place, cuda::Stream stream) {
  Result<CuEvent> event = record(place.rank, stream);
  if (event) begun[{place.rank, place.lane}] = *event;
  return event.status();
}

Status StreamTrace::end(const Place &place, const plan::Command &command, const plan::Action &action,
                        const plan::Fragment &fragment, cuda::Stream stream) {
  Result<CuEvent> event = record(place.rank, stream);
  if (event) timed.push_back({place, &command, &action, &fragment, begun.at({place.rank, place.lane}), *event});
  return event.status();
}

Status StreamTrace::endRun() {
  std::map<size_t, TraceLane::Record> actions; // of the compute lanes: the one that goes on
  auto close = [&](size_t rank) {
    if (auto open = actions.find(rank); open != actions.end()) {
      lanes.at({rank, computeLane})->add(open->second);
      actions.erase(open);
    }
  };
  for (const Timed &one : timed) {
    const cuda::Gpu &gpu = *gpus[one.place.rank];
    CLEAVE_RETURN_IF_ERROR(gpu.enter());
    auto since = [&](CuEvent event, int64_t &time) {
      float milliseconds = 0;
      int error = gpu.driver.eventElapsedTime(&milliseconds, origins[one.place.rank], event);
      time = started + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
      return gpu.check(error, "cannot ask when a command was done");
    };
    TraceLane::Record record{one.command, one.action, one.fragment, step + one.action->ahead(), 0, 0};
    CLEAVE_RETURN_IF_ERROR(since(one.begin, record.begin));
    CLEAVE_RETURN_IF_ERROR(since(one.end, record.end));
    TraceLane &lane = laneOf(one.place);
    lane.add(record);
    full |= lane.isFull();
    if (one.place.lane != computeLane) continue;
    auto open = actions.find(one.place.rank);
    if (open != actions.end() && open->second.action != one.action) close(one.place.rank);
    auto [whole, isNew] = actions.try_emplace(
        one.place.rank, TraceLane::Record{nullptr, one.action, one.fragment, record.step, record.begin, record.end});
    if (!isNew) whole->second.end = record.end;
  }
  for (const Timed &one : timed) close(one.place.rank);
  return Status::ok();
}

} // namespace cleave::runtime
