// Words that neighbours on the control plane's tree exchange beside what their lanes do, to tell how ranks are
// (executor/watch.h): each of the same size, and never waited for.
//
//   if (!line->send(0, word)) ...;                  // the neighbour has not taken the last one yet
//   while (line->receive(peer, word)) ...;
//   line->rest(std::chrono::milliseconds(100));     // until something may have arrived
//
// Used by one thread at a time, but for rest(): another may send meanwhile.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cleave::runtime {

struct HealthMessage {
  enum Kind : int32_t { Heartbeat, RunEnded, Leaving }; // how it is; why the run ends; that it leaves
  int32_t kind = Heartbeat;
  int32_t rank = 0;  // whose it is
  int32_t state = 0; // of a beat, see executor/liveness.h
  int32_t reserved = 0;
  int64_t progress = 0; // grows with all that the rank does
  int64_t window = 0;   // of steps, and its own seconds a step in it (stragglers.h)
  double ownSeconds = 0;
  char host[64] = {}, text[412] = {}; // "node1"; "step 3, command 'x' (all_reduce)"; each ends with a zero
};

class HealthLink {
public:
  virtual ~HealthLink() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool send(int peer, const HealthMessage &word) = 0;
  virtual bool receive(int &peer, HealthMessage &word) = 0; // false: none is there
  virtual bool hasEnded(int peer) const = 0;                // its connection; what it said before has been received
  virtual void rest(std::chrono::milliseconds most) = 0;
  // Bytes that the lanes of this process have moved so far: within one exchange, too.
  virtual int64_t movedBytes() const = 0;
};

} // namespace cleave::runtime
