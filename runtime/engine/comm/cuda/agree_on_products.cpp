#include "runtime/engine/comm/cuda/agree_on_products.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

// The first process' choices for the others, in the order of the keys.
struct Chooser {
  char gpu[256] = {};
  uint64_t libraryVersion = 0;
  uint32_t failed = 0;
};
struct Told {
  MatmulAlgorithm algorithm;
  uint64_t workspaceBytes, found;
};

} // namespace

Status agreeOnProducts(const plan::Plan &plan, std::span<const std::shared_ptr<Gpu>> gpus, Fabric &host,
                       const ChooseOptions &options, TimeLimit limit) {
  CLEAVE_ASSIGN_OR_RETURN(auto products, productsOf(plan));
  if (products.empty()) return Status::ok();
  Gpu &own = *gpus.front();
  bool chooses = host.localDevices().front() == 0;
  Chooser chooser;
  std::vector<Told> told(products.size());
  Status status = own.needBlas();
  if (status && chooses) {
    std::strncpy(chooser.gpu, own.name.c_str(), sizeof chooser.gpu - 1);
    chooser.libraryVersion = own.blas->version();
    Result<ProductChoices> choices = chooseProducts(own, products, options);
    status = choices.status();
    auto each = told.begin();
    for (const auto &[key, product] : products) {
      auto found = choices ? choices->find(key) : ProductChoices::iterator();
      if (choices && found != choices->end()) *each = {found->second.algorithm, found->second.workspaceBytes, 1};
      ++each;
    }
  }
  chooser.failed = !status; // it tells why; the others would wait
  CLEAVE_RETURN_IF_ERROR(host.control().broadcast({reinterpret_cast<std::byte *>(&chooser), sizeof chooser}, limit));
  CLEAVE_RETURN_IF_ERROR(
      host.control().broadcast({reinterpret_cast<std::byte *>(told.data()), told.size() * sizeof(Told)}, limit));
  CLEAVE_RETURN_IF_ERROR(status);
  if (chooser.failed) return runError("the first process could not choose the algorithms of matrix products");
  for (const std::shared_ptr<Gpu> &gpu : gpus) {
    CLEAVE_RETURN_IF_ERROR(gpu->needBlas());
    if (gpu->name != chooser.gpu || gpu->blas->version() != chooser.libraryVersion) {
      if (options.warn)
        options.warn(fmt::format("GPU {} ({}, cuBLASLt {}) is another than the first process' ({}, {}): copies of a "
                                 "parameter may drift apart in their last bits",
                                 gpu->ordinal, gpu->name, gpu->blas->version(), chooser.gpu, chooser.libraryVersion));
      continue;
    }
    auto each = told.begin();
    for (const auto &[key, product] : products) {
      if (each->found) gpu->products[key] = {each->algorithm, each->workspaceBytes, 0};
      ++each;
    }
  }
  return Status::ok();
}

} // namespace cleave::runtime::cuda
