#ifndef CLEAVE_ONNX_OPS_TD
#define CLEAVE_ONNX_OPS_TD
include "dialects/onnx/OnnxCoreOps.td"

// The importer's operations, and those that name persistent tensors in every phase.

def NodeOp : Onnx_Op<"node", [NoTerminator]> {
  let summary = "any ONNX node, faithfully";
  let description = [{
    `op_type`, `domain`, `version` (of the opset the model imports for the domain). `onnx_attributes` maps ONNX attribute
    names to: i64 / f32 / string attributes, DenseI64Array, DenseF32Array, StrArray, ElementsAttr (tensors). An absent
    optional input is an operand produced by onnx.none. Result types may be unranked or dynamic until shapes are bound.
    Nodes that hold subgraphs (If, Loop, Scan) carry them as regions, one block each, which end with an onnx.node "yield"
    of domain "cleave"; `onnx_attributes` maps the names of graph attributes to region numbers.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, StrAttr:$op_type, StrAttr:$domain, I64Attr:$version,
                   StrAttr:$node_name, DictionaryAttr:$onnx_attributes);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region VariadicRegion<AnyRegion>:$subgraphs);
  let assemblyFormat = "$op_type `(` $inputs `)` attr-dict-with-keyword `:` functional-type($inputs, $outputs) $subgraphs";
}
def NoneOp : Onnx_Op<"none", [Pure]> {
  let summary = "an absent optional input";
  let results = (outs NoneType:$value);
  let assemblyFormat = "attr-dict `:` type($value)";
}

def ParamOp : Onnx_Op<"param", [Symbol]> {
  let summary = "a persistent tensor: parameter, optimizer state, running statistic, accumulator";
  let description = [{
    `type` is the global type. `role`: "parameter" (an initializer that is a weight, trained or frozen),
    "optimizer_state", "running_statistic", "accumulator". Data comes from `path`/`offset`/`length` (path relative to
    the model's folder, "" inside the .onnx file; the bytes are row-major little-endian of `file_type`), or from `fill`,
    or from `init` (a dictionary: kind, mean, std, low, high, stream; or `sources`, places in the recipe's checkpoint:
    compiler/import/weights/initial_weights.h).
    `original_shape`: the initializer's own shape where `type` is a view of it. `aliases`: names of tied initializers.
    `used_by`: the first node that reads it. `sharding` (after planning): its home layout, a #dist.sharding.
    `of`: the parameter an optimizer state or accumulator belongs to.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, StrAttr:$role, BoolAttr:$trainable,
                   OptionalAttr<StrAttr>:$path, OptionalAttr<I64Attr>:$offset, OptionalAttr<I64Attr>:$length,
                   OptionalAttr<TypeAttr>:$file_type, OptionalAttr<F64Attr>:$fill, OptionalAttr<DictionaryAttr>:$init,
                   OptionalAttr<DenseI64ArrayAttr>:$original_shape, OptionalAttr<StrArrayAttr>:$aliases,
                   OptionalAttr<StrAttr>:$used_by, OptionalAttr<FlatSymbolRefAttr>:$of,
                   OptionalAttr<AnyAttr>:$sharding);
  let assemblyFormat = "$sym_name `:` $type $role attr-dict";
}
def ReadOp : Onnx_Op<"read", [MemoryEffects<[MemRead]>]> {
  let summary = "the value of a persistent tensor at the start of the function";
  let arguments = (ins FlatSymbolRefAttr:$param);
  let results = (outs AnyRankedTensor:$value);
  let assemblyFormat = "$param attr-dict `:` type($value)";
}
def WriteOp : Onnx_Op<"write", []> {
  let summary = "the new value of a persistent tensor; takes effect after every read of the function";
  let arguments = (ins FlatSymbolRefAttr:$param, AnyRankedTensor:$value);
  let assemblyFormat = "$param `,` $value attr-dict `:` type($value)";
}

// Attention as one operation, only between its recognition and its expansion (compiler/attention): there to have a
// gradient of its own, which computes the probabilities again block by block instead of keeping them.
defvar AttentionForm = (ins DenseI64ArrayAttr:$query_dims, DenseI64ArrayAttr:$key_dims, I64Attr:$score_query,
                        I64Attr:$score_key, I64Attr:$out_query, I64Attr:$blocks, UnitAttr:$zero_empty_rows,
                        UnitAttr:$causal);
def AttentionOp : Onnx_Op<"Attention", [Pure, IsolatedFromAbove, NoTerminator,
                                        DeclareOpInterfaceMethods<GradientOpInterface>]> {
  let summary = "out = weigh(softmax(score(xs)), xs), and the softmax's maxima and sums for the gradient";
  let description = [{
    The regions hold what the exporter wrote as core ops on global shapes; the last operation of each gives its value.
    `score` has the block arguments xs and gives the scaled, masked scores; `weigh` has the block arguments p (the
    probabilities, as the scores) and xs, and is linear in p. `query_dims` (`key_dims`): of every operand, the dimension
    that counts queries (keys), -1 for none; `score_query`, `score_key`, `out_query` the same of the scores and of out.
    `blocks`: into how many the sequence is cut. `zero_empty_rows`: a row whose scores are all minus infinity gives 0,
    not NaN. `causal`: a query sees exactly the keys up to its own position.
  }];
  let arguments = !con((ins Variadic<AnyRankedTensor>:$xs), AttentionForm);
  let results = (outs AnyRankedTensor:$out, AnyRankedTensor:$max, AnyRankedTensor:$sum);
  let regions = (region SizedRegion<1>:$score, SizedRegion<1>:$weigh);
  let assemblyFormat = "$xs attr-dict-with-keyword `:` functional-type(operands, results) $score $weigh";
}
def AttentionGradOp : Onnx_Op<"AttentionGrad", [Pure, IsolatedFromAbove, NoTerminator]> {
  let summary = "gradients of Attention's operands `wanted`, from xs, out, max, sum and the gradient of out";
  let arguments = !con((ins Variadic<AnyRankedTensor>:$xs, DenseI64ArrayAttr:$wanted), AttentionForm);
  let results = (outs Variadic<AnyRankedTensor>:$grads);
  let regions = (region SizedRegion<1>:$score, SizedRegion<1>:$weigh);
  let assemblyFormat = "$xs attr-dict-with-keyword `:` functional-type(operands, results) $score $weigh";
}
#endif
