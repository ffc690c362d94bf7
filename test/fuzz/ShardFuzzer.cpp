//===- ShardFuzzer.cpp - any bytes as a token shard -----------------------===//

#include "runtime/Data/Shard.h"
#include "test/fuzz/Fuzz.h"

#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace nsa;
using namespace nsa::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int fd = ::memfd_create("shard", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  require(::ftruncate(fd, 0) == 0 &&
              ::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size),
          "a file in memory can be written");
  Result<Shard> shard = Shard::open(path);
  if (!shard) {
    requireMessage(shard.message());
    return 0;
  }
  require(shardHeaderBytes + shard->size() * shard->tokenBytes() == size,
          "the tokens fill the file");
  std::vector<char> tokens(shard->size() * shard->tokenBytes());
  require(shard->read(0, shard->size(), tokens.data()).ok(),
          "the tokens can be read");
  touch(tokens.data(), tokens.size());
  return 0;
}
