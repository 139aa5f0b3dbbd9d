#ifndef CLEAVE_PLAN_COMMANDS_TD
#define CLEAVE_PLAN_COMMANDS_TD
// Included by PlanOps.td after Plan_Op.

// The other commands, one of plan.proto each (plan.copy, plan.concat: one or more). They stand on SSA tensors; what the
// later passes decide is written beside them as discardable attributes:
//   plan.stream = 1 : i64            not on the compute stream (ScheduleCommands): 1 collectives and sends, 2 receives
//   plan.wait = array<i64: 3>        events that must have happened; plan.record = 4 : i64: the event this one is
//   plan.offsets = array<i64: 0>     byte offset of every result (PlanMemory); onnx.read and function arguments have
//                                    plan.offset
// All strides and offsets of operands are in elements.
class Plan_Command<string mnemonic, list<Trait> traits = []> : Plan_Op<mnemonic, !listconcat([Pure], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def ContractCommandOp : Plan_Command<"contract", [AttrSizedOperandSegments]> {
  let summary = "y[batch, m, n] = activation(sum over k of lhs[batch, m, k] * rhs[batch, k, n] (+ sum) (+ bias[n]))";
  let description = [{
    Every group is one strided dimension. `*_strides` are batch..., then m k | k n | m n; the operands start at
    `lhs_offset`, `rhs_offset`. `rhs_is_parameter`: the weights change only once a step and may be kept packed.
    `sum`: what the product is added to; y lies where it lies (AddInPlace).

    What a GPU's library does besides (FoldEpilogues): `activation` is gelu, or gelu_gradient at `pre_activation`. The
    results after y are, in this order: with `keeps_pre_activation` what gelu is applied to; with `sum_of` lhs or rhs
    that operand's sums over k.
  }];
  let arguments = (ins AnyRankedTensor:$lhs, AnyRankedTensor:$rhs, Optional<AnyRankedTensor>:$bias,
                   Optional<AnyRankedTensor>:$pre_activation, Optional<AnyRankedTensor>:$sum,
                   DenseI64ArrayAttr:$batch, I64Attr:$m, I64Attr:$n, I64Attr:$k, DenseI64ArrayAttr:$lhs_strides,
                   DenseI64ArrayAttr:$rhs_strides, DenseI64ArrayAttr:$out_strides,
                   DefaultValuedAttr<I64Attr, "0">:$lhs_offset, DefaultValuedAttr<I64Attr, "0">:$rhs_offset,
                   UnitAttr:$rhs_is_parameter, OptionalAttr<StrAttr>:$activation, UnitAttr:$keeps_pre_activation,
                   OptionalAttr<StrAttr>:$sum_of);
  let results = (outs AnyRankedTensor:$y, Variadic<AnyRankedTensor>:$more);
  let hasVerifier = 1;
}

def GroupedContractCommandOp : Plan_Command<"grouped_contract"> {
  let summary = "every row times the matrix of its group, or the sum of such outer products over the rows of each group";
  let description = [{
    See plan.proto. lhs is [rows..., k]; rhs is [groups, k, n], `transposed` [groups, n, k], or with `sums_rows`
    [rows..., n]. The operands start at `lhs_offset`, `rhs_offset`.
  }];
  let arguments = (ins AnyRankedTensor:$lhs, AnyRankedTensor:$rhs, AnyRankedTensor:$group_of_row, DenseI64ArrayAttr:$rows,
                   I64Attr:$k, I64Attr:$n, I64Attr:$groups, DenseI64ArrayAttr:$lhs_strides,
                   DenseI64ArrayAttr:$rhs_strides, I64Attr:$lhs_offset, I64Attr:$rhs_offset, UnitAttr:$sums_rows,
                   UnitAttr:$transposed, Plan_AffineOfCoordinateAttr:$start, I64Attr:$global_groups);
  let results = (outs AnyRankedTensor:$y);
}

def ConvolutionCommandOp : Plan_Command<"convolution"> {
  let summary = "a pass of a convolution; operands and result in the order of Conv, ConvGradInput, ConvGradWeight";
  let description = [{
    `pass`: forward (x, w -> y), grad_input (dy, w -> dx), grad_weight (x, dy -> dw). `channels_last`: activations are
    [N, spatial, C]; `weight_channels_last`: the weight is [O, kernel, C/groups].
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, StrAttr:$pass, DenseI64ArrayAttr:$strides,
                   DenseI64ArrayAttr:$pads_begin, DenseI64ArrayAttr:$pads_end, DenseI64ArrayAttr:$dilations,
                   I64Attr:$groups, UnitAttr:$channels_last, UnitAttr:$weight_channels_last);
  let results = (outs AnyRankedTensor:$y);
}

def AttentionCommandOp : Plan_Command<"attention", [AttrSizedOperandSegments]> {
  let summary = "attention by a library: forward (query, key, value -> out[, stats]) or, with out_gradient, backward";
  let description = [{
    `sizes`: batch, heads, heads of keys, queries, keys, features, features of values. Strides are batch, heads,
    positions, features; `offsets` are where query, key, value and bias start. out and out_gradient are dense [batch,
    positions, heads, features]. The backward pass' results are the gradients of query, key and value, in this order;
    `gradient_strides` are four of each. See plan.proto.
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
                   Optional<AnyRankedTensor>:$bias, Optional<AnyRankedTensor>:$out, Optional<AnyRankedTensor>:$stats,
                   Optional<AnyRankedTensor>:$out_gradient, DenseI64ArrayAttr:$sizes,
                   DenseI64ArrayAttr:$query_strides, DenseI64ArrayAttr:$key_strides, DenseI64ArrayAttr:$value_strides,
                   DenseI64ArrayAttr:$bias_strides, DenseI64ArrayAttr:$gradient_strides, DenseI64ArrayAttr:$offsets,
                   F64Attr:$scale, OptionalAttr<I64Attr>:$left_bound, OptionalAttr<I64Attr>:$right_bound,
                   OptionalAttr<F64Attr>:$soft_cap);
  let results = (outs Variadic<AnyRankedTensor>:$ys);
}

def PoolCommandOp : Plan_Command<"pool"> {
  let summary = "max or average over windows, or its gradient";
  let description = [{
    `kind`: max, average, average_include_pad (x -> y); max_grad (x, dy -> dx); average_grad,
    average_include_pad_grad (dy -> dx). `channels_last`: tensors are [N, spatial, C].
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$xs, StrAttr:$kind, DenseI64ArrayAttr:$kernel,
                   DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$pads_begin, DenseI64ArrayAttr:$pads_end,
                   DenseI64ArrayAttr:$dilations, UnitAttr:$channels_last);
  let results = (outs AnyRankedTensor:$y);
}

def GatherCommandOp : Plan_Command<"gather"> {
  let summary = "y[outer, index..., inner] = table[outer, indices[...] - start, inner], zero outside the local rows";
  let arguments = (ins AnyRankedTensor:$table, AnyRankedTensor:$indices, I64Attr:$outer, I64Attr:$rows, I64Attr:$inner,
                   Plan_AffineOfCoordinateAttr:$start, I64Attr:$global_rows);
  let results = (outs AnyRankedTensor:$y);
}
def ScatterAddCommandOp : Plan_Command<"scatter_add"> {
  let summary = "zeros, plus every update at its index: the gradient of plan.gather";
  let arguments = (ins AnyRankedTensor:$indices, AnyRankedTensor:$updates, I64Attr:$outer, I64Attr:$rows,
                   I64Attr:$inner, Plan_AffineOfCoordinateAttr:$start, I64Attr:$global_rows);
  let results = (outs AnyRankedTensor:$y);
}

def CopyCommandOp : Plan_Command<"copy"> {
  let summary = "a strided copy: transpose, slice, pad, broadcast, own part of a whole tensor";
  let description = "With `fill` the whole result is set to it first (pad).";
  let arguments = (ins AnyRankedTensor:$x, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$source_strides,
                   DenseI64ArrayAttr:$target_strides, Plan_AffineOfCoordinateAttr:$source_offset,
                   DefaultValuedAttr<I64Attr, "0">:$target_offset, OptionalAttr<F64Attr>:$fill);
  let results = (outs AnyRankedTensor:$y);
  let hasVerifier = 1;
}
def ConcatCommandOp : Plan_Command<"concat"> {
  let summary = "operands side by side along `axis`: a copy each, but none for those that PlanMemory put in place";
  let arguments = (ins Variadic<AnyRankedTensor>:$xs, I64Attr:$axis);
  let results = (outs AnyRankedTensor:$y);
}
def FillCommandOp : Plan_Command<"fill"> {
  let summary = "every element is `value`, a splat of one element";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "attr-dict $value `:` type($y)";
}
def ConstantCommandOp : Plan_Command<"constant"> {
  let summary = "data that the plan carries; loaded once";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "attr-dict $value `:` type($y)";
}
def ViewOp : Plan_Command<"view"> {
  let summary = "no code: x's elements from `offset` on, under another shape";
  let arguments = (ins AnyRankedTensor:$x, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs AnyRankedTensor:$y);
  let hasVerifier = 1;
}

def CollectiveCommandOp : Plan_Command<"collective"> {
  let summary = "one collective on one or several tensors; see plan.proto";
  let description = [{
    `dims` and `split_dims`: one an operand (-1 where they mean nothing). `sequence`: position in the order of the group,
    from 0.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$xs, Dist_CollectiveAttr:$op, StrArrayAttr:$axes, Dist_ReductionAttr:$reduce,
                   DenseI64ArrayAttr:$dims, DenseI64ArrayAttr:$split_dims, StrAttr:$why, I64Attr:$sequence);
  let results = (outs Variadic<AnyRankedTensor>:$ys);
}

// Between stages: `peer` is the other device's number. In order of their tags, first the receives, then the sends.
def SendCommandOp : Plan_Op<"send"> {
  let summary = "copy a value into a message to another device; done when the buffer may be reused";
  let arguments = (ins AnyRankedTensor:$x, Plan_AffineOfCoordinateAttr:$peer, I64Attr:$tag, StrAttr:$why);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}
def ReceiveCommandOp : Plan_Op<"receive"> {
  let summary = "the message of another device";
  let arguments = (ins Plan_AffineOfCoordinateAttr:$peer, I64Attr:$tag, StrAttr:$why);
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "attr-dict `:` type($y)";
}

def CumSumCommandOp : Plan_Command<"cumsum"> {
  let summary = "running sum along the middle of [outer, length, inner]";
  let arguments = (ins AnyRankedTensor:$x, I64Attr:$outer, I64Attr:$length, I64Attr:$inner, UnitAttr:$exclusive,
                   UnitAttr:$reverse);
  let results = (outs AnyRankedTensor:$y);
}

def CheckFiniteCommandOp : Plan_Op<"check_finite"> {
  let summary = "ends the run if an element is infinite or not a number; `what` names the value for the message";
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$what);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def StoreOp : Plan_Op<"store"> {
  let summary = "the new value of a persistent tensor";
  let description = "`in_place` (PlanMemory): the value's producer already writes there, no code. Otherwise a copy.";
  let arguments = (ins AnyRankedTensor:$value, FlatSymbolRefAttr:$param, UnitAttr:$in_place);
  let assemblyFormat = "$value `,` $param attr-dict `:` type($value)";
}
#endif
