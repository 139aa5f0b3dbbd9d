// A file as bytes, mapped read-only: models, weights, data, plans. Files of many GiB cost nothing until they are looked
// at. Shared with the compiler.
//
//     Result<std::shared_ptr<MappedFile>> file = MappedFile::open("model.onnx");
//     std::string_view bytes = (*file)->bytes();
//
// A file that becomes shorter while it is mapped ends no process by SIGBUS: its missing bytes are read as zeros from
// then on, and intact() says so. Other causes of SIGBUS go to the handler that was there before.
#pragma once
#include "runtime/base/status.h"
#include <csignal>
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

  // Error: a file that is mapped, or was since the last call, has lost bytes that were read.
  static Status intact();
  // Calls `tell` in the signal's handler when a file has lost bytes: for programs that end then.
  static void onLoss(void (*tell)(const char *path)) { tellLoss = tell; }

private:
  MappedFile() = default;
  static void onBusError(int signal, siginfo_t *info, void *context);
  static bool fillIn(const char *address);

  static void (*tellLoss)(const char *path);
  std::string path;
  const char *data = nullptr;
  size_t size = 0;
  bool hasLost = false;
  MappedFile *next = nullptr, *before = nullptr; // of all that are mapped
};

} // namespace cleave::runtime
