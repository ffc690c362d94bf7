//===- WorkEstimate.cpp - what runs element by element --------------------===//

#include "passes/TileToCPU/WorkEstimate.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;
using namespace nsa::cpu;

/// Of a kernel's time, from which on a path is slow.
static constexpr double slowShare = 0.25;

llvm::StringRef nsa::cpu::getPerformanceLintName(PerformanceLint path) {
  switch (path) {
  case PerformanceLint::ScalarLoop:
    return kScalarLoopPath;
  case PerformanceLint::ScalarAccess:
    return kScalarAccessPath;
  }
  llvm_unreachable("unknown performance lint");
}

void WorkEstimate::addScalars(PerformanceLint path, Operation *op, double count,
                              double cost) {
  cost *= weights.back() * count;
  total += cost;
  parts.push_back({path, op, cost});
}

SmallVector<WorkEstimate::Finding>
WorkEstimate::findPerformanceLints(uint64_t argumentBytes) const {
  SmallVector<Finding> findings;
  if (argumentBytes < kNegligibleBytes)
    return findings;
  for (PerformanceLint path :
       {PerformanceLint::ScalarLoop, PerformanceLint::ScalarAccess}) {
    double cost = 0;
    const Part *largest = nullptr;
    for (const Part &part : parts) {
      if (part.path != path)
        continue;
      cost += part.cost;
      if (!largest || part.cost > largest->cost)
        largest = &part;
    }
    if (cost > slowShare * total)
      findings.push_back({path, largest->op, cost / total});
  }
  return findings;
}
