// The metrics of a training as TensorBoard reads them: an event file in a folder, a record for every step.
//
//   EventFile events;
//   events.open("logs", 0);                    // logs/events.out.tfevents.1795660000.host.4711
//   events.write(metrics);                     // scalars "loss", "lr", ... at the step
//
// Source: TensorFlow's record_writer.h (length and data, each with a masked CRC-32C) and event.proto.
#pragma once
#include "runtime/base/status.h"
#include <cstdio>
#include <string>

namespace cleave::runtime {

struct StepMetrics;

class EventFile {
public:
  EventFile() = default;
  EventFile(const EventFile &) = delete;
  ~EventFile();
  // A new file in the folder, which is made. TensorBoard drops the records of older files beyond `stepsDone`.
  Status open(const std::string &folder, int64_t stepsDone);
  Status write(const StepMetrics &metrics); // nothing when no file is open
  void close();

private:
  Status record(const std::string &event);
  std::FILE *file = nullptr;
  std::string path;
};

// CRC-32C (Castagnoli, reflected 0x82f63b78): of "123456789" it is 0xe3069283 (RFC 3720, B.4 has more).
uint32_t crc32c(const void *data, size_t bytes);

} // namespace cleave::runtime
