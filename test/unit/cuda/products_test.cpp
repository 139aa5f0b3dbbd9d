// How algorithms of matrix products are chosen, kept and reused; the fake's first algorithm is slow, its second is not,
// its third does not run.
#include "runtime/engine/comm/local.h"
#include "runtime/engine/device/cuda/choose_products.h"
#include "runtime/engine/executor/executor.h"
#include "test/unit/cuda/fake_gpu.h"
#include "test/unit/runtime/mlp_weights.h"
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::runtime::test {
namespace {

using cuda::Product;
using cuda::ProductChoices;

// m x k by k x n, all dense, in fp32, at offsets that follow each other.
plan::Contract contractOf(int64_t m, int64_t n, int64_t k, int64_t lhsOffset = 0) {
  plan::Contract c;
  c.set_m(m), c.set_n(n), c.set_k(k);
  int64_t offset = lhsOffset;
  auto buffer = [&](plan::Buffer &made, int64_t rows, int64_t columns) {
    made.set_offset(offset), made.set_dtype(plan::F32);
    made.add_shape(rows), made.add_shape(columns);
    offset += (rows * columns * 4 + 63) / 64 * 64;
  };
  buffer(*c.mutable_lhs(), m, k), buffer(*c.mutable_rhs(), k, n), buffer(*c.mutable_out(), m, n);
  for (int64_t stride : {k, int64_t(1)}) c.add_lhs_strides(stride);
  for (int64_t stride : {n, int64_t(1)}) c.add_rhs_strides(stride), c.add_out_strides(stride);
  return c;
}

struct Chosen {
  ProductChoices choices;
  std::vector<std::string> told, warned;
};
Chosen choose(const plan::Plan &plan) {
  Chosen chosen;
  auto gpu = cuda::Gpu::open(0, plan);
  EXPECT_TRUE(gpu.isOk()) << gpu.status().message();
  auto products = cuda::productsOf(plan);
  EXPECT_TRUE(products.isOk()) << products.status().message();
  auto choices = cuda::chooseProducts(**gpu, *products,
                                      {.tell = [&](const std::string &text) { chosen.told.push_back(text); },
                                       .warn = [&](const std::string &text) { chosen.warned.push_back(text); }});
  EXPECT_TRUE(choices.isOk()) << choices.status().message();
  if (choices) chosen.choices = *choices;
  return chosen;
}
std::filesystem::path choicesFile() { return cuda::choicesPath("Fake GPU", 130001); }

TEST(CudaProducts, TheFastestIsChosenOnceAndKept) {
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan({}));
  Chosen first = choose(plan);
  int launches = gpu.graphLaunches();
  EXPECT_GT(launches, 0) << "timed by launches of their own, which take longer than a small product";
  Chosen second = choose(plan);
  EXPECT_EQ(gpu.graphLaunches(), launches);
  ASSERT_FALSE(first.choices.empty());
  for (const auto &[key, choice] : first.choices) {
    EXPECT_EQ(choice.algorithm.data[0], 1u) << key;
    EXPECT_GT(choice.microseconds, 0) << key;
    EXPECT_EQ(second.choices.at(key).algorithm.data[0], 1u);
  }
  EXPECT_THAT(first.told.back(), testing::MatchesRegex("[0-9]+ matrix products: [1-9][0-9]* timed in .*, 0 known.*"));
  EXPECT_THAT(first.told.front(), testing::HasSubstr("us by algorithm 2 of 3"));
  EXPECT_THAT(second.told.back(), testing::HasSubstr(": 0 timed in"));
  EXPECT_THAT(first.warned, testing::IsEmpty());
  EXPECT_THAT(second.warned, testing::IsEmpty());
}

TEST(CudaProducts, WhatCannotBeTimedIsTheLibrarysFirst) {
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan({}));
  ::setenv("FAKE_CUDA_CAPTURES", "0", 1);
  Chosen untimed = choose(plan);
  ::unsetenv("FAKE_CUDA_CAPTURES");
  ASSERT_FALSE(untimed.choices.empty());
  for (const auto &[key, choice] : untimed.choices) EXPECT_EQ(choice.algorithm.data[0], 0u) << key;
  EXPECT_EQ(untimed.warned.size(), untimed.choices.size());
  EXPECT_THAT(untimed.warned.front(), testing::HasSubstr("algorithms can be timed: cannot time a matrix product in a "
                                                         "graph: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
  EXPECT_THAT(choose(plan).told.front(), testing::HasSubstr("us by algorithm 2 of 3")) << "they are timed again";
}

TEST(CudaProducts, ADamagedFileIsAWarningAndIsWrittenAnew) {
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan({}));
  choose(plan);
  std::filesystem::path file = choicesFile();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 9); // "end N" is cut
  Chosen chosen = choose(plan);
  ASSERT_EQ(chosen.warned.size(), 1u);
  EXPECT_THAT(chosen.warned[0], testing::MatchesRegex(".*cublaslt-130001-Fake-GPU.txt:[0-9]+: not what .*again"));
  EXPECT_THAT(choose(plan).told.back(), testing::HasSubstr(": 0 timed in"));
}

TEST(CudaProducts, WhatTheLibraryRefusesIsTimedAgain) {
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan({}));
  Chosen chosen = choose(plan);
  std::swap(chosen.choices.begin()->second, std::next(chosen.choices.begin())->second);
  ASSERT_TRUE(cuda::writeChoices(choicesFile(), chosen.choices).isOk());
  Chosen again = choose(plan);
  EXPECT_EQ(again.warned.size(), 2u);
  EXPECT_THAT(again.told.back(), testing::HasSubstr(": 2 timed in"));
  EXPECT_THAT(choose(plan).warned, testing::IsEmpty());
}

// A run goes on without the file, and without the memory that timing takes.
TEST(CudaProducts, ThatNothingCanBeKeptIsNoFailure) {
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan({}));
  ::setenv("XDG_CACHE_HOME", "/dev/null", 1);
  Chosen chosen = choose(plan);
  ASSERT_EQ(chosen.warned.size(), 1u);
  EXPECT_THAT(chosen.warned[0], testing::HasSubstr("the next run times"));
  EXPECT_FALSE(chosen.choices.empty());
  gpu.memory(1 << 20);
  chosen = choose(plan);
  ASSERT_EQ(chosen.warned.size(), 1u);
  EXPECT_THAT(chosen.warned[0], testing::HasSubstr("the first algorithm of cuBLASLt's heuristic is taken, untimed"));
  for (const auto &[key, choice] : chosen.choices) EXPECT_EQ(choice.algorithm.data[0], 0u) << key;
}

TEST(CudaProducts, AKeyHasAllThatAChoiceDependsOn) {
  auto keyOf = [](const plan::Contract &c, bool tf32 = false) {
    Result<Product> product = cuda::productOf(c, tf32);
    EXPECT_TRUE(product.isOk()) << product.status().message();
    return product ? product->key() : "";
  };
  plan::Contract c = contractOf(32, 48, 16);
  EXPECT_EQ(keyOf(c), "48x32x16 NN f32,f32>f32 ld 48,16,48 align 16,16,16");
  EXPECT_EQ(keyOf(contractOf(32, 48, 16, 4096)), keyOf(c)); // elsewhere in the arena
  std::vector<std::string> keys{keyOf(c), keyOf(c, true)};
  auto other = [&](auto change) {
    plan::Contract changed = c;
    change(changed);
    keys.push_back(keyOf(changed));
  };
  other([](plan::Contract &d) { d.set_accumulate(true); });
  other([](plan::Contract &d) { *d.mutable_bias() = d.lhs(); });
  other([](plan::Contract &d) { *d.mutable_bias() = d.lhs(), d.mutable_bias()->set_offset(4); });
  other([](plan::Contract &d) { *d.mutable_rhs_sum() = d.lhs(); });
  other([](plan::Contract &d) { d.set_activation(plan::Contract::GELU); });
  other([](plan::Contract &d) { d.set_activation(plan::Contract::GELU), *d.mutable_pre_activation() = d.out(); });
  other([](plan::Contract &d) { d.mutable_rhs()->set_offset(d.rhs().offset() + 8); });
  other([](plan::Contract &d) { d.mutable_out()->set_dtype(plan::BF16); });
  other([](plan::Contract &d) { d.set_lhs_strides(0, 64); });
  other([](plan::Contract &d) { d.set_lhs_strides(0, 1), d.set_lhs_strides(1, 32); });
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end()) << testing::PrintToString(keys);
}

// Heads side by side in a projection's result: begin 8 bytes apart, so no algorithm may read 16 at once.
TEST(CudaProducts, PartsOfARowAreAsAlignedAsTheyAre) {
  plan::Contract c = contractOf(4, 6, 2);
  for (int64_t size : {3, 5}) c.add_batch(size);
  auto strides = [](auto *field, std::vector<int64_t> values) {
    field->Clear();
    for (int64_t value : values) field->Add(value);
  };
  strides(c.mutable_lhs_strides(), {40, 2, 10, 1});
  strides(c.mutable_rhs_strides(), {60, 12, 6, 1});
  strides(c.mutable_out_strides(), {120, 24, 6, 1});
  Result<Product> product = cuda::productOf(c, false);
  ASSERT_TRUE(product.isOk()) << product.status().message();
  EXPECT_EQ(product->batch, 5);
  EXPECT_EQ(product->calls.size(), 3u);
  EXPECT_EQ(product->a.alignment, 16u);
  EXPECT_EQ(product->b.batchStride, 2);
}

TEST(CudaProducts, AnEpilogueWithoutAlgorithmsNamesTheSwitch) {
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan({}));
  plan::Fragment &fragment = *plan.mutable_programs(0)->mutable_fragments(0);
  for (plan::Command &command : *fragment.mutable_commands())
    if (command.has_contract()) {
      *command.mutable_contract()->mutable_bias() = command.contract().out();
      command.mutable_contract()->mutable_bias()->clear_shape();
      command.mutable_contract()->mutable_bias()->add_shape(command.contract().n());
      break;
    }
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  for (int error : {cuda::blasNotSupported, cuda::blasInvalidValue}) {
    gpu.epilogues(error);
    auto executor = Executor::create(plan, std::make_unique<LocalFabric>(*mesh), {});
    ASSERT_FALSE(executor.isOk());
    EXPECT_THAT(executor.status().message(),
                testing::HasSubstr("cuBLASLt knows no algorithm for the matrix product with "
                                   "what it ends with; compile with --set epilogues=written"));
  }
}

// The library has 8 bits as "TN" only: both operands with k innermost, everything at multiples of 16 bytes.
TEST(CudaProducts, EightBitsLieWithKInnermost) {
  plan::Contract c = contractOf(32, 64, 48);
  c.mutable_lhs()->set_dtype(plan::F8E4M3), c.mutable_rhs()->set_dtype(plan::F8E5M2);
  c.mutable_out()->set_dtype(plan::BF16);
  c.set_rhs_strides(0, 1), c.set_rhs_strides(1, 48);
  Result<Product> product = cuda::productOf(c, false);
  ASSERT_TRUE(product) << product.status().message();
  EXPECT_EQ(product->key(), "64x32x48 TN e5m2,e4m3>bf16 ld 48,48,64 align 16,16,16");
  EXPECT_EQ(product->a.bytes(1), 48 * 64);

  auto refused = [](const plan::Contract &one) {
    Result<Product> made = cuda::productOf(one, false);
    return made ? std::string() : made.status().message();
  };
  const testing::Matcher<std::string> message = testing::HasSubstr("cuBLASLt multiplies 8 bits only with k innermost");
  plan::Contract other = c;
  other.set_rhs_strides(0, 64), other.set_rhs_strides(1, 1);
  EXPECT_THAT(refused(other), message);
  other = c, other.mutable_lhs()->set_dtype(plan::F8E5M2);
  EXPECT_THAT(refused(other), message);
  other = c, other.mutable_lhs()->set_offset(8);
  EXPECT_THAT(refused(other), message);
  other = c, other.set_k(40);
  EXPECT_THAT(refused(other), message);
  other = c, other.set_m(24);
  EXPECT_THAT(refused(other), message);
  other = c, other.set_n(40);
  EXPECT_THAT(refused(other), message);
}

} // namespace
} // namespace cleave::runtime::test
