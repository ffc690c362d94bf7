//===- DebugObject.h - code in memory, for debuggers ------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_DEBUGOBJECT_H
#define NSA_RUNTIME_CPU_DEBUGOBJECT_H

#include <memory>
#include <string>

namespace nsa {

/// An ELF object that debuggers know while this exists, by GDB's JIT interface
/// ("JIT Compilation Interface" in its manual): backtraces then name functions
/// that no file on disk has. `sh_addr` of its sections says where they lie.
class DebugObject {
public:
  explicit DebugObject(std::string object);

private:
  struct Entry;
  std::shared_ptr<Entry> entry;
};

} // namespace nsa

#endif // NSA_RUNTIME_CPU_DEBUGOBJECT_H
