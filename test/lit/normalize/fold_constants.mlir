// RUN: cleave-opt %s --fold-constants --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @model
func.func @model(%x: tensor<1024x1024xf32>) -> (tensor<2xi64>, tensor<1024x1024xf32>, tensor<1024x1024xi1>) {
  // CHECK-DAG: onnx.Constant dense<[4, 6]> : tensor<2xi64>
  %a = onnx.Constant dense<[2, 3]> : tensor<2xi64>
  %b = onnx.Add %a, %a : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
  // A splat stays a splat, whatever its size.
  // CHECK-DAG: onnx.Constant dense<6.000000e+00> : tensor<1024x1024xf32>
  %c = onnx.Constant dense<2.0> : tensor<1024x1024xf32>
  %d = onnx.Constant dense<3.0> : tensor<1024x1024xf32>
  %e = onnx.Mul %c, %d : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  // What would be large is left to the program.
  // CHECK-DAG: onnx.LessOrEqual
  %i = onnx.Iota {type = tensor<1024x1024xi64>, dim = 0 : i64} : () -> tensor<1024x1024xi64>
  %j = onnx.Iota {type = tensor<1024x1024xi64>, dim = 1 : i64} : () -> tensor<1024x1024xi64>
  %m = onnx.LessOrEqual %j, %i : (tensor<1024x1024xi64>, tensor<1024x1024xi64>) -> tensor<1024x1024xi1>
  return %b, %e, %m : tensor<2xi64>, tensor<1024x1024xf32>, tensor<1024x1024xi1>
}
