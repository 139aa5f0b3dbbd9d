#ifndef CLEAVE_PLAN_OPS_TD
#define CLEAVE_PLAN_OPS_TD
include "dialects/dist/DistAttrs.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::cleave::plan";
  let summary = "the commands one device executes: launches of compiled kernels, library calls, collectives, copies";
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
}
class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_AffineOfCoordinateAttr : AttrDef<Plan_Dialect, "AffineOfCoordinate"> {
  let mnemonic = "affine";
  let summary = "base + sum of strides[i] * (row-major index of the device's coordinate along axes[i])";
  let description = [{
    What differs between devices that share a program, e.g. where the local part of an Iota starts:
    `#plan.affine<base = 0, axes = [["dp", "tp"]], strides = [16]>`.
  }];
  let parameters = (ins "int64_t":$base, "::mlir::ArrayAttr":$axes, "::mlir::DenseI64ArrayAttr":$strides);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def KernelOp : Plan_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock]> {
  let summary = "the computation of one compiled kernel";
  let description = [{
    The body's arguments are the kernel's input tensors followed by one i64 a scalar; plan.yield gives the result
    tensors. It holds core ops when FormClusters has outlined it, and linalg.generic after LowerKernelsToLinalg. Several
    launches may share a kernel. `flat`: the kernel treats every tensor of more than one element as a row of elements and
    serves any size; the types of the body are then those of the first launch.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$flat, OptionalAttr<StrAttr>:$description);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block &getBlock() { return getBody().front(); }
    // The block arguments that are tensors, and those that are scalars.
    ::mlir::Block::BlockArgListType getTensorArguments();
    ::mlir::Block::BlockArgListType getScalarArguments();
    YieldOp getYield();
  }];
}
def YieldOp : Plan_Op<"yield", [Pure, ReturnLike, Terminator, ParentOneOf<["KernelOp"]>]> {
  let summary = "the results of a kernel";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def LaunchOp : Plan_Op<"launch", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "run a kernel over [0, extent), cut among threads at multiples of `grain`";
  let description = [{
    The kernel's buffers are `inputs`, then `results`; its scalars are `scalars`, evaluated at the device's coordinate.
    `inplace` lists pairs (input number, result number): the kernel reads that input, at each index, before it writes that
    result there and never after, so that both may lie in one buffer if the input is dead.

        %y = plan.launch @bias_gelu(%x, %b) {extent = 1024, grain = 1, inplace = array<i64: 0, 0>, scalars = []}
             : (tensor<1024x2048xf32>, tensor<2048xf32>) -> tensor<1024x2048xf32>
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, FlatSymbolRefAttr:$kernel, I64Attr:$extent, I64Attr:$grain,
                   DenseI64ArrayAttr:$inplace, TypedArrayAttrBase<Plan_AffineOfCoordinateAttr, "affine attributes">:$scalars);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$kernel `(` $inputs `)` attr-dict `:` functional-type($inputs, $results)";
  let hasVerifier = 1;
}
include "dialects/plan/PlanCommands.td"
#endif
