//===- Socket.cpp - TCP sockets -------------------------------------------===//

#include "runtime/Distributed/Socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace nsa {

Error socketError(const std::string &what) {
  return Error{what + ": " + std::strerror(errno)};
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

static Result<Addresses> lookUp(const char *host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo *found = nullptr;
  int code = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (code != 0)
    return Error{"cannot resolve '" + std::string(host ? host : "*") +
                 "': " + ::gai_strerror(code)};
  return Addresses(found, ::freeaddrinfo);
}

Status checkAddress(const std::string &address) {
  Result<Addresses> found = lookUp(address.c_str(), 0, 0);
  return found ? Status() : found.takeError();
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
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, 256) == 0)
    return fd;
  int saved = errno;
  ::close(fd);
  errno = saved;
  return -1;
}

/// Of a loopback address the first; else every interface, by IPv6, which takes
/// IPv4 too, or by IPv4 where there is no IPv6.
static Result<int> listenAtAny(const std::string &address, uint16_t port,
                               std::initializer_list<int> families) {
  bool loopback = address == "localhost" || address == "::1" ||
                  address.compare(0, 4, "127.") == 0;
  Result<Addresses> found = loopback ? lookUp(address.c_str(), port, 0)
                                     : lookUp(nullptr, port, AI_PASSIVE);
  if (!found)
    return found.takeError();
  for (int family : families)
    for (const addrinfo *at = found->get(); at; at = at->ai_next) {
      if (!loopback && at->ai_family != family)
        continue;
      int fd = listenSocket(*at);
      // Taken for one family is taken.
      if (fd >= 0 || errno == EADDRINUSE || errno == EACCES)
        return fd;
    }
  return -1;
}

Result<int> listenAt(const std::string &address, uint16_t port) {
  errno = EADDRNOTAVAIL;
  Result<int> fd = listenAtAny(address, port, {AF_INET6, AF_INET});
  if (!fd || *fd >= 0)
    return fd;
  return socketError("cannot serve the store at " + place(address, port));
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
  char host[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<sockaddr *>(&name), sizeof name, host,
                sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
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
    Result<Addresses> found = lookUp(address.c_str(), port, 0);
    if (!found)
      return found.takeError();
    for (const addrinfo *at = found->get(); at; at = at->ai_next) {
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
  Result<int> fd = listenAt("127.0.0.1", 0);
  if (!fd)
    return fd.takeError();
  uint16_t port = boundPortOf(*fd);
  ::close(*fd);
  return port;
}

} // namespace nsa
