#include "dialects/onnx/Onnx.h"
#include "dialects/onnx/facets/expressions.h"
#include "dialects/onnx/keeps_type.h"

#include "dialects/onnx/OnnxDialect.cpp.inc"
#include "dialects/onnx/OnnxInterfaces.cpp.inc"

using namespace mlir;

namespace cleave::onnx {

static bool isParam(Operation *op) { return isa<ParamOp>(op); }
static bool isBroadcast(Operation *op) { return isa<BroadcastOp>(op); }
static bool isProduct(Operation *op) { return isa<ContractOp>(op); }

LogicalResult OnnxDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  static const OwnedAttributeRule rules[] = {
      owned(dropoutAttr, isAny, "an operation"),
      owned(batchStatisticAttr, isAny, "an operation"),
      owned(adapterDropoutAttr, isAny, "an onnx.node"),
      owned(keepsTypeAttr, isBroadcast, "an onnx.Broadcast"),
      owned(fp8ScalingAttr, isAny, "an operation"),
      owned(channelsLastAttr, isAny, "an operation"),
      owned(kMajorAttr, isProduct, "a product"),
      owned(nodesAttr, isParam, "an onnx.param"),
      owned(whyAttr, isParam, "an onnx.param"),
      owned(kindAttr, isParam, "an onnx.param"),
      owned(foldedFromAttr, isParam, "an onnx.param"),
      owned(stateKeysAttr, isParam, "an onnx.param"),
      owned(transposedAliasesAttr, isParam, "an onnx.param"),
      owned(piecesAttr, isParam, "an onnx.param"),
      owned(groupAttr, isParam, "an onnx.param"),
      owned(storedShapeAttr, isParam, "an onnx.param"),
      owned(besideAttr, isParam, "an onnx.param"),
      owned(optimizerStateAttr, isParam, "an onnx.param"),
      owned(sinceAttr, isParam, "an onnx.param"),
      owned(pathAttr, isModule, "a module"),
      owned(producerAttr, isModule, "a module"),
      owned(irVersionAttr, isModule, "a module"),
      owned(opsetAttr, isModule, "a module"),
      owned(digestAttr, isModule, "a module"),
      owned(sourceAttr, isModule, "a module"),
      owned(tiesAttr, isModule, "a module"),
      owned(sharingAttr, isModule, "a module"),
      owned(notesAttr, isModule, "a module"),
      owned(exportNotesAttr, isModule, "a module"),
      owned(missingFilesAttr, isModule, "a module"),
      owned(checkpointFolderAttr, isModule, "a module"),
      owned(otherTensorsAttr, isModule, "a module"),
      owned(doubtsAttr, isModule, "a module"),
      owned(stepsBeforeAttr, isModule, "a module"),
      owned(resumedStateAttr, isModule, "a module"),
      owned(lossTermsAttr, isModule, "a module"),
      owned(lossMeetsAtAttr, isModule, "a module"),
      owned(lossFactorAttr, isModule, "a module"),
      owned(paddingAttr, isModule, "a module"),
      owned(fp8NoteAttr, isModule, "a module"),
      owned(headTailAttr, isModule, "a module"),
  };
  return verifyOwned(op, attribute, rules);
}
LogicalResult OnnxDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  static const OwnedAttributeRule rules[] = {
      owned(nameAttr, isFunction, "an argument"),  owned(dimsAttr, isFunction, "an argument"),
      owned(labelAttr, isFunction, "an argument"), owned(sampleDimAttr, isFunction, "an argument"),
      owned(hostAttr, isFunction, "an argument"),  owned(baseAttr, isFunction, "an argument"),
      owned(sinceAttr, isFunction, "an argument"),
  };
  return verifyOwned(op, attribute, rules);
}
LogicalResult OnnxDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  static const OwnedAttributeRule rules[] = {owned(nameAttr, isFunction, "a result"),
                                             owned(gradientOfAttr, isFunction, "a result")};
  return verifyOwned(op, attribute, rules);
}

void OnnxDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/onnx/OnnxOps.cpp.inc"
      >();
}
} // namespace cleave::onnx

#define GET_OP_CLASSES
#include "dialects/onnx/OnnxOps.cpp.inc"
