// RUN: cleave-opt %s -split-input-file --normalize-nodes | FileCheck %s

// A Loop whose iterations are known is written out: what is carried goes from one to the next, what each gives is
// stacked.
// CHECK-LABEL: func.func @model
// CHECK-SAME: (%[[X:.*]]: tensor<2xf32>)
// CHECK: %[[A:.*]] = onnx.Add %[[X]], %[[X]]
// CHECK: %[[B:.*]] = onnx.Add %[[A]], %[[X]]
// CHECK-NOT: onnx.Add
// CHECK-DAG: %[[R:.*]] = onnx.Reshape %[[A]]{{.*}}tensor<1x2xf32>
// CHECK-DAG: %[[S:.*]] = onnx.Reshape %[[B]]{{.*}}tensor<1x2xf32>
// CHECK: %[[ALL:.*]] = onnx.Concat %[[R]], %[[S]]
// CHECK: return %[[B]], %[[ALL]]
func.func @model(%x: tensor<2xf32>) -> (tensor<*xf32>, tensor<*xf32>) {
  %trips = onnx.Constant dense<2> : tensor<i64>
  %yes = onnx.Constant dense<true> : tensor<i1>
  %r:2 = onnx.node "Loop"(%trips, %yes, %x) attributes {domain = "", version = 20 : i64, node_name = "loop", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>, tensor<2xf32>) -> (tensor<*xf32>, tensor<*xf32>) {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %h: tensor<2xf32>):
    %n = onnx.node "Add"(%h, %x) attributes {domain = "", version = 20 : i64, node_name = "add", onnx_attributes = {}} : (tensor<2xf32>, tensor<2xf32>) -> tensor<*xf32>
    onnx.node "yield"(%c, %n, %n) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<i1>, tensor<*xf32>, tensor<*xf32>) -> ()
  }
  return %r#0, %r#1 : tensor<*xf32>, tensor<*xf32>
}

// -----
// Of sequences the elements stay. Parts of 2 of 5: the last is smaller.
// CHECK-LABEL: func.func @model
// CHECK: %[[LAST:.*]] = onnx.Slice %{{.*}} {{.*}} : (tensor<5xf32>) -> tensor<1xf32>
// CHECK: %[[BOTH:.*]] = onnx.Concat %[[LAST]], %[[LAST]]
// CHECK: return %[[BOTH]]
func.func @model(%x: tensor<5xf32>) -> tensor<*xf32> {
  %two = onnx.Constant dense<2> : tensor<i64>
  %minus = onnx.Constant dense<-1> : tensor<i64>
  %parts = onnx.node "SplitToSequence"(%x, %two) attributes {domain = "", version = 20 : i64, node_name = "split", onnx_attributes = {}} : (tensor<5xf32>, tensor<i64>) -> tensor<*xf32>
  %last = onnx.node "SequenceAt"(%parts, %minus) attributes {domain = "", version = 20 : i64, node_name = "at", onnx_attributes = {}} : (tensor<*xf32>, tensor<i64>) -> tensor<*xf32>
  %none = onnx.node "SequenceEmpty"() attributes {domain = "", version = 20 : i64, node_name = "empty", onnx_attributes = {}} : () -> tensor<*xf32>
  %one = onnx.node "SequenceInsert"(%none, %last) attributes {domain = "", version = 20 : i64, node_name = "insert", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %same = onnx.node "Identity"(%one) attributes {domain = "", version = 14 : i64, node_name = "same", onnx_attributes = {}} : (tensor<*xf32>) -> tensor<*xf32>
  %more = onnx.node "SequenceInsert"(%same, %last) attributes {domain = "", version = 20 : i64, node_name = "insert", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %r = onnx.node "ConcatFromSequence"(%more) attributes {domain = "", version = 20 : i64, node_name = "concat", onnx_attributes = {axis = 0 : i64}} : (tensor<*xf32>) -> tensor<*xf32>
  return %r : tensor<*xf32>
}

// -----
// TorchScript writes `while` as a Loop of the largest trip count, which the condition ends: here after two iterations.
// CHECK-LABEL: func.func @model
// CHECK-SAME: (%[[X:.*]]: tensor<2xf32>)
// CHECK: %[[A:.*]] = onnx.Add %[[X]], %[[X]]
// CHECK: %[[B:.*]] = onnx.Add %[[A]], %[[X]]
// CHECK-NOT: onnx.Add
// CHECK: return %[[B]]
func.func @model(%x: tensor<2xf32>) -> tensor<*xf32> {
  %trips = onnx.Constant dense<9223372036854775807> : tensor<i64>
  %yes = onnx.Constant dense<true> : tensor<i1>
  %one = onnx.Constant dense<1> : tensor<i64>
  %r = onnx.node "Loop"(%trips, %yes, %x) attributes {domain = "", version = 20 : i64, node_name = "loop", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>, tensor<2xf32>) -> tensor<*xf32> {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %h: tensor<2xf32>):
    %n = onnx.node "Add"(%h, %x) attributes {domain = "", version = 20 : i64, node_name = "add", onnx_attributes = {}} : (tensor<2xf32>, tensor<2xf32>) -> tensor<*xf32>
    %again = onnx.node "Less"(%i, %one) attributes {domain = "", version = 20 : i64, node_name = "less", onnx_attributes = {}} : (tensor<i64>, tensor<i64>) -> tensor<*xi1>
    onnx.node "yield"(%again, %n) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<*xi1>, tensor<*xf32>) -> ()
  }
  return %r : tensor<*xf32>
}

// -----
// A Loop that does not run gives what it is given.
// CHECK-LABEL: func.func @model
// CHECK-SAME: (%[[X:.*]]: tensor<2xf32>)
// CHECK-NOT: onnx.Add
// CHECK: return %[[X]]
func.func @model(%x: tensor<2xf32>) -> tensor<*xf32> {
  %trips = onnx.Constant dense<0> : tensor<i64>
  %yes = onnx.Constant dense<true> : tensor<i1>
  %r = onnx.node "Loop"(%trips, %yes, %x) attributes {domain = "", version = 20 : i64, node_name = "loop", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>, tensor<2xf32>) -> tensor<*xf32> {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %h: tensor<2xf32>):
    %n = onnx.node "Add"(%h, %x) attributes {domain = "", version = 20 : i64, node_name = "add", onnx_attributes = {}} : (tensor<2xf32>, tensor<2xf32>) -> tensor<*xf32>
    onnx.node "yield"(%c, %n) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<i1>, tensor<*xf32>) -> ()
  }
  return %r : tensor<*xf32>
}

// -----
// What many iterations give is stacked in their order, a block of them at a time.
// CHECK-LABEL: func.func @model
// CHECK: onnx.Constant dense<[0, 510, 512, 1022, 1024, 1198]>
// CHECK: return
func.func @model() -> tensor<*xi64> {
  %trips = onnx.Constant dense<600> : tensor<i64>
  %yes = onnx.Constant dense<true> : tensor<i1>
  %at = onnx.Constant dense<[0, 255, 256, 511, 512, 599]> : tensor<6xi64>
  %all = onnx.node "Loop"(%trips, %yes) attributes {domain = "", version = 20 : i64, node_name = "loop", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>) -> tensor<*xi64> {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>):
    onnx.node "yield"(%c, %i) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<i1>, tensor<i64>) -> ()
  }
  %shifted = onnx.node "Add"(%all, %all) attributes {domain = "", version = 14 : i64, node_name = "twice", onnx_attributes = {}} : (tensor<*xi64>, tensor<*xi64>) -> tensor<*xi64>
  %r = onnx.node "Gather"(%shifted, %at) attributes {domain = "", version = 13 : i64, node_name = "some", onnx_attributes = {}} : (tensor<*xi64>, tensor<6xi64>) -> tensor<*xi64>
  return %r : tensor<*xi64>
}
