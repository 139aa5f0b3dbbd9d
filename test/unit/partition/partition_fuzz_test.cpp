// The proof that a split does not change what is computed: random programs with random splits on random meshes, run on
// simulated devices and unpartitioned. Results and persistent tensors must agree.
#include "compiler/partition/partition.h"
#include "compiler/partition/passes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "test/unit/partition/random_program.h"
#include "test/unit/partition/simulated_devices.h"
#include <gtest/gtest.h>

using namespace mlir;

namespace cleave::partition {
namespace {

LogicalResult partition(ModuleOp module, int64_t bucketBytes) {
  PassManager manager(module.getContext());
  manager.addPass(createPropagateShardings());
  manager.addPass(createMaterializeCollectives());
  manager.addPass(createElideCollectives());
  manager.addPass(createBucketCollectives({bucketBytes}));
  manager.addPass(createVerifyPartition());
  return manager.run(module);
}

HostTensor randomTensor(Type type, std::mt19937 &random) {
  runtime::TensorType wanted = typeOf(type);
  int64_t count = runtime::elementCount(wanted.shape);
  if (wanted.dtype == plan::I64) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(std::uniform_int_distribution<int64_t>(-2, 1)(random));
    return HostTensor::ofIntegers(wanted.dtype, wanted.shape, values);
  }
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(std::uniform_real_distribution<double>(-1, 1)(random));
  return HostTensor::ofReals(wanted.dtype, wanted.shape, values);
}

class PartitionFuzz : public testing::Test {
protected:
  PartitionFuzz() { context.loadDialect<onnx::OnnxDialect, dist::DistDialect, func::FuncDialect>(); }

  void compare(uint32_t seed, const ProgramOptions &options) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", mesh " + options.mesh.str());
    std::mt19937 random(seed);
    OwningOpRef<ModuleOp> whole = randomProgram(context, options, random);
    ASSERT_TRUE(succeeded(verify(*whole)));
    OwningOpRef<ModuleOp> split = whole->clone();
    ASSERT_TRUE(succeeded(partition(*split, 256 << (seed % 12))));

    std::map<std::string, HostTensor> state;
    for (auto param : whole->getOps<onnx::ParamOp>())
      state[param.getSymName().str()] = randomTensor(param.getType(), random);
    std::vector<HostTensor> arguments;
    for (Type type : whole->lookupSymbol<func::FuncOp>("final").getArgumentTypes())
      arguments.push_back(randomTensor(type, random));
    // How far rounding is amplified is measured, not assumed: the same program with a noise of 1e-13 in every op.
    SimulatedDevices one(*whole, {}, state), near(*whole, {}, state, 1e-13), many(*split, options.mesh, state);
    for (int step = 0; step < 2; ++step) {
      std::vector<HostTensor> wanted = one.run("final", arguments), close = near.run("final", arguments);
      std::vector<HostTensor> got = many.run("final", arguments);
      ASSERT_EQ(wanted.size(), got.size());
      for (size_t i = 0; i < wanted.size(); ++i) check(got[i], wanted[i], close[i], "result " + std::to_string(i));
      for (auto &[name, tensor] : state) check(many.parameter(name), one.parameter(name), near.parameter(name), name);
    }
    if (HasFailure()) {
      whole->dump();
      split->dump();
    }
    for (auto function : split->getOps<func::FuncOp>())
      for (Operation &op : function.getBody().front())
        if (op.getName().getDialectNamespace() == "dist") ++collectives[op.getName().stripDialect().str()];
  }

  // `near` is the same value with noise in every op; a value that moves by more than 1e-5 says nothing.
  void check(const HostTensor &got, const HostTensor &wanted, const HostTensor &near, const std::string &what) {
    ASSERT_EQ(wanted.shape, near.shape);
    std::vector<double> a = wanted.reals(), b = near.reals();
    double scale = 1, moved = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      scale = std::max(scale, std::abs(a[i]));
      moved = std::max(moved, std::abs(a[i] - b[i]));
    }
    ++compared;
    if (!(moved / scale < 1e-5)) {
      ++unstable;
      return;
    }
    expectClose(got, wanted, what, 1e-9 + moved / scale);
  }

  MLIRContext context;
  std::map<std::string, int> collectives;
  int compared = 0, unstable = 0;
};

dist::Mesh mesh(const std::string &text) {
  dist::Mesh result;
  std::string error;
  EXPECT_TRUE(dist::Mesh::parse(text, result, error)) << error;
  return result;
}

TEST_F(PartitionFuzz, randomProgramsComputeTheSame) {
  const std::vector<std::string> meshes = {"dp=2", "dp=4", "dp=2,tp=2", "dp=3,tp=2", "dp=2,tp=2,cp=2", "tp=4,dp=2"};
  int programs = 1000;
  if (const char *wanted = std::getenv("CLEAVE_FUZZ_PROGRAMS")) programs = std::atoi(wanted);
  for (int seed = 0; seed < programs; ++seed) {
    compare(seed, {mesh(meshes[seed % meshes.size()]), 10 + seed % 40, seed % 5 != 0});
    if (HasFailure()) return;
  }
  EXPECT_LT(unstable, compared / 50) << "too many values are too sensitive to compare";
  for (const char *kind : {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "own_part", "bucket"})
    EXPECT_GT(collectives[kind], programs / 30) << kind << " hardly occurs: the test tests little";
}

} // namespace
} // namespace cleave::partition
