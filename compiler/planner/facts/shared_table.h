// An entry for each node or tensor, which copies of a model (split_model.h) share: a search copies a model for every
// setting, and these are as long as the model is deep, or have a price for every way to split an operation.
//
//   SharedTable<double> bytes = std::vector<double>{4, 8};
//   SharedTable<double> other = bytes;     // the same two numbers
//   other.edit()[0] = 2;                   // bytes[0] is 4 as before
#pragma once
#include <memory>
#include <utility>
#include <vector>

namespace cleave::planner {

template <class T> class SharedTable {
public:
  SharedTable() : values(std::make_shared<std::vector<T>>()) {}
  SharedTable(std::vector<T> given) : values(std::make_shared<std::vector<T>>(std::move(given))) {}
  typename std::vector<T>::const_reference operator[](size_t i) const { return std::as_const(*values)[i]; }
  size_t size() const { return values->size(); }
  bool empty() const { return values->empty(); }
  auto begin() const { return values->cbegin(); }
  auto end() const { return values->cend(); }
  operator const std::vector<T> &() const { return *values; }
  // To write to; other copies keep what they have.
  std::vector<T> &edit() {
    if (values.use_count() > 1) values = std::make_shared<std::vector<T>>(*values);
    return *values;
  }

private:
  std::shared_ptr<std::vector<T>> values;
};

} // namespace cleave::planner
