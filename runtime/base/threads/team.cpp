#include "runtime/base/threads/team.h"
#include <algorithm>

namespace cleave::runtime {
namespace {

// The calling thread's share, and whose work it is.
struct Place {
  Team *team = nullptr;
  uint32_t share = 0, shares = 1;
};
thread_local Place here;
thread_local std::vector<Place> outside; // of begin() that end() has not followed

} // namespace

Team &Team::ofThisThread() {
  thread_local std::unique_ptr<Team> own(new Team);
  return *own;
}

Team::~Team() { stop(); }

void Team::stop() {
  stopping.store(true, std::memory_order_release);
  generation.add(1);
  for (std::thread &thread : threads) thread.join();
  threads.clear();
  stopping.store(false, std::memory_order_release);
}

uint32_t Team::share() { return here.share; }
uint32_t Team::shares() { return here.shares; }
bool Team::isWorking() { return here.team != nullptr; }

void Team::run(Body work, void *of, uint32_t shares) {
  if (shares > 1 && !isWorking()) {
    open(work, of, shares, 0);
    return finish();
  }
  const Place before = here;
  here = {before.team, 0, 1};
  work(of);
  here = before;
}

void Team::begin(Body work, void *of, uint32_t shares) {
  outside.push_back(here);
  const bool isCut = shares > 1 && !isWorking();
  if (isCut) open(work, of, shares, 1);
  here = isCut ? Place{this, 0, shares} : Place{here.team, 0, 1};
}

void Team::end() {
  const bool isCut = here.shares > 1;
  here = outside.back();
  outside.pop_back();
  if (!isCut) return;
  done.add(1);
  finish();
}

void Team::open(Body work, void *of, uint32_t shares, uint32_t begunByCaller) {
  if (shares > capacity) {
    stop(); // they read the tickets
    tickets = std::make_unique<std::atomic<uint64_t>[]>(shares);
    capacity = shares;
  }
  while (threads.size() + 1 < shares)
    threads.emplace_back([this, number = static_cast<uint32_t>(threads.size() + 1)] { serve(number); });
  body = work, data = of;
  count.store(shares, std::memory_order_relaxed);
  done.reset();
  const uint32_t next = generation.value() + 1;
  for (uint32_t i = 0; i < shares; ++i)
    tickets[i].store(i < begunByCaller ? takenTicket(next) : openTicket(next), std::memory_order_release);
  generation.add(1);
}

// Does shares that nobody has begun, and waits for those that somebody has.
void Team::finish() {
  takeShares(0, generation.value());
  const uint32_t shares = count.load(std::memory_order_relaxed);
  for (uint32_t seen; (seen = done.value()) != shares;) done.waitWhile(seen);
}

void Team::takeShares(uint32_t first, uint32_t current) {
  const uint32_t shares = count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < shares; ++i) {
    const uint32_t share = first + i < shares ? first + i : first + i - shares;
    uint64_t ticket = openTicket(current);
    if (share >= shares ||
        !tickets[share].compare_exchange_strong(ticket, takenTicket(current), std::memory_order_acq_rel))
      continue;
    here = {this, share, shares};
    body(data);
    here = {};
    done.add(1);
  }
}

void Team::serve(uint32_t number) {
  for (uint32_t last = 0;;) {
    const uint32_t current = generation.value();
    if (stopping.load(std::memory_order_acquire)) return;
    if (current == last) {
      generation.waitWhile(current);
      continue;
    }
    last = current;
    takeShares(number, current);
  }
}

void Team::meet() {
  Team *team = here.team;
  if (here.shares <= 1) return;
  const uint32_t seen = team->meetings.value();
  if (team->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == here.shares) {
    team->arrived.store(0, std::memory_order_relaxed);
    team->meetings.add(1);
  } else
    while (team->meetings.value() == seen) team->meetings.waitWhile(seen);
}

} // namespace cleave::runtime
