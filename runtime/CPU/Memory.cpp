//===- Memory.cpp - the memory of a segment -------------------------------===//

#include "runtime/CPU/Memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace nsa;

Result<PageMemory> PageMemory::allocate(uint64_t bytes) {
  PageMemory memory;
  memory.bytes = bytes;
  memory.mapped = std::max<uint64_t>(bytes, 1);
  memory.address = ::mmap(nullptr, memory.mapped, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory.address == MAP_FAILED) {
    memory.address = nullptr;
    return Error{"no memory for " + std::to_string(bytes) +
                 " bytes: " + std::strerror(errno)};
  }
  // Only a hint: large pages save time where the system has them.
  ::madvise(memory.address, memory.mapped, MADV_HUGEPAGE);
  return memory;
}

PageMemory::PageMemory(PageMemory &&other) noexcept
    : address(std::exchange(other.address, nullptr)),
      mapped(std::exchange(other.mapped, 0)),
      bytes(std::exchange(other.bytes, 0)) {}

PageMemory &PageMemory::operator=(PageMemory &&other) noexcept {
  std::swap(address, other.address);
  std::swap(mapped, other.mapped);
  std::swap(bytes, other.bytes);
  return *this;
}

PageMemory::~PageMemory() {
  if (address)
    ::munmap(address, mapped);
}

void nsa::discardPages(void *data, uint64_t bytes) {
  auto page = uint64_t(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uint64_t>(data);
  uint64_t first = (begin + page - 1) / page * page;
  uint64_t end = (begin + bytes) / page * page;
  if (first < end)
    ::madvise(static_cast<char *>(data) + (first - begin), end - first,
              MADV_DONTNEED);
}
