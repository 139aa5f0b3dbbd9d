// The normalize phase on modules written out: what it says it supports, and that pushing reshapes and absorbing
// transposes leaves every number as it was.
#include "compiler/driver/pass_list.h"
#include "compiler/normalize/along_axis.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include <cmath>
#include <gmock/gmock.h>

namespace cleave::normalize {
namespace {
using namespace mlir;
using runtime::HostTensor;
using testing::ElementsAre;

TEST(Support, ComesFromRulesAndFunctionBodies) {
  EXPECT_EQ(supportOf("", "MatMul", 20), Support::Rule);
  EXPECT_EQ(supportOf("ai.onnx", "Gemm", 9), Support::Rule);
  EXPECT_EQ(supportOf("", "If", 20), Support::Rule);
  EXPECT_EQ(supportOf("", "Attention", 23), Support::FunctionBody);
  EXPECT_EQ(supportOf("", "Shrink", 20), Support::FunctionBody);
  EXPECT_EQ(supportOf("", "NonMaxSuppression", 20), Support::None);
  EXPECT_EQ(supportOf("my.domain", "MatMul", 1), Support::None);
}

// Fused q, k, v behind a Gemm on [batch * seq, hidden]; heads split, transposed, merged again.
const char *attention = R"mlir(
onnx.param @w : tensor<8x24xf32> "parameter" {trainable = true}
onnx.param @b : tensor<24xf32> "parameter" {trainable = true}
onnx.param @p : tensor<8x8xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<2x3x8xf32> {onnx.name = "x"}) -> tensor<*xf32> {
  %w = onnx.read @w : tensor<8x24xf32>
  %b = onnx.read @b : tensor<24xf32>
  %p = onnx.read @p : tensor<8x8xf32>
  %flat = onnx.Constant dense<[-1, 8]> : tensor<2xi64>
  %unflat = onnx.Constant dense<[2, 3, 24]> : tensor<3xi64>
  %headed = onnx.Constant dense<[2, 3, 4, 2]> : tensor<4xi64>
  %merged = onnx.Constant dense<[2, 3, 8]> : tensor<3xi64>
  %scale = onnx.Constant dense<0.5> : tensor<f32>
  %0 = onnx.node "Reshape"(%x, %flat) attributes {domain = "", version = 20 : i64, node_name = "0", onnx_attributes = {}} : (tensor<2x3x8xf32>, tensor<2xi64>) -> tensor<*xf32>
  %1 = onnx.node "Gemm"(%0, %w, %b) attributes {domain = "", version = 20 : i64, node_name = "1", onnx_attributes = {}} : (tensor<*xf32>, tensor<8x24xf32>, tensor<24xf32>) -> tensor<*xf32>
  %2 = onnx.node "Reshape"(%1, %unflat) attributes {domain = "", version = 20 : i64, node_name = "2", onnx_attributes = {}} : (tensor<*xf32>, tensor<3xi64>) -> tensor<*xf32>
  %3:3 = onnx.node "Split"(%2) attributes {domain = "", version = 20 : i64, node_name = "3", onnx_attributes = {axis = 2 : i64, num_outputs = 3 : i64}} : (tensor<*xf32>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  %q = onnx.node "Reshape"(%3#0, %headed) attributes {domain = "", version = 20 : i64, node_name = "q", onnx_attributes = {}} : (tensor<*xf32>, tensor<4xi64>) -> tensor<*xf32>
  %k = onnx.node "Reshape"(%3#1, %headed) attributes {domain = "", version = 20 : i64, node_name = "k", onnx_attributes = {}} : (tensor<*xf32>, tensor<4xi64>) -> tensor<*xf32>
  %v = onnx.node "Reshape"(%3#2, %headed) attributes {domain = "", version = 20 : i64, node_name = "v", onnx_attributes = {}} : (tensor<*xf32>, tensor<4xi64>) -> tensor<*xf32>
  %qt = onnx.node "Transpose"(%q) attributes {domain = "", version = 20 : i64, node_name = "qt", onnx_attributes = {perm = array<i64: 0, 2, 1, 3>}} : (tensor<*xf32>) -> tensor<*xf32>
  %kt = onnx.node "Transpose"(%k) attributes {domain = "", version = 20 : i64, node_name = "kt", onnx_attributes = {perm = array<i64: 0, 2, 3, 1>}} : (tensor<*xf32>) -> tensor<*xf32>
  %vt = onnx.node "Transpose"(%v) attributes {domain = "", version = 20 : i64, node_name = "vt", onnx_attributes = {perm = array<i64: 0, 2, 1, 3>}} : (tensor<*xf32>) -> tensor<*xf32>
  %qs = onnx.node "Mul"(%qt, %scale) attributes {domain = "", version = 20 : i64, node_name = "qs", onnx_attributes = {}} : (tensor<*xf32>, tensor<f32>) -> tensor<*xf32>
  %s = onnx.node "MatMul"(%qs, %kt) attributes {domain = "", version = 20 : i64, node_name = "s", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %a = onnx.node "Softmax"(%s) attributes {domain = "", version = 20 : i64, node_name = "a", onnx_attributes = {}} : (tensor<*xf32>) -> tensor<*xf32>
  %o = onnx.node "MatMul"(%a, %vt) attributes {domain = "", version = 20 : i64, node_name = "o", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %ot = onnx.node "Transpose"(%o) attributes {domain = "", version = 20 : i64, node_name = "ot", onnx_attributes = {perm = array<i64: 0, 2, 1, 3>}} : (tensor<*xf32>) -> tensor<*xf32>
  %m = onnx.node "Reshape"(%ot, %merged) attributes {domain = "", version = 20 : i64, node_name = "m", onnx_attributes = {}} : (tensor<*xf32>, tensor<3xi64>) -> tensor<*xf32>
  %y = onnx.node "MatMul"(%m, %p) attributes {domain = "", version = 20 : i64, node_name = "y", onnx_attributes = {}} : (tensor<*xf32>, tensor<8x8xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
})mlir";

HostTensor wavy(Type type, double speed) {
  auto ranked = cast<RankedTensorType>(type);
  std::vector<double> values(ranked.getNumElements());
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(speed * double(i + 1));
  return HostTensor::ofReals(dtypeOf(ranked.getElementType()), ranked.getShape().vec(), values);
}

// The result of @model; parameters and arguments are waves over the row-major index, so that views read the same data.
std::vector<double> evaluateModel(ModuleOp module) {
  auto function = module.lookupSymbol<func::FuncOp>("model");
  llvm::DenseMap<Value, HostTensor> values;
  for (BlockArgument argument : function.getArguments()) values[argument] = wavy(argument.getType(), 0.7);
  for (Operation &op : function.getBody().front()) {
    if (isa<func::ReturnOp>(op)) return values[op.getOperand(0)].reals();
    Value result = op.getResult(0);
    if (auto read = dyn_cast<onnx::ReadOp>(op))
      values[result] = wavy(read.getType(), 0.3 + double(read.getParam().size()) + double(read.getParam()[0]));
    else if (auto constant = dyn_cast<onnx::ConstantOp>(op))
      values[result] = toHostTensor(constant.getValue());
    else {
      llvm::SmallVector<HostTensor> operands;
      for (Value operand : op.getOperands()) operands.push_back(values[operand]);
      auto made = evaluateOp(&op, operands);
      EXPECT_TRUE(made.isOk()) << made.status().message();
      if (!made) return {};
      values[result] = std::move(*made);
    }
  }
  return {};
}

class Modules : public testing::Test {
protected:
  Modules() { context.loadDialect<onnx::OnnxDialect, func::FuncDialect>(); }
  OwningOpRef<ModuleOp> parse(const char *text) { return parseSourceString<ModuleOp>(text, &context); }
  MLIRContext context;
};

TEST_F(Modules, PushedReshapesComputeTheSame) {
  OwningOpRef<ModuleOp> plain = parse(attention), pushed = parse(attention);
  ASSERT_TRUE(plain && pushed);
  PassManager nodes(&context), whole(&context);
  nodes.addPass(createNormalizeNodes());
  nodes.addPass(createCanonicalizerPass());
  addNormalizePasses(whole, {});
  ASSERT_TRUE(succeeded(nodes.run(*plain)) && succeeded(whole.run(*pushed)));
  std::vector<double> wanted = evaluateModel(*plain), got = evaluateModel(*pushed);
  ASSERT_EQ(wanted.size(), 48u);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
  // The point of it: the heads are dimensions of the parameter, and nothing is left to transpose.
  auto weight = pushed->lookupSymbol<onnx::ParamOp>("w");
  EXPECT_THAT(cast<RankedTensorType>(weight.getType()).getShape(), ElementsAre(8, 3, 4, 2));
  EXPECT_THAT(*weight.getOriginalShape(), ElementsAre(8, 24));
  int transposes = 0;
  pushed->walk([&](onnx::TransposeOp) { ++transposes; });
  EXPECT_EQ(transposes, 0);
}

TEST_F(Modules, ConstantsThatRepeatStaySmall) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  CoreBuilder b(builder, builder.getUnknownLoc());
  // index grid [4, 1, 32, 16]: row >= column, repeated along the first dimension
  Dims shape{4, 1, 32, 16};
  Value mask = b.binary<onnx::GreaterOrEqualOp>(b.indexAlong(shape, 2), b.indexAlong(shape, 3));
  auto broadcast = mask.getDefiningOp<onnx::BroadcastOp>();
  ASSERT_TRUE(broadcast);
  EXPECT_THAT(shapeOf(broadcast.getX()), ElementsAre(32, 16));
  EXPECT_TRUE(constantOf(broadcast.getX()));
  auto known = evaluateOnDemand(mask);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->integers()[16 * 5 + 5], 1);
  EXPECT_EQ(known->integers()[16 * 5 + 6], 0);
}

TEST_F(Modules, IndexArithmeticIsSeenThrough) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  CoreBuilder b(builder, builder.getUnknownLoc());
  Value row = b.indexAlong({1 << 12, 1, 1 << 12}, 2); // far beyond the fold limit
  auto known = alongAxis(b.insertOnes(row, {3}));
  ASSERT_TRUE(known);
  EXPECT_EQ(known->dim, 2);
  EXPECT_EQ(known->values.size(), size_t(1) << 12);
  EXPECT_EQ(known->values[77], 77);
  auto splat = alongAxis(b.splat(RankedTensorType::get({3, 3}, builder.getI64Type()), 7));
  ASSERT_TRUE(splat);
  EXPECT_EQ(splat->dim, -1);
}

TEST_F(Modules, ModelErrorsAreReportedNotThrown) {
  std::string message;
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  OwningOpRef<ModuleOp> module = parse(R"mlir(
    func.func @model(%x: tensor<2x3xf32>, %y: tensor<4x5xf32>) -> tensor<*xf32> {
      %z = onnx.node "MatMul"(%x, %y) attributes {domain = "", version = 20 : i64, node_name = "bad", onnx_attributes = {}} : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<*xf32>
      return %z : tensor<*xf32>
    })mlir");
  ASSERT_TRUE(module);
  PassManager passes(&context);
  addNormalizePasses(passes, {});
  EXPECT_TRUE(failed(passes.run(*module)));
  EXPECT_THAT(message, testing::HasSubstr("indices do not fit"));
}

} // namespace
} // namespace cleave::normalize
