// Runs a graph of cuDNN's primitive operations one after the other, each in plain loops over whole tensors: what the
// fused engines compute is by definition what the graph says. A virtual tensor has elements of its own, rounded to its
// type; a reshape gives the same elements other sizes and strides.
#pragma once
#include "runtime/engine/device/cuda/api/cudnn.h"
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace fake {

struct Descriptor {
  int kind = 0;
  std::map<int, std::pair<int, std::vector<char>>> attributes{}; // by name: type, bytes
  bool finalized = false;
  int engine = -1;             // of a configuration or an engine
  Descriptor *graph = nullptr; // of a configuration

  template <typename T> std::vector<T> all(int name) const {
    auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.second.data(), values.size() * sizeof(T));
    return values;
  }
  template <typename T> T one(int name) const {
    std::vector<T> values = all<T>(name);
    return values.empty() ? T() : values.front();
  }
};

// `memory`: of the tensors that are not virtual, by their ids.
void interpret(const std::vector<Descriptor *> &operations, const std::map<int64_t, void *> &memory);

} // namespace fake
