// The safetensors format: eight bytes of header length, a JSON header, then the tensors' bytes, dense little-endian.
//
//     TensorView w{"w", plan::F32, {64, 20}, bytes};
//     Status s = writeSafetensors("weights.safetensors", {&w, 1});
//     Result<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::open("weights.safetensors");
//     const TensorView *w = (*file)->find("w");          // bytes mapped from the file
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

struct TensorView {
  std::string name;
  plan::DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

struct TensorHeader {
  std::string name;
  plan::DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
};

// Writes a file piece by piece: its header first, then the bytes of the tensors, in their order. It is in its place
// when it is whole and on the disk (atomic_file.h).
//
//     auto writer = SafetensorsWriter::create("weights.safetensors", headers);
//     (*writer)->write(someBytes);  ...  (*writer)->close();
class SafetensorsWriter {
public:
  // Errors: a type that the format has not, two tensors of one name, the path and the system's reason.
  static Result<std::unique_ptr<SafetensorsWriter>> create(const std::string &path,
                                                           std::span<const TensorHeader> tensors,
                                                           const std::map<std::string, std::string> &metadata = {});
  // Errors: "No space left on device".
  Status write(std::span<const std::byte> bytes);
  // Error: other than all bytes were written.
  Status close();

private:
  SafetensorsWriter(std::string path, AtomicFile file) : path(std::move(path)), file(std::move(file)) {}

  std::string path;
  AtomicFile file;
  uint64_t left = 0; // bytes of tensors
};

// Writes a file and flushes it to the disk. `metadata` becomes the header's __metadata__. Error: the path and the
// system's reason ("No space left on device"); a partial file is removed.
Status writeSafetensors(const std::string &path, std::span<const TensorView> tensors,
                        const std::map<std::string, std::string> &metadata = {});

class SafetensorsFile {
public:
  // Errors: all that the reference library (github.com/huggingface/safetensors) refuses: a header that is damaged or
  // too long, unknown types, tensors that do not fit their shapes, do not lie one behind the other, or are not all of
  // the file. And what the format rules out beside: a name that is there twice, a header that does not begin with '{'.
  static Result<std::unique_ptr<SafetensorsFile>> open(const std::string &path);
  SafetensorsFile(const SafetensorsFile &) = delete;

  const std::map<std::string, TensorView> &tensors() const { return views; }
  const std::map<std::string, std::string> &metadata() const { return meta; }
  const TensorView *find(const std::string &name) const;
  int64_t offsetOf(const TensorView &view) const { // of its bytes in the file
    return reinterpret_cast<const char *>(view.bytes.data()) - file->bytes().data();
  }
  std::string_view header() const { return file->bytes().substr(0, headerBytes); } // its length and its text
  void releasePages() const { file->releasePages(); }                              // see MappedFile

private:
  SafetensorsFile() = default;
  Status parse(const std::string &path);

  std::shared_ptr<MappedFile> file;
  size_t headerBytes = 0;
  std::map<std::string, TensorView> views;
  std::map<std::string, std::string> meta;
};

} // namespace cleave::runtime
