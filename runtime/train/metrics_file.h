// The metrics of a training: lines of JSON, or of CSV where the file's name ends so, flushed one by one. A resumed
// training continues the file, without the lines of steps that were lost.
#pragma once
#include "runtime/base/status.h"
#include <cstdio>
#include <string>
#include <vector>

namespace cleave::runtime {

struct StepMetrics;

class MetricsFile {
public:
  MetricsFile() = default;
  MetricsFile(const MetricsFile &) = delete;
  ~MetricsFile();
  // "-": standard output. `stepsDone` > 0: keeps the lines of steps up to it, else begins anew.
  // `shape`: metrics with the names of all groups, for the heads of columns.
  Status open(const std::string &path, int64_t stepsDone, const StepMetrics &shape);
  Status write(const StepMetrics &metrics); // nothing when no file is open
  void close();

private:
  Status line(const std::string &text);
  bool isCsv = false;
  std::FILE *file = nullptr;
  std::vector<std::string> columns; // of CSV
  std::string path;
};

} // namespace cleave::runtime
