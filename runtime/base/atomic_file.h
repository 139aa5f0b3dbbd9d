// Files that a reader finds old or new, never in between: they are written beside their place, and put there when they
// are whole and on the disk. Several writers of one path do not mix: each has a name of its own until then.
//
//   Status s = writeFileAtomically(bytes, "gpt.plan");   // error: "gpt.plan: cannot be written: File too large"
//
//   Result<AtomicFile> file = AtomicFile::create("w.safetensors");   // "w.safetensors.17-5f0c21aa.partial"
//   s = file->write(some); ...  s = file->commit();
//
// Where a link leads to, the file is replaced, with the permissions it has. What is no file, such as a pipe or
// /dev/stdout, is written straight to.
#pragma once
#include "runtime/base/status.h"
#include <string_view>

namespace cleave::runtime {

class AtomicFile {
public:
  static Result<AtomicFile> create(const std::string &path);
  AtomicFile(AtomicFile &&other) noexcept;
  ~AtomicFile(); // removes what was not committed
  Status write(std::string_view bytes);
  Status commit(bool isDurable = true); // waits until the bytes are on the disk

private:
  explicit AtomicFile(std::string path) : path(std::move(path)) {}
  Status failed() const; // by errno

  std::string path;           // as it was given
  std::string place, partial; // where the file is put, and written; partial is empty: it is written there
  int descriptor = -1;
};

Status writeFileAtomically(std::string_view bytes, const std::string &path);

} // namespace cleave::runtime
