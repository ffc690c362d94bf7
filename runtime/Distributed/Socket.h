//===- Socket.h - TCP sockets -----------------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_SOCKET_H
#define NSA_RUNTIME_DISTRIBUTED_SOCKET_H

#include "nsa/Support/Result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

/// "WHAT: " and what errno says.
Error socketError(const std::string &what);

/// What a name, or an address in numbers, means here: at least one address, in
/// numbers.
Result<std::vector<std::string>> resolve(const std::string &address);

/// Whether only processes of this machine reach an address in numbers.
bool isLoopback(std::string_view address);

/// The same addresses in one text, "10.0.0.7, fd00::7".
std::string addressList(const std::vector<std::string> &addresses);

/// Non-blocking sockets that listen at a port, or at a free one for 0, of every
/// address that `address` stands for and this machine has, at one at least, and
/// nowhere else. That one is taken, that none is an address of this machine, or
/// that one means every interface, is an error.
Result<std::vector<int>> listenAt(const std::string &address, uint16_t port);

/// The port that a socket is bound to, and its address without the port.
uint16_t boundPortOf(int fd);
std::string localAddressOf(int fd);

/// A blocking socket that is connected to an address, tried again until
/// `timeout` while nothing listens there.
Result<int> connectTo(const std::string &address, uint16_t port,
                      std::chrono::milliseconds timeout);

/// A port of this machine that was free a moment ago.
Result<uint16_t> findFreePort();

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_SOCKET_H
