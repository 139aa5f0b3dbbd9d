// The host's computations before a step: the learning rate and the other host scalars of the plan.
//
//   cosine, peak 1, min 0.1, warmup 2, total 10: steps 0..9 -> 0.5, 1, 1, 0.97, ... (0-based step)
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <cstdint>

namespace cleave::runtime {

// Learning rate of the `step`-th step, counted from 0. During warmup: peak * (step + 1) / warmup_steps, so that the
// first step learns and the last warmup step has the peak; with `start`: start + (peak - start) step / warmup_steps,
// as PyTorch's LinearLR. After it, with n = step - warmup and t = n / (total - warmup) in [0, 1]:
//   constant         peak
//   linear           peak + (min - peak) t
//   cosine           min + (peak - min) (1 + cos(pi t)) / 2
//   step             peak * gamma^(milestones m with step >= m)
//   exponential      peak * gamma^n                                        (ExponentialLR)
//   polynomial       min + (peak - min) (1 - t)^power                      (PolynomialLR)
//   cosine_restarts  cosine over n in periods, each period_factor times as long as the one before
//                                                                          (CosineAnnealingWarmRestarts)
//   wsd              peak, and in the last decay_steps of total_steps to min by `anneal`   (get_wsd_schedule)
//   one_cycle        no warmup: by `anneal` from start to the peak at warmup_share * total_steps - 1, then to min at
//                    total_steps - 1                                       (OneCycleLR)
// anneal: linear, cosine, or sqrt: peak + (min - peak) sqrt(t).
double learningRate(const plan::Schedule &schedule, int64_t step);
// Error: a kind that learningRate does not know, or steps that do not fit together.
Status checkSchedule(const plan::Schedule &schedule);

// The bytes of a host scalar at the `step`-th step (from 0) and the microbatch of that step, when `skipped` of the
// steps before left everything as it was (fp16). ONE_MINUS_POWER is 1 - base^(step - skipped + 1): an optimizer counts
// its updates. STEP is step + 1 + microbatch * 2^32, so that every microbatch draws its own random numbers (the
// reference executor does the same); a STEP buffer of two elements holds the seed and that number.
Status hostScalarBytes(const plan::HostScalar &scalar, const plan::Training &training, int64_t step, int64_t skipped,
                       int64_t microbatch, std::string &bytes);

} // namespace cleave::runtime
