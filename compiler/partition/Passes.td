// The passes of the partition phase, in the order in which they run (compiler/driver/pass_list.cpp).
include "mlir/Pass/PassBase.td"

defvar ranksOption = ListOption<"ranks", "ranks", "int", "the rank of every stage">;

def ApplyDecision : Pass<"apply-decision", "::mlir::ModuleOp"> {
  let summary = "write the planner's decision on the module";
  let description = [{
    The planner's decision is written on the module: mesh, factor splits of forward ops, home layouts of persistent
    tensors.

        onnx.param @w ... {sharding = #dist.sharding<"[{},{tp} ]">,
                           dist.update_sharding = #dist.sharding<"[{dp},{tp} ]">}
        %y = onnx.Contract %x, %w {dist.factors = #dist.factors<[dp], [tp], []>,
                                   place.at = #place.at<phase = forward, segment = 3, recompute = true>}   for Recompute

    A decision is made for @final; the other functions hold the same forward operations under the same names. It names
    each operation of NameOperations that computes something, and no operation that there is not. PropagateShardings
    splits the rest: what later passes added, and what a microbatch has in another form (views, its loss).
  }];
  let dependentDialects = ["::cleave::dist::DistDialect"];
  let options = [Option<"file", "file", "std::string", "", "a decision as text (planner/decision.h)">];
}

def AssignStages : Pass<"assign-stages", "::mlir::ModuleOp"> {
  let summary = "say on which pipeline stage every op runs";
  let description = [{
    Every op of a pipelined step gets the stage it runs on. The pass runs on the whole, unsplit functions.

        @accumulate  forward ops: the decision's stage, never before that of an operand. Backward ops: the stage of the
                     forward op they differentiate (`origin`), never after that of a backward operand, so that
                     values cross stages forward in the forward phase and backward in the backward phase. Values that
                     belong to no stage (floating_values.h) get none.
        @final       becomes @update: all microbatches are accumulated, so what is left reads the accumulators
        @evaluate    as the forward phase

    A parameter that several stages read has a gradient in parts: each rank accumulates its own part (an accumulator of
    its own), @update adds them. Contributions of one later stage to a value's gradient are summed there, to be sent as
    one.
  }];
  let options = [ranksOption];
}

def Recompute : Pass<"recompute", "::mlir::ModuleOp"> {
  let summary = "compute activations again in the backward pass";
  let description = [{
    The backward pass computes segments of the forward pass again instead of keeping what they made. A segment is what
    the decision gave one number (place.at: `segment`), on one pipeline stage; of it those are computed again that are
    marked so (`recompute`). An operation that the decision does not know is what its operands are. Values that flow
    from segment to segment are kept. Marked operations that the backward pass needs are cloned in front of the first
    one there that needs one.

        forward   x0 -[segment 1]-> x1 -[segment 2]-> x2 -> loss          kept: x0, x1
        backward  clones of segment 2 from x1, its gradients, then clones of segment 1 from x0, its gradients

    A later stage reads what it was sent, not a clone. Clones are `recomputed`, of their segment's number: codegen does
    not run them together with the forward pass.

    With `except-last` @accumulate_last is what a pipeline's last microbatch runs, with nothing computed again.
  }];
  let options = [Option<"exceptLast", "except-last", "bool", "false", "not of a step's last microbatch">];
}

def PropagateShardings : Pass<"propagate-shardings", "::mlir::ModuleOp"> {
  let summary = "give every op its split and every value its layout";
  let description = [{
    From the forward operations' factor splits and the persistent tensors' home layouts to a split of every operation
    and a layout of every value, with dist.reshard where a value is needed otherwise than it came out.

        %dy : [{dp},{},{tp} ]   %w : [{},{tp} ]      (%y = Contract %x, %w with factors b=dp, n=tp)
        %dx = Contract %dy, %w    takes b=dp, n=tp from its operands: n is reduced, so %dx is partial(tp)
        %dw = Contract %x, %dy    b is reduced: partial(dp), wanted as [{dp},{tp} ] by the optimizer under ZeRO

    A partial sum passes through forward operations where the planner said so, elsewhere through operations that are
    linear in it and do not make it larger, as long as it has one use; before any other use it is reduced, once.
  }];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::onnx::OnnxDialect"];
}

def MaterializeCollectives : Pass<"materialize-collectives", "::mlir::ModuleOp"> {
  let summary = "global types become local ones, reshards collectives";
  let description = [{
    From global tensors with layouts to the tensors of one device; every dist.reshard becomes the collectives (or cuts)
    that carry it out.

        %y = dist.reshard %x from "[{},{} ] partial(tp)" to "[{tp},{} ]" : tensor<8x64xf32>
        ->  %y = dist.reduce_scatter %x {axes = ["tp"], dim = 0, reduce = #dist.reduction<sum>, why = ...}
            of tp=2: 8x64 -> 4x64
  }];
  let dependentDialects = ["::cleave::dist::DistDialect"];
}

def ElideCollectives : Pass<"elide-collectives", "::mlir::ModuleOp"> {
  let summary = "remove collectives whose work is undone or already done";
  let description = [{
    Removes collectives whose work is undone or already done.

        own_part(all_gather(x, tp, dim 0), tp, dim 0)  ->  x            and the other way round
        all_reduce(all_reduce(x, tp), dp)              ->  all_reduce(x, [dp, tp]), if the inner has no other use
        a collective over one device                   ->  its operand
        own_part(Broadcast(x), dp, dim 0), x repeated along dim 0  ->  Broadcast(x) of the part's size; so of a constant
                                                       that is one value repeated
        own_part(Mul(x, y), tp, dim 0)                 ->  Mul(own_part(x), own_part(y)), if nobody reads it whole
        Add(all_to_all(x), all_to_all(y))              ->  all_to_all(Add(x, y)), if nobody else reads them: terms of a
                                                       gradient, which would be kept in both splits; so of what
                                                       gathers and of sums
  }];
}

def ChunkProducts : Pass<"chunk-products", "::mlir::ModuleOp"> {
  let summary = "run a product with a huge result, and what reads it, part by part";
  let description = [{
    A product whose result is far larger than what goes in and what comes out of the operations around it runs part by
    part over its rows, forward and backward, so that its result is never stored whole (chunk_region.h). So runs a
    language model's head with its loss:

        logits = Contract x, w;  ... ;  loss = ReduceSum row_loss;  dx = Contract dlogits, w;  dw = Contract x, dlogits
        ->  with parts=2, each of the operations on half of the rows, then on the other half:
            x0 = Slice x;  logits0 = Contract x0, w;  ... ;  dx0 = Contract dlogits0, w;  dw0 = Contract x0, dlogits0
            x1 = Slice x;  logits1 = Contract x1, w;  ... ;  dx1 = Contract dlogits1, w;  dw1 = Contract x1, dlogits1
            loss = Add loss0, loss1;  dx = Concat dx0, dx1;  dw = Add dw0, dw1
  }];
  let options = [Option<"parts", "parts", "int64_t", "1", "parts of the rows">];
}

def SplitStages : Pass<"split-stages", "::mlir::ModuleOp"> {
  let summary = "cut a pipelined step by stages";
  let description = [{
    A pipelined step becomes one function for each stage and part, on local shapes.

        @accumulate  -> @forward.S, @backward.S
                        (or @backward_input.S and @backward_weight.S where the schedule halves it)
        @accumulate_last, where there is one -> @forward.S.last, ...
        @update      -> @update.R, one a rank
        @count       -> @count.R, each the same: every rank counts for itself what its stages read
        @evaluate    -> @evaluate.S; a rank's last one has the loss, summed over pp
        Where steps run into each other (two versions of the weights): @forward.S.ahead, which reads the newest weights
        where @forward.S reads those before the last update

    See split_step.h and split_update.h for how; stages.h for how it is written. A persistent tensor is held by the
    ranks whose stages read it, optimizer state by those that hold its parameter.
  }];
  let dependentDialects = ["::cleave::dist::DistDialect", "::cleave::onnx::OnnxDialect"];
  let options = [
    ranksOption,
    Option<"halves", "halves", "bool", "false", "backward passes in two halves">,
    Option<"ahead", "ahead", "bool", "false", "steps run into each other">
  ];
}

def BucketCollectives : Pass<"bucket-collectives", "::mlir::ModuleOp"> {
  let summary = "join collectives of one kind and group";
  let description = [{
    Many small collectives of one kind and group become few large ones. Gradients are reduced in the order in which the
    backward pass makes them, each bucket as soon as its last gradient exists, so that reductions run beside the rest of
    the backward pass; scalar reductions (the parts of a norm) and the gathers of updated parameters are joined in the
    same way.

        %g1 = ...   %g2 = ...   all_reduce %g1   all_reduce %g2   update
        ->  %g1 = ...   %g2 = ...   %r:2 = dist.bucket %g1, %g2 {op = #dist.collective<all_reduce>, axes = ["dp"]}
            update
  }];
  let dependentDialects = ["::cleave::dist::DistDialect"];
  let options = [Option<"bytes", "bytes", "int64_t", "tuning::bucketBytes", "largest bucket">];
}

def BuildRoutines : Pass<"build-routines", "::mlir::ModuleOp"> {
  let summary = "say which function runs when";
  let description = [{
    Which function runs when, as the module attribute `place.routines` that becomes Program.routines.

        microbatches=4, @accumulate and @final, no pipeline:
          step      accumulate m0, accumulate m1, accumulate m2, final m3
          evaluate  evaluate m0
        and where the loss has counts of the whole batch, before all: count m0, count m1, count m2, count m3
        1f1b over two ranks, the first one's row:
          step      forward.0 m0 slot 0, forward.0 m1 slot 1, backward.0 m0 slot 0, forward.0 m2 slot 0, ..., update
          evaluate  evaluate.0 m0
        pipedream-2bw over two ranks, three microbatches, the first one's row:
          fill      forward.0 m0 slot 0
          step      forward.0 m1 slot 1, backward.0 m0 slot 0, forward.0 m2 slot 2, backward.0 m1 slot 1,
                    forward.0.ahead m0 slot 0 (of the next step), backward.0 m2 slot 2, update
          drain     the same without what is ahead: a last step

    A slot is one copy of what a stage keeps of a microbatch: taken by the forward, free after the last backward part;
    the lowest free one is taken. A value that is ahead must lie where the next step looks for it, which is where the
    fill has put it: nobody else holds that slot then. A value that passes over stages, or from one stage to another of
    the same rank, may be on its way as long as the earlier stage of the two holds the microbatch: so many message
    buffers it gets. To the next rank two for each value are enough, which is what the runtime takes. The attribute:
    {name, program, fragments = [@...], microbatches, slots}, one a program; `ahead` has the places of actions of the
    next step, if there are any.
  }];
  let options = [
    Option<"microbatches", "microbatches", "int64_t", "1", "microbatches of a step">,
    Option<"schedule", "schedule", "std::string", "", "a pipeline's schedule (schedule)">
  ];
}

def VerifyPartition : Pass<"verify-partition", "::mlir::ModuleOp"> {
  let summary = "check collectives, persistent tensors and results";
  let description = [{
    Fails when the partitioned module is not consistent; stands at the end of the phase. Core ops were checked against
    their operands by the shape facet when their types became local; what remains is what no single op can see.
  }];
}
