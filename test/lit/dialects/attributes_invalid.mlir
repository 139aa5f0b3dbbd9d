// RUN: cleave-opt %s --split-input-file --verify-diagnostics
// Each dialect knows its discardable attributes: what is misspelled, of another type or at another place is an error.

func.func @misspelled(%x: tensor<4xf32>) {
  // expected-error @+1 {{has an unknown attribute 'place.stagee'}}
  %y = onnx.Neg %x {place.stagee = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @type(%x: tensor<4xf32>) {
  // expected-error @+1 {{'place.at' is of another type: "forward"}}
  %y = onnx.Neg %x {place.at = "forward"} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @where(%x: tensor<4xf32>) {
  // expected-error @+1 {{'place.program' stands on a function only}}
  %y = onnx.Neg %x {place.program = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @stage(%x: tensor<4xf32>) {
  // expected-error @+1 {{stage -1 is negative}}
  %y = onnx.Neg %x {place.at = #place.at<stage = -1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @recompute(%x: tensor<4xf32>) {
  // expected-error @+1 {{recompute needs a segment}}
  %y = onnx.Neg %x {place.at = #place.at<phase = forward, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @recomputed(%x: tensor<4xf32>) {
  // expected-error @+1 {{recomputed is for the backward phase}}
  %y = onnx.Neg %x {place.at = #place.at<phase = forward, recomputed = 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{has an unknown attribute 'place.keep'}}
func.func @argument(%x: tensor<4xf32> {place.keep = 1 : i64}) {
  return
}

// -----

// expected-error @+1 {{'onnx.name' is of another type: 3 : i64}}
func.func @result(%x: tensor<4xf32>) -> (tensor<4xf32> {onnx.name = 3 : i64}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{has an unknown attribute 'onnx.opsett'}}
module attributes {onnx.opsett = 20 : i64} {
}

// -----

// expected-error @+1 {{bad mesh: }}
module attributes {dist.mesh = #dist.mesh<"dp=2,dp=2">} {
}

// -----

func.func @factors(%x: tensor<4xf32>) {
  // expected-error @+1 {{'dist.factors' is of another type}}
  %y = onnx.Neg %x {dist.factors = [["dp"]]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @commands(%x: tensor<4xf32>) {
  // expected-error @+1 {{has an unknown attribute 'plan.straem'}}
  %y = onnx.Neg %x {plan.straem = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
