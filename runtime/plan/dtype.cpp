#include "runtime/plan/dtype.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {

namespace {

struct Type {
  plan::DType dtype;
  const char *name;
  int64_t bytes;
};
constexpr Type types[] = {{plan::F32, "f32", 4},       {plan::F64, "f64", 8},
                          {plan::F16, "f16", 2},       {plan::BF16, "bf16", 2},
                          {plan::I8, "i8", 1},         {plan::I16, "i16", 2},
                          {plan::I32, "i32", 4},       {plan::I64, "i64", 8},
                          {plan::U8, "u8", 1},         {plan::U16, "u16", 2},
                          {plan::U32, "u32", 4},       {plan::U64, "u64", 8},
                          {plan::BOOL, "bool", 1},     {plan::F8E4M3, "f8e4m3", 1},
                          {plan::F8E5M2, "f8e5m2", 1}, {plan::DTYPE_INVALID, "invalid", 0}};

const Type &typeOf(plan::DType dtype) {
  const Type *last = std::end(types) - 1;
  return *std::find_if(std::begin(types), last, [&](const Type &type) { return type.dtype == dtype; });
}

} // namespace

int64_t byteSize(plan::DType dtype) { return typeOf(dtype).bytes; }
const char *name(plan::DType dtype) { return typeOf(dtype).name; }

int64_t byteSize(const plan::Buffer &buffer) {
  int64_t count = elementCount(buffer.shape()), size = byteSize(buffer.dtype()), bytes = 0;
  if (count < 0 || size == 0 || __builtin_mul_overflow(count, size, &bytes)) return -1;
  return bytes;
}

std::string describe(const plan::Buffer &buffer) {
  return fmt::format("{}[{}] at {}{}", name(buffer.dtype()), fmt::join(buffer.shape(), "x"), buffer.offset(),
                     buffer.on_host() ? " of the host's memory" : "");
}

} // namespace cleave::runtime
