// A fuzz target (targets/NAME.cpp): libFuzzer calls LLVMFuzzerTestOneInput with one input after the other, and
// LLVMFuzzerCustomMutator, where a target has one, to change an input. A target ends a bad input's run by a crash; it
// crashes itself where Cleave's answer is wrong.
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
//     auto recipe = recipe::parseRecipeText(textOf(data, size));
//     if (!recipe) return refused(recipe.status());
//     require(recipe::parseRecipeText(recipe->resolved()).isOk(), "its own text is refused");
//     return 0;
//   }
#pragma once
#include "runtime/base/status.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed);
extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize); // libFuzzer's own

namespace cleave::fuzz {

inline std::string textOf(const uint8_t *data, size_t size) { return {reinterpret_cast<const char *>(data), size}; }

// Says what is wrong and aborts, unless `holds`.
void require(bool holds, std::string_view what);

// The end of an input that is refused, with words. Always 0, as libFuzzer wants it.
int refused(const Status &status);

} // namespace cleave::fuzz
