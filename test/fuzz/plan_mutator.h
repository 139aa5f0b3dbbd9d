// Inputs that are plans: a plan.Plan message, to which the header of a plan file is added, so that its checksums are
// right; or a whole file, which begins with the header. Mutations leave code that a plan holds alone: nobody can check
// it.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cleave::fuzz {

// None: the bytes are no message. Error: the plan's reader refuses it.
std::optional<Result<plan::Plan>> planOf(const uint8_t *data, size_t size);
// `keepsDigest`: what the plan says of its code stays, too, for a plan that says something else is refused.
size_t mutatePlan(uint8_t *data, size_t size, size_t maxSize, unsigned seed, bool keepsDigest);

} // namespace cleave::fuzz
