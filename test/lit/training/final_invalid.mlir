// RUN: not cleave-opt %s --clip-gradients="recipe={loss: {kind: mse}, clip_norm: 1}" 2>&1 | FileCheck %s --check-prefix=CLIP
// RUN: not cleave-opt %s --skip-steps="recipe={loss: {kind: mse}, precision: fp16}" 2>&1 | FileCheck %s --check-prefix=SKIP

// CLIP: has no gradients; BuildBackward must run before
// SKIP: has no result grad_norm; ClipGradients must run before
func.func @final(%loss: tensor<f32>) -> (tensor<f32> {onnx.name = "loss"}) {
  return %loss : tensor<f32>
}
