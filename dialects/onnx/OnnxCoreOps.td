#ifndef CLEAVE_ONNX_CORE_OPS_TD
#define CLEAVE_ONNX_CORE_OPS_TD
include "dialects/onnx/OnnxDialect.td"
include "dialects/onnx/OnnxInterfaces.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// The core operators: few, statically shaped, without implicit broadcasting. Composite ONNX operators (LayerNormalization,
// Softmax, Gelu, losses, optimizers ...) are built from these in the normalize and training phases; the sharding algebra,
// the fusion and the reference executor therefore know only these. Booleans are i1. Signedness is that of the builtin
// type: i64 is signed, ui8 unsigned.

defvar Tensor = AnyStaticShapeTensor;
defvar Facets = [DeclareOpInterfaceMethods<FactorRuleOpInterface>, DeclareOpInterfaceMethods<CostOpInterface>,
                 DeclareOpInterfaceMethods<LoweringOpInterface>];
defvar Differentiable = [DeclareOpInterfaceMethods<GradientOpInterface>];

// What is always true of an op stands here: its kind (runtime/base/sharding/operation_kind.h), the code it becomes
// (Onnx.h), and the facets that are one expression (facets/expressions.h). Those left out are functions in facets.
class Core_Typed<string mnemonic, Trait types, list<Trait> traits>
    : Onnx_Op<mnemonic, !listconcat([Pure, types], Facets, traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  string form = "Elementwise";
  string work = "Arithmetic";
  string lowering = "Library";
  string flops = "";
  string rule = "";
  string shape = "";
  let extraClassDefinition =
    "dist::OperationKind $cppClass::getKind() { return {dist::Form::" # form # ", dist::ElementWork::" # work # "}; }\n" #
    "LoweringKind $cppClass::getLoweringKind() { return LoweringKind::" # lowering # "; }\n" #
    !if(!empty(flops), "", "double $cppClass::getFlops() { return " # flops # "; }\n") #
    !if(!empty(rule), "", "dist::FactorRule $cppClass::getFactorRule() { return " # rule # "; }\n") #
    !if(!empty(shape), "", "::llvm::LogicalResult $cppClass::inferReturnTypes(::mlir::MLIRContext *, "
        "std::optional<::mlir::Location> loc, Adaptor adaptor, ::llvm::SmallVectorImpl<::mlir::Type> &results) { "
        "return " # shape # "; }\n");
}
class Core_Op<string mnemonic, list<Trait> traits = []> : Core_Typed<mnemonic, InferTypeOpAdaptor, traits>;
class Core_Differentiable<string mnemonic, list<Trait> traits = []>
    : Core_Op<mnemonic, !listconcat(Differentiable, traits)>;

// Folders and canonicalization patterns are in dialects/onnx/canonicalize.cpp.

// Marks ops that compute each result element from the same element of every operand.
def PerElement : NativeOpTrait<"PerElement"> { let cppNamespace = "::cleave::onnx"; }

defvar Predicate = "predicate(loc, adaptor.getOperands(), results)"; // i1 elements
defvar Linear = "rules::perElementLinear(*this)"; // partial sums of all operands pass through
class Core_Elementwise<string mnemonic, string meaning, list<Trait> traits = Differentiable>
    : Core_Op<mnemonic, !listconcat([PerElement, DeclareOpInterfaceMethods<LoweringOpInterface, ["emitScalar"]>],
                                    traits)> {
  let summary = meaning;
  let results = (outs Tensor:$y);
  let lowering = "Fused";
  let flops = "elementsOf(getY())"; // its time is that of the memory it touches
  let rule = "rules::perElement(*this)";
  let shape = "sameType(loc, adaptor.getOperands(), results)";
}

//===--- elementwise, one operand -----------------------------------------------------------------------------------===//

class Core_Unary<string mnemonic, string meaning, string workOfElement = "Arithmetic">
    : Core_Elementwise<mnemonic, meaning> {
  let arguments = (ins Tensor:$x);
  let work = workOfElement;
}
def NegOp : Core_Unary<"Neg", "-x"> { let rule = Linear; }
def AbsOp : Core_Unary<"Abs", "|x|; derivative sign(x)">;
def SignOp : Core_Unary<"Sign", "-1, 0 or 1; derivative 0">;
def ExpOp : Core_Unary<"Exp", "e^x", "Function">;
def LogOp : Core_Unary<"Log", "natural logarithm", "Function">;
def Log1pOp : Core_Unary<"Log1p", "log(1+x), exact for small x", "Function">;
def SqrtOp : Core_Unary<"Sqrt", "square root", "Division">;
def RsqrtOp : Core_Unary<"Rsqrt", "1/sqrt(x)", "Division">;
def ReciprocalOp : Core_Unary<"Reciprocal", "1/x", "Division">;
def TanhOp : Core_Unary<"Tanh", "hyperbolic tangent", "Function">;
def SigmoidOp : Core_Unary<"Sigmoid", "1/(1+e^-x)", "Function">;
def ErfOp : Core_Unary<"Erf", "error function", "Function">;
def SinOp : Core_Unary<"Sin", "sine", "Function">;
def CosOp : Core_Unary<"Cos", "cosine", "Function">;
def FloorOp : Core_Unary<"Floor", "largest integer not above; derivative 0">;
def CeilOp : Core_Unary<"Ceil", "smallest integer not below; derivative 0">;
def RoundOp : Core_Unary<"Round", "nearest integer, ties to even; derivative 0">;
def ReluOp : Core_Unary<"Relu", "max(x, 0); derivative 0 at 0">;
def StopGradientOp : Core_Unary<"StopGradient", "x; derivative 0. Removed after the training phase"> {
  let form = "Identity";
  let flops = "0";
  let rule = Linear;
}

class Core_UnaryNoGradient<string mnemonic, string meaning> : Core_Elementwise<mnemonic, meaning, []> {
  let arguments = (ins Tensor:$x);
}
def NotOp : Core_UnaryNoGradient<"Not", "logical not of i1, bitwise not of integers"> { let hasFolder = 1; }
def IsNaNOp : Core_UnaryNoGradient<"IsNaN", "i1: x is not a number"> { let shape = Predicate; }
def IsInfOp : Core_UnaryNoGradient<"IsInf", "i1: x is +-infinity"> { let shape = Predicate; }

// No partial sum passes: rounding is not linear, and a float sum cut to an integer even less so.
def CastOp : Core_Elementwise<"Cast", "element type conversion (float to integer truncates, to i1 is x != 0)"> {
  let hasFolder = 1;
  let arguments = (ins Tensor:$x, TypeAttr:$to);
  let form = "Cast";
  let shape = "";
}

//===--- elementwise, more operands ---------------------------------------------------------------------------------===//

class Core_Binary<string mnemonic, string meaning> : Core_Elementwise<mnemonic, meaning> {
  let arguments = (ins Tensor:$a, Tensor:$b);
}
def AddOp : Core_Binary<"Add", "a + b"> { let hasFolder = 1; let form = "Accumulation"; let rule = Linear; }
def SubOp : Core_Binary<"Sub", "a - b"> { let hasFolder = 1; let rule = Linear; }
def MulOp : Core_Binary<"Mul", "a * b"> { let hasFolder = 1; let rule = ""; }
def DivOp : Core_Binary<"Div", "a / b; integers truncate"> { let hasFolder = 1; let work = "Division"; let rule = ""; }
def PowOp : Core_Binary<"Pow", "a ^ b"> { let hasFolder = 1; let hasCanonicalizeMethod = 1; let work = "Function"; }
def MaxOp : Core_Binary<"Max", "larger of both; on a tie the gradient is halved">;
def MinOp : Core_Binary<"Min", "smaller of both; on a tie the gradient is halved">;

class Core_BinaryNoGradient<string mnemonic, string meaning> : Core_Elementwise<mnemonic, meaning, []> {
  let arguments = (ins Tensor:$a, Tensor:$b);
}
def ModOp : Core_BinaryNoGradient<"Mod", "remainder with the sign of b (Python); floats: fmod with the sign of a"> {
  let work = "Division";
}
def AndOp : Core_BinaryNoGradient<"And", "and (i1 or bitwise)"> { let hasFolder = 1; }
def OrOp : Core_BinaryNoGradient<"Or", "or (i1 or bitwise)"> { let hasFolder = 1; }
def XorOp : Core_BinaryNoGradient<"Xor", "exclusive or (i1 or bitwise)">;
let shape = Predicate in {
def EqualOp : Core_BinaryNoGradient<"Equal", "i1: a == b">;
def LessOp : Core_BinaryNoGradient<"Less", "i1: a < b">;
def LessOrEqualOp : Core_BinaryNoGradient<"LessOrEqual", "i1: a <= b">;
def GreaterOp : Core_BinaryNoGradient<"Greater", "i1: a > b">;
def GreaterOrEqualOp : Core_BinaryNoGradient<"GreaterOrEqual", "i1: a >= b">;
}

def WhereOp : Core_Elementwise<"Where", "condition ? a : b"> {
  let hasFolder = 1;
  let arguments = (ins Tensor:$condition, Tensor:$a, Tensor:$b);
  let rule = "";
  let shape = "";
}
def SumOp : Core_Elementwise<"Sum", "sum of one or more operands of the same shape, in operand order"> {
  let hasFolder = 1;
  let arguments = (ins Variadic<Tensor>:$xs);
  let form = "Accumulation";
  let flops = "elementsOf(getY()) * static_cast<double>(getXs().size() - 1)";
  let rule = Linear;
}

//===--- values from nothing ----------------------------------------------------------------------------------------===//

def ConstantOp : Core_Op<"Constant", [ConstantLike]> {
  let summary = "a small or splat constant; large ones are folded no further than the fold limit";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Tensor:$y);
  let hasFolder = 1;
  let assemblyFormat = "attr-dict $value";
  let lowering = "Constant";
  let flops = "0";
  let rule = "rules::perElement(*this)"; // also when not splat: each device can cut its own part
}

def IotaOp : Core_Op<"Iota", [PerElement]> {
  let summary = "the (global) index along one dimension";
  let description = [{
    `type` is the result type, `dim` the dimension whose index is the value. After partitioning `shard_axes` names the
    mesh axes that split `dim`: the local index starts at (index along shard_axes) * (local size).
  }];
  let arguments = (ins TypeAttr:$type, I64Attr:$dim, OptionalAttr<StrArrayAttr>:$shard_axes);
  let results = (outs Tensor:$y);
  let form = "Iota";
  let lowering = "Fused";
  let flops = "0";
  let rule = "rules::perElement(*this)";
}

def RandomUniformOp : Core_Op<"RandomUniform", [PerElement]> {
  let summary = "uniform in [0, 1), a function of (seed, step, stream, global element index) only";
  let description = [{
    Philox4x32-10 keyed by the seed; counter (global linear index, step, stream): word 0, its upper 24 bits / 2^24.
    `key` is tensor<2xi64>: seed and step (with the microbatch number in the upper 32 bits). After partitioning
    `global_shape` and `shard_axes` (one array of axes a dimension) say where the local block lies.
  }];
  let arguments = (ins Tensor:$key, TypeAttr:$type, I64Attr:$stream, OptionalAttr<DenseI64ArrayAttr>:$global_shape,
                   OptionalAttr<ArrayAttr>:$shard_axes);
  let results = (outs Tensor:$y);
  let work = "Random";
  let lowering = "Fused";
  let flops = "elementsOf(getY())";
}

//===--- movement ---------------------------------------------------------------------------------------------------===//

class Core_Movement<string mnemonic, list<Trait> traits = []> : Core_Differentiable<mnemonic, traits> {
  let lowering = "Movement";
  let flops = "0";
}
class Core_StridedView<string mnemonic>
    : Core_Movement<mnemonic, [DeclareOpInterfaceMethods<StridedViewOpInterface>]> {
  let form = mnemonic;
  let rule = "rules::stridedView(getX(), getY(), getStridedMap())";
  let hasFolder = 1; let hasCanonicalizeMethod = 1;
}
def ReshapeOp : Core_Movement<"Reshape"> {
  let hasFolder = 1; let hasCanonicalizeMethod = 1;
  let summary = "same elements in row-major order under another shape";
  let arguments = (ins Tensor:$x, DenseI64ArrayAttr:$shape);
  let results = (outs Tensor:$y);
  let form = "Reshape";
  let lowering = "View";
}
def TransposeOp : Core_StridedView<"Transpose"> {
  let summary = "y's dimension i is x's dimension perm[i]";
  let arguments = (ins Tensor:$x, DenseI64ArrayAttr:$perm);
  let results = (outs Tensor:$y);
}
def BroadcastOp : Core_StridedView<"Broadcast"> {
  let summary = "x's dimension i becomes y's dimension dims[i] (same size, increasing); y repeats along the others";
  let arguments = (ins Tensor:$x, DenseI64ArrayAttr:$shape, DenseI64ArrayAttr:$dims);
  let results = (outs Tensor:$y);
  let lowering = "Fused";
}
def SliceOp : Core_StridedView<"Slice"> {
  let summary = "y[i] = x[starts + i * steps], i < sizes; steps are positive";
  let arguments = (ins Tensor:$x, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$steps);
  let results = (outs Tensor:$y);
}
def PadOp : Core_Movement<"Pad"> {
  let hasFolder = 1;
  let summary = "x with `low`/`high` copies of `value` before/after and `interior` between neighbours (low, high >= 0)";
  let arguments = (ins Tensor:$x, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$interior,
                   F64Attr:$value);
  let results = (outs Tensor:$y);
  let rule = "rules::sizeBySize(getX(), getY(), getValue().isZero())";
}
def ConcatOp : Core_Movement<"Concat"> {
  let hasFolder = 1; let hasCanonicalizeMethod = 1;
  let summary = "operands side by side along `axis`";
  let arguments = (ins Variadic<Tensor>:$xs, I64Attr:$axis);
  let results = (outs Tensor:$y);
  let form = "Concat";
}
def GatherOp : Core_Movement<"Gather"> {
  let summary = "y = table with dimension `axis` replaced by indices' dimensions: table[.., indices[..], ..]";
  let description = [{
    Negative indices count from the end. The leading `batch_dims` dimensions of table and indices (none, or all before
    `axis`) are the same, and stand once in the result: each entry of them looks up its own indices, none of which is
    negative, in its own rows:
      batch_dims = 1, axis = 1:  y[b, i, d] = table[b, indices[b, i], d]
    After partitioning `shard_axes` names the axes that split the table's `axis`:
    rows held elsewhere give 0, and the result is partial over those axes. `global_rows` is then the whole size.
    No gradient reaches the table through lookups of `padding_row` (-1: there is none), as with PyTorch's
    `padding_idx`.
  }];
  let arguments = (ins Tensor:$table, Tensor:$indices, I64Attr:$axis, OptionalAttr<StrArrayAttr>:$shard_axes,
                   OptionalAttr<I64Attr>:$global_rows, DefaultValuedAttr<I64Attr, "0">:$batch_dims,
                   DefaultValuedAttr<I64Attr, "-1">:$padding_row);
  let results = (outs Tensor:$y);
  let form = "Gather";
  let lowering = "Library";
}
def ScatterAddOp : Core_Differentiable<"ScatterAdd"> {
  let hasFolder = 1;
  let summary = "zeros, plus every update at its index along `axis`: the gradient of Gather with respect to its table";
  let description = [{
    updates has the shape of Gather's result; the result has `rows` entries along `axis`. `batch_dims` and
    `shard_axes` as in Gather: updates for rows held elsewhere are dropped, `rows` is then the local size.
  }];
  let arguments = (ins Tensor:$indices, Tensor:$updates, I64Attr:$axis, I64Attr:$rows,
                   OptionalAttr<StrArrayAttr>:$shard_axes, OptionalAttr<I64Attr>:$global_rows,
                   DefaultValuedAttr<I64Attr, "0">:$batch_dims);
  let results = (outs Tensor:$y);
  let flops = "elementsOf(getUpdates())";
}
def RollOp : Core_Movement<"Roll"> {
  let summary = "y[i] = x[(i - distance) mod size] along `dim`: every entry moves `distance` places on";
  let description = [{
    `dim` may only be split into single entries: partitioning then makes it one message to a neighbour (dist.shift).
    This is how blocks of keys and values travel round a ring of devices.
  }];
  let arguments = (ins Tensor:$x, I64Attr:$dim, I64Attr:$distance);
  let results = (outs Tensor:$y);
  let rule = "rules::sizeBySize(getX(), getY())"; // `dim` is not whole: see its description
}
def CumSumOp : Core_Differentiable<"CumSum"> {
  let summary = "running sum along `axis`";
  let arguments = (ins Tensor:$x, I64Attr:$axis, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs Tensor:$y);
  let work = "Reduction";
  let flops = "elementsOf(getX())";
}

//===--- reductions, products ---------------------------------------------------------------------------------------===//

class Core_Reduce<string mnemonic, string meaning> : Core_Differentiable<mnemonic> {
  let summary = meaning;
  let arguments = (ins Tensor:$x, DenseI64ArrayAttr:$axes);
  let results = (outs Tensor:$y);
  let hasCanonicalizeMethod = 1;
  let work = "Reduction";
  let lowering = "Fused";
  let flops = "elementsOf(getX())";
}
def ReduceSumOp : Core_Reduce<"ReduceSum", "sum over `axes` (sorted), which disappear"> { let hasFolder = 1; }
def ReduceMaxOp : Core_Reduce<"ReduceMax", "maximum over `axes`; the gradient is shared by tied elements">;
def ReduceMinOp : Core_Reduce<"ReduceMin", "minimum over `axes`; the gradient is shared by tied elements">;

// A sum of products. Of 16-bit elements it may be given in f32: the sum before it is rounded.
class Core_Product<string mnemonic, list<Trait> traits = Differentiable>
    : Core_Typed<mnemonic, InferTypeOpAdaptorWithIsCompatible, traits> {
  let form = "Product";
}

def ContractOp : Core_Product<"Contract"> {
  let hasFolder = 1; let hasCanonicalizeMethod = 1;
  let summary = "sum of products over index letters, as einsum with two operands";
  let description = [{
    Each array gives the index (0, 1, 2 ...) of every dimension. An index in both operands and the result is a batch
    index, in both operands only is contracted, in one operand and the result is free. No index stands twice in one
    tensor, and none in one operand alone.

        matmul  x[b,s,k] w[k,n] -> y[b,s,n]    lhs_indices=[0,1,2] rhs_indices=[2,3] result_indices=[0,1,3]

    Operands have one element type, which is the result's; of 16 bits the result may be f32. Operands of 8 bits (f8E4M3FN,
    f8E5M2, also one of each) give bf16 or f32.
  }];
  let arguments = (ins Tensor:$lhs, Tensor:$rhs, DenseI64ArrayAttr:$lhs_indices, DenseI64ArrayAttr:$rhs_indices,
                   DenseI64ArrayAttr:$result_indices);
  let results = (outs Tensor:$y);
}

def GroupedContractOp : Core_Product<"GroupedContract"> {
  let hasCanonicalizeMethod = 1;
  let summary = "a Contract in which every row is multiplied by the matrix of its own group, as tokens are by their experts'";
  let description = [{
    Indices are as in Contract. `row_indices` are those of the dimensions of `groups`, whose integers count the entries
    of the index `group_index`, of `group_count` entries, which either rhs or the result has. All others stand in two of
    lhs, rhs and the result, and the rows in lhs and one more.

        tokens      x[t,k] w[g,k,n] -> y[t,n]      y[t,n] = sum over k of x[t,k] w[groups[t],k,n]
        gradients   x[t,k] dy[t,n] -> dw[g,k,n]    sum over the t whose groups[t] is g

    Negative groups count from the end. After partitioning `shard_axes` names the axes that split the groups: rows of a
    group held elsewhere give 0, and `global_groups` is the number of all.
  }];
  let arguments = (ins Tensor:$lhs, Tensor:$rhs, Tensor:$groups, DenseI64ArrayAttr:$lhs_indices,
                   DenseI64ArrayAttr:$rhs_indices, DenseI64ArrayAttr:$row_indices, DenseI64ArrayAttr:$result_indices,
                   I64Attr:$group_index, I64Attr:$group_count, OptionalAttr<StrArrayAttr>:$shard_axes,
                   OptionalAttr<I64Attr>:$global_groups);
  let results = (outs Tensor:$y);
  let extraClassDeclaration = [{
    // The result has the groups: it sums over the rows of each.
    bool sumsRows() { return ::llvm::is_contained(getResultIndices(), static_cast<int64_t>(getGroupIndex())); }
  }];
}

//===--- convolution, pooling (NC + spatial) ------------------------------------------------------------------------===//

// With `channels_last` activations are [N, spatial, C], with `weight_channels_last` weights are [O, kernel, C/groups];
// `input_shape` and `weight_shape` are shapes as they lie. Before partitioning neither is set (compiler/layout).

def ConvOp : Core_Product<"Conv"> {
  let summary = "convolution x[N,C,spatial] * w[O,C/groups,kernel], no bias";
  let arguments = (ins Tensor:$x, Tensor:$w, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads_begin,
                   DenseI64ArrayAttr:$pads_end, DenseI64ArrayAttr:$dilations, I64Attr:$groups,
                   UnitAttr:$channels_last, UnitAttr:$weight_channels_last);
  let results = (outs Tensor:$y);
  let form = "Convolution";
}
def ConvGradInputOp : Core_Product<"ConvGradInput"> {
  let summary = "gradient of Conv with respect to x, whose shape is `input_shape`; also ConvTranspose's forward";
  let arguments = (ins Tensor:$dy, Tensor:$w, DenseI64ArrayAttr:$input_shape, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads_begin, DenseI64ArrayAttr:$pads_end, DenseI64ArrayAttr:$dilations,
                   I64Attr:$groups, UnitAttr:$channels_last, UnitAttr:$weight_channels_last);
  let results = (outs Tensor:$dx);
  let form = "TransposedConvolution";
}
def ConvGradWeightOp : Core_Product<"ConvGradWeight", []> {
  let summary = "gradient of Conv with respect to w, whose shape is `weight_shape`";
  let arguments = (ins Tensor:$x, Tensor:$dy, DenseI64ArrayAttr:$weight_shape, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads_begin, DenseI64ArrayAttr:$pads_end, DenseI64ArrayAttr:$dilations,
                   I64Attr:$groups, UnitAttr:$channels_last, UnitAttr:$weight_channels_last);
  let results = (outs Tensor:$dw);
}
class Core_Pool<string mnemonic, string meaning, bit differentiable>
    : Core_Op<mnemonic, !if(differentiable, Differentiable, []<Trait>)> {
  let summary = meaning;
  let form = "Pool";
  let work = "Window";
}
defvar PoolAttributes = (ins DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads_begin,
                         DenseI64ArrayAttr:$pads_end, DenseI64ArrayAttr:$dilations);
def MaxPoolOp : Core_Pool<"MaxPool", "maximum over windows (pads already include ceil_mode)", 1> {
  let arguments = !con((ins Tensor:$x), PoolAttributes, (ins UnitAttr:$channels_last));
  let results = (outs Tensor:$y);
}
def MaxPoolGradOp : Core_Pool<"MaxPoolGrad", "gradient of MaxPool: dy goes to the first maximum of each window", 0> {
  let arguments = !con((ins Tensor:$x, Tensor:$dy), PoolAttributes, (ins UnitAttr:$channels_last));
  let results = (outs Tensor:$dx);
}
def AveragePoolOp : Core_Pool<"AveragePool", "mean over windows; padding counts if include_pad", 1> {
  let arguments = !con((ins Tensor:$x), PoolAttributes,
                       (ins BoolAttr:$include_pad, UnitAttr:$channels_last));
  let results = (outs Tensor:$y);
}
def AveragePoolGradOp : Core_Pool<"AveragePoolGrad", "gradient of AveragePool", 0> {
  let arguments = !con((ins Tensor:$dy, DenseI64ArrayAttr:$input_shape), PoolAttributes,
                       (ins BoolAttr:$include_pad, UnitAttr:$channels_last));
  let results = (outs Tensor:$dx);
}

//===--- attention as one op ----------------------------------------------------------------------------------------===//

// Where a library has it (compiler/attention/raise_attention.cpp): GPUs in 16 bits. Elsewhere attention stays products
// and a softmax. Tensors are [batch, positions, heads, features], on a ring [blocks, batch, ...]; keys and values may
// have fewer heads, each for as many of the queries' that lie side by side. `bias`, added to the scores, is [batch or 1,
// heads or 1, queries, keys].
class Core_Attention<string mnemonic, list<Trait> traits = []> : Core_Op<mnemonic, traits> {
  let form = "Product";
  let extraClassDeclaration = "runtime::AttentionBand getBand() { return {getLeftBound(), getRightBound()}; }";
}
defvar AttentionInputs = (ins Tensor:$query, Tensor:$key, Tensor:$value, Optional<Tensor>:$bias, F64Attr:$scale,
                          OptionalAttr<I64Attr>:$left_bound, OptionalAttr<I64Attr>:$right_bound,
                          OptionalAttr<F64Attr>:$soft_cap);
def ScaledAttentionOp : Core_Attention<"ScaledAttention", Differentiable> {
  let summary = "out = softmax(scale * query key^T + bias) value";
  let description = [{
    `soft_cap`: scores x = scale * query key^T become soft_cap * tanh(x / soft_cap), before the bias. Query s sees the keys t with s - left_bound < t <= s + right_bound (runtime/base/attention_band.h). `stats` [batch,
    heads, queries] in f32, for the gradient: the logarithm of the softmax's denominator, maximum included.
  }];
  let arguments = AttentionInputs;
  let results = (outs Tensor:$out, Tensor:$stats);
}
def ScaledAttentionGradOp : Core_Attention<"ScaledAttentionGrad"> {
  let summary = "gradients of ScaledAttention with respect to query, key, value";
  let arguments = !con(AttentionInputs, (ins Tensor:$out, Tensor:$stats, Tensor:$out_gradient));
  let results = (outs Tensor:$query_gradient, Tensor:$key_gradient, Tensor:$value_gradient);
}
#endif
