// One choice of algorithms for all ranks: the first process chooses, and what it chose reaches the others, so copies of
// a parameter that several ranks update stay the same bits.
//
//   Status s = agreeOnProducts(plan, gpus, host, {.tell = print});   // on all processes, with the same plan
#pragma once
#include "runtime/engine/comm/communicator.h"
#include "runtime/engine/device/cuda/choose_products.h"
#include <memory>
#include <span>

namespace cleave::runtime::cuda {

Status agreeOnProducts(const plan::Plan &plan, std::span<const std::shared_ptr<Gpu>> gpus, Fabric &host,
                       const ChooseOptions &options, TimeLimit limit);

} // namespace cleave::runtime::cuda
