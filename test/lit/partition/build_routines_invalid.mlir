// RUN: not cleave-opt %s --build-routines="microbatches=2 schedule=1f2b" 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not cleave-opt %s --build-routines="microbatches=2 schedule=1f1b" 2>&1 | FileCheck %s --check-prefix=MISSING

// KIND: unknown schedule '1f2b'; there are gpipe, 1f1b
// MISSING: has no function @forward.0, which its routine runs
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  func.func @update.0(%x: tensor<4xf32>) { return }
}
