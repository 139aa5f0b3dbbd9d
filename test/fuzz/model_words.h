// The words of ONNX for the mutator: operators, and the attributes that some operator has.
#pragma once
#include "test/fuzz/message_mutator.h"

namespace cleave::fuzz {

const MutatorOptions &modelChanges();

} // namespace cleave::fuzz
