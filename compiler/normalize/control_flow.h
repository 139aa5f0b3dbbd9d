// If, Loop and Scan, whose regions become nodes of the function around them.
//
//   %y = onnx.node "Loop"(%three, %true, %x) { ^(%i, %c, %a): ... yield %c2, %a2 }
//   ->   the body's nodes three times, on 0 and %x, on 1 and what the first gave, ...
#pragma once
#include "compiler/normalize/node.h"

namespace cleave::normalize {

inline bool isControlFlow(llvm::StringRef domain, llvm::StringRef op) {
  return domain.empty() && (op == "If" || op == "Loop" || op == "Scan");
}

// A Loop, some of whose iterations stand in front of it.
bool isBeingWrittenOut(onnx::NodeOp node);

// Puts the nodes that an If, a Loop or a Scan runs next in front of it. An If, a Scan (all of its steps at once), and a
// Loop that has come to its end is replaced by its results; any other Loop stays, with what its next iteration reads.
// Fails where that depends on data.
void expandControlFlow(Node &n);

} // namespace cleave::normalize
