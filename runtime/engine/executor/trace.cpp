#include "runtime/engine/executor/trace.h"
#include "runtime/base/atomic_file.h"
#include "runtime/engine/executor/rank.h"
#include "runtime/engine/executor/trace_memory.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace cleave::runtime {
namespace {

using nlohmann::json;

// Chrome's events, one a line.
class EventWriter {
public:
  explicit EventWriter(int64_t start) : start(start) {}
  void write(const json &event) {
    text += separator;
    text += event.dump(-1, ' ', false, json::error_handler_t::replace);
    separator = ",\n";
  }
  void name(const char *what, int64_t rank, int lane, const std::string &name) {
    write({{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}});
  }
  double microseconds(int64_t nanoseconds) const { return static_cast<double>(nanoseconds - start) / 1e3; }
  std::string take() { return std::move(text) + "\n]}\n"; }

private:
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const char *separator = "";
  int64_t start;
};

// The group of a collective or the peer of a transfer, the bytes, and the reason.
void addCommunication(json &arguments, const plan::Command &command, const dist::Mesh &mesh, int64_t rank) {
  if (command.has_collective()) {
    const plan::Collective &collective = command.collective();
    arguments["axes"] = std::vector<std::string>(collective.axes().begin(), collective.axes().end());
    arguments["bytes"] = collective.bytes(), arguments["why"] = collective.why();
  } else if (command.has_transfer()) {
    const plan::Transfer &transfer = command.transfer();
    const bool sends = transfer.direction() == plan::Transfer::SEND;
    arguments["direction"] = sends ? "send" : "receive";
    arguments["peer"] = evaluate(transfer.peer(), mesh, rank);
    arguments["bytes"] = byteSize(transfer.buffer()), arguments["why"] = transfer.why();
  }
}

// The same name for a send and its receive: sender, receiver, channel, step, microbatch, value, and how many such came
// before.
class Messages {
public:
  Messages(const dist::Mesh &mesh, int64_t rank) : mesh(mesh), rank(rank) {}
  std::string name(const TraceLane::Record &record) {
    const plan::Transfer &transfer = record.command->transfer();
    const int64_t peer = evaluate(transfer.peer(), mesh, rank);
    const bool sends = transfer.direction() == plan::Transfer::SEND;
    const std::string what =
        fmt::format("{}-{}.{} {} {} {}", sends ? rank : peer, sends ? peer : rank, transfer.channel(), record.step + 1,
                    record.action->microbatch(), transfer.tag());
    return fmt::format("{} {}", what, counts[{sends, what}]++);
  }

private:
  const dist::Mesh &mesh;
  int64_t rank;
  std::map<std::pair<bool, std::string>, int64_t> counts;
};

json slice(const TraceLane &lane, const TraceLane::Record &record, const dist::Mesh &mesh, const EventWriter &events) {
  const std::string action = actionName(*record.fragment, record.action->microbatch());
  json arguments{{"step", record.step + 1}, {"microbatch", record.action->microbatch()}};
  if (record.command) {
    arguments["kind"] = kindName(*record.command), arguments["action"] = action;
    addCommunication(arguments, *record.command, mesh, lane.rank);
  } else
    arguments["fragment"] = record.fragment->name(), arguments["slot"] = record.action->slot();
  return {{"ph", "X"},
          {"name", record.command ? record.command->name() : action},
          {"cat", record.command ? record.command->phase() : "action"},
          {"pid", lane.rank},
          {"tid", lane.lane},
          {"ts", events.microseconds(record.begin)},
          {"dur", static_cast<double>(record.end - record.begin) / 1e3},
          {"args", arguments}};
}

// From within the send to within the receive.
json arrow(const TraceLane &lane, const TraceLane::Record &record, const std::string &id, const EventWriter &events) {
  const bool sends = record.command->transfer().direction() == plan::Transfer::SEND;
  json event{{"ph", sends ? "s" : "f"},
             {"name", "message"},
             {"cat", "message"},
             {"id", id},
             {"pid", lane.rank},
             {"tid", lane.lane},
             {"ts", events.microseconds(sends ? record.begin : record.end)}};
  if (!sends) event["bp"] = "e";
  return event;
}

} // namespace

TraceLane &Trace::lane(int64_t rank, int number) {
  TraceLane &lane = lanes.emplace_back();
  lane.rank = rank, lane.lane = number, lane.options = options;
  lane.records.reserve(options.recordsPerLane);
  return lane;
}

Status Trace::write(const std::string &path) const {
  int64_t start = INT64_MAX;
  for (const TraceLane &lane : lanes)
    if (!lane.records.empty()) start = std::min(start, lane.records.front().begin);
  CLEAVE_ASSIGN_OR_RETURN(const dist::Mesh mesh, meshOf(plan.mesh()));
  EventWriter events(start);
  std::set<int64_t> ranks;
  for (const TraceLane &lane : lanes) {
    if (ranks.insert(lane.rank).second)
      events.name("process_name", lane.rank, lane.lane, fmt::format("rank {}", lane.rank));
    events.name("thread_name", lane.rank, lane.lane, laneName(lane.lane, plan.mesh()));
    Messages messages(mesh, lane.rank);
    for (const TraceLane::Record &record : lane.records) {
      events.write(slice(lane, record, mesh, events));
      if (record.command && record.command->has_transfer())
        events.write(arrow(lane, record, messages.name(record), events));
    }
  }
  for (int64_t rank : ranks) {
    const plan::Program &program = plan.programs(programOf(plan, mesh, rank));
    for (const MemoryInUse &point : memoryInUse(plan, program, rank, lanes))
      events.write({{"ph", "C"},
                    {"name", "memory in use"},
                    {"pid", rank},
                    {"ts", events.microseconds(point.time)},
                    {"args", {{"persistent", program.persistent_bytes()}, {"values", point.bytes}}}});
  }
  return writeFileAtomically(events.take(), path);
}

} // namespace cleave::runtime
