//===- Socket.h - TCP sockets -----------------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_SOCKET_H
#define NSA_RUNTIME_DISTRIBUTED_SOCKET_H

#include "nsa/Support/Result.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace nsa {

/// "WHAT: " and what errno says.
Error socketError(const std::string &what);

/// A non-blocking socket that listens at a port, or at a free one for 0: on the
/// loopback interface if `address` is one of its addresses, else on all.
Result<int> listenAt(const std::string &address, uint16_t port);

/// The port that a socket is bound to, and its address without the port.
uint16_t boundPortOf(int fd);
std::string localAddressOf(int fd);

/// Whether an address has a meaning here.
Status checkAddress(const std::string &address);

/// A blocking socket that is connected to an address, tried again until
/// `timeout` while nobody listens there.
Result<int> connectTo(const std::string &address, uint16_t port,
                      std::chrono::milliseconds timeout);

/// Sends small messages without waiting for more.
void sendAtOnce(int fd);

/// A port of this machine that was free a moment ago.
Result<uint16_t> findFreePort();

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_SOCKET_H
