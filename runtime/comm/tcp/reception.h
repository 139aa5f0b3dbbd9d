// Who comes and whom this process goes to, until both have proved that they belong to the run (greeting.h). Serves all
// at once, so that nobody waits for another: one thread, sockets that do not block.
//
//   Reception reception(key, self);
//   reception.onMet = [&](const Met &met) { ... };                 // the socket is the caller's from here on
//   reception.open(listenAt(address));
//   reception.join({.peer = 0, .lane = 2, .to = addresses});
//   while (...) CLEAVE_RETURN_IF_ERROR(reception.turn());
//
// One who came has a few seconds; of those who have proved nothing there are at most 512, and the oldest that has
// not even said who it is goes first.
#pragma once
#include "runtime/comm/tcp/address.h"
#include "runtime/comm/tcp/greeting.h"
#include <chrono>
#include <deque>
#include <functional>
#include <optional>

namespace cleave::runtime::tcp {

struct Met {
  int socket;
  int peer, lane;
  bool hasJoined; // the other side came here
  Address where;  // the other end's
  uint16_t port;  // where it listens, if it came here
};

class Reception {
public:
  struct Join {
    int peer = 0, lane = 0;
    std::vector<Address> to;                        // tried in turn, until the caller gives up
    std::chrono::steady_clock::time_point due = {}; // not before
    size_t attempt = 0;
  };

  Reception(const RunSecret &key, const Self &self) : key(key), self(self) {}
  ~Reception();
  Reception(const Reception &) = delete;

  std::function<void(const Met &)> onMet;
  std::function<bool(int lane, int peer)> isTaken;        // by another process; or there is no such place
  std::function<Result<uint16_t>(int socket)> portToTell; // when it has connected, before it says who it is
  std::optional<Address> from;                            // where joins come from; none: as the route goes

  void open(int listeningSocket) { listener = listeningSocket; }
  int listening() const { return listener; }
  void join(Join wanted) { joins.push_back(std::move(wanted)); }
  // Serves guests for up to 50 ms. Error: another process of the run was refused, or refuses this one, so that there
  // will be no run.
  Status turn();

  int64_t strangers = 0;                  // who came and proved nothing
  std::string lastStranger, lastObstacle; // why the last one was none of the run; why joining has not worked yet

private:
  // A connection that is not yet one of the run's.
  struct Guest {
    int socket = -1;
    bool isConnecting = false;
    std::optional<Join> join; // none: it came here
    std::chrono::steady_clock::time_point until;
    std::optional<Greeting> greeting; // once it is connected
    size_t sent = 0;
  };
  void startJoins();
  Status acceptAll();
  Status serve(Guest &guest);
  Status connected(Guest &guest);
  Status converse(Guest &guest);
  Status ended(Guest &guest);
  Status refused(Guest &guest);
  void leave(Guest &guest, const std::string &why);

  const RunSecret key;
  const Self self;
  int listener = -1;
  std::deque<Guest> guests;
  std::vector<Join> joins;
};

} // namespace cleave::runtime::tcp
