// A device's memory, as symbols: what was written where, newest last. All devices of a program have the same cells;
// what they hold depends on the mesh coordinates.
//
//   memory.write({0, 64, f32}, {4, 16}, {16, 1}, x, "copy 'a'");     a write of 4x16 elements from byte 64 on
//   memory.read({0, 64, f32}, 0, {64}, {1})                          x[d0 / 16, d0 % 16]
//
// A read of what several writes left is taken apart by where each of its elements was written last. A read of bytes
// that nobody wrote, or that hold another type, throws Unproved.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/proof/store.h"

namespace cleave::proof {

struct Place {
  bool onHost = false;
  int64_t byte = 0;
  plan::DType dtype = plan::DTYPE_INVALID;
};

class Memory {
public:
  explicit Memory(Store &store) : store(store) {}

  // Element i of `value`, a term of Dimension variables of these sizes, at `place` + sum of i * strides elements.
  void write(const Place &place, const std::vector<int64_t> &sizes, const std::vector<int64_t> &strides, Term value);
  void write(const Place &place, const std::vector<int64_t> &shape, Term value);
  // The elements at `place` + offset + sum of i * strides, as a term of Dimension variables of these sizes.
  Term read(const Place &place, Index offset, const std::vector<int64_t> &sizes, const std::vector<int64_t> &strides);
  Term read(const Place &place, const std::vector<int64_t> &shape);

private:
  struct Cell {
    Place place;
    int64_t end;                         // byte
    std::vector<int64_t> sizes, strides; // by falling stride; only those of several elements
    std::vector<Atom> variables;         // of each
    Term value;
  };
  Term resolve(size_t cells, const Place &place, Index element, const std::vector<Atom> &over, int pieces);
  Term cut(size_t cells, const Place &place, Index element, const std::vector<Atom> &over, Term condition, int pieces);

  Store &store;
  std::vector<Cell> written;
};

} // namespace cleave::proof
