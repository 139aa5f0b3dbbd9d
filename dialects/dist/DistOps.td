#ifndef CLEAVE_DIST_OPS_TD
#define CLEAVE_DIST_OPS_TD
include "dialects/dist/DistAttrs.td"

// Before materialization: "from here on this value lies as `sharding`". Global type.
def Dist_ReshardOp : Op<Dist_Dialect, "reshard", [Pure, SameOperandsAndResultType]> {
  let summary = "a change of layout, still on global types";
  let arguments = (ins AnyRankedTensor:$x, Dist_ShardingAttr:$from, Dist_ShardingAttr:$to);
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "$x `from` $from `to` $to attr-dict `:` type($x)";
}

// After materialization: local types. `axes` names the group; `why` is for the report.
class Dist_Collective<string mnemonic, list<Trait> traits = [Pure]> : Op<Dist_Dialect, mnemonic, traits> {
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "$x attr-dict `:` functional-type($x, $y)";
}
// Over `pp` the other members are other programs, which wait for this one: it stays even where nobody reads its result.
def Dist_AllReduceOp
    : Dist_Collective<"all_reduce", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "combine the group's values (reduce: sum, max, min); every device gets the result";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, Dist_ReductionAttr:$reduce, OptionalAttr<StrAttr>:$why);
}
def Dist_ReduceScatterOp : Dist_Collective<"reduce_scatter"> {
  let summary = "combine the group's values; device i of the group keeps part i along `dim`";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, Dist_ReductionAttr:$reduce, I64Attr:$dim, OptionalAttr<StrAttr>:$why);
}
def Dist_AllGatherOp : Dist_Collective<"all_gather"> {
  let summary = "the group's values side by side along `dim`";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$dim, OptionalAttr<StrAttr>:$why);
}
def Dist_AllToAllOp : Dist_Collective<"all_to_all"> {
  let summary = "cut along `split_dim`, part i to device i; join what arrives along `dim`";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$split_dim, I64Attr:$dim, OptionalAttr<StrAttr>:$why);
}
def Dist_BroadcastOp : Dist_Collective<"broadcast"> {
  let summary = "the value of the group's first device";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, OptionalAttr<StrAttr>:$why);
}
def Dist_OwnPartOp : Dist_Collective<"own_part"> {
  let summary = "device i of the group keeps part i along `dim` of a value that all of them have; no traffic";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$dim, OptionalAttr<StrAttr>:$why);
}
def Dist_ShiftOp : Dist_Collective<"shift"> {
  let summary = "device i of the group gets the value of device (i - distance) mod n: one message to a neighbour";
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$distance, OptionalAttr<StrAttr>:$why);
}
// A bucket: the same collective on several tensors at once. dims/split_dims one an operand.
def Dist_BucketOp : Op<Dist_Dialect, "bucket", [Pure]> {
  let summary = "several collectives of one kind and group, executed as one";
  let arguments = (ins Variadic<AnyRankedTensor>:$xs, Dist_CollectiveAttr:$op, StrArrayAttr:$axes, OptionalAttr<Dist_ReductionAttr>:$reduce,
                   DenseI64ArrayAttr:$dims, OptionalAttr<StrAttr>:$why);
  let results = (outs Variadic<AnyRankedTensor>:$ys);
  let assemblyFormat = "$xs attr-dict `:` functional-type($xs, $ys)";
}

// Between the stages of a pipeline: to, or from, the device with that coordinate along `pp` and otherwise the same
// coordinates. `tag`: which value it is, the same on both sides; they meet microbatch by microbatch.
def Dist_SendOp : Op<Dist_Dialect, "send"> {
  let summary = "give a value to another stage";
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$to, I64Attr:$tag, StrAttr:$why);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}
def Dist_ReceiveOp : Op<Dist_Dialect, "receive"> {
  let summary = "a value that another stage gives";
  let arguments = (ins I64Attr:$from, I64Attr:$tag, StrAttr:$why);
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "attr-dict `:` type($y)";
}
#endif
