#ifndef CLEAVE_ONNX_DIALECT_TD
#define CLEAVE_ONNX_DIALECT_TD
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::cleave::onnx";
  let summary = "ONNX operators as exported (onnx.node) and the core operators every phase after normalize works on";
  let useDefaultAttributePrinterParser = 0;
  let hasConstantMaterializer = 1;
  let hasCanonicalizer = 1; // patterns of many ops; those of one are its own (canonicalize.cpp)
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::cleave::place::PlaceDialect"]; // its operations stand in a step
  let extraClassDeclaration = [{
    // All canonicalization patterns of the dialect, for those who simplify as they build.
    const ::mlir::FrozenRewritePatternSet &getPatterns();

  private:
    std::shared_ptr<const ::mlir::FrozenRewritePatternSet> patterns;
    std::once_flag arePatternsMade;
  }];
}

class Onnx_Op<string mnemonic, list<Trait> traits = []> : Op<Onnx_Dialect, mnemonic, traits>;
#endif
