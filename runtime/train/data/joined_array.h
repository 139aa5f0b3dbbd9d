// Arrays of several files, one behind the other along their first dimension, read as one.
//
//     JoinedArray tokens;
//     tokens.add(first, "a.bin"), tokens.add(second, "b.bin");      // [1000] and [500]
//     tokens.convert(990, 20, plan::I64, out);                      // the last 10 of a.bin, the first 10 of b.bin
#pragma once
#include "runtime/train/data/array.h"

namespace cleave::runtime {

class JoinedArray {
public:
  void add(Array array, std::string path);
  bool empty() const { return parts.empty(); }
  int64_t elements() const { return parts.empty() ? 0 : parts.back().begin + elementsOf(parts.back().array); }
  // Elements [begin, begin + count) as another type. Error: from floats to integers or bool.
  Status convert(int64_t begin, int64_t count, plan::DType to, std::byte *out) const;
  // The file of an element, and its number there; "data" where there is no file.
  struct Place {
    const std::string &path;
    int64_t element;
  };
  Place placeOf(int64_t element) const;

private:
  struct Part {
    Array array;
    std::string path;
    int64_t begin; // its first element's number among all
  };
  static int64_t elementsOf(const Array &array);
  const Part &partAt(int64_t element) const;

  std::vector<Part> parts;
};

} // namespace cleave::runtime
