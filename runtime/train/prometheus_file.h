// The metrics of a training as Prometheus reads them: the latest step in its text format, in a file for the textfile
// collector of the node exporter, which reads files whose names end in .prom.
//
//   PrometheusFile file;
//   Status s = file.open("/var/lib/node_exporter/cleave.prom");
//   s = file.write(metrics);                   // after every step: at most one file a second
//   s = file.flush();                          // the last step is there
//
// Source: the text-based format 0.0.4 of Prometheus' "Exposition formats".
#pragma once
#include "runtime/base/status.h"
#include "runtime/train/trainer.h"
#include <chrono>
#include <string>

namespace cleave::runtime {

// What each step may lack, such as the loss of an evaluation, stays as the latest step that had it said.
void takeLatest(StepMetrics &latest, const StepMetrics &step);
// "# HELP cleave_loss mean over ...\n# TYPE cleave_loss gauge\ncleave_loss 2.784\n...": each metric that has a value.
// Of step 0 a comment.
std::string prometheusText(const StepMetrics &latest);

class PrometheusFile {
public:
  // Error: another name's end, a path that cannot be written.
  Status open(const std::string &path);
  Status write(const StepMetrics &metrics); // nothing when no file is open
  Status flush();
  void close() { path.clear(); }

private:
  std::string path;
  StepMetrics latest;
  bool isWritten = true;
  std::chrono::steady_clock::time_point next{}; // when the file may be written again
};

} // namespace cleave::runtime
