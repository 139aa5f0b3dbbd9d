// swapcontext() saves the signal mask with a system call each time; a kernel's threads switch millions of times. So the
// switch is written out: it keeps what a called function must keep, on the stack that it leaves.
#include "runtime/engine/device/emulation/fiber.h"
#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

extern "C" void cleave_switch_stack(void **leave, void *enter);

#if defined(__x86_64__)
asm(R"(
.text
.globl cleave_switch_stack
.hidden cleave_switch_stack
.type cleave_switch_stack, @function
cleave_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cleave_switch_stack, .-cleave_switch_stack
)");
constexpr size_t savedWords = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl cleave_switch_stack
.hidden cleave_switch_stack
.type cleave_switch_stack, %function
cleave_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size cleave_switch_stack, .-cleave_switch_stack
)");
#else
#error "the emulated grid has no stack switch for this architecture"
#endif

namespace cleave::runtime {
namespace {
constexpr size_t stackBytes = 64 << 10;
thread_local Fiber *starting = nullptr;
} // namespace

Fiber::Fiber() {
  void *memory = ::mmap(nullptr, stackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack = static_cast<std::byte *>(memory);
}
Fiber::~Fiber() { ::munmap(stack, stackBytes); }

void Fiber::begin() { body(starting); }

void Fiber::body(Fiber *self) {
  self->function(self->context);
  self->done = true;
  self->leave();
  std::abort(); // a fiber that is done is not entered
}

void Fiber::start(void (*entry)(const void *), const void *with) {
  function = entry;
  context = with;
  done = false;
  auto *words = reinterpret_cast<uintptr_t *>(stack + stackBytes);
#if defined(__x86_64__)
  *--words = 0;                                   // begin() finds its stack as a call leaves it
  *--words = reinterpret_cast<uintptr_t>(&begin); // where the switch returns to
  for (size_t i = 0; i < savedWords; ++i) *--words = 0;
#else
  words -= 20;
  for (size_t i = 0; i < 20; ++i) words[i] = 0;
  words[11] = reinterpret_cast<uintptr_t>(&begin); // x30
#endif
  inside = words;
}

void Fiber::enter() {
  starting = this;
  cleave_switch_stack(&outside, inside);
}
void Fiber::leave() { cleave_switch_stack(&inside, outside); }

} // namespace cleave::runtime
