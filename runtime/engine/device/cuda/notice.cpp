#include "runtime/engine/device/cuda/notice.h"
#include <algorithm>
#include <chrono>

namespace cleave::runtime::cuda {

Notice::~Notice() {
  if (stream && gpu->enter()) gpu->driver.streamDestroy(stream);
}

Status Notice::make(const Gpu &owner) {
  gpu = &owner;
  CLEAVE_RETURN_IF_ERROR(gpu->enter());
  return gpu->check(gpu->driver.streamCreate(&stream, streamNonBlocking), "cannot make a stream");
}

Status Notice::expect(int64_t number, const StreamEvent &event) {
  CLEAVE_RETURN_IF_ERROR(gpu->enter());
  CLEAVE_RETURN_IF_ERROR(event.waitOn(stream, event.run()));
  auto note = std::make_unique<Note>(board, number);
  auto write = [](void *argument) {
    std::unique_ptr<Note> told(static_cast<Note *>(argument));
    std::lock_guard guard(told->board->lock);
    told->board->reached = std::max(told->board->reached, told->number);
    told->board->changed.notify_all();
  };
  CLEAVE_RETURN_IF_ERROR(
      gpu->check(gpu->driver.launchHostFunc(stream, write, note.get()), "cannot ask to be told of an event"));
  (void)note.release(); // the driver's, until it calls
  return Status::ok();
}

bool Notice::await(int64_t number, double seconds) {
  std::unique_lock guard(board->lock);
  return board->changed.wait_for(guard, std::chrono::duration<double>(seconds),
                                 [&] { return board->reached >= number; });
}

} // namespace cleave::runtime::cuda
