#include "runtime/train/data/joined_array.h"
#include "runtime/plan/dtype.h"
#include <algorithm>

namespace cleave::runtime {

int64_t JoinedArray::elementsOf(const Array &array) { return std::ssize(array.bytes) / byteSize(array.dtype); }

void JoinedArray::add(Array array, std::string path) {
  const int64_t begin = elements();
  parts.push_back({std::move(array), std::move(path), begin});
}

const JoinedArray::Part &JoinedArray::partAt(int64_t element) const {
  auto behind = std::ranges::upper_bound(parts, element, {}, &Part::begin);
  return behind == parts.begin() ? *behind : *std::prev(behind);
}

JoinedArray::Place JoinedArray::placeOf(int64_t element) const {
  static const std::string none = "data";
  if (parts.empty()) return {none, element};
  const Part &part = partAt(element);
  return {part.path, element - part.begin};
}

Status JoinedArray::convert(int64_t begin, int64_t count, plan::DType to, std::byte *out) const {
  while (count > 0) {
    const Part &part = partAt(begin);
    const int64_t first = begin - part.begin, here = std::min(count, elementsOf(part.array) - first);
    if (here <= 0) return inputError(part.path + ": has too few elements");
    CLEAVE_RETURN_IF_ERROR(convertElements(part.array, first, here, to, out));
    begin += here, count -= here, out += here * byteSize(to);
  }
  return Status::ok();
}

} // namespace cleave::runtime
