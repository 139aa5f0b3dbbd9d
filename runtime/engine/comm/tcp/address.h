// Addresses of sockets: of a host's name, of an interface of this host, and as text.
//
//   Result<std::vector<Address>> found = resolve("node1", 29500);    // IPv4 first
//   found->front().text();                                           // "10.0.0.1:29500"
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace cleave::runtime::tcp {

struct Address {
  sockaddr_storage where{};
  socklen_t length = 0;

  const sockaddr *raw() const { return reinterpret_cast<const sockaddr *>(&where); }
  sockaddr *raw() { return reinterpret_cast<sockaddr *>(&where); }
  uint16_t port() const; // in host order
  void setPort(uint16_t port);
  bool isLoopback() const;
  std::string text() const; // "10.0.0.1:29500", "[::1]:29500"
  std::string host() const; // without the port
};

// The addresses of a name, at least one. Error: why there is none.
Result<std::vector<Address>> resolve(const std::string &host, int port);
// An interface's first address, IPv4 first, or the address itself where `interface` is one of this host's; port 0.
// Error: it is neither; the message names the interfaces that are up.
Result<Address> addressOfInterface(const std::string &interface);
// A connected or listening socket's own end, and the other end.
Address ownAddress(int socket);
Address peerAddress(int socket);
// A socket that listens at the address; non-blocking. With port 0 the kernel chooses (ownAddress). -1: errno says why.
int listenAt(const Address &address);
// A socket that begins to connect, from `from` unless null; non-blocking. -1: errno says why.
int beginConnect(const Address &to, const Address *from);

} // namespace cleave::runtime::tcp
