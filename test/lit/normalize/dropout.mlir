// RUN: cleave-opt %s --normalize-nodes=dropout=0.25 --canonicalize | FileCheck %s
// RUN: cleave-opt %s --normalize-nodes --canonicalize | FileCheck %s --check-prefix=OFF

// CHECK: func.func @model(%{{.*}}: tensor<4xf32>, %[[KEY:.*]]: tensor<2xi64> {{.*}}onnx.host = "step"
// CHECK: %[[KEPT:.*]] = onnx.Constant dense<7.500000e-01>
// CHECK: %[[U:.*]] = onnx.RandomUniform %[[KEY]] {stream = 0 : i64
// CHECK: %[[L:.*]] = onnx.Less %[[U]], %[[KEPT]]
// CHECK: %[[F:.*]] = onnx.Where %[[L]]
// CHECK: onnx.Mul %arg0, %[[F]] {onnx.dropout}
// CHECK: onnx.RandomUniform %[[KEY]] {stream = 1 : i64
// OFF: func.func @model(%arg0: tensor<4xf32>) -> tensor<4xf32>
// OFF-NEXT: return %arg0
func.func @model(%x: tensor<4xf32>) -> tensor<*xf32> {
  %y:2 = onnx.node "Dropout"(%x) attributes {domain = "", version = 13 : i64, node_name = "drop", onnx_attributes = {}} : (tensor<4xf32>) -> (tensor<*xf32>, tensor<*xi1>)
  %z = onnx.node "Dropout"(%y#0) attributes {domain = "", version = 13 : i64, node_name = "drop2", onnx_attributes = {}} : (tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}
