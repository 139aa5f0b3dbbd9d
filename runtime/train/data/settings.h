// The `data` map of the plan (made by the compiler from a checked recipe, or given by an embedding program).
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

struct DataSettings {
  std::string kind, path, dtype;
  int64_t block = 0, truncate = 0, samples = 0;
  double trainSplit = 1.0;
  bool shuffle = true, dropLast = false;
  std::map<std::string, std::string> fields;
  int64_t size = 0;              // images
  std::vector<double> mean, std; // images: of one channel or of each
  std::vector<int64_t> lengths;  // of sequences, ascending; empty: one, the fields'
  bool pack = false;             // of lengths: samples stand side by side in rows of the longest
  bool causal = false;           // of lengths: masks that are made let a position see those before it only
  std::optional<int64_t> separator;
  std::map<std::string, double> pad; // of lengths: field name -> what stands behind a sample's end
};

// Error: not a map, an unknown key, a value of the wrong type.
Result<DataSettings> parseDataSettings(const std::string &yaml);

} // namespace cleave::runtime
