// Who comes and whom this process goes to, until both have proved that they belong to the run (handshake.h). Serves all
// at once, so that nobody waits for another: one thread, sockets that do not block.
//
//   Acceptor acceptor(key, self);
//   acceptor.onMet = [&](const Met &met) { ... };                 // the socket is the caller's from here on
//   acceptor.open(listenAt(address));
//   acceptor.join({.peer = 0, .lane = 2, .to = addresses});
//   while (...) CLEAVE_RETURN_IF_ERROR(acceptor.turn());
//
// One who came has a few seconds; of those who have proved nothing there are at most 512, and the oldest that has
// not even said who it is goes first.
#pragma once
#include "runtime/engine/comm/tcp/address.h"
#include "runtime/engine/comm/tcp/handshake.h"
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <poll.h>
#include <span>

namespace cleave::runtime::tcp {

struct Met {
  int socket;
  int peer, lane;
  bool hasJoined; // the other side came here
  Address where;  // the other end's
  uint16_t port;  // where it listens, if it came here
};

class Acceptor {
public:
  struct Join {
    int peer = 0, lane = 0;
    std::vector<Address> to;                        // tried in turn, until the caller gives up
    std::chrono::steady_clock::time_point due = {}; // not before
    size_t attempt = 0;
  };

  Acceptor(const RunSecret &key, const Self &self) : key(key), self(self) {}
  ~Acceptor();
  Acceptor(const Acceptor &) = delete;

  std::function<void(const Met &)> onMet;
  std::function<bool(int lane, int peer)> isTaken;        // by another process; or there is no such place
  std::function<Result<uint16_t>(int socket)> portToTell; // when it has connected, before it says who it is
  std::optional<Address> from;                            // where joins come from; none: as the route goes

  void open(int listeningSocket) { listener = listeningSocket; }
  void close();                                     // ends what is under way, too
  void setRun(const RunId &run) { self.run = run; } // of the connections that begin from here on
  int listening() const { return listener; }
  void join(Join wanted) { joins.push_back(std::move(wanted)); }
  // Serves connections for up to 50 ms, or until something happens at `others`. Error: another process of the run was
  // refused, or refuses this one, so that there will be no run.
  Status turn(std::span<const pollfd> others = {});

  int64_t unauthenticated = 0;                   // who came and proved nothing
  std::string lastUnauthenticated, lastObstacle; // why the last one was none of the run; why joining has not worked yet

private:
  // A connection that is not yet one of the run's.
  struct PendingConnection {
    int socket = -1;
    bool isConnecting = false;
    std::optional<Join> join; // none: it came here
    std::chrono::steady_clock::time_point until;
    std::optional<Handshake> handshake; // once it is connected
    size_t sent = 0;
  };
  void startJoins();
  Status acceptAll();
  Status serve(PendingConnection &connection);
  Status connected(PendingConnection &connection);
  Status converse(PendingConnection &connection);
  Status ended(PendingConnection &connection);
  Status refused(PendingConnection &connection);
  void leave(PendingConnection &connection, const std::string &why);

  const RunSecret key;
  Self self;
  int listener = -1;
  std::deque<PendingConnection> pending;
  std::vector<Join> joins;
};

} // namespace cleave::runtime::tcp
