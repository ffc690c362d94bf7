//===- Socket.cpp - TCP sockets -------------------------------------------===//

#include "runtime/Distributed/Socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace nsa {

Error socketError(const std::string &what) {
  return Error{what + ": " + std::strerror(errno)};
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

static Result<Addresses> lookUp(const std::string &host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo *found = nullptr;
  int code =
      ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0)
    return Error{"cannot resolve '" + host + "': " + ::gai_strerror(code)};
  return Addresses(found, ::freeaddrinfo);
}

static std::string numericHost(const sockaddr *address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

/// An address as one of IPv6, where those of IPv4 have their place too.
static in6_addr toIPv6(const addrinfo &at) {
  if (at.ai_family == AF_INET6)
    return reinterpret_cast<const sockaddr_in6 *>(at.ai_addr)->sin6_addr;
  in6_addr mapped = {};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  std::memcpy(mapped.s6_addr + 12,
              &reinterpret_cast<const sockaddr_in *>(at.ai_addr)->sin_addr, 4);
  return mapped;
}

static bool isLoopback(const addrinfo &at) {
  in6_addr address = toIPv6(at);
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

/// Whether a server at this address would be served at all addresses.
static bool isEveryInterface(const addrinfo &at) {
  in6_addr address = toIPv6(at);
  bool isZeroIPv4 = IN6_IS_ADDR_V4MAPPED(&address) &&
                    std::memcmp(address.s6_addr + 12, "\0\0\0", 4) == 0;
  return IN6_IS_ADDR_UNSPECIFIED(&address) || isZeroIPv4;
}

Result<std::vector<ResolvedAddress>> resolve(const std::string &address) {
  NSA_ASSIGN_OR_RETURN(Addresses found, lookUp(address, 0));
  std::vector<ResolvedAddress> all;
  for (const addrinfo *at = found.get(); at; at = at->ai_next)
    all.push_back({numericHost(at->ai_addr, at->ai_addrlen), isLoopback(*at)});
  return all;
}

std::string addressList(const std::vector<ResolvedAddress> &addresses) {
  std::string text;
  for (const ResolvedAddress &address : addresses)
    text += (text.empty() ? "" : ", ") + address.text;
  return text;
}

static std::string place(const std::string &address, uint16_t port) {
  if (address.find(':') != std::string::npos)
    return "[" + address + "]:" + std::to_string(port);
  return address + ":" + std::to_string(port);
}

/// A socket that listens at an address, or -1 and errno.
static int listenSocket(const addrinfo &at) {
  int fd = ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    at.ai_protocol);
  if (fd < 0)
    return -1;
  int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at.ai_family == AF_INET6)
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, 1024) == 0)
    return fd;
  int saved = errno;
  ::close(fd);
  errno = saved;
  return -1;
}

/// Gives an address the port that another one got.
static void setPort(const addrinfo &at, uint16_t port) {
  if (at.ai_family == AF_INET6)
    reinterpret_cast<sockaddr_in6 *>(at.ai_addr)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in *>(at.ai_addr)->sin_port = htons(port);
}

/// Adds a listener for each address of this machine. What fails with another
/// error than that an address is none of this machine's is an error.
static Status listenAtEach(const Addresses &found, uint16_t port,
                           const std::string &name,
                           std::vector<int> &listeners) {
  std::set<std::string> served;
  for (const addrinfo *at = found.get(); at; at = at->ai_next) {
    if (isEveryInterface(*at))
      return Error{
          "cannot serve the store at " + name +
          ": that is every interface of this machine, not one address"};
    // A file of hosts may name one twice.
    if (!served.insert(numericHost(at->ai_addr, at->ai_addrlen)).second)
      continue;
    setPort(*at, listeners.empty() ? port : boundPortOf(listeners.front()));
    int fd = listenSocket(*at);
    if (fd >= 0)
      listeners.push_back(fd);
    else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      return socketError("cannot serve the store at " + name);
  }
  if (listeners.empty())
    return Error{"cannot serve the store at " + name +
                 ": this machine, that of rank 0, has no such address"};
  return {};
}

Result<std::vector<int>> listenAt(const std::string &address, uint16_t port) {
  NSA_ASSIGN_OR_RETURN(Addresses found, lookUp(address, port));
  std::string name = place(address, port);
  if (Result<std::vector<ResolvedAddress>> resolved = resolve(address))
    if (std::string list = addressList(*resolved); list != address)
      name += " (" + list + ")";
  std::vector<int> listeners;
  if (Status status = listenAtEach(found, port, name, listeners); !status) {
    for (int fd : listeners)
      ::close(fd);
    return Error{status.message()};
  }
  return listeners;
}

static sockaddr_storage nameOf(int fd) {
  sockaddr_storage name = {};
  socklen_t length = sizeof name;
  ::getsockname(fd, reinterpret_cast<sockaddr *>(&name), &length);
  return name;
}

uint16_t boundPortOf(int fd) {
  sockaddr_storage name = nameOf(fd);
  in_port_t port = name.ss_family == AF_INET6
                       ? reinterpret_cast<sockaddr_in6 &>(name).sin6_port
                       : reinterpret_cast<sockaddr_in &>(name).sin_port;
  return ntohs(port);
}

std::string localAddressOf(int fd) {
  sockaddr_storage name = nameOf(fd);
  return numericHost(reinterpret_cast<sockaddr *>(&name), sizeof name);
}

/// Connects to one address until a time, or fails with errno.
static bool connectUntil(int fd, const addrinfo &at,
                         std::chrono::steady_clock::time_point end) {
  if (::connect(fd, at.ai_addr, at.ai_addrlen) == 0)
    return true;
  if (errno != EINPROGRESS)
    return false;
  pollfd polled = {fd, POLLOUT, 0};
  int ready = 0;
  do {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    ready = ::poll(&polled, 1, int(std::max<int64_t>(left.count(), 1)));
  } while (ready < 0 && errno == EINTR);
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (ready > 0)
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

Result<int> connectTo(const std::string &address, uint16_t port,
                      std::chrono::milliseconds timeout) {
  auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    NSA_ASSIGN_OR_RETURN(Addresses found, lookUp(address, port));
    for (const addrinfo *at = found.get(); at; at = at->ai_next) {
      int fd = ::socket(at->ai_family,
                        at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        at->ai_protocol);
      if (fd < 0)
        continue;
      // A machine that does not answer leaves time for its other addresses.
      auto now = std::chrono::steady_clock::now();
      auto own = at->ai_next ? now + (end - now) / 2 : end;
      if (connectUntil(fd, *at, own)) {
        ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        return fd;
      }
      int saved = errno;
      ::close(fd);
      errno = saved;
    }
    if (std::chrono::steady_clock::now() >= end)
      return socketError("cannot reach the store at " + place(address, port));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void sendAtOnce(int fd) {
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<uint16_t> findFreePort() {
  NSA_ASSIGN_OR_RETURN(std::vector<int> listeners, listenAt("127.0.0.1", 0));
  uint16_t port = boundPortOf(listeners.front());
  for (int fd : listeners)
    ::close(fd);
  return port;
}

} // namespace nsa
