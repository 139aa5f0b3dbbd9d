// The passes of code generation, in the order in which they run (compiler/driver/pass_list.cpp).
include "mlir/Pass/PassBase.td"

def FlattenGathers : Pass<"flatten-gathers", "::mlir::ModuleOp"> {
  let summary = "gathers from rows of one's own become gathers from all rows";
  let description = [{
    Gathers and scatters whose entries look up rows of their own do it in one table of all rows.

        %y = onnx.Gather %t[4,11], %i[4,2] {axis = 1, batch_dims = 1}
        ->   %y = onnx.Gather reshape(%t)[44], %i + [0, 11, 22, 33] {axis = 0}

    It stands after partitioning: an index into all rows would not be that of a device's part of them.
  }];
}

def JoinParts : Pass<"join-parts", "::mlir::ModuleOp"> {
  let summary = "sums of padded parts that lie side by side are concatenated";
  let description = [{
    A sum of parts that lie side by side, each padded with zeros, is their concatenation.

        %a = onnx.Pad %p {low = [0, 0], high = [0, 4]}     of two columns
        %b = onnx.Pad %q {low = [0, 2], high = [0, 2]}     likewise
        %g = onnx.Sum %a, %b, %c
        ->   %j = onnx.Concat %p, %q {axis = 1}     %d = onnx.Pad %j {low = [0, 0], high = [0, 2]}
             %g = onnx.Sum %c, %d

    Gradients of slices are such parts: of queries, keys and values, of a recurrence's time steps. As terms of a sum
    each would stand in memory in full size, mostly zeros. In 16 bits each part is padded, cast and added in fp32: the
    concatenation is of 16 bits, and cast where fp32 is read. Between parts that no other part fills lie zeros, where
    these are fewer than what stands beside them. Where a device adds up its own part of each (ZeRO, of samples that do
    not divide), it takes its part of the sum instead.
  }];
}

def AbsorbContractTransposes : Pass<"absorb-contract-transposes", "::mlir::ModuleOp"> {
  let summary = "transposes next to contractions become index permutations";
  let description = [{
    A Transpose next to a Contract becomes part of its index arrays.

        %t = onnx.Transpose %k {perm = [0, 2, 1]}
        %s = onnx.Contract %q, %t {lhs_indices = [0, 1, 2], rhs_indices = [0, 2, 3], result_indices = [0, 1, 3]}
        ->   onnx.Contract %q, %k {lhs_indices = [0, 1, 2], rhs_indices = [0, 3, 2], ...}

    It stands before FormClusters, which would take the Transpose into a kernel, and before a pipelined step is cut,
    too.
  }];
}

def LayEightBitProducts : Pass<"lay-eight-bit-products", "::mlir::ModuleOp"> {
  let summary = "products on 8 bits as cuBLASLt multiplies them";
  let description = [{
    Fits products of 8-bit floats to cuBLASLt's kernels. These need the contracted index innermost in both operands
    ("TN"), and sizes and leading dimensions that are multiples of 16 bytes. A product with such sizes on this device is
    marked `onnx.k_major`, and lowerContract copies operands of another layout. Others run in bf16, which represents
    every 8-bit float, and a warning says how many of a step do.

        %y = onnx.Contract %qx, %qw : 64x32, 32x48     ->  the same {onnx.k_major}
        %y = onnx.Contract %qx, %qw : 24x32, 32x48     ->  onnx.Contract (bf16(%qx)), (bf16(%qw))
  }];
}

def FoldEpilogues : Pass<"fold-epilogues", "::mlir::ModuleOp"> {
  let summary = "biases, GELU and gradients of biases become part of products";
  let description = [{
    Moves operations from kernels into the epilogue of a matrix product, which cuBLASLt computes while the result is
    still in registers: the bias, GELU in its tanh form with its derivative, and the gradient of a bias.

        %c = onnx.Contract %x, %w                       %y, %u = plan.contract %x, %w, %b {activation = "gelu",
        %u = onnx.Add %c, (Broadcast %b)          ->                                       keeps_pre_activation, ...}
        %y = ... 0.5 * %u * (1 + tanh(...)) ...

        %d = onnx.Contract %dy, %w2                     %du = plan.contract %dy, %w2 at %u
        %du = ... %d * (derivative at %u) ...                 {activation = "gelu_gradient"}

        %dw = onnx.Contract %x, %du                     %dw, %db = plan.contract %x, %du {sum_of = "rhs"}
        %db = onnx.ReduceSum %du

    GELU is found by what it computes (sampled_values.h), not by how the model writes it. A bias without GELU is folded
    only where another product or a command reads the sum from memory; else the kernel that reads the sum adds the bias
    at no cost. In fp16 and bf16 the bias is rounded to 16 bits, as torch.amp does, and the sum with it is rounded once.

    The pass is for GPUs' plans and runs before SplitReductions and FormClusters. The products it touches become
    plan.contract here.
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def PullFactors : Pass<"pull-factors", "::mlir::ModuleOp"> {
  let summary = "take factors that a column shares out of its sum";
  let description = [{
    A factor that all elements of a column share is taken out of the column's sum, so that sums over one tensor become
    one sum. The gradient of a batch norm in [N, H, W, C] (dy masked by Relu, c = x - mean, r = 1 / sigma):

        bias    ReduceSum dy                        a = ReduceSum dy                  bias    a
        scale   ReduceSum (dy c r)                  b = ReduceSum (dy c)              scale   r b
        rsqrt   ReduceSum (dy scale c)         ->   e = ReduceSum c                   rsqrt   scale b
        mean    ReduceSum -(dy scale r)                                               mean    -(scale r a)
        mean    ReduceSum -(v c + v c), v made of the third sum                       mean    -(v e + v e)

    The last sum would wait for the third, and read the tensor once more. Sums along rows stay: a row's values are at
    hand in the one kernel that has the row. So do sums in 16 bits, which round where they are. Numbers are no factors:
    they cost nothing where they are.
  }];
}

def SplitReductions : Pass<"split-reductions", "::mlir::ModuleOp"> {
  let summary = "cut reductions of many elements to few, so that threads share them";
  let description = [{
    A reduction of very many elements to few results gives threads nothing to share. It is cut in two:

        ReduceSum axes=[0,1] : 512x2048 -> scalar
        ->  Reshape 64x16384;  ReduceSum axes=[1] -> 64;  ReduceSum axes=[0] -> scalar

    The number of parts depends on the shape and the kind of device only, so the bits do not depend on the number of
    threads. Where parts do not end where rows do, elementwise operations of which only the reduction needs the result
    are done on the parts: a kernel has one loop nest, and what it cannot take in would stand in memory as large as x.

        ReduceSum (Mul x, x) : 25000x64 -> scalar
        ->  p = Reshape x, 64x25000;  ReduceSum (Mul p, p), axes=[1] -> 64;  ...

    On a GPU the sum of x, that of x - b, and that of its squares, where b is one number a column, are made in one pass
    over x: of a batch norm the mean and the variance. Each part is summed up less its first element.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "so that some hundreds of blocks share them">];
}

def SplitSums : Pass<"split-sums", "::mlir::ModuleOp"> {
  let summary = "make trees of sums of more tensors than a kernel has buffers";
  let description = [{
    A sum of more tensors than a kernel has buffers becomes a tree of sums. So no kernel grows with the number of
    parameters, whose squares the gradients' norm adds up.

        Sum of 1000 tensors  ->  38 Sums of 26 or 27 each;  2 Sums of 19 of these;  a Sum of the two

    The tree depends on the number of terms only, so the bits do not depend on threads or devices.
  }];
}

def RematerializeCheap : Pass<"rematerialize-cheap", "::mlir::ModuleOp"> {
  let summary = "compute cheap forward values again where the backward phase needs them";
  let description = [{
    A forward value that only backward elementwise ops need is computed again there, if that keeps no more bytes alive
    than the value itself: a dropout mask from its counter, gelu's erf from its input, a layer norm's (x - mean) * rstd
    from x.

        forward   %e = Erf %x                 (16 MB kept until backward)
        backward  %g = Mul %dy, %e      ->    backward  %e2 = Erf %x;  %g = Mul %dy, %e2    (%x is kept for others)

    The sum of a residual stream is not made again: the next layer reads it, so it stands in memory anyway, and the two
    tensors that it was made from would have to be kept and read in its place. Nor where they are there, as narrow
    results of products are: the sum before it would be made again in turn, and so a kernel read all layers' before it.

    A wider copy of a value is made again whatever its size: what it was made from takes less in its place.

    Every backward user gets a clone for itself, so that it joins the user's kernel; FormClusters merges equal ones.

    Recomputed work in the backward pass (place.at: `recomputed`) stands to its gradients as the forward pass does: a
    segment's kernels leave what its products made, and their gradients' kernels make the rest once more.

    Before a pipelined step is cut, operations have stages (place.at: `stage`): what a stage made it makes again from
    what it keeps itself, and other stages' values are what they are.
  }];
}

def SelectHalves : Pass<"select-halves", "::mlir::ModuleOp"> {
  let summary = "two halves side by side are selected from, in their readers' kernels";
  let description = [{
    Two halves side by side become a selection, which kernels hold. A rotary embedding turns them so:

        %a = onnx.Slice %x [.., 8:16]     %n = onnx.Neg %a     %b = onnx.Slice %x [.., 0:8]
        %r = onnx.Concat %n, %b                    of 4x8 and 4x8: 4x16
        ->
        %s = onnx.Where (onnx.Iota dim 1 == 0), (onnx.Broadcast %n), (onnx.Broadcast %b)     4x2x8
        %r = onnx.Reshape %s                                                                 4x16

    Every element of the result reads both halves, which lie side by side in the cache; a Concat copies each half by
    itself, and what it joins stands in memory before. Slices of the halves are taken of what stands in memory: they
    move in front of cheap arithmetic and transposes, which are done for the part alone.
  }];
}

def AddInPlace : Pass<"add-in-place", "::mlir::ModuleOp"> {
  let summary = "products add to sums where they lie";
  let description = [{
    The gradient of a weight is added to those of earlier microbatches by the product that makes it.

        %g = onnx.Contract %x, %dy                 %s = onnx.read @sum
        %s = onnx.read @sum                        %n = plan.contract %x, %dy sum %s
        %n = onnx.Add %s, %g                 ->    onnx.write @sum, %n
        onnx.write @sum, %n

    The gradient never stands in memory by itself, and no kernel reads and writes the sum. PlanMemory lays %n where @sum
    lies: nothing else may read or write @sum in the function. So are terms of one gradient added up, of a weight that
    several products read:

        onnx.Add (onnx.Contract %x0, %dy0), (onnx.Contract %x1, %dy1)
        ->  plan.contract %x1, %dy1 sum (onnx.Contract %x0, %dy0)
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def FormClusters : Pass<"form-clusters", "::mlir::ModuleOp"> {
  let summary = "outline clusters of elementwise ops and reductions to kernels";
  let description = [{
    Groups elementwise ops, reductions and the views between them (cluster_graph.h), outlines every group to a
    plan.kernel and puts a plan.launch in its place. Equal kernels are made once; an elementwise kernel whose tensors
    all have the same elements in the same order is made for any size.

        %b = onnx.Broadcast %bias ...                 plan.kernel @k0_add_gelu(%0: tensor<1024x2048xf32>, ...) { ... }
        %s = onnx.Add %x, %b                 ->       ...
        %y = onnx.Relu %s                             %y = plan.launch @k0_add_relu(%x, %bias) ...

    extent, grain and inplace are filled in by ScheduleKernels.
  }];
  let dependentDialects = ["::cleave::onnx::OnnxDialect", "::cleave::plan::PlanDialect"];
}

def RecordOperations : Pass<"record-operations", "::mlir::ModuleOp"> {
  let summary = "keep on each kernel what it computes";
  let description = [{
    A kernel's core ops, which become loops, are kept beside it as the plan carries them. What proves that a plan
    computes what its model does reads them there.

        plan.kernel @k0_add(...) { %2 = onnx.Add %0, %1 ... }
        ->   plan.kernel @k0_add(...) { ... } {plan.operations = "..."}
  }];
}

def LowerKernelsToLinalg : Pass<"lower-kernels-to-linalg", "::mlir::ModuleOp"> {
  let summary = "express the core ops of each kernel as linalg.generic";
  let description = [{
    The core ops of every plan.kernel become linalg.generic over the kernel's factors, the form from which code for
    every kind of device is made.

        %m = onnx.ReduceMax %x {axes = [1]} : (tensor<128x64xf32>) -> tensor<128xf32>
        ->
        %flat = tensor.collapse_shape %x ... into tensor<8192xf32>
        %0 = linalg.generic {(d0, d1) -> (d0 * 64 + d1)} ins(%flat) outs(tensor<128x64xf32>)      plan.loops = [0, 1]
        %1 = linalg.generic {parallel, reduction} ins(%0) outs(%init : tensor<128xf32>)            plan.loops = [0, 1]
        %2 = linalg.generic {(d0) -> (d0)} ins(%1) outs(tensor<128xf32>); yield its expand_shape   plan.loops = [0]

    Every value inside has one dimension for each factor it depends on; `plan.loops` says which factor a loop of the
    generic is, `plan.domain` and `plan.reduced` on the kernel give the factors' sizes and those that are reduced.
    Constants become scalars, views disappear into the maps.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def ScheduleKernels : Pass<"schedule-kernels", "::mlir::ModuleOp"> {
  let summary = "choose each kernel's loops; write extent, grain, inplace on launches";
  let description = [{
    Writes on every launch what its kernel's schedule says: the range's extent and grain, and which inputs may share a
    buffer with a result.
  }];
  let options = [
    Option<"gpu", "gpu", "bool", "false", "blocks of a grid of GPU threads instead of ranges for threads">
  ];
}

def LowerLibraryOps : Pass<"lower-library-ops", "::mlir::ModuleOp"> {
  let summary = "core ops outside kernels become plan commands";
  let description = [{
    Core ops that no kernel took become library commands, copies, fills and views.

        %y = onnx.Gather %table, %i {axis = 0}     -> plan.gather {outer = 1, rows = 100, inner = 64, ...}
        %t = onnx.Transpose %x {perm = [1, 0]}     -> read through strides by its users, else plan.copy
        %r = onnx.Reshape %x                       -> plan.view, no code
        onnx.write @p, %v                          -> plan.store %v, @p
        return %loss {onnx.name = "loss"}          -> plan.check_finite %loss

    First the ops that do arithmetic, front to back: they read through movement ops. Then what is left of the movement
    ops, back to front, so that a chain of them is one copy.
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def LowerCollectives : Pass<"lower-collectives", "::mlir::ModuleOp"> {
  let summary = "dist collectives become plan.collective";
  let description = [{
    Dist collectives become plan.collective with their position in the order of their group.

        %y = dist.all_reduce %g {axes = ["dp"], reduce = #dist.reduction<sum>}
        %y = plan.collective %g {op = #dist.collective<all_reduce>, axes = ["dp"], dims = [-1], ..., sequence = 0}

        dist.send %y {to = 1, tag = 3}   ->  plan.send %y {peer = the device with pp coordinate 1, tag = 3}

    The sequence follows the order of the list; ScheduleCommands numbers anew when it moves them. A collective between
    pipeline ranks brings along the number (`dist.order`) that orders it among those and the transfers.
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def CopyKeptValues : Pass<"copy-kept-values", "::mlir::ModuleOp"> {
  let summary = "kept values get buffers of their own";
  let description = [{
    Values that a stage keeps for a later function of the same microbatch get buffers of their own, which PlanMemory
    puts in the slot. A kept value that is a view of another, a persistent tensor or kept twice is copied.

        func @forward.0(...) -> (tensor<4x16xf32> {place.kept = 3})
          %v = plan.view %y           %c = plan.copy %v
          return %v               ->  return %c
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def OffloadState : Pass<"offload-state", "::mlir::ModuleOp"> {
  let summary = "optimizer state in the host's memory, with copies to and fro";
  let description = [{
    Optimizer state lies in the host's memory, and what needs it gets copies (`plan.offload` of the module has
    "optimizer").

        %m = onnx.read @exp_avg                         %m = onnx.read @exp_avg           lies in the host's memory
                                                        %f = plan.copy %m {plan.link = "fetch"}
        %w1, %m1 = plan.launch @adam(%w, %g, %m)   ->   %w1, %m1 = plan.launch @adam(%w, %g, %f)
                                                        %e = plan.copy %m1 {plan.link = "evict"}
        plan.store %m1, @exp_avg                        plan.store %e, @exp_avg           the copy writes it there

    ScheduleCommands puts the copies on streams of their own and lets fetches run ahead. A parameter's state that is
    smaller than a page stays on the device: it would be all latency.
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def OffloadActivations : Pass<"offload-activations", "::mlir::ModuleOp"> {
  let summary = "what is kept for the backward pass in the host's memory";
  let description = [{
    Values that the forward pass keeps for the backward pass lie in the host's memory in between (`plan.offload` of the
    module has "activations").

        %a = plan.launch @gelu ...                    %a = plan.launch @gelu ...
                                                      %h = plan.copy %a {plan.link = "evict"}    in the host's memory
        ... the rest of the forward pass ...     ->   ...
                                                      %b = plan.copy %h {plan.link = "fetch"}
        %g = plan.contract %a, %dy                    %g = plan.contract %b, %dy

    Between a pipeline stage's functions it lies in slots: then in those that the host has, one a microbatch in flight.

        @forward.0 returns %a {place.kept = 3}   ->   %h = plan.copy %a {plan.link = "evict"}, returns it instead
        @backward.0(%a {place.kept = 3})         ->   %b = plan.copy %a {plan.link = "fetch"} before its first use

    Only values that are small beside all of them, or wanted again soon after their last use, stay: near the loss there
    is no time to bring them away and back.
  }];
  let dependentDialects = ["::cleave::plan::PlanDialect"];
}

def ScheduleCommands : Pass<"schedule-commands", "::mlir::ModuleOp"> {
  let summary = "order of the commands, streams and events";
  let description = [{
    Sets the order of the list, streams and events.

    Compute keeps its program order, except that

    - a command that reads only persistent tensors, inputs and constants waits until its first consumer;
    - products that are nothing but terms of a sum are added as soon as the last one is there;
    - updates run as soon as their gradient is there and nobody reads the old parameter or state any more, so that
      gradients need not all live at once, and of what several become ready together one goes to its end before the next
      one begins: what it makes on its way is there once; where they wait for a number of several parameters nothing of
      them comes before it; an update of a reduced gradient waits for the next collective to start, so that compute does
      not stall; gradients of what was kept (half of a backward pass) are made where they are added, each after the one
      before is;
    - stores stand at the end, but for those that put one persistent tensor into another, which nobody reads: they stand
      at the start, so that the first may then be changed in place.

    Streams are the lanes of runtime/plan/routine.h: collectives go to stream 1, on GPUs to one of their mesh axis,
    right after their operands are there. Their results may be wanted much later, while their operands have to stay
    anyway (a gather of a saved value for the backward pass, the turns of a ring): gathers and shifts are issued one
    turn ahead of their place in the program, those of parameters (ZeRO-3) one block of gathers. Between pipeline
    stages: receives stand at the start, on stream 2; sends go to stream 1 as collectives do. Sends and collectives over
    "pp" follow one sequence that all ranks know (their tags and sequence numbers), and so does, between updates, what
    waits for a receive: their members run different programs. Copies from the host's memory go to stream 3, those to it
    to stream 4: in buckets of about equal bytes, of which two are on the device at a time. A bucket is fetched while
    the one before it is used, after what is before that has left.

        %y = plan.contract ... {plan.record = 1}
        %g = plan.collective %y ... {plan.stream = 1, plan.wait = [1], plan.record = 2}
        %z = plan.launch ...                       overlaps the collective
        %u = plan.launch @sgd(%p, %g) {plan.wait = [2]}
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "the collectives of each mesh axis have a stream of their own">];
}

def PlanMemory : Pass<"plan-memory", "::mlir::ModuleOp"> {
  let summary = "byte offsets of all values in the arena";
  let description = [{
    Every value gets a byte offset in the device's arena.

        persistent: parameters, statistics, accumulators, optimizer state, host scalars, constants | slots | scratch

    One arena a program. Slots (slot_layout.h) hold what passes between a pipeline stage's fragments. The scratch part
    is shared by all fragments of the program, each of which is laid out by lifetimes (memory_plan.h). A stored value is
    written straight into its persistent tensor where nobody reads the old value later; a launch may write over an
    operand that dies there (its `inplace` pairs), a persistent tensor too where another value is stored in that only
    afterwards (a sum of gradients, of which zeros are stored at the step's end); a product is added to what lies where
    it is stored; parts of a concatenation are written where they end up. Where these lie in rows between those of other
    parts, their commands take strides (plan.rows), and the whole buffer is alive from the first part on: so it is done
    where it does not raise the peak.

        %u = plan.launch @sgd(%p, %g) {inplace = [0, 0], plan.offsets = [0]}       onnx.read @w has plan.offset = 0
        plan.store %u, @w {in_place}
  }];
}

def VerifyPlan : Pass<"verify-plan", "::mlir::ModuleOp"> {
  let summary = "no command finds other bytes than it should";
  let description = [{
    Checks the offsets by a means of its own: the arena's bytes are followed through the list, each range with the value
    it holds; a command must find the values it reads.

        %a at [0, 256), %b at [128, 384) while %a is still read:
        error: reads a value whose bytes 128..256 hold the result of 'plan.launch' by then

    A collective's operands must still be there when compute has waited for it, and its results count from its start. A
    part of a concatenation that lies in rows between those of others holds the concatenation's bytes from the first of
    them on: nothing else may lie there until it is read. Also: everything lies inside the arena, persistent tensors
    hold their own or their stored value at the end, the sequence of every group counts up, and no kernel has more
    buffers than it may.
  }];
}

def LowerKernelsToGpu : Pass<"lower-kernels-to-gpu", "::mlir::ModuleOp"> {
  let summary = "build a gpu.func for every kernel";
  let description = [{
    Leaves a gpu.module beside the plan.kernels, with one gpu.func each, for tests. A GPU's plan is built with the same
    code when its kernels are compiled.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect",
    "::mlir::scf::SCFDialect"
  ];
}
