//===- Features.cpp - what libFuzzer counts besides edges -----------------===//

#include "test/fuzz/Opt/Features.h"

#include "mlir/IR/Operation.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace nsa::fuzz;

/// libFuzzer finds these counters by their section and clears them before each
/// input.
__attribute__((
    section("__libfuzzer_extra_counters"))) static uint8_t counters[1 << 15];

static void count(uint64_t hash) {
  uint8_t &counter = counters[hash % sizeof counters];
  counter += counter < 255;
}

void nsa::fuzz::countFeature(llvm::StringRef text) {
  std::string kept;
  bool quoted = false;
  for (char c : text) {
    quoted ^= c == '\'' || c == '"' || c == '`';
    // Types and names after these come from the input.
    if (!quoted && llvm::StringRef("<%@#!([{").contains(c))
      break;
    if (!quoted && !llvm::isDigit(c))
      kept += c;
  }
  count(llvm::xxh3_64bits(kept));
}

void FeatureInstrumentation::runAfterPass(Pass *pass, Operation *op) {
  llvm::StringMap<unsigned> numbers;
  op->walk(
      [&](Operation *inner) { ++numbers[inner->getName().getStringRef()]; });
  for (const auto &entry : numbers)
    count(llvm::xxh3_64bits((pass->getArgument() + ":" + entry.getKey() + ":" +
                             llvm::Twine(llvm::Log2_32(entry.getValue())))
                                .str()));
}

void FeatureInstrumentation::runAfterPassFailed(Pass *pass, Operation *op) {
  countFeature(pass->getArgument());
}
