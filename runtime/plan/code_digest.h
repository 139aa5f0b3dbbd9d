// A plan's code, what the plan says of it (Kernel, KernelBuffer) and the reference graph belong together: the verifier
// bounds launches by what is said, and the graph is interpreted as the compiler left it. A plan that says something
// else of the same code is refused.
//
// The digest keeps apart what was not made together. It is no proof of who made it: that is trust.h's.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <string>

namespace cleave::runtime {

// 32 bytes, of kernel_object, kernel_target, kernel_features, kernels, cuda and the reference graphs.
std::string codeDigest(const plan::Plan &plan);
// Error: the plan has kernels or a reference graph, and code_digest is not theirs.
Status verifyCode(const plan::Plan &plan);

} // namespace cleave::runtime
