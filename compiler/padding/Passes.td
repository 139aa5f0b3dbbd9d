// The pass of padding.
include "mlir/Pass/PassBase.td"

def PadDimensions : Pass<"pad-dimensions", "::mlir::ModuleOp"> {
  let summary = "make dimensions divide over the devices";
  let description = [{
    Dimensions whose size is no multiple of `multiple` get entries that count nothing, after the loss is attached and
    before the backward pass is built. All dimensions that the operations tie together are padded alike
    (dimension_classes.h): the parameters, everything computed from them, the inputs.

        onnx.param @"head" : tensor<61x48xf32>
        %x = Contract %h, read @"head"                 : tensor<7x13x61xf32>
        %m = ReduceMax %x {axes = [2]}
        becomes, with multiple = 4
        onnx.param @"head" : tensor<64x48xf32> {onnx.stored_shape = [61, 48]}
        %x = Contract %h, read @"head"                 : tensor<7x13x64xf32>
        %y = Where(Iota < 61, %x, lowest)
        %m = ReduceMax %y {axes = [2]}

    No result depends on a padded entry: where an operation reduces a padded dimension, the operand has the reduction's
    neutral element there (padding.h). So no gradient reaches a padded entry of a parameter either; it begins as zero,
    and optimizers that go element by element leave it so. The stored tensor never has it.

    Weights are parameters that a product reads. A dimension of neither stays as it is, and so does one if an operation
    needs it whole (a concatenation, a spatial dimension), if it counts samples, if it would grow by more than `most` of
    its size, or if it lies within a dimension of a parameter and not at its beginning.
  }];
  let dependentDialects = ["::cleave::onnx::OnnxDialect"];
  let options = [
    Option<"multiple", "multiple", "int64_t", "1", "what dimensions of weights become a multiple of">,
    Option<"multipleOfInputs", "multiple-of-inputs", "int64_t", "1", "what other dimensions of inputs become a multiple of">,
    Option<"most", "most", "double", "0.05", "by which part of its size a dimension may grow">
  ];
}
