//===- RefusedSchedules.h - what the assembler has refused ------*- C++ -*-===//
//
// Of the list of a kernel's schedules the first one is taken that is not
// refused, so that refused ones are a prefix: a number for each kernel. Answers
// of ptxas are kept in the folder of NSA_KERNEL_CACHE; those for the shapes of
// public models come with the compiler.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_COMPILER_REFUSEDSCHEDULES_H
#define NSA_LIB_COMPILER_REFUSEDSCHEDULES_H

#include "lib/Target/CUDA/CUDAChip.h"
#include "mlir/IR/BuiltinOps.h"
#include "nsa/Support/Result.h"
#include <map>
#include <optional>
#include <string>

namespace nsa {

class RefusedSchedules {
public:
  /// `ptxas` is the program, or empty where none is run.
  RefusedSchedules(const CUDAChip &chip, std::string ptxas)
      : chip(chip), ptxas(std::move(ptxas)) {}

  /// Adds what earlier compilations have found for the kernels of a module.
  /// Whether some kernel has another schedule now.
  bool addKnown(mlir::ModuleOp module);
  /// Adds the schedules of kernels that are marked as refused, but for those
  /// after which there are no others.
  /// `isAssembled` says that those which are not marked are good.
  bool addMarked(mlir::ModuleOp module, bool isAssembled);
  /// Leaves out the code of all kernels but those of which it is not known yet
  /// whether their schedules are refused.
  void keepUnknown(mlir::ModuleOp module) const;
  /// Says what is refused to the conversion of a module to kernels.
  void writeTo(mlir::ModuleOp module) const;
  /// Keeps what was found for a module whose kernels were assembled.
  Status keep(mlir::ModuleOp module);

private:
  int64_t find(llvm::StringRef kernel);
  /// The file of the answer for a kernel; empty without a folder.
  std::string getFile(llvm::StringRef kernel);

  const CUDAChip &chip;
  std::string ptxas;
  /// The version of ptxas, once it is asked for.
  std::optional<std::string> version;
  /// How many schedules of a kernel's list are refused.
  std::map<std::string, int64_t> counts;
  /// The schedules of kernels that were assembled and not refused.
  std::map<std::string, int64_t> accepted;
  /// Values that were read from files.
  std::map<std::string, int64_t> kept;
};

} // namespace nsa

#endif // NSA_LIB_COMPILER_REFUSEDSCHEDULES_H
