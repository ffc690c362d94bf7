//===- WorkEstimate.h - what runs element by element ------------*- C++ -*-===//
//
// While a kernel is emitted, every loop adds its rough cost here: to the
// kernel's total, and to what runs one element at a time although the processor
// has vectors. Only the ratio counts, so the unit is about a cycle.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_TILETOCPU_WORKESTIMATE_H
#define NSA_PASSES_TILETOCPU_WORKESTIMATE_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"

namespace nsa::cpu {

/// Ways in which a kernel can be slow.
enum class PerformanceLint {
  /// Arithmetic or a transposition, one element at a time.
  ScalarLoop,
  /// A load or store of elements that are no neighbours in memory, or whose
  /// rows are no whole vectors.
  ScalarAccess,
};

/// "scalar-loop" or "scalar-access".
llvm::StringRef getPerformanceLintName(PerformanceLint path);

/// Cycles that a vector costs on its way from or to memory beyond the first
/// cache.
inline constexpr double kAccessCost = 4;

class WorkEstimate {
public:
  /// Work that is added from now on happens `trips` times.
  void enterLoop(double trips) { weights.push_back(weights.back() * trips); }
  void leaveLoop() { weights.pop_back(); }

  /// `count` elements with `cost` each, `lanes` at a time.
  void addVectors(double count, double cost, unsigned lanes) {
    total += weights.back() * count * cost / lanes;
  }
  /// The same for elements that run one by one where `op` is emitted.
  void addScalars(PerformanceLint path, mlir::Operation *op, double count,
                  double cost);

  /// A path that takes a good part of the kernel's time.
  struct Finding {
    PerformanceLint path;
    /// The operation that contributes most.
    mlir::Operation *op;
    /// Of the kernel's time.
    double share;
  };
  /// The performance lints of a kernel with arguments of so many bytes
  /// together: those that take more than a quarter of its time, unless that is
  /// next to nothing.
  llvm::SmallVector<Finding> findPerformanceLints(uint64_t argumentBytes) const;

private:
  struct Part {
    PerformanceLint path;
    mlir::Operation *op;
    double cost;
  };
  llvm::SmallVector<double> weights{1.0};
  double total = 0;
  llvm::SmallVector<Part> parts;
};

} // namespace nsa::cpu

#endif // NSA_PASSES_TILETOCPU_WORKESTIMATE_H
