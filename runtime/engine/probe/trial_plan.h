// Plans of a few commands repeated, which the executor runs while the probe looks at the clock.
//
//   TrialPlan trial(2);                                    // mesh dp=2
//   plan::Buffer a = trial.buffer(plan::F32, {512, 512});
//   for (int i = 0; i < 8; ++i) trial.fill(a);
//   Result<double> seconds = trial.time(1);                // of the whole step, one thread a device
#pragma once
#include "runtime/engine/executor/executor.h"
#include <string>
#include <vector>

namespace cleave::runtime {

class TrialPlan {
public:
  // `axes`: name and size, outermost first.
  explicit TrialPlan(const std::vector<std::pair<std::string, int64_t>> &axes);
  // A plan of its own, whose step is done so many times.
  TrialPlan(const plan::Plan &made, int repeats);

  plan::Buffer buffer(plan::DType dtype, const std::vector<int64_t> &shape);
  void fill(const plan::Buffer &target);
  void copy(const plan::Buffer &source, const plan::Buffer &target);
  // out[batch,m,n] = lhs[batch,m,k] rhs[batch,k,n], f32; strides in elements, of the batch dimensions, then m and k, k
  // and n, m and n.
  struct Strides {
    std::vector<int64_t> lhs, rhs, out;
  };
  void product(const plan::Buffer &lhs, const plan::Buffer &rhs, const plan::Buffer &out,
               const std::vector<int64_t> &batch, int64_t m, int64_t n, int64_t k, const Strides &strides);
  // A pass of y[samples, out, ...] = x[samples, in, ...] * weights[out, in, ...], padded so that y is as large as x.
  void convolution(plan::Convolution::Pass pass, const plan::Buffer &x, const plan::Buffer &weights,
                   const plan::Buffer &y);
  // In the communication lane, as compiled plans have them: after the command before it, before the one after it.
  void collective(plan::Collective::Op op, const std::string &axis, const plan::Buffer &input,
                  const plan::Buffer &output);

  // Seconds of one step: the median of timed runs. All memory is written before: what never was is one page of zeros
  // for all of it, and reads of that come from the cache.
  Result<double> time(int threads);
  // Medians of its copies: the time of one, and how long after the one before it begins.
  struct Copies {
    double seconds = 0, pause = 0;
  };
  Result<Copies> timeCopies(int threads);

private:
  // With all memory written.
  Result<std::unique_ptr<Executor>> open(const ExecutorOptions &options);
  plan::Command &add(const std::string &name);
  void addFill();
  plan::Plan plan;
  bool isMade = false;
  plan::Fragment *fragment = nullptr;
  int64_t top = 0;
  int32_t events = 0, waitFor = 0, sequence = 0;
};

} // namespace cleave::runtime
