#include "runtime/plan/dtype.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {

int64_t byteSize(plan::DType dtype) {
  switch (dtype) {
  case plan::I8:
  case plan::U8:
  case plan::BOOL:
  case plan::F8E4M3:
  case plan::F8E5M2:
    return 1;
  case plan::F16:
  case plan::BF16:
  case plan::I16:
  case plan::U16:
    return 2;
  case plan::F32:
  case plan::I32:
  case plan::U32:
    return 4;
  case plan::F64:
  case plan::I64:
  case plan::U64:
    return 8;
  default:
    return 0;
  }
}

const char *name(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return "f32";
  case plan::F64:
    return "f64";
  case plan::F16:
    return "f16";
  case plan::BF16:
    return "bf16";
  case plan::F8E4M3:
    return "f8e4m3";
  case plan::F8E5M2:
    return "f8e5m2";
  case plan::I8:
    return "i8";
  case plan::I16:
    return "i16";
  case plan::I32:
    return "i32";
  case plan::I64:
    return "i64";
  case plan::U8:
    return "u8";
  case plan::U16:
    return "u16";
  case plan::U32:
    return "u32";
  case plan::U64:
    return "u64";
  case plan::BOOL:
    return "bool";
  default:
    return "invalid";
  }
}

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
