// cleave-opt: reads a module as text, runs the passes named on the command line, prints the module.
//
//   cleave-opt model.mlir --normalize-nodes --fold-constants
#include "compiler/driver/pass_list.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<cleave::onnx::OnnxDialect, cleave::dist::DistDialect, cleave::place::PlaceDialect,
                  mlir::func::FuncDialect, mlir::arith::ArithDialect, mlir::math::MathDialect,
                  mlir::linalg::LinalgDialect, mlir::memref::MemRefDialect, mlir::scf::SCFDialect,
                  mlir::tensor::TensorDialect, mlir::affine::AffineDialect, mlir::vector::VectorDialect>();
  registry.insert<cleave::plan::PlanDialect>();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  cleave::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Cleave's pass driver\n", registry));
}
