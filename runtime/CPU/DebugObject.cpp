//===- DebugObject.cpp - code in memory, for debuggers --------------------===//

#include "runtime/CPU/DebugObject.h"

#include <cstdint>
#include <mutex>

using namespace nsa;

// Names and layout are GDB's: it stops in the function and reads the variable.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
struct JitCodeEntry {
  JitCodeEntry *next = nullptr, *prev = nullptr;
  const char *symfile_addr = nullptr;
  uint64_t symfile_size = 0;
};

struct JitDescriptor {
  uint32_t version;
  uint32_t action;
  JitCodeEntry *relevant;
  JitCodeEntry *first;
};

[[gnu::visibility("default")]] JitDescriptor __jit_debug_descriptor = {
    1, 0, nullptr, nullptr};

[[gnu::visibility("default"), gnu::noinline]] void __jit_debug_register_code() {
  asm volatile("" ::: "memory");
}
}

enum Action : uint32_t { Register = 1, Unregister = 2 };

static std::mutex mutex;

static void report(Action action, JitCodeEntry &entry) {
  __jit_debug_descriptor.action = action;
  __jit_debug_descriptor.relevant = &entry;
  __jit_debug_register_code();
}

struct DebugObject::Entry : JitCodeEntry {
  explicit Entry(std::string bytes) : object(std::move(bytes)) {
    std::lock_guard lock(mutex);
    symfile_addr = object.data();
    symfile_size = object.size();
    next = __jit_debug_descriptor.first;
    if (next)
      next->prev = this;
    __jit_debug_descriptor.first = this;
    report(Register, *this);
  }

  ~Entry() {
    std::lock_guard lock(mutex);
    (prev ? prev->next : __jit_debug_descriptor.first) = next;
    if (next)
      next->prev = prev;
    report(Unregister, *this);
  }

  const std::string object;
};
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

DebugObject::DebugObject(std::string object)
    : entry(std::make_shared<Entry>(std::move(object))) {}
