// The tensors of a checkpoint as Hugging Face lays it out: one safetensors file, or shards with an index.
//
//     auto set = SafetensorsSet::open("llama");     // a folder with model.safetensors.index.json and its shards
//     auto *w = set->find("model.norm.weight");
//     set->pathOf(*w)                               // "model-00002-of-00002.safetensors", in set->folder()
//     set->offsetOf(*w)                             // 4096
//
// The folder is that of the files themselves, since those of a hub's cache are links to elsewhere.
#pragma once
#include "runtime/plan/safetensors.h"

namespace cleave::runtime {

class SafetensorsSet {
public:
  struct Tensor {
    const TensorView *view = nullptr;
    size_t file = 0;
  };

  // `path`: a .safetensors file; an index (.json); or a folder with model.safetensors.index.json, model.safetensors, or
  // just one .safetensors file. Errors: none there; an index that names a file or a tensor that is not there; those of
  // SafetensorsFile.
  static Result<SafetensorsSet> open(const std::string &path);

  const std::map<std::string, Tensor> &tensors() const { return byName; }
  const Tensor *find(const std::string &name) const; // null: there is none

  const std::string &folder() const { return root; } // absolute; the files lie within it
  std::string pathOf(const Tensor &tensor) const;    // of the tensor's file, relative to the folder
  int64_t offsetOf(const Tensor &tensor) const { return files[tensor.file]->offsetOf(*tensor.view); } // bytes

private:
  Status add(const std::string &path);
  Status addIndex(const std::string &path);
  void findFolder();

  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::vector<std::string> places; // of the files, without links
  std::map<std::string, Tensor> byName;
  std::string root;
};

} // namespace cleave::runtime
