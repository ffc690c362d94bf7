//===- Emulator.h - CUDA kernels without a GPU ------------------*- C++ -*-===//
//
// Runs what `nsa-tile-to-nvvm-llvm` makes of tile kernels: all threads of a
// block with their shared memory, barriers and collectives, one block after
// another. It checks what a GPU does not: bounds of every argument and of
// shared memory, alignment, values that are unwritten, threads that meet
// at one word, phases of mbarriers and wgmmas in flight.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_EMULATOR_H
#define NSA_TEST_UNIT_EMULATOR_EMULATOR_H

#include "mlir/IR/BuiltinOps.h"
#include "nsa/Support/Result.h"
#include "test/unit/Emulator/Machine.h"

#include <map>
#include <memory>

namespace nsa::emulator {

/// What a launch gives a kernel that takes extents: these, and the extents and
/// strides of its tensor maps.
struct LaunchSizes {
  struct Map {
    std::vector<int64_t> extents, strides;
  };
  std::vector<uint64_t> extents;
  std::vector<Map> maps;
};

/// The kernels of a module of the LLVM and NVVM dialects.
class Emulator {
public:
  /// Reads a module as text. The kernels are translated at their first launch.
  static Result<std::unique_ptr<Emulator>> parse(const std::string &text);

  /// Runs all blocks of a kernel. What its tensor maps describe, an attribute
  /// says, or `sizes` if it takes the extents of a launch: they are no
  /// arguments. The error says which thread of which block did what wrong, in
  /// which operation.
  Status launch(const std::string &symbol, Dim3 grid,
                const std::vector<Argument> &arguments,
                const LaunchSizes &sizes = {});

  /// Instructions of all launches so far, each of up to 32 threads.
  uint64_t executed() const { return instructions; }

private:
  Emulator();
  Result<const Code *> find(const std::string &symbol);
  std::string takeMessages();

  std::string messages;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::map<std::string, std::unique_ptr<Code>> kernels;
  uint64_t instructions = 0;
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_EMULATOR_H
