//===- CompileHere.cpp - the compiler in a test's own process -------------===//

#include "test/unit/CompiledModule.h"

using namespace nsa;

Result<CompiledArtifact>
nsa::test::compileHere(const std::string &text,
                       const CompilerOptions &options) {
  return compile(text, "test.mlir", options);
}
