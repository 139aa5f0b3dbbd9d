// Tells the host that a stream has come to an event: the host's thread sleeps until then, and for a while only, so that
// it can look whether all is well.
//
//   Notice notice;  Status s = notice.make(gpu);
//   s = notice.expect(7, event);                      // that was recorded
//   bool isThere = notice.await(7, 0.05);             // seconds; false: not yet, or the GPU has failed
#pragma once
#include "runtime/engine/device/cuda/event.h"
#include <condition_variable>
#include <memory>
#include <mutex>

namespace cleave::runtime::cuda {

class Notice {
public:
  Notice() = default;
  Notice(const Notice &) = delete;
  ~Notice();
  Status make(const Gpu &gpu);
  // Numbers grow from call to call.
  Status expect(int64_t number, const StreamEvent &event);
  bool await(int64_t number, double seconds);

private:
  // The driver's thread writes this, and may do so when the notice is gone, if the GPU hangs.
  struct Board {
    std::mutex lock;
    std::condition_variable changed;
    int64_t reached = -1;
  };
  struct Note {
    std::shared_ptr<Board> board;
    int64_t number;
  };
  const Gpu *gpu = nullptr;
  Stream stream = nullptr; // of its own: a stream waits for the host's function
  std::shared_ptr<Board> board = std::make_shared<Board>();
};

} // namespace cleave::runtime::cuda
