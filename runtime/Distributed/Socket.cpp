//===- Socket.cpp - TCP sockets -------------------------------------------===//

#include "runtime/Distributed/Socket.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
  return address + ":" + std::to_string(port);
}

Result<int> listenAt(const std::string &address, uint16_t port) {
  bool loopback = address == "localhost" || address == "::1" ||
                  address.compare(0, 4, "127.") == 0;
  // Without a name, IPv4 comes first, and every interface is meant.
  Result<Addresses> found = loopback ? lookUp(address.c_str(), port, 0)
                                     : lookUp(nullptr, port, AI_PASSIVE);
  if (!found)
    return found.takeError();
  const addrinfo &at = **found;
  int fd = ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    at.ai_protocol);
  if (fd < 0)
    return socketError("cannot make a socket");
  int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, 256) == 0)
    return fd;
  Error error =
      socketError("cannot serve the store at " + place(address, port));
  ::close(fd);
  return error;
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

Result<int> connectTo(const std::string &address, uint16_t port,
                      std::chrono::milliseconds timeout) {
  auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    Result<Addresses> found = lookUp(address.c_str(), port, 0);
    if (!found)
      return found.takeError();
    for (const addrinfo *at = found->get(); at; at = at->ai_next) {
      int fd = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC,
                        at->ai_protocol);
      if (fd < 0)
        continue;
      if (::connect(fd, at->ai_addr, at->ai_addrlen) == 0)
        return fd;
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
