// The passes of the normalize phase, in the order in which they run (compiler/driver/pass_list.cpp).
include "mlir/Pass/PassBase.td"

def CheckNodes : Pass<"check-nodes", "::mlir::ModuleOp"> {
  let summary = "check attributes and operands of every ONNX node";
  let description = [{
    Every onnx.node is what ONNX says that such a node may be, as far as that can be told before dimensions are bound.
    All faults are in one report. Operators that nothing supports are `normalize-nodes`' to report.
  }];
}

def BindDimensions : Pass<"bind-dimensions", "::mlir::ModuleOp"> {
  let summary = "give symbolic dimensions their sizes";
  let description = [{
    Symbolic dimensions of @model's arguments become the numbers of the recipe.

        func.func @model(%x: tensor<?x20xf32> {onnx.dims = ["batch", ""]})
        with dims=batch:8
        func.func @model(%x: tensor<8x20xf32> {onnx.dims = ["batch", ""]})
  }];
  let options = [ListOption<"dims", "dims", "std::string", "sizes of symbolic dimensions: batch:8,seq:16">];
}

def NormalizeNodes : Pass<"normalize-nodes", "::mlir::ModuleOp"> {
  let summary = "rewrite every ONNX node into core ops";
  let description = [{
    Every onnx.node of @model becomes core ops, in order, by the rule of its operator (rules/) or by ONNX's function
    body. Shapes are static all along, and what depends on constants alone folds as it is built, so that a Reshape finds
    its shape known.

        %s = onnx.node "Shape"(%x) ...
        %r = onnx.node "Reshape"(%y, %s) ...
        becomes
        %r = onnx.Reshape %y {shape = [8, 64]}

    Unsupported operators are all listed in one error, with the nodes that use them.
  }];
  let options = [
    Option<"batchNorm", "batch-norm", "BatchNormMode", "BatchNormMode::AsExported", "statistics of batch norms", [{
      ::llvm::cl::values(clEnumValN(BatchNormMode::AsExported, "as_exported", "as the model was exported"),
                         clEnumValN(BatchNormMode::Training, "training", "those of the batch"),
                         clEnumValN(BatchNormMode::Frozen, "frozen", "the running ones"))}]>,
    Option<"dropout", "dropout", "double", "-1", "ratio of every dropout; negative: as exported">
  ];
}

def RecognizeDropout : Pass<"recognize-dropout", "::mlir::ModuleOp"> {
  let summary = "masks that are drawn and multiplied in become dropout";
  let description = [{
    A bit that a uniform number is compared with, or floor(p + u), and what is computed of it and of one other value x:
    where that is x / p with probability p, else 0, it is dropout of x, of elements, channels or whole samples. Alpha
    dropout keeps mean 0 and variance 1. The form is that of the operator Dropout, which evaluation replaces by x.

        %m = onnx.Cast (onnx.Less %u, 0.8) : tensor<8x16x1x1xf32>
        %y = onnx.Mul %x, (onnx.Broadcast (onnx.Div %m, 0.8))
        becomes
        %y = onnx.Mul %x, (onnx.Where %m, 1.25, 0) {onnx.dropout}

    A mask that is none of these is a doubt.
  }];
  let options = [Option<"dropout", "dropout", "double", "-1", "ratio of every dropout; negative: as exported">];
}

def ResizeBatch : Pass<"resize-batch", "::mlir::ModuleOp"> {
  let summary = "a model of a fixed batch for another number of samples";
  let description = [{
    A model that was exported for a fixed number of samples becomes the same model for another number: for a microbatch,
    or for the batch that the recipe asks for.

        from 8 samples to 2      %x: tensor<8x32xf32>  ->  tensor<2x32xf32>
                                 Reshape %y {shape = [256, 64]} of tensor<8x32x64xf32>  ->  {shape = [64, 64]}

    Where the samples lie in a value follows from where they lie in the inputs, op by op, by the factor rules
    (runtime/base/sharding/samples.h). What does not come from the inputs (a mask repeated for each sample) is made as
    the op needs it that meets it with what does. An op that needs all samples at once (a mean over them) has no form
    for fewer, since the number itself may be folded into its constants: it is refused.
  }];
  let options = [
    Option<"exported", "exported", "int64_t", "1", "samples that the model was exported for">,
    Option<"samples", "samples", "int64_t", "1", "samples that it is wanted for">
  ];
}

def PushReshapes : Pass<"push-reshapes", "::mlir::ModuleOp"> {
  let summary = "split the operands of a product instead of its result";
  let description = [{
    A Reshape that splits a dimension of a product's result splits the operands instead, up to the parameters, which
    become views of their initializers. What was one dimension (batch * sequence, or heads * width) is then several in
    the product itself, and each of them can be split over devices.

        %w = onnx.read @w : tensor<64x192xf32>
        %y = onnx.Contract %x, %w : -> tensor<8x32x192xf32>
        %z = onnx.Reshape %y {shape = [8, 32, 3, 4, 16]}
        becomes
        %w = onnx.read @w : tensor<64x3x4x16xf32>      @w has original_shape = [64, 192]
        %z = onnx.Contract %x, %w : -> tensor<8x32x3x4x16xf32>

    A split moves through elementwise ops, broadcasts, transposes, slices and products, as long as every path ends where
    it costs nothing: at a parameter, a constant, or another reshape that it undoes. Other users of a value that was
    split read it through a reshape back, which costs nothing either.
  }];
}

def FoldConstants : Pass<"fold-constants", "::mlir::ModuleOp"> {
  let summary = "evaluate core ops of constants, up to a size";
  let description = [{
    By the reference evaluator (constants.h); a large result that repeats a smaller one is a Broadcast of that.

        %a = onnx.Constant dense<[2, 3]> ; %b = onnx.Add %a, %a   ->   %b = onnx.Constant dense<[4, 6]>
  }];
}

def StackExperts : Pass<"stack-experts", "::mlir::ModuleOp"> {
  let summary = "experts that are modules of their own get stacked weights";
  let description = [{
    Experts that are modules of their own become one expert with stacked weights, as an einsum over all of them would
    have written it. A mixture of experts is a sum of branches of the same operations, which differ in their weights and
    in which part of the router's result they are multiplied with:

        %g0 = Slice %gate [0:1] ; %y0 = Contract %x, read @experts.0.w ; %s0 = Mul %g0, %y0
        %g1 = Slice %gate [1:2] ; %y1 = Contract %x, read @experts.1.w ; %s1 = Mul %g1, %y1
        %s = Add %s0, %s1
        becomes
        %y = Contract %x, read @experts.*.w ; %s = ReduceSum(Mul %gate, %y) over experts

    Their results may also be stacked (a concatenation of single entries) to be multiplied with the gate and summed
    after.

    The stacked parameter knows the tensors it is made of (attribute onnx.pieces: their onnx.param attributes, in
    order), and is initialized from them and exported as them. Branches that no choice tells apart (the sum of two
    projections) stay as they are: they are no experts, and nothing is gained by stacking them.
  }];
}

def ChooseExperts : Pass<"choose-experts", "::mlir::ModuleOp"> {
  let summary = "a sum over experts of which each row takes one is computed for that one";
  let description = [{
    A loop over experts, each of which takes the tokens that chose it, has become a sum over all experts of what each
    computes for every token, where the token has not chosen it 0. The one that is left is computed instead, with its
    weights looked up by the token's choice; conditions beside the choice (a capacity) stay.

        %y = onnx.Contract %x, %w [t,k] [e,k,n] -> [e,t,n]          w: weights of 8 experts
        %s = ReduceSum(Where(Equal(%chosen, 0..7), %y, 0)) over e
        becomes
        %v = onnx.Gather %w, %chosen ; %y = onnx.Contract %x, %v [t,k] [t,k,n] -> [t,n]
        %s = Where(Equal(%chosen, %chosen), %y, 0)

    A choice of no expert (-1, 8) stays 0. RaiseGroupedProducts makes grouped products of the lookups: it stands before
    that, for devices that have them.
  }];
  let dependentDialects = ["::cleave::onnx::OnnxDialect"];
}

def RaiseGroupedProducts : Pass<"raise-grouped-products", "::mlir::ModuleOp"> {
  let summary = "a product with looked-up matrices reads them where they lie";
  let description = [{
    Each token is multiplied by the weights of its experts. Exporters write a table lookup, which copies a matrix for
    each token, and a product in batches of one row.

        %w = onnx.Gather %experts, %chosen        : tensor<8x64x32xf32>, tensor<96xi64> -> tensor<96x64x32xf32>
        %y = onnx.Contract %w, %x [t,n,k] [t,k]   -> tensor<96x64xf32>
        becomes
        %y = onnx.GroupedContract %x, %experts, %chosen [t,k] [g,n,k] [t]

    It stands before the backward pass is built, whose products are grouped as well.
  }];
  let dependentDialects = ["::cleave::onnx::OnnxDialect"];
}

def VerifyCore : Pass<"verify-core", "::mlir::ModuleOp"> {
  let summary = "check that only core ops of static shape are left";
  let description = [{
    The border of the normalize phase: @model holds core ops, persistent reads and writes, and static shapes alone.
  }];
}
