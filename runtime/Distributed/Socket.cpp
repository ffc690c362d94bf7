//===- Socket.cpp - TCP sockets -------------------------------------------===//

#include "runtime/Distributed/Socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace nsa {

using Clock = std::chrono::steady_clock;

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

/// An address and a port, in numbers.
static std::pair<std::string, std::string> inNumbers(const sockaddr *address,
                                                     socklen_t length) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  ::getnameinfo(address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, port};
}

/// An address of IPv4 that is written as one of IPv6.
static constexpr std::string_view mappedPrefix = "::ffff:";

bool isLoopback(std::string_view address) {
  if (address.substr(0, mappedPrefix.size()) == mappedPrefix)
    address.remove_prefix(mappedPrefix.size());
  return address == "::1" || address.substr(0, 4) == "127.";
}

/// Whether a server at this address would be served at all addresses.
static bool isEveryInterface(std::string_view address) {
  return address == "::" || address == "0.0.0.0" || address == "::ffff:0.0.0.0";
}

Result<std::vector<std::string>> resolve(const std::string &address) {
  NSA_ASSIGN_OR_RETURN(Addresses found, lookUp(address, 0));
  std::vector<std::string> all;
  for (const addrinfo *at = found.get(); at; at = at->ai_next) {
    std::string text = inNumbers(at->ai_addr, at->ai_addrlen).first;
    // A file of hosts may name one twice.
    if (std::find(all.begin(), all.end(), text) == all.end())
      all.push_back(text);
  }
  return all;
}

std::string addressList(const std::vector<std::string> &addresses) {
  std::string text;
  for (const std::string &address : addresses)
    text += (text.empty() ? "" : ", ") + address;
  return text;
}

static std::string place(const std::string &address, uint16_t port) {
  bool isIPv6 = address.find(':') != std::string::npos;
  return (isIPv6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

/// A socket that sends small messages without waiting for more, or -1.
static int openSocket(const addrinfo &at) {
  int fd =
      ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static void closeKeepingErrno(int fd) {
  int saved = errno;
  ::close(fd);
  errno = saved;
}

/// A socket that listens at an address, or -1 and errno.
static int listenSocket(const addrinfo &at) {
  int fd = openSocket(at);
  if (fd < 0)
    return -1;
  int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at.ai_family == AF_INET6)
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, 1024) == 0)
    return fd;
  closeKeepingErrno(fd);
  return -1;
}

/// Adds a listener for each address that this machine has. What fails for
/// another reason is an error.
static Status listenAtEach(const std::vector<std::string> &addresses,
                           uint16_t port, const std::string &name,
                           std::vector<int> &listeners) {
  for (const std::string &address : addresses) {
    if (isEveryInterface(address))
      return Error{
          "cannot serve the store at " + name +
          ": that is every interface of this machine, not one address"};
    NSA_ASSIGN_OR_RETURN(Addresses at,
                         lookUp(address, listeners.empty()
                                             ? port
                                             : boundPortOf(listeners.front())));
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
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> addresses, resolve(address));
  std::string name = place(address, port);
  if (std::string list = addressList(addresses); list != address)
    name += " (" + list + ")";
  std::vector<int> listeners;
  Status status = listenAtEach(addresses, port, name, listeners);
  if (status)
    return listeners;
  for (int fd : listeners)
    ::close(fd);
  return status.takeError();
}

static std::pair<std::string, std::string> nameOf(int fd) {
  sockaddr_storage name = {};
  socklen_t length = sizeof name;
  auto *address = reinterpret_cast<sockaddr *>(&name);
  ::getsockname(fd, address, &length);
  return inNumbers(address, length);
}

uint16_t boundPortOf(int fd) {
  return uint16_t(std::strtol(nameOf(fd).second.c_str(), nullptr, 10));
}

std::string localAddressOf(int fd) { return nameOf(fd).first; }

/// A socket that is connected to an address before a time, or -1 and errno.
static int connectSocket(const addrinfo &at, Clock::time_point end) {
  int fd = openSocket(at);
  if (fd < 0)
    return -1;
  auto left =
      std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now());
  // That of sending is also that of connecting; 0 is no limit.
  timeval most = {};
  most.tv_sec = std::max<int64_t>(left.count(), 0) / 1000000;
  most.tv_usec = std::max<int64_t>(left.count() % 1000000, 1);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  if (::connect(fd, at.ai_addr, at.ai_addrlen) == 0) {
    most = {};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    return fd;
  }
  if (errno == EINPROGRESS)
    errno = ETIMEDOUT;
  closeKeepingErrno(fd);
  return -1;
}

Result<int> connectTo(const std::string &address, uint16_t port,
                      std::chrono::milliseconds timeout) {
  auto end = Clock::now() + timeout;
  while (true) {
    NSA_ASSIGN_OR_RETURN(Addresses found, lookUp(address, port));
    for (const addrinfo *at = found.get(); at; at = at->ai_next) {
      // A machine that does not answer leaves time for its other addresses.
      auto now = Clock::now();
      int fd = connectSocket(*at, at->ai_next ? now + (end - now) / 2 : end);
      if (fd >= 0)
        return fd;
    }
    if (Clock::now() >= end)
      return socketError("cannot reach the store at " + place(address, port));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

Result<uint16_t> findFreePort() {
  NSA_ASSIGN_OR_RETURN(std::vector<int> listeners, listenAt("127.0.0.1", 0));
  uint16_t port = boundPortOf(listeners.front());
  for (int fd : listeners)
    ::close(fd);
  return port;
}

} // namespace nsa
