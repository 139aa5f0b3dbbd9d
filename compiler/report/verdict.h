// What a report says in sentences: the split and what it takes, why not another, how sure that is.
//
//   verdict(report)        "dp=4, tp=8: 1.20 s a step, most of it compute (72 %); 60 of 80 GiB a device."
//   whyThisSplit(report)   {"tensor parallelism", "tp=8 (megatron): 5.1 s a step, 37 % slower: 2.5 s of communication
//                          would be exposed instead of 0.3 s"}, {"ZeRO 1", "needs 143 GiB on a device, ..."}, ...
//   gapText(report)        "no split that was looked at is more than 2.0 % faster, by this cost model"
#pragma once
#include "compiler/report/report.h"

namespace cleave::report {

std::string verdict(const Report &report);

// The best of each family of splits that the choice is not of, and what it would cost.
struct LostFamily {
  std::string family, why;
};
std::vector<LostFamily> whyThisSplit(const Report &report);

std::string gapText(const Report &report);

// "1,980 TFLOP/s a device, 42.0 % of its peak"
std::string speedText(const Report &report);
// "43.9 ms simulated from the plan's own commands", or why there is no such time; "" without a plan.
std::string simulatedText(const Report &report);
// "128 samples/s, 16,400 tokens/s", "12.5 s a sample"
std::string rateText(const Report &report);

} // namespace cleave::report
