// A file as bytes, mapped read-only: models, weights, data, plans. Files of many GiB cost nothing until they are looked
// at. Shared with the compiler.
//
//     Result<std::shared_ptr<MappedFile>> file = MappedFile::open("model.onnx");
//     std::string_view bytes = (*file)->bytes();
#pragma once
#include "runtime/base/status.h"
#include <memory>
#include <string>
#include <string_view>

namespace cleave::runtime {

class MappedFile {
public:
  static Result<std::shared_ptr<MappedFile>> open(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::string_view bytes() const { return {data, size}; }
  // Pages that were read no longer count as this process's memory; they are read again when needed.
  void releasePages() const;

private:
  MappedFile() = default;
  const char *data = nullptr;
  size_t size = 0;
};

} // namespace cleave::runtime
