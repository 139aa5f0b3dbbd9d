// The passes of layout, in the order in which they run (compiler/driver/pass_list.cpp).
include "mlir/Pass/PassBase.td"

def ChooseChannelsLast : Pass<"choose-channels-last", "::mlir::ModuleOp"> {
  let summary = "mark operations whose tensors have their channels last";
  let description = [{
    Marks the operations whose tensors have their channels last: `onnx.compute_channels_last`.

    Tensors that operations without an order of their own connect (Relu, Add, Pad, pools ...) have one order together.
    With channels last they save what the library would move within each convolution, its activations once, and cost
    what is transposed where they meet operations that know channels first only:

        %y = onnx.Conv %x, %w          saves the bytes of %x and %y
        %r = onnx.Relu %y
        %f = onnx.Reshape %r           costs the bytes of %r

    A group of tensors has its channels last if that costs no more than it saves. Reductions, Broadcasts and constants
    take either order, and products read through transposes, so they cost nothing.
  }];
  let options = [
    Option<"convolutions", "of", "Convolutions", "Convolutions::Low", "convolutions that want it", [{
      ::llvm::cl::values(clEnumValN(Convolutions::Float, "float", "of every element type"),
                         clEnumValN(Convolutions::Low, "low", "of 16 bits"),
                         clEnumValN(Convolutions::Rounded, "rounded", "of 16 and of 32 bits"))}]>
  ];
}

def PlaceChannelsLast : Pass<"place-channels-last", "::mlir::ModuleOp"> {
  let summary = "marked operations compute with their channels last";
  let description = [{
    An operation that is marked computes with its channels last, between transposes.

        %y = onnx.ReduceSum %x {axes = [0, 2, 3]}      %xl = onnx.Transpose %x {perm = [0, 2, 3, 1]}
             {onnx.compute_channels_last}       ->     %y = onnx.ReduceSum %xl {axes = [0, 1, 2]}

        %y = onnx.Broadcast %b {dims = [1],            %yl = onnx.Broadcast %b {dims = [3], shape = [8, 32, 32, 64]}
             shape = [8, 64, 32, 32]}           ->     %y = onnx.Transpose %yl {perm = [0, 3, 1, 2]}

    With `weights` a convolution's weight has its input channels last, too (GPUs); oneDNN has an order of its own.
  }];
  let options = [Option<"weights", "weights", "bool", "true", "weights of convolutions, too">];
}

def ElideTransposes : Pass<"elide-transposes", "::mlir::ModuleOp"> {
  let summary = "transposes that undo each other go, equal ones are made once";
  let description = [{
    Transposes that undo each other go, and equal ones are made once.

        Transpose(Transpose(x, [0, 3, 1, 2]), [0, 2, 3, 1])   ->  x
        Transpose(x : 64x32x1x1, [0, 2, 3, 1])                ->  Reshape(x) : 64x1x1x32
        Reshape(Reshape(x))                                   ->  Reshape(x), or x if it has that shape

    A weight that is transposed for the forward pass is transposed again for the backward pass: the copy need not be
    kept between them, and of a pipeline's stage that would be one for every microbatch on its way.
  }];
}
