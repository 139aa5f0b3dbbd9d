// Executes a plan on the devices of this process.
//
//   Result<std::unique_ptr<Executor>> executor = Executor::create(plan, std::make_unique<LocalFabric>(mesh), {});
//   for (int64_t device : (*executor)->devices())                     // fill persistent tensors
//     for (const plan::Parameter &p : plan.parameters()) fill((*executor)->shard(device, p));
//   Result<std::map<std::string, double>> outputs = (*executor)->run("final", inputs, step, microbatch);
//   outputs->at("loss");
#pragma once
#include "runtime/executor/rank.h"
#include "runtime/plan/coordinate.h"
#include <map>
#include <mutex>
#include <span>

namespace cleave::runtime {

struct ExecutorOptions {
  bool null = false;       // devices that execute nothing: static verification
  int threads = 0;         // a device; 0: the plan's, or cores / devices of this host
  size_t traceRecords = 0; // commands kept for the trace, per thread; 0: no trace
};

class Executor {
public:
  // Verifies the plan (verify.h), allocates arenas, prepares every command, loads constants and starts the threads.
  // `plan` must outlive the executor. Persistent tensors are zero.
  static Result<std::unique_ptr<Executor>> create(const plan::Plan &plan, std::unique_ptr<Fabric> fabric,
                                                  ExecutorOptions options);
  ~Executor();

  const plan::Plan &plan() const { return source; }
  const dist::Mesh &mesh() const { return meshOfPlan; }
  Fabric &fabric() { return *connection; }
  std::vector<int64_t> devices() const; // that this process runs

  // The bytes of a persistent tensor on one of devices(): its local shard, dense. Only between runs.
  std::span<std::byte> shard(int64_t device, const plan::Parameter &parameter);
  Shard shardShape(int64_t device, const plan::Parameter &parameter) const;

  // Null when the plan has no such fragment.
  const plan::Fragment *fragment(const std::string &name) const;
  // Runs a fragment on all devices: `inputs` are the global microbatch arrays, dense, in the order of Fragment.inputs.
  // Gives the outputs (equal on all devices) as numbers. Error: which rank, step and command failed; the executor is
  // then of no further use.
  Result<std::map<std::string, double>> run(const std::string &name, std::span<const std::byte *const> inputs,
                                            int64_t step, int64_t microbatch);

  int64_t peakBytes() const; // allocated on the fullest of devices()
  int threadsPerDevice() const { return threads; }
  Status writeTrace(const std::string &path) const;

private:
  explicit Executor(const plan::Plan &plan) : source(plan) {}
  Status open(ExecutorOptions options);
  void noteFailure(int64_t rank, const Status &status);
  Status writeHostScalars(int64_t step, int64_t microbatch);

  const plan::Plan &source;
  dist::Mesh meshOfPlan;
  std::unique_ptr<Fabric> connection;
  std::unique_ptr<Trace> trace;
  std::vector<std::unique_ptr<Rank>> ranks;
  int threads = 1;
  std::string scalarBytes;
  std::atomic<int64_t> currentStep{0};
  std::mutex failureLock;
  Status failure; // the first, with its rank and step
};

// Cores this process may use.
int availableCores();

} // namespace cleave::runtime
