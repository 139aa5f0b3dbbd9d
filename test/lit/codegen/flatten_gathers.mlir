// RUN: cleave-opt --flatten-gathers --split-input-file %s | FileCheck %s

// Each of four entries looks up two of its eleven rows: two of 44, from where its own begin.
// CHECK-LABEL: func.func @gather
// CHECK:         %[[ROW:.*]] = onnx.Iota {dim = 0 : i64, place.at = #place.at<phase = forward>, type = tensor<4xi64>}
// CHECK:         %[[ELEVEN:.*]] = onnx.Constant {{.*}}dense<11> : tensor<4xi64>
// CHECK:         %[[FIRST:.*]] = onnx.Mul %[[ROW]], %[[ELEVEN]]
// CHECK:         %[[FIRSTS:.*]] = onnx.Broadcast %[[FIRST]]
// CHECK:         %[[AT:.*]] = onnx.Add %{{.*}}, %[[FIRSTS]]
// CHECK:         %[[ALL:.*]] = onnx.Reshape %arg0 {{.*}} -> tensor<44x3xf32>
// CHECK:         onnx.Gather %[[ALL]], %{{.*}} {axis = 0 : i64, place.at = #place.at<phase = forward>} : (tensor<44x3xf32>, tensor<8xi64>) -> tensor<8x3xf32>
func.func @gather(%table: tensor<4x11x3xf32>, %at: tensor<4x2xi64>) -> tensor<4x2x3xf32> {
  %y = onnx.Gather %table, %at {axis = 1 : i64, batch_dims = 1 : i64, place.at = #place.at<phase = forward>} : (tensor<4x11x3xf32>, tensor<4x2xi64>) -> tensor<4x2x3xf32>
  return %y : tensor<4x2x3xf32>
}

// -----

// CHECK-LABEL: func.func @scatter
// CHECK:         onnx.ScatterAdd %{{.*}} {axis = 0 : i64, rows = 44 : i64} : (tensor<8xi64>, tensor<8x3xf32>) -> tensor<44x3xf32>
func.func @scatter(%at: tensor<4x2xi64>, %updates: tensor<4x2x3xf32>) -> tensor<4x11x3xf32> {
  %y = onnx.ScatterAdd %at, %updates {axis = 1 : i64, batch_dims = 1 : i64, rows = 11 : i64} : (tensor<4x2xi64>, tensor<4x2x3xf32>) -> tensor<4x11x3xf32>
  return %y : tensor<4x11x3xf32>
}
