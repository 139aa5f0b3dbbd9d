#ifndef CLEAVE_ONNX_DIALECT_TD
#define CLEAVE_ONNX_DIALECT_TD
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::cleave::onnx";
  let summary = "ONNX operators as exported (onnx.node) and the core operators every phase after normalize works on";
  let useDefaultAttributePrinterParser = 0;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::cleave::place::PlaceDialect"]; // its operations stand in a step
}

class Onnx_Op<string mnemonic, list<Trait> traits = []> : Op<Onnx_Dialect, mnemonic, traits>;
#endif
