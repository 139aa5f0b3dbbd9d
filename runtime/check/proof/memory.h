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
#include "runtime/check/proof/store.h"
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace cleave::proof {

struct Place {
  bool onHost = false;
  int64_t byte = 0;
  plan::DType dtype = plan::DTYPE_INVALID;
};

// The content that one write left.
struct Cell {
  Place place;
  int64_t end;                         // byte
  std::vector<int64_t> sizes, strides; // by falling stride; only those of several elements
  std::vector<Atom> variables;         // of each
  bool isDense = false;                // it holds every byte from the first to the last
  int64_t number = 0;                  // writes before it
  // Its content, as it is made when it is read: `value`, in which the microbatch is `to` instead of `from`, and `each`
  // for each of the microbatches `of`, in which it is `eachFrom`.
  Term value;
  Atom from{}, to{};
  Term each{};
  Atom eachFrom{};
  std::vector<int64_t> of{};

  bool overlaps(const Cell &other) const;
  bool isSamePlace(const Cell &other) const;
};

// The work of commands on the memory: the cells of before that they read, and those that they left.
struct Effect {
  struct Needed {
    Cell cell;
    std::optional<Term> seen{}; // nothing: it only lies over a part of one that is read
  };
  std::vector<Needed> needed;                     // oldest first
  std::vector<std::pair<size_t, size_t>> ordered; // of these, the older and the newer one of two that overlap
  std::vector<Cell> left;                         // oldest first
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
  // The shape, by falling stride, in which all of a row of so many elements was written last; else of the row.
  std::vector<int64_t> shapeOf(const Place &place, int64_t elements) const;

  // From here on a cell of before is read as `seen` says, once each.
  void record(std::function<Term(const Cell &)> seen);
  // Ends it: the effect has the terms as they are, the memory what `original` makes of them.
  Effect recorded(const std::function<Term(Term)> &original);

  // The cells that commands of this effect need, by their order in it; nothing: another write lies in their place.
  std::optional<std::vector<const Cell *>> find(const Effect &effect) const;
  // Commands of this effect leave cells.
  void leave(std::vector<Cell> cells);
  Term valueOf(const Cell &cell) const;

private:
  // A read, or a part of one: the elements from `place` on, where `given` is 1.
  struct Part {
    Place place;
    Index element;
    std::vector<Atom> over; // its variables
    Term given;
  };
  Term seen(const Cell &cell);
  Term resolve(size_t cells, const Part &part);
  Term cut(size_t cells, const Part &part, Term condition);
  Term underConditions(size_t cells, const Part &part, const std::vector<Term> &conditions, Term value);
  bool isOfDevice(Term condition) const;
  bool isDivided(Term condition) const;
  Part replaced(const Part &part, Atom variable, Index by, std::vector<Atom> more) const;

  struct Recording {
    std::vector<Cell> before;
    int64_t first; // number of the first write from then on
    std::function<Term(const Cell &)> seen;
    std::map<int64_t, Term> read; // by the cell's number
  };
  Store &store;
  int pieces = 0; // of the read that is looked at
  std::vector<Cell> written;
  int64_t writes = 0;
  std::optional<Recording> recording;
};

} // namespace cleave::proof
