// RUN: cleave-opt %s -split-input-file --attach-loss="recipe={loss: {kind: softmax_cross_entropy, ignore_index: -100}}" | FileCheck %s
// RUN: cleave-opt %s -split-input-file --attach-loss="recipe={loss: {kind: mse, reduction: sum, output: y}}" | FileCheck %s --check-prefix=MSE
// RUN: not cleave-opt %s -split-input-file --attach-loss="recipe={loss: {kind: mse, output: z}}" 2>&1 | FileCheck %s --check-prefix=BAD

// Labels become the last argument; the class is picked by comparing with an index, so that classes can be split.
// The model's own result is no longer one; what only it needed is erased.
// CHECK-LABEL: func.func @model(
// CHECK-SAME:    %[[X:.*]]: tensor<8x5xf32> {onnx.name = "x"}, %[[T:.*]]: tensor<8xi64> {onnx.label, onnx.name = "labels"})
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "loss_weight"})
// CHECK-NOT:     onnx.Abs
// CHECK:         %[[Y:.*]] = onnx.Neg %[[X]] {place.at = #place.at<phase = forward>}
// CHECK:         %[[INDEX:.*]] = onnx.Iota {{.*}}dim = 1 : i64, {{.*}}type = tensor<8x5xi64>
// CHECK:         %[[WIDE:.*]] = onnx.Broadcast %[[T]]
// CHECK:         %[[HIT:.*]] = onnx.Equal %[[WIDE]], %[[INDEX]]
// CHECK:         %[[MAX:.*]] = onnx.ReduceMax %[[Y]]
// CHECK:         %[[STOP:.*]] = onnx.StopGradient %[[MAX]]
// CHECK:         %[[LARGEST:.*]] = onnx.Broadcast %[[STOP]]
// CHECK:         %[[Z:.*]] = onnx.Sub %[[Y]], %[[LARGEST]]
// CHECK:         %[[E:.*]] = onnx.Exp %[[Z]]
// CHECK:         %[[S:.*]] = onnx.ReduceSum %[[E]] {axes = array<i64: 1>
// CHECK:         %[[LOG:.*]] = onnx.Log %[[S]]
// CHECK:         %[[WHERE:.*]] = onnx.Where %[[HIT]], %[[Z]]
// CHECK:         %[[PICKED:.*]] = onnx.ReduceSum %[[WHERE]] {axes = array<i64: 1>
// CHECK:         onnx.Sub %[[LOG]], %[[PICKED]]
// CHECK:         onnx.Constant{{.*}} dense<-100> : tensor<8xi64>
// CHECK:         %[[WEIGHT:.*]] = onnx.ReduceSum
// CHECK:         %[[SUM:.*]] = onnx.ReduceSum
// CHECK:         return %[[SUM]], %[[WEIGHT]]

// A plain sum has no weight.
// MSE-LABEL: func.func @model(
// MSE-SAME:    tensor<8x5xf32> {onnx.label, onnx.name = "labels"}) -> (tensor<f32> {onnx.name = "loss_sum"})

// BAD: loss mse: the model has no output 'z'; it has y
func.func @model(%x: tensor<8x5xf32> {onnx.name = "x"}) -> (tensor<8x5xf32> {onnx.name = "y"}) {
  %unused = onnx.Abs %x : (tensor<8x5xf32>) -> tensor<8x5xf32>
  %y = onnx.Neg %x : (tensor<8x5xf32>) -> tensor<8x5xf32>
  return %y : tensor<8x5xf32>
}
