//===- Features.h - what libFuzzer counts besides edges ---------*- C++ -*-===//
//
// LLVM's libraries are not instrumented, nor is the compiler in a normal build.
// What the modules contain and what diagnostics say stands in for edges: an
// input that shows something new is kept.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_FUZZ_OPT_FEATURES_H
#define NSA_TEST_FUZZ_OPT_FEATURES_H

#include "mlir/Pass/PassInstrumentation.h"

namespace nsa::fuzz {

/// Counts the words of a message as a feature of the input, without numbers,
/// types, names and what stands in quotes.
void countFeature(llvm::StringRef text);

/// Counts which operations there are after each pass, and how many.
class FeatureInstrumentation : public mlir::PassInstrumentation {
public:
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override;
  void runAfterPassFailed(mlir::Pass *pass, mlir::Operation *op) override;
};

} // namespace nsa::fuzz

#endif // NSA_TEST_FUZZ_OPT_FEATURES_H
