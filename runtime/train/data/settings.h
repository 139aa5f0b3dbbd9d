// The `data` map of the plan (made by the compiler from a checked recipe, or given by an embedding program).
#pragma once
#include "runtime/base/status.h"
#include "runtime/plan/augment.h"
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

// What stands at a position of an input.
enum class Content {
  Given,      // by the data
  Tokens,     // of data that is one row of them
  NextTokens, // labels
  Ones,       // this is a token
  Zeros,
  Positions, // from 0 in each sample
  Segments,  // the number of the sample in its row, from 1
  Mask,      // of [positions, positions]: which ones see each other
};
// The words of `data.fill`.
constexpr std::pair<const char *, Content> contentWords[] = {
    {"tokens", Content::Tokens},       {"ones", Content::Ones},         {"zeros", Content::Zeros},
    {"positions", Content::Positions}, {"segments", Content::Segments}, {"mask", Content::Mask}};

struct DataSettings {
  std::string kind, dtype;
  std::vector<std::string> paths; // files, folders and globs (files.h)
  int64_t block = 0, truncate = 0, samples = 0;
  double trainSplit = 1.0;
  bool shuffle = true;
  std::string lastBatch = "repeat"; // or "drop", "smaller"
  std::map<std::string, std::string> fields;
  std::map<std::string, Content> fill;
  int64_t size = 0;              // images
  std::vector<double> mean, std; // images: of one channel or of each
  std::vector<int64_t> lengths;  // of sequences, ascending; empty: one, the fields'
  bool pack = false;             // of lengths: samples stand side by side in rows of the longest
  bool causal = false;           // of lengths: masks that are made let a position see those before it only
  std::optional<int64_t> separator;
  std::map<std::string, double> pad; // of lengths: field name -> what stands behind a sample's end
  std::optional<Augment> augment;    // images, cifar10, arrays of images
  double mixup = 0, cutmix = 0;      // the alpha of each; 0: none
  std::vector<DataSettings> sources; // of a mixture
  double weight = 1;                 // of a source
};
// The paths of its sources, too.
std::vector<std::string> allPaths(const DataSettings &settings);

// Error: not a map, an unknown key, a value of the wrong type.
Result<DataSettings> parseDataSettings(const std::string &yaml);

} // namespace cleave::runtime
