// The passes of the training phase, in the order in which they run (compiler/driver/pass_list.cpp).
include "mlir/Pass/PassBase.td"

defvar recipeOption = Option<"recipe", "recipe", "::cleave::recipe::Recipe", "", "the recipe, as YAML text">;
defvar microbatchesOption = Option<"microbatches", "microbatches", "int64_t", "1", "microbatches of a step">;
defvar pipelineOption = Option<"pipeline", "pipeline", "bool", "false", "to be cut in stages">;

def InitializeParameters : Pass<"initialize-parameters", "::mlir::ModuleOp"> {
  let summary = "give parameters the recipe's initial distributions";
  let description = [{
    The weights become what the recipe's `init` says; this runs before the normalize phase. With `from_model` they stay
    as the model's files have them, but for those that a rule names; otherwise every parameter gets a constant (`fill`)
    or a distribution (`init`) of the first rule that fits, drawn later by the counter-based generator: element i of a
    parameter is a function of seed, parameter and i only. Running statistics of weights made anew begin as in PyTorch:
    at mean 0, variance 1.

        init: {kind: normal, std: 0.02, rules: [{match: "*.bias", kind: zeros} ]}
        onnx.param @"fc.bias" ... {fill = 0.0}
        onnx.param @"fc.weight" ... {init = {kind = "normal", mean = 0.0, ...}}
  }];
  let options = [recipeOption];
}

def AddAdapters : Pass<"add-adapters", "::mlir::ModuleOp"> {
  let summary = "put the recipe's low-rank adapters beside weights";
  let description = [{
    Every product with a weight that the recipe's `lora` names gets a low-rank adapter beside it; this runs before the
    normalize phase. The adapters train; everything else is frozen, but for what the recipe's `trainable` names.

        %y = MatMul(%x, read @"q.weight")
        becomes
        %y = MatMul(%x, read @"q.weight")
        %d = Dropout(%x)                                  only with a `dropout`
        %z = Add(%y, Mul(MatMul(MatMul(%d, read @"q.lora_A.weight"), read @"q.lora_B.weight"), alpha / rank))

    A begins uniform in +-1/sqrt(in) (kaiming_uniform with a = sqrt(5)), B with zeros.
  }];
  let options = [recipeOption];
}

def AttachLoss : Pass<"attach-loss", "::mlir::ModuleOp"> {
  let summary = "make the loss of the recipe the model's result";
  let description = [{
    @model's results become the loss (sum and weight); labels become its last arguments. With several losses "loss_sum"
    is their sum, each divided by its weight, and each is a result of its own: "loss.NAME". With `empty-places` losses
    over elements ignore a label, too (losses.h, emptyLabel): a batch may have fewer samples than places.
  }];
  let dependentDialects = ["::cleave::onnx::OnnxDialect"];
  let options = [
    recipeOption,
    microbatchesOption,
    ListOption<"lossOfBatch", "loss-of-batch", "double", "onnx.loss_terms of the whole batch">,
    Option<"emptyPlaces", "empty-places", "bool", "false", "losses over elements ignore a label">
  ];
}

def NameOperations : Pass<"name-operations", "::mlir::ModuleOp"> {
  let summary = "name the forward operations for the decision";
  let description = [{
    Every forward operation gets the name that a decision knows (`place.node`, node_names.h); the module lists them all
    (`place.nodes`).
  }];
}

def BuildEvaluate : Pass<"build-evaluate", "::mlir::ModuleOp"> {
  let summary = "clone the model and its loss as they are outside training";
  let description = [{
    @evaluate is @model with its loss as it behaves outside training. By the markers of the normalize phase
    (normalize.h) a dropout becomes its first operand and a batch statistic the running one; nothing is written. The
    markers are then gone. The recipe's metrics leave @model for @evaluate.
  }];
}

def BuildCount : Pass<"build-count", "::mlir::ModuleOp"> {
  let summary = "add up ahead what the loss counts of the whole batch";
  let description = [{
    Whatever the loss counts of the whole batch is added up before its microbatches are run.

        @model   result "accumulator.loss_count.0" = ReduceSum(%mask)
             ->  @count  writes @accumulator.loss_count.0 = onnx.read @accumulator.loss_count.0 + ReduceSum(%mask)

    A step runs @count for every microbatch, then @accumulate and @final, which read the sums; @final zeroes them
    (AccumulateGradients). @evaluate knows one microbatch only, and takes M times what that one has.
  }];
  let options = [microbatchesOption];
}

def ScaleLoss : Pass<"scale-loss", "::mlir::ModuleOp"> {
  let summary = "differentiate a multiple of the loss, for fp16";
  let description = [{
    In fp16 the loss that is differentiated is "loss_scale" times the loss: small gradients of activations stay above
    the smallest number of fp16 (Micikevicius et al.: Mixed Precision Training, 2018). The loss that is reported stays
    itself.

        %l = loss_sum          ->   %s = onnx.read @loss_scale;  result "scaled_loss" = %l * %s, for BuildBackward

    A mean whose weight is known only when all microbatches are done is differentiated as a sum (AccumulateGradients
    divides): it is scaled by the number of labels, too, so that the scale means the same whatever the microbatches. The
    module attribute onnx.loss_factor tells UnscaleGradients.

    The scale is a persistent tensor, as are the finite steps since it last changed and the steps that were skipped:
    loss_scale (the recipe's `init`), loss_scale.good_steps, loss_scale.skipped. SkipSteps changes them.
  }];
  let options = [recipeOption, microbatchesOption, pipelineOption];
}

def BuildBackward : Pass<"build-backward", "::mlir::ModuleOp"> {
  let summary = "append the gradients of all trained parameters";
  let description = [{
    Appends the derivative of the loss with respect to every trained parameter, by the gradient facet, in one walk from
    the last op to the first. Only values that depend on a trained parameter are differentiated.

        y = Tanh(x)          forward                    dx = Mul(dy, Sub(1, Mul(y, y)))     backward, at y's location

    For a pipeline forward ops are numbered (place.at: `origin`) and backward ops bear the number of the op they
    differentiate. For fp8 a product and those of its gradient bear one number (`place.product`).

    A parameter that the loss reads only through what is flat (Round, Floor) has the gradient 0, as in PyTorch.

    A value used several times has its contributions summed (onnx.Sum) when its producer is reached.
  }];
  let options = [
    microbatchesOption,
    pipelineOption,
    Option<"numberProducts", "number-products", "bool", "false", "give a product and those of its gradient one number">
  ];
}

def QuantizeProducts : Pass<"quantize-products", "::mlir::ModuleOp"> {
  let summary = "products of weights on floats of 8 bits, with scales";
  let description = [{
    In fp8 the products that multiply by a weight, and their gradients, are computed on 8 bits (Micikevicius et al.: FP8
    Formats for Deep Learning, 2022; as Transformer Engine and torchao do): inputs and weights in e4m3, gradients in
    e5m2, each tensor with one scale.

        %y = onnx.Contract %x, %w      ->   %qx = onnx.Cast (%x * %sx) {to = f8E4M3FN}      saturates
                                            %qw = onnx.Cast (bf16(%w) * %sw) {to = f8E4M3FN}
                                            %r = onnx.Contract %qx, %qw : (f8E4M3FN, f8E4M3FN) -> bf16
                                            %y = f32(%r) * (1 / %sx * 1 / %sw)
        %dx = onnx.Contract %dy, %w    ->   the same with %qdy in f8E5M2 and %qw
        %dw = onnx.Contract %x, %dy    ->   the same with %qx and %qdy, in f32

    With delayed scaling the scales are persistent (scales.h), and a function that is differentiated also gives each
    tensor's amax. All products of one weight share scales: the steps of a recurrence, the layers that a weight ties.
    With current scaling a scale is made of the tensor's own amax.

    A product and those of its gradient bear one number, `place.product` (BuildBackward).

    All other products stay for LowerPrecision: those of two activations (attention), and those by weights that are kept
    (weight_products.h). The module attribute onnx.fp8 says which.
  }];
  let options = [recipeOption];
}

def AccumulateGradients : Pass<"accumulate-gradients", "::mlir::ModuleOp"> {
  let summary = "make one step of one or more microbatches";
  let description = [{
    @model, the forward and backward of one microbatch, becomes the step of the whole batch.

        1 microbatch    (not of a pipeline) @final = @model, with the mean as "loss"
        M > 1           @accumulate adds gradients and loss to accumulators; @final does the last microbatch, adds what
                        was accumulated, divides by the weight of the whole batch, and zeroes the accumulators

    In fp8 the largest amax of the microbatches is accumulated (fp8/scales.h) and stays a result.

    A weight known in advance is in the backward's seed already (BuildBackward); one that depends on labels is
    accumulated. The counts made ahead (BuildCount) are zeroed, too.
  }];
  let options = [microbatchesOption, pipelineOption];
}

def UpdateScales : Pass<"update-scales", "::mlir::ModuleOp"> {
  let summary = "the scales of fp8 for the next step";
  let description = [{
    At the end of a step in fp8 with delayed scaling, the amax of each quantized tensor (of all microbatches, devices
    and products of the weight) takes the place of the oldest in its history, and its scale becomes that of the
    history's largest (scales.h). A largest that is no number, infinite or 0 leaves the scale as it is.

        results "fp8.amax.input/W" = %a, %b   ->   %h = onnx.read @"fp8.history.input/W", but for max(%a, %b) at
                                                        onnx.read @fp8.position
                                                   write @"fp8.history.input/W", %h
                                                   write @"fp8.scale.input/W", 448 / 2^margin / max(%h)

    An amax that is no number enters as 0: it says nothing of the next steps.
  }];
  let options = [recipeOption];
}

def UnscaleGradients : Pass<"unscale-gradients", "::mlir::ModuleOp"> {
  let summary = "divide the gradients by the loss scale";
  let description = [{
    In fp16 this undoes ScaleLoss in @final, before the gradients' norm is taken and they are clipped: every gradient is
    multiplied by 1 / loss_scale, in fp32. The scale is a power of two unless the recipe says otherwise, so nothing is
    rounded.
  }];
}

def FreezeRows : Pass<"freeze-rows", "::mlir::ModuleOp"> {
  let summary = "gradients of the rows that the recipe freezes are 0";
  let description = [{
    Rows that the recipe's `frozen_rows` names have the gradient 0, as nn.Embedding's padding_idx has it.

        frozen_rows: {"*embed.weight": [0]}      %g  ->  Where(row is 0, 0, %g), rows being entries of dimension 0
  }];
  let options = [recipeOption];
}

def ClipGradients : Pass<"clip-gradients", "::mlir::ModuleOp"> {
  let summary = "compute the gradient norm, and clip by it if the recipe says so";
  let description = [{
    `grad_norm` is the L2 norm of all gradients together (a tied parameter is one parameter); with clip_norm every
    gradient is scaled by min(1, clip_norm / (grad_norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does; with
    clip_value every element is clipped to it, as clip_grad_value_ does. A group of `clip_norms` is clipped by its own
    norm, and clip_norm is of all other gradients then. The groups of `grad_norms` have a norm of their own, before
    clipping: grad_norm.attention.
  }];
  let options = [recipeOption];
}

def ApplyOptimizer : Pass<"apply-optimizer", "::mlir::ModuleOp"> {
  let summary = "update parameters and optimizer state from the gradients";
  let description = [{
    Every gradient of @final updates its parameter and its optimizer state, which become onnx.param symbols named after
    rule and parameter ("exp_avg/blocks.0.mlp.0.weight"). Afterwards @final's results are loss and grad_norm.

    A parameter of 16 bits and its state stay so, as in PyTorch. The rule computes in fp32 and rounds what it writes, as
    PyTorch's fused optimizers do.
  }];
  let options = [recipeOption];
}

def AverageWeights : Pass<"average-weights", "::mlir::ModuleOp"> {
  let summary = "keep a moving average of the weights, and evaluate it";
  let description = [{
    With the recipe's `ema` every trained parameter has a moving average in fp32, "ema/NAME", which @evaluate reads in
    its place. After an update

        ema = decay ema + (1 - decay) parameter        in every `every`-th step

    It begins as the first weights, and the first average is the parameter itself, as in
    torch.optim.swa_utils.AveragedModel.
  }];
  let options = [recipeOption];
}

def SkipSteps : Pass<"skip-steps", "::mlir::ModuleOp"> {
  let summary = "no update where gradients overflowed or are unusual; adapt the loss scale";
  let description = [{
    A skipped step leaves parameters and optimizer state as they were. In fp16 a step is skipped when its gradients
    overflow, and the loss scale follows (torch.amp.GradScaler.update):

        finite    scale * growth after `interval` finite steps in a row, else the same
        overflow  scale * backoff, the step counts as skipped

    With the recipe's `skip_outliers` a step is skipped when its gradient norm is NaN or above `factor` times the
    running mean, except in the first `warmup` steps:

        mean = decay mean + (1 - decay) min(norm, factor mean)           in steps of a finite norm

    bias-corrected as in Adam. A norm that stays high becomes the usual one.

    The gradient norm is infinite or NaN when any element is, and every device has it, so all decide alike without
    communication. Results: loss_scale (fp16), which the next step uses, and skipped, the number of steps skipped so
    far.
  }];
  let options = [recipeOption];
}

def DelayWeights : Pass<"delay-weights", "::mlir::ModuleOp"> {
  let summary = "take gradients at the weights before the last update";
  let description = [{
    For schedules with two versions of the weights, gradients are taken at the weights before the last update, as
    PipeDream-2BW does with two versions of them (Narayanan et al. 2021, section 3.1, arXiv 2006.09503): W(t+1) = W(t) -
    lr g(W(t-1)), with W(-1) = W(0).

        @accumulate, @final   the forward and backward pass read @"previous/w" instead of @w
        @final                the update changes @w; what it was becomes @"previous/w"
        @evaluate             reads @w, the newest
  }];
}

def VerifyTraining : Pass<"verify-training", "::mlir::ModuleOp"> {
  let summary = "check the training step's functions, phases and writes";
  let description = [{
    Checks what every phase after training relies on. It stands at the end of the phase; a failure is a fault of Cleave,
    not of the model.
  }];
}

def LowerPrecision : Pass<"lower-precision", "::mlir::ModuleOp"> {
  let summary = "products on 16-bit elements, master weights in fp32";
  let description = [{
    The products of a training step are computed on 16-bit elements, everything else in fp32 (precision.md). It runs
    after the attention of a ring is written out (`expand-attention`).

        %y = onnx.Contract %x, %w : (f32, f32) -> f32        %xl = onnx.Cast %x {to = bf16}
                                                             %yl = onnx.Contract %xl, %w : (bf16, bf16) -> bf16
                                                             %y = onnx.Cast %yl {to = f32}

    Low are the operands and results of products: Contract, Conv, ConvGradInput, ConvGradWeight, and of attention where
    it is one op (ScaledAttention), but for its statistics. A Contract that is the gradient of a parameter gives its sum
    in fp32, so that gradients are added up, reduced and clipped in fp32; of a convolution's weight it is rounded before
    that, as in torch.amp: cuDNN has no engine that gives fp32 for 16 bits. Casts stand where they cost least: one a
    value, right after it is made (in the kernel that makes it); movement between a cast and a product moves 16 bits.

    A residual stream that torch.amp has in 16 bits (amp_types.h), as behind convolutions and batch norms, is rounded
    where a product, another sum or a batch norm reads it, and so is its gradient. Pools give their operand's type.

        %r = onnx.Relu (onnx.Add %n, %x)          %rl = onnx.Cast %r {to = bf16};  %rw = onnx.Cast %rl {to = f32}
        %c = onnx.Conv %r, %w                ->   %c = onnx.Conv %rl, %w
        %s = onnx.Add %m, %r                      %s = onnx.Add %m, %rw

    A parameter that products read is kept twice: low, for forward and backward pass, and in fp32 as an optimizer state
    "master/NAME", which the optimizer reads and updates; it is rounded once a step, when it is written. A version of it
    that is one update old (DelayWeights) is low only: it becomes what the low parameter was.

        onnx.param @w : tensor<64x64xbf16> "parameter"      onnx.param @"master/w" : tensor<64x64xf32> "optimizer_state"
        onnx.write @"master/w", %new                        onnx.write @w, (onnx.Cast %new {to = bf16})
  }];
  let options = [Option<"type", "type", "std::string", "\"bf16\"", "bf16 or f16">];
}
