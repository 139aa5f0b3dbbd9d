#include "runtime/engine/comm/tcp/acceptor.h"
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
constexpr auto handshakeTime = std::chrono::seconds(5); // of one who came
constexpr auto joiningTime = std::chrono::seconds(15);  // of one attempt to join
constexpr auto retryTime = std::chrono::milliseconds(100);
constexpr ptrdiff_t mostUnproved = 512;
constexpr int mostAtOnce = 32; // then those who are here are served: a flood of unauthenticated has no end

} // namespace

Acceptor::~Acceptor() { close(); }

void Acceptor::close() {
  for (PendingConnection &connection : std::exchange(pending, {}))
    if (connection.socket >= 0) ::close(connection.socket);
  joins.clear();
  if (listener >= 0) ::close(std::exchange(listener, -1));
}

Status Acceptor::turn(std::span<const pollfd> others) {
  startJoins();
  std::vector<pollfd> polls;
  // Who comes knows the run: it is taken once this one does, too.
  if (listener >= 0 && self.run) polls.push_back({listener, POLLIN, 0});
  const size_t first = polls.size(), count = pending.size();
  for (const PendingConnection &connection : pending) {
    bool sends = connection.isConnecting || connection.sent < connection.handshake->outgoing().size();
    polls.push_back({connection.socket, static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
  }
  polls.insert(polls.end(), others.begin(), others.end());
  ::poll(polls.data(), polls.size(), 50);
  for (size_t i = 0; i < count; ++i) {
    PendingConnection &connection = pending[i];
    if (polls[first + i].revents) CLEAVE_RETURN_IF_ERROR(serve(connection));
    if (connection.socket >= 0 && Now::now() > connection.until) leave(connection, "said nothing more");
  }
  if (first > 0 && polls[0].revents) CLEAVE_RETURN_IF_ERROR(acceptAll());
  std::erase_if(pending, [](const PendingConnection &connection) { return connection.socket < 0; });
  return Status::ok();
}

void Acceptor::startJoins() {
  for (Join &join : std::exchange(joins, {})) {
    if (Now::now() < join.due) {
      joins.push_back(std::move(join));
      continue;
    }
    const Address &to = join.to[join.attempt++ % join.to.size()];
    PendingConnection connection;
    connection.socket = beginConnect(to, from ? &*from : nullptr);
    connection.isConnecting = true;
    connection.until = Now::now() + joiningTime;
    connection.join = std::move(join);
    if (connection.socket >= 0)
      pending.push_back(std::move(connection));
    else
      leave(connection, std::strerror(errno));
  }
}

Status Acceptor::acceptAll() {
  auto isUnproved = [](const PendingConnection &connection) { return !connection.join && connection.socket >= 0; };
  auto isSilent = [&](const PendingConnection &connection) {
    return isUnproved(connection) && connection.handshake->peer() < 0;
  };
  for (int turn = 0; turn < mostAtOnce; ++turn) {
    int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    const bool isFull = socket < 0 && (errno == EMFILE || errno == ENFILE);
    if (socket < 0 && !isFull) return Status::ok();
    auto oldest = std::ranges::find_if(pending, isSilent);
    if (oldest == pending.end()) oldest = std::ranges::find_if(pending, isUnproved);
    if (isFull && oldest == pending.end())
      return runError(fmt::format("rank {} cannot take a connection: {}", self.rank, std::strerror(errno)));
    if (isFull || std::ranges::count_if(pending, isUnproved) >= mostUnproved)
      leave(*oldest, "gave its place to a later one");
    if (isFull) continue;
    PendingConnection &connection = pending.emplace_back();
    connection.socket = socket;
    connection.until = Now::now() + handshakeTime;
    connection.handshake = Handshake::asListener(key, self);
  }
  return Status::ok();
}

Status Acceptor::serve(PendingConnection &connection) {
  if (connection.isConnecting) CLEAVE_RETURN_IF_ERROR(connected(connection));
  return connection.socket >= 0 ? converse(connection) : Status::ok();
}

Status Acceptor::connected(PendingConnection &connection) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(connection.socket, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    leave(connection, std::strerror(error));
    return Status::ok();
  }
  connection.isConnecting = false;
  CLEAVE_ASSIGN_OR_RETURN(uint16_t port, portToTell(connection.socket));
  connection.handshake = Handshake::asJoiner(key, self, connection.join->peer, connection.join->lane, port);
  return Status::ok();
}

// Sends and receives as far as the connection goes now.
Status Acceptor::converse(PendingConnection &connection) {
  Handshake &handshake = *connection.handshake;
  while (true) {
    const bool sends = connection.sent < handshake.outgoing().size();
    if (!sends && handshake.state() != Handshake::State::Open) return ended(connection);
    std::span<const std::byte> rest = handshake.outgoing().subspan(connection.sent);
    std::byte bytes[256];
    ssize_t moved = sends ? ::send(connection.socket, rest.data(), rest.size(), MSG_NOSIGNAL)
                          : ::recv(connection.socket, bytes, std::min(handshake.wanted(), sizeof bytes), 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) return Status::ok();
    if (moved <= 0) {
      // A refusal stands whether the other side hears it or not.
      if (sends && handshake.state() == Handshake::State::Refused) return ended(connection);
      leave(connection, "closed the connection");
      return Status::ok();
    }
    if (sends) {
      connection.sent += static_cast<size_t>(moved);
      continue;
    }
    if (!connection.join && handshake.peer() >= 0) handshake.setTaken(isTaken(handshake.lane(), handshake.peer()));
    handshake.take(std::span(bytes, static_cast<size_t>(moved)));
  }
}

Status Acceptor::ended(PendingConnection &connection) {
  const Handshake &handshake = *connection.handshake;
  switch (handshake.state()) {
  case Handshake::State::Met: {
    Address where = peerAddress(connection.socket);
    if (connection.join) lastObstacle.clear();
    onMet({std::exchange(connection.socket, -1), handshake.peer(), handshake.lane(), !connection.join, where,
           handshake.port()});
    return Status::ok();
  }
  case Handshake::State::Refused:
    return refused(connection);
  default:
    leave(connection, connection.join ? "the program listening there is not Cleave" : "spoke no handshake");
    return Status::ok();
  }
}

Status Acceptor::refused(PendingConnection &connection) {
  const Handshake &handshake = *connection.handshake;
  std::string where = peerAddress(connection.socket).text(), why = text(handshake.refusal());
  // One that has proved itself and does not fit ends the run, as nobody else will take its place; but another process
  // may hold the place that this one wants, also one that comes when the ranks have met and know their run.
  bool isFatal = connection.join || (handshake.isProved() && handshake.refusal() != Handshake::Refusal::Taken &&
                                     handshake.refusal() != Handshake::Refusal::Run);
  leave(connection, fmt::format("as rank {}: {}", handshake.peer(), why));
  if (!isFatal) return Status::ok();
  return inputError(
      fmt::format("rank {} and rank {} at {} do not belong together: {}", self.rank, handshake.peer(), where, why));
}

// A join is tried again; of a stranger it is kept that there was one.
void Acceptor::leave(PendingConnection &connection, const std::string &why) {
  std::string where = connection.socket >= 0 ? peerAddress(connection.socket).text() : "";
  if (connection.socket >= 0) ::close(std::exchange(connection.socket, -1));
  if (connection.join) {
    const Join &join = *connection.join;
    lastObstacle = fmt::format("cannot reach rank {} at {}: {}", join.peer,
                               join.to[(join.attempt - 1) % join.to.size()].text(), why);
    joins.push_back({join.peer, join.lane, join.to, Now::now() + retryTime, join.attempt});
    return;
  }
  ++unauthenticated;
  lastUnauthenticated = fmt::format("from {}, which {}", where, why);
}

} // namespace cleave::runtime::tcp
