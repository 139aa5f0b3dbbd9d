// RUN: cleave-opt %s --bind-dimensions=dims=batch:8,x.1:5 | FileCheck %s
// RUN: not cleave-opt %s --bind-dimensions=dims=batch:8 2>&1 | FileCheck %s --check-prefix=UNBOUND
// RUN: not cleave-opt %s --bind-dimensions=dims=batch:0,x.1:5 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: not cleave-opt %s --bind-dimensions=dims=batch:8,x.1:5,sequence:3 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: func.func @model(%{{.*}}: tensor<8x5x20xf32>
// CHECK-SAME: %{{.*}}: tensor<8xi64>
// UNBOUND: symbolic dimensions without a size: 'x.1'; give them in the recipe's `dims`
// UNKNOWN: `dims` names 'sequence', which no input has; they have 'batch', 'x.1'
// BAD: dimensions must be positive: 'batch'
func.func @model(%x: tensor<?x?x20xf32> {onnx.name = "x", onnx.dims = ["batch", "x.1", ""]},
                 %y: tensor<?xi64> {onnx.name = "y", onnx.dims = ["batch"]}) {
  return
}
