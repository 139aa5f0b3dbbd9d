// The plan dialect: the commands of one device, as IR. A fragment (one of the functions @accumulate, @final, @evaluate)
// becomes a list of these, then a runtime/plan/plan.proto Fragment, command by command. See PlanOps.td.
//
//   %y = plan.launch @k0(%x, %b) {...} : (tensor<1024x2048xf32>, tensor<2048xf32>) -> tensor<1024x2048xf32>
#pragma once
#include "dialects/dist/Dist.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/plan/PlanDialect.h.inc"
#include "dialects/plan/attributes.h"
#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.h.inc"
