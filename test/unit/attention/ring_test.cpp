// Whole training steps with attention on blocks of the sequence, on one device and on a ring of simulated devices, and
// with attention as one operation, against the same model with its attention as exported. Everything is computed in
// doubles: what differs is rounding.
#include "compiler/attention/attention.h"
#include "compiler/driver/pass_list.h"
#include "compiler/partition/layouts.h"
#include "compiler/partition/partition.h"
#include "compiler/partition/passes.h"
#include "compiler/recipe/recipe.h"
#include "compiler/training/node_names.h"
#include "compiler/training/training.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "test/unit/attention/attention_model.h"
#include "test/unit/partition/simulated_devices.h"
#include <gtest/gtest.h>
#include <random>

using namespace mlir;

namespace cleave::attention {
namespace {

using partition::HostTensor;
using partition::SimulatedDevices;
using testing::Form;
using testing::Mask;

class RingAttention : public ::testing::TestWithParam<Form> {
protected:
  RingAttention() { context.loadDialect<onnx::OnnxDialect, dist::DistDialect, func::FuncDialect>(); }

  // `blocks` 1: as exported.
  OwningOpRef<ModuleOp> step(int64_t blocks, bool recompute = false, bool balance = false, bool named = false) {
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(attentionModel(GetParam()), &context);
    if (!module) return module;
    auto recipe = recipe::parseRecipeText("loss: {kind: softmax_cross_entropy, ignore_index: -100}\n"
                                          "optimizer: {kind: adamw, lr: 0.1}\nclip_norm: 0.5\n");
    EXPECT_TRUE(recipe.isOk()) << recipe.status().message();
    PassManager passes(&context);
    TrainingOptions options;
    options.sequenceBlocks = blocks;
    options.balanceSequence = balance;
    if (named)
      options.raiseAttention = {
          .featureMultiple = 4, .anyBand = true, .softCap = true, .parts = blocks > 1 ? 2 * blocks : 1};
    addTrainingPasses(passes, *recipe, options);
    EXPECT_TRUE(succeeded(passes.run(*module)));
    if (named) expectOperations(*module, blocks, balance);
    if (named && blocks == 1) writtenOut(*module);
    if (recompute) computeAgain(*module);
    return module;
  }

  // Attention as one operation with its gradient, each once, on a ring once for each turn, or twice.
  void expectOperations(ModuleOp module, int64_t blocks, bool balance) {
    int forward = 0, backward = 0;
    module.lookupSymbol<func::FuncOp>("final").walk([&](Operation *op) {
      forward += isa<onnx::ScaledAttentionOp>(op), backward += isa<onnx::ScaledAttentionGradOp>(op);
      if (auto attention = dyn_cast<onnx::ScaledAttentionOp>(op); attention && GetParam().mask == Mask::Window)
        EXPECT_EQ(attention.getBand(), (runtime::AttentionBand{.left = 3, .right = 0}));
    });
    const Mask mask = GetParam().mask;
    const bool isCausal = mask == Mask::CausalTable || mask == Mask::CausalWhere;
    const bool isTaken = blocks == 1 ? mask != Mask::TrainedBias : isCausal || mask == Mask::None;
    const int64_t each = isTaken && !GetParam().dropout ? 1 + (isCausal && balance ? 2 : 1) * (blocks - 1) : 0;
    EXPECT_EQ(forward, each);
    EXPECT_EQ(backward, each);
  }
  // What the operations stand for.
  void writtenOut(ModuleOp module) {
    PassManager passes(&context);
    passes.addPass(createDecomposeAttention());
    EXPECT_TRUE(succeeded(passes.run(module)));
  }

  // The whole forward pass is one segment; what the ring is made of is known by its operands.
  void computeAgain(ModuleOp module) {
    for (const training::NamedOperation &named :
         training::forwardOperations(module.lookupSymbol<func::FuncOp>("final"))) {
      place::Place place = place::of(named.op);
      place.segment = 0;
      place.recompute = true;
      place.set(named.op);
    }
    PassManager passes(&context);
    passes.addPass(partition::createRecompute());
    EXPECT_TRUE(succeeded(passes.run(module)));
  }

  // The sequence of every input over cp, the samples over dp; all else follows.
  OwningOpRef<ModuleOp> split(ModuleOp whole, const dist::Mesh &mesh) {
    OwningOpRef<ModuleOp> module = whole.clone();
    for (auto function : module->getOps<func::FuncOp>())
      for (BlockArgument argument : function.getArguments()) {
        if (onnx::hostAttr.of(function, argument.getArgNumber())) continue;
        auto rank = cast<RankedTensorType>(argument.getType()).getRank();
        dist::Sharding layout = dist::Sharding::replicated(rank);
        layout.dims[0] = {"dp"}, layout.dims[1] = {"cp"};
        dist::layoutAttr.setArg(function, argument.getArgNumber(), dist::ShardingAttr::get(&context, layout));
      }
    module->walk([](Operation *op) { place::nodeAttr.remove(op); }); // the decision names no operation
    planner::Decision decision;
    decision.mesh = mesh;
    decision.batchAxes = {"dp"};
    PassManager passes(&context);
    addPartitionPasses(passes, {.decision = decision});
    EXPECT_TRUE(succeeded(passes.run(*module)));
    return module;
  }

  HostTensor argument(func::FuncOp function, unsigned index, std::mt19937 &random) {
    runtime::TensorType type = partition::typeOf(function.getArgument(index).getType());
    int64_t count = runtime::elementCount(type.shape);
    if (type.dtype == plan::I64) {
      std::vector<int64_t> values(count);
      const bool label = onnx::labelAttr.of(function, index), host = onnx::hostAttr.of(function, index).has_value();
      for (int64_t &value : values) value = host ? 7 : std::uniform_int_distribution<int64_t>(0, label ? 4 : 1)(random);
      if (label) values[0] = -100;
      // Every sample sees its first key, or none at all in the second sample where the model as exported allows it: its
      // guard against NaN does not hold for derivatives.
      bool empty = emptyRows && (function.getName() == "evaluate" || GetParam().mask == Mask::PaddingFinite);
      if (!label && !host)
        for (int64_t i = 0; i < count; ++i)
          values[i] = i >= count / 2 && empty ? 0 : i % (count / 2) == 0 ? 1 : values[i];
      return HostTensor::ofIntegers(type.dtype, type.shape, values);
    }
    std::vector<double> values(count);
    const bool host = onnx::hostAttr.of(function, index).has_value();
    for (double &value : values) value = host ? 0.1 : std::uniform_real_distribution<double>(-1, 1)(random);
    return HostTensor::ofReals(type.dtype, type.shape, values);
  }

  void expectEqual(ModuleOp plain, ModuleOp ring, const dist::Mesh &mesh) {
    std::mt19937 random(5);
    std::map<std::string, HostTensor> state;
    for (auto param : plain.getOps<onnx::ParamOp>()) {
      runtime::TensorType type = partition::typeOf(param.getType());
      std::vector<double> values(runtime::elementCount(type.shape), 0);
      if (param.getRole() == "parameter")
        for (double &value : values) value = std::uniform_real_distribution<double>(-1, 1)(random);
      state[param.getSymName().str()] = HostTensor::ofReals(type.dtype, type.shape, values);
    }
    SimulatedDevices one(plain, {}, state), many(ring, mesh, state);
    auto run = [&](StringRef name) {
      auto function = plain.lookupSymbol<func::FuncOp>(name);
      std::vector<HostTensor> arguments;
      for (unsigned i = 0; i < function.getNumArguments(); ++i) arguments.push_back(argument(function, i, random));
      std::vector<HostTensor> wanted = one.run(name, arguments), got = many.run(name, arguments);
      ASSERT_EQ(wanted.size(), got.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_FALSE(std::isnan(wanted[i].reals()[0]));
        partition::expectClose(got[i], wanted[i], name.str() + " result " + std::to_string(i), 1e-9);
      }
    };
    for (int count = 0; count < 2; ++count) {
      run("final");
      for (auto &[name, tensor] : state) partition::expectClose(many.parameter(name), one.parameter(name), name, 1e-7);
    }
    run("evaluate");
  }

  MLIRContext context;
  bool emptyRows = true; // samples may have no key at all
};

TEST_P(RingAttention, isRecognised) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(attentionModel(GetParam()), &context);
  ASSERT_TRUE(module);
  ASSERT_TRUE(succeeded(verify(*module)));
  PassManager passes(&context);
  passes.addPass(createRecognizeAttention({2}));
  ASSERT_TRUE(succeeded(passes.run(*module)));
  int attentions = 0, causal = 0;
  module->walk([&](onnx::AttentionOp op) { ++attentions, causal += op.getCausal(); });
  EXPECT_EQ(attentions, 1);
  EXPECT_EQ(causal,
            (GetParam().mask == Mask::CausalTable || GetParam().mask == Mask::CausalWhere) && !GetParam().capped);
}

TEST_P(RingAttention, onBlocksOfOneDevice) {
  OwningOpRef<ModuleOp> plain = step(1);
  for (int64_t blocks : {2, 4}) expectEqual(*plain, *step(blocks), {});
}

TEST_P(RingAttention, onARing) {
  OwningOpRef<ModuleOp> plain = step(1);
  for (auto [dp, cp] : {std::pair{1, 2}, {1, 4}, {2, 2}}) {
    dist::Mesh mesh{{{"dp", dp}, {"cp", cp}}};
    SCOPED_TRACE(mesh.str());
    OwningOpRef<ModuleOp> ring = split(*step(cp), mesh);
    expectEqual(*plain, *ring, mesh);
    // Nothing but the blocks travels: no device ever has all keys. A table of pairs is a parameter, gathered as such.
    if (GetParam().mask == Mask::TrainedBias) continue;
    ring->walk([&](dist::AllGatherOp op) { op.emitError("gathers over the ring"), ADD_FAILURE(); });
  }
}

TEST_P(RingAttention, inHeadTailOrder) {
  OwningOpRef<ModuleOp> plain = step(1);
  for (int64_t cp : {2, 4}) {
    dist::Mesh mesh{{{"dp", 1}, {"cp", cp}}};
    SCOPED_TRACE(mesh.str());
    expectEqual(*plain, *step(cp, false, true), {});
    OwningOpRef<ModuleOp> ring = split(*step(cp, false, true), mesh);
    expectEqual(*plain, *ring, mesh);
  }
}

// Products of scores and values, in pairs of chunks (2n of the sequence): as it comes all n blocks of 4 pairs, in
// head-tail order the first and of the others two pairs. Nothing is saved where no mask hides the future.
TEST_P(RingAttention, headTailOrderHalvesTheWork) {
  auto flops = [](ModuleOp module) {
    double sum = 0;
    for (auto contract : module.lookupSymbol<func::FuncOp>("final").getOps<onnx::ContractOp>())
      if (auto name = contract->getLoc()->findInstanceOf<NameLoc>();
          name && name.getName().strref().ends_with("(ring)"))
        sum += cast<onnx::CostOpInterface>(contract.getOperation()).getFlops();
    return sum;
  };
  Mask mask = GetParam().mask;
  bool causal = (mask == Mask::CausalTable || mask == Mask::CausalWhere) && !GetParam().dropout && !GetParam().capped;
  for (int64_t n : {2, 4})
    EXPECT_DOUBLE_EQ(flops(*step(n, false, true)), flops(*step(n)) * (causal ? (4 + (n - 1) * 2) / (4.0 * n) : 1));
}

TEST_P(RingAttention, asOneOperation) {
  emptyRows = false; // it gives such rows another answer
  expectEqual(*step(1), *step(1, false, false, true), {});
}

// Rows of the library's blocks are merged by their statistics.
TEST_P(RingAttention, asOneOperationForEachTurn) {
  emptyRows = false;
  OwningOpRef<ModuleOp> plain = step(1);
  for (bool balance : {false, true})
    for (int64_t dp : {1, 2}) {
      dist::Mesh mesh{{{"dp", dp}, {"cp", 2}}};
      SCOPED_TRACE(mesh.str());
      OwningOpRef<ModuleOp> ring = split(*step(2, false, balance, true), mesh);
      writtenOut(*ring);
      expectEqual(*plain, *ring, mesh);
      if (GetParam().mask == Mask::TrainedBias || balance) continue;
      ring->walk([&](dist::AllGatherOp op) { op.emitError("gathers over the ring"), ADD_FAILURE(); });
    }
}

TEST_P(RingAttention, withRecomputation) { expectEqual(*step(1), *step(2, true), {}); }

INSTANTIATE_TEST_SUITE_P(
    Forms, RingAttention,
    ::testing::Values(
        Form{.name = "plain"}, Form{.name = "causal", .mask = Mask::CausalTable},
        Form{.name = "causal_where", .mask = Mask::CausalWhere, .groups = 4, .scaleAfter = false},
        Form{.name = "causal_sequence_first", .mask = Mask::CausalTable, .groups = 4, .sequenceFirst = true},
        Form{.name = "padding", .mask = Mask::Padding, .groups = 1, .guard = true},
        Form{.name = "padding_finite", .mask = Mask::PaddingFinite, .groups = 4},
        Form{.name = "causal_padding", .mask = Mask::CausalPadding, .guard = true},
        Form{.name = "window", .mask = Mask::Window},
        Form{.name = "soft_cap", .mask = Mask::CausalWhere, .groups = 4, .capped = true},
        Form{.name = "dropout", .mask = Mask::CausalTable, .dropout = true},
        Form{.name = "trained_bias", .mask = Mask::TrainedBias, .groups = 4}),
    [](const auto &info) { return info.param.name; });

} // namespace
} // namespace cleave::attention
