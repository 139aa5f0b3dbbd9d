// Chooses cuBLASLt's algorithm for every product of a plan: the library's heuristic names several, which are timed once
// on this GPU, each distinct product by itself; what is known from earlier runs is not timed again (product_choices.h).
//
//   Result<std::map<std::string, Product>> products = productsOf(plan);       // by key
//   ProductChoices choices = chooseProducts(gpu, *products, {.tell = print}); // before the GPU's memory is taken
#pragma once
#include "runtime/engine/device/cuda/gpu.h"
#include "runtime/engine/device/cuda/product.h"
#include <functional>

namespace cleave::runtime::cuda {

struct ChooseOptions {
  std::function<void(const std::string &)> tell; // every choice; null: nobody asks
  std::function<void(const std::string &)> warn; // the file is of no use
};

// The same on all processes that have the plan. Error: a product that cuBLASLt has no word for.
Result<std::map<std::string, Product>> productsOf(const plan::Plan &plan);
// Products without an algorithm are left out: whoever prepares them says so.
Result<ProductChoices> chooseProducts(Gpu &gpu, const std::map<std::string, Product> &products,
                                      const ChooseOptions &options);

} // namespace cleave::runtime::cuda
