// The threads of a rank. Work is cut into shares by the number of threads alone; a thread does the share of its own
// number first, then any that nobody has begun. So nobody waits for a thread that has no core.
//
//   Team::ofThisThread().run([](void *data) {...}, &data, 4);    // Team::share() is 0, 1, 2 and 3 inside
//
// Every thread that asks has a team of its own, whose other threads begin when they are first needed.
#pragma once
#include "runtime/base/threads/wait.h"
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace cleave::runtime {

class Team {
public:
  using Body = void (*)(void *data);
  // The team of the calling thread, which outlives it.
  static Team &ofThisThread();
  ~Team();

  // Runs `body` once for each share. Work within a share is not cut again.
  void run(Body body, void *data, uint32_t shares);
  // The same in two steps, between which the caller itself runs `body` as share 0.
  void begin(Body body, void *data, uint32_t shares);
  void end();

  // The share of the work that the calling thread does. Outside of a team's work it is 0, of 1.
  static uint32_t share();
  static uint32_t shares();
  static bool isWorking();
  // Within a share: until all shares are here.
  static void meet();

private:
  Team() = default;
  // `begunByCaller`: shares that the caller does without asking.
  void open(Body body, void *data, uint32_t shares, uint32_t begunByCaller);
  void finish();
  void takeShares(uint32_t first, uint32_t generation);
  void serve(uint32_t number);
  void stop();

  // The ticket of a share in one generation: nobody, or somebody, has begun it. A late thread finds neither.
  static uint64_t openTicket(uint32_t generation) { return uint64_t(generation) << 1; }
  static uint64_t takenTicket(uint32_t generation) { return openTicket(generation) | 1; }

  std::vector<std::thread> threads; // all but the team's own
  std::unique_ptr<std::atomic<uint64_t>[]> tickets;
  uint32_t capacity = 1; // tickets
  Body body = nullptr;
  void *data = nullptr;
  std::atomic<uint32_t> count{1}; // shares
  alignas(64) Counter generation; // of work
  alignas(64) Counter done;       // shares
  alignas(64) std::atomic<uint32_t> arrived{0};
  Counter meetings;
  std::atomic<bool> stopping{false};
};

} // namespace cleave::runtime
