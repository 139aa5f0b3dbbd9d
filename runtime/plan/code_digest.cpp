#include "runtime/plan/code_digest.h"
#include "runtime/base/digest.h"
#include <fmt/format.h>

namespace cleave::runtime {

std::string codeDigest(const plan::Plan &plan) {
  Digest digest;
  auto add = [&](const std::string &bytes) { digest.add(fmt::format("{} ", bytes.size())).add(bytes); };
  add(plan.kernel_object());
  add(plan.kernel_target());
  for (const std::string &feature : plan.kernel_features()) add(feature);
  for (const plan::Kernel &kernel : plan.kernels()) add(kernel.SerializeAsString());
  add(plan.cuda().SerializeAsString());
  add(plan.reference_graph());
  if (!plan.padded_graph().empty()) add(plan.padded_graph());
  for (const plan::StepShape &shape : plan.shapes()) add(shape.reference_graph());
  return digest.finish();
}

Status verifyCode(const plan::Plan &plan) {
  if ((plan.kernels().empty() && plan.reference_graph().empty()) || plan.code_digest() == codeDigest(plan))
    return Status::ok();
  return inputError(
      plan.code_digest().empty()
          ? "the plan does not say what its kernels reach, as those of older releases: compile it again"
          : "corrupt: what the plan says of its kernels, or its reference graph, does not belong to their code");
}

} // namespace cleave::runtime
