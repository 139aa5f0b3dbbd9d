#include "runtime/engine/comm/tcp/address.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

namespace cleave::runtime::tcp {
namespace {

Address addressFrom(const sockaddr *from, size_t bytes) {
  Address address;
  std::memcpy(&address.where, from, bytes);
  address.length = static_cast<socklen_t>(bytes);
  return address;
}

bool isSameHost(const Address &a, const Address &b) {
  return a.where.ss_family == b.where.ss_family && a.host() == b.host();
}

void closeKeepingError(int socket) {
  int error = errno;
  ::close(socket);
  errno = error;
}

} // namespace

uint16_t Address::port() const {
  return ntohs(where.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6 &>(where).sin6_port
                                           : reinterpret_cast<const sockaddr_in &>(where).sin_port);
}

void Address::setPort(uint16_t port) {
  if (where.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6 &>(where).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in &>(where).sin_port = htons(port);
}

bool Address::isLoopback() const {
  if (where.ss_family == AF_INET6) {
    const in6_addr &address = reinterpret_cast<const sockaddr_in6 &>(where).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
  }
  return ntohl(reinterpret_cast<const sockaddr_in &>(where).sin_addr.s_addr) >> 24 == 127;
}

std::string Address::host() const {
  char name[NI_MAXHOST] = "?";
  ::getnameinfo(raw(), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
  return name;
}

std::string Address::text() const {
  return where.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host(), port()) : fmt::format("{}:{}", host(), port());
}

Result<std::vector<Address>> resolve(const std::string &host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0)
    return inputError(code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code));
  std::vector<Address> addresses;
  for (const addrinfo *at = found; at; at = at->ai_next)
    if (at->ai_family == AF_INET || at->ai_family == AF_INET6)
      addresses.push_back(addressFrom(at->ai_addr, at->ai_addrlen));
  ::freeaddrinfo(found);
  std::ranges::stable_partition(addresses, [](const Address &address) { return address.where.ss_family == AF_INET; });
  if (addresses.empty()) return inputError("it has no address of IPv4 or IPv6");
  return addresses;
}

Result<Address> addressOfInterface(const std::string &interface) {
  ifaddrs *all = nullptr;
  if (::getifaddrs(&all) != 0) return runError(fmt::format("cannot list the interfaces: {}", std::strerror(errno)));
  std::vector<std::string> names;
  std::vector<Address> fits;
  Result<std::vector<Address>> wanted = inputError("a name");
  if (interface.find_first_not_of("0123456789.") == std::string::npos || interface.find(':') != std::string::npos)
    wanted = resolve(interface, 0);
  for (const ifaddrs *at = all; at; at = at->ifa_next) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP)) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address address = addressFrom(at->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (at->ifa_name == interface || (wanted && isSameHost(address, wanted->front()))) fits.push_back(address);
    names.push_back(fmt::format("{} ({})", at->ifa_name, address.host()));
  }
  ::freeifaddrs(all);
  if (fits.empty())
    return inputError(
        fmt::format("'{}' is no interface or address of this host; it has {}", interface, fmt::join(names, ", ")));
  std::ranges::stable_partition(fits, [](const Address &address) { return address.where.ss_family == AF_INET; });
  return fits.front();
}

Address ownAddress(int socket) {
  Address address;
  address.length = sizeof address.where;
  ::getsockname(socket, address.raw(), &address.length);
  return address;
}

Address peerAddress(int socket) {
  Address address;
  address.length = sizeof address.where;
  ::getpeername(socket, address.raw(), &address.length);
  return address;
}

int listenAt(const Address &address) {
  int socket = ::socket(address.where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
  if (socket < 0) return -1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket, address.raw(), address.length) == 0 && ::listen(socket, 4096) == 0) return socket;
  closeKeepingError(socket);
  return -1;
}

int beginConnect(const Address &to, const Address *from) {
  int socket = ::socket(to.where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  bool isBound = !from || ::bind(socket, from->raw(), from->length) == 0;
  if (isBound && (::connect(socket, to.raw(), to.length) == 0 || errno == EINPROGRESS)) return socket;
  closeKeepingError(socket);
  return -1;
}

} // namespace cleave::runtime::tcp
