// Changes of protobuf messages that leave them messages: fields are set, cleared, doubled, swapped, taken from
// elsewhere in the same message. Numbers come from their neighbourhood or from the ends of their range; texts mostly
// from the texts that the message has already, since most are names of something else in it.
//
//   extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
//     plan::Plan plan;
//     return mutateMessage(plan, {}, data, size, maxSize, seed);
//   }
#pragma once
#include "test/fuzz/chance.h"
#include <functional>
#include <google/protobuf/message.h>
#include <string>

namespace cleave::fuzz {

struct MutatorOptions {
  // Fields that stay as they are.
  std::function<bool(const google::protobuf::FieldDescriptor &)> isFixed = {};
  // A text that means something in this field, "" where there is none to propose.
  std::function<std::string(const google::protobuf::FieldDescriptor &, Chance &)> word = {};
};

// One to three changes anywhere in the message.
void changeMessage(google::protobuf::Message &message, const MutatorOptions &options, Chance &chance);

// A custom mutator for inputs that are messages of the type of `message`, which is used for work. Bytes that are none,
// and once in 16 times those that are, are changed by libFuzzer.
size_t mutateMessage(google::protobuf::Message &message, const MutatorOptions &options, uint8_t *data, size_t size,
                     size_t maxSize, unsigned seed);

} // namespace cleave::fuzz
