// Between programs: inputs and routines that fit together.
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

bool sameInput(const plan::InputBinding &a, const plan::InputBinding &b) {
  return a.buffer().dtype() == b.buffer().dtype() && a.label() == b.label() &&
         std::equal(a.global_shape().begin(), a.global_shape().end(), b.global_shape().begin(), b.global_shape().end());
}

// An input has one shape, wherever it is read; every program has the same routines.
Status verifyInputs(const plan::Plan &plan) {
  for (const plan::Program &program : plan.programs()) {
    for (const plan::Routine &routine : program.routines())
      if (!findRoutine(plan.programs(0), routine.name()))
        return inputError(fmt::format("not every program has the routine '{}'", routine.name()));
    for (const plan::Routine &routine : plan.programs(0).routines())
      if (!findRoutine(program, routine.name()))
        return inputError(fmt::format("not every program has the routine '{}'", routine.name()));
  }
  for (const plan::Routine &first : plan.programs(0).routines())
    for (const plan::InputBinding *input : inputsOf(plan, first.name()))
      for (const plan::Program &program : plan.programs())
        for (const plan::Fragment &fragment : program.fragments())
          for (const plan::InputBinding &read : fragment.inputs())
            if (read.name() == input->name() && !sameInput(read, *input))
              return inputError(fmt::format("input '{}' of fragment '{}' has another shape or type than elsewhere",
                                            read.name(), fragment.name()));
  return Status::ok();
}

} // namespace

Status verifyPipeline(const plan::Plan &plan, const dist::Mesh &) { return verifyInputs(plan); }

} // namespace cleave::runtime
