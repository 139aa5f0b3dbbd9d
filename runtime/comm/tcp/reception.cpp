#include "runtime/comm/tcp/reception.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace cleave::runtime::tcp {
namespace {

using Now = std::chrono::steady_clock;
constexpr auto greetingTime = std::chrono::seconds(5); // of one who came
constexpr auto joiningTime = std::chrono::seconds(15); // of one attempt to join
constexpr auto retryTime = std::chrono::milliseconds(100);
constexpr ptrdiff_t mostUnproved = 512;
constexpr int mostAtOnce = 32; // then those who are here are served: a flood of strangers has no end

} // namespace

Reception::~Reception() {
  for (Guest &guest : guests)
    if (guest.socket >= 0) ::close(guest.socket);
  if (listener >= 0) ::close(listener);
}

Status Reception::turn() {
  startJoins();
  std::vector<pollfd> polls;
  if (listener >= 0) polls.push_back({listener, POLLIN, 0});
  const size_t first = polls.size(), count = guests.size();
  for (const Guest &guest : guests) {
    bool sends = guest.isConnecting || guest.sent < guest.greeting->outgoing().size();
    polls.push_back({guest.socket, static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
  }
  ::poll(polls.data(), polls.size(), 50);
  for (size_t i = 0; i < count; ++i) {
    Guest &guest = guests[i];
    if (polls[first + i].revents) CLEAVE_RETURN_IF_ERROR(serve(guest));
    if (guest.socket >= 0 && Now::now() > guest.until) leave(guest, "said nothing more");
  }
  if (first > 0 && polls[0].revents) CLEAVE_RETURN_IF_ERROR(acceptAll());
  std::erase_if(guests, [](const Guest &guest) { return guest.socket < 0; });
  return Status::ok();
}

void Reception::startJoins() {
  for (Join &join : std::exchange(joins, {})) {
    if (Now::now() < join.due) {
      joins.push_back(std::move(join));
      continue;
    }
    const Address &to = join.to[join.attempt++ % join.to.size()];
    Guest guest;
    guest.socket = beginConnect(to, from ? &*from : nullptr);
    guest.isConnecting = true;
    guest.until = Now::now() + joiningTime;
    guest.join = std::move(join);
    if (guest.socket >= 0)
      guests.push_back(std::move(guest));
    else
      leave(guest, std::strerror(errno));
  }
}

Status Reception::acceptAll() {
  auto isUnproved = [](const Guest &guest) { return !guest.join && guest.socket >= 0; };
  auto isSilent = [&](const Guest &guest) { return isUnproved(guest) && guest.greeting->peer() < 0; };
  for (int turn = 0; turn < mostAtOnce; ++turn) {
    int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    const bool isFull = socket < 0 && (errno == EMFILE || errno == ENFILE);
    if (socket < 0 && !isFull) return Status::ok();
    auto oldest = std::ranges::find_if(guests, isSilent);
    if (oldest == guests.end()) oldest = std::ranges::find_if(guests, isUnproved);
    if (isFull && oldest == guests.end())
      return runError(fmt::format("rank {} cannot take a connection: {}", self.rank, std::strerror(errno)));
    if (isFull || std::ranges::count_if(guests, isUnproved) >= mostUnproved)
      leave(*oldest, "gave its place to a later one");
    if (isFull) continue;
    Guest &guest = guests.emplace_back();
    guest.socket = socket;
    guest.until = Now::now() + greetingTime;
    guest.greeting = Greeting::asListener(key, self);
  }
  return Status::ok();
}

Status Reception::serve(Guest &guest) {
  if (guest.isConnecting) CLEAVE_RETURN_IF_ERROR(connected(guest));
  return guest.socket >= 0 ? converse(guest) : Status::ok();
}

Status Reception::connected(Guest &guest) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(guest.socket, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    leave(guest, std::strerror(error));
    return Status::ok();
  }
  guest.isConnecting = false;
  Result<uint16_t> port = portToTell(guest.socket);
  if (!port) return port.status();
  guest.greeting = Greeting::asJoiner(key, self, guest.join->peer, guest.join->lane, *port);
  return Status::ok();
}

// Sends and receives as far as the connection goes now.
Status Reception::converse(Guest &guest) {
  Greeting &greeting = *guest.greeting;
  while (true) {
    const bool sends = guest.sent < greeting.outgoing().size();
    if (!sends && greeting.state() != Greeting::State::Open) return ended(guest);
    std::span<const std::byte> rest = greeting.outgoing().subspan(guest.sent);
    std::byte bytes[256];
    ssize_t moved = sends ? ::send(guest.socket, rest.data(), rest.size(), MSG_NOSIGNAL)
                          : ::recv(guest.socket, bytes, std::min(greeting.wanted(), sizeof bytes), 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) return Status::ok();
    if (moved <= 0) {
      // A refusal stands whether the other side hears it or not.
      if (sends && greeting.state() == Greeting::State::Refused) return ended(guest);
      leave(guest, "closed the connection");
      return Status::ok();
    }
    if (sends) {
      guest.sent += static_cast<size_t>(moved);
      continue;
    }
    if (!guest.join && greeting.peer() >= 0) greeting.setTaken(isTaken(greeting.lane(), greeting.peer()));
    greeting.take(std::span(bytes, static_cast<size_t>(moved)));
  }
}

Status Reception::ended(Guest &guest) {
  const Greeting &greeting = *guest.greeting;
  switch (greeting.state()) {
  case Greeting::State::Met: {
    Address where = peerAddress(guest.socket);
    if (guest.join) lastObstacle.clear();
    onMet({std::exchange(guest.socket, -1), greeting.peer(), greeting.lane(), !guest.join, where, greeting.port()});
    return Status::ok();
  }
  case Greeting::State::Refused:
    return refused(guest);
  default:
    leave(guest, guest.join ? "what listens there is no process of Cleave's" : "spoke no greeting");
    return Status::ok();
  }
}

Status Reception::refused(Guest &guest) {
  const Greeting &greeting = *guest.greeting;
  std::string where = peerAddress(guest.socket).text(), why = text(greeting.refusal());
  // One that has proved itself and does not fit ends the run, as nobody else will take its place; but another process
  // may hold the place that this one wants.
  bool isFatal = guest.join || (greeting.isProved() && greeting.refusal() != Greeting::Refusal::Taken);
  leave(guest, fmt::format("as rank {}: {}", greeting.peer(), why));
  if (!isFatal) return Status::ok();
  return inputError(
      fmt::format("rank {} and rank {} at {} do not belong together: {}", self.rank, greeting.peer(), where, why));
}

// A join is tried again; of a stranger it is kept that there was one.
void Reception::leave(Guest &guest, const std::string &why) {
  std::string where = guest.socket >= 0 ? peerAddress(guest.socket).text() : "";
  if (guest.socket >= 0) ::close(std::exchange(guest.socket, -1));
  if (guest.join) {
    const Join &join = *guest.join;
    lastObstacle = fmt::format("cannot reach rank {} at {}: {}", join.peer,
                               join.to[(join.attempt - 1) % join.to.size()].text(), why);
    joins.push_back({join.peer, join.lane, join.to, Now::now() + retryTime, join.attempt});
    return;
  }
  ++strangers;
  lastStranger = fmt::format("from {}, which {}", where, why);
}

} // namespace cleave::runtime::tcp
