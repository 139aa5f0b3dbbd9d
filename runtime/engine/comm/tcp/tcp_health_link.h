// The watch line over sockets between neighbours (health_link.h).
#pragma once
#include "runtime/engine/comm/health_link.h"
#include <atomic>
#include <mutex>
#include <vector>

namespace cleave::runtime::tcp {

class TcpHealthLink final : public HealthLink {
public:
  // `sockets`: by peer, non-blocking, -1 for none; the line closes them.
  TcpHealthLink(int rank, std::vector<int> sockets, const std::atomic<int64_t> &moved);
  ~TcpHealthLink() override;
  TcpHealthLink(const TcpHealthLink &) = delete;
  int rank() const override { return self; }
  int size() const override { return static_cast<int>(links.size()); }
  bool send(int peer, const HealthMessage &word) override;
  bool receive(int &peer, HealthMessage &word) override;
  bool hasEnded(int peer) const override;
  void rest(std::chrono::milliseconds most) override;
  int64_t movedBytes() const override { return moved.load(std::memory_order_relaxed); }

private:
  struct Link {
    int socket = -1;
    HealthMessage in, out;
    size_t received = 0, unsent = 0; // of `in`; of `out`, its last bytes
    bool hasEnded = false;
  };
  void flush(Link &link);

  int self;
  mutable std::mutex lock; // of all below
  std::vector<Link> links; // by peer
  size_t next = 0;         // whose words are looked for next: each in turn
  const std::atomic<int64_t> &moved;
};

} // namespace cleave::runtime::tcp
