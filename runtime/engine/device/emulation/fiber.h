// A function on a stack of its own that can be left in the middle and entered again.
//
//   Fiber fiber;
//   fiber.start(function, context);
//   while (!fiber.isDone()) fiber.enter();     // runs until the function calls fiber.leave() or returns
#pragma once
#include <cstddef>

namespace cleave::runtime {

class Fiber {
public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  void start(void (*function)(const void *), const void *context);
  void enter();
  void leave(); // on the fiber
  bool isDone() const { return done; }

private:
  static void body(Fiber *self);
  static void begin();
  std::byte *stack = nullptr;
  void *inside = nullptr, *outside = nullptr; // stack pointers of what is not running
  void (*function)(const void *) = nullptr;
  const void *context = nullptr;
  bool done = true;
};

} // namespace cleave::runtime
