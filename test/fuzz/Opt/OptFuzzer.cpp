//===- OptFuzzer.cpp - any text as nsa-opt's input ------------------------===//
//
// The text is parsed with the dialects of nsa-opt. A first line
// "// PIPELINE: passes" names what then runs; without one it is the phases up
// to the memory plan. What is accepted prints as text that parses to the same,
// before and after the passes; what is refused has a diagnostic.
//
// The binary phase is left out: it catches crashes of LLVM's code generator
// and reports them as errors, which is what a fuzzer must not do.
//
//===----------------------------------------------------------------------===//

#include "lib/Compiler/Registration.h"
#include "lib/Compiler/TextLimits.h"
#include "test/fuzz/Fuzz.h"
#include "test/fuzz/Opt/Features.h"
#include "test/fuzz/Opt/TextMutator.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace nsa::fuzz;

// LLVM's own objects are not instrumented, so memory that an arena allocator
// hands out inside them would still count as poisoned.
extern "C" const char *__asan_default_options() {
  return "allow_user_poisoning=0";
}

/// A context for some hundred inputs. It keeps every type and attribute ever
/// made, so it does not live for ever.
static MLIRContext &getContext() {
  static const DialectRegistry registry = [] {
    DialectRegistry registry;
    nsa::registerDialects(registry);
    nsa::registerPasses();
    return registry;
  }();
  static std::unique_ptr<MLIRContext> context;
  static unsigned uses = 0;
  if (!context || ++uses % 200 == 0) {
    context = std::make_unique<MLIRContext>(registry,
                                            MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
  }
  return *context;
}

static std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

/// Printed, parsed and printed again, a module is what it was.
static void requireRoundTrip(ModuleOp module) {
  std::string once = print(module);
  std::string problem;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
    problem += d.str() + "\n";
    return success();
  });
  OwningOpRef<ModuleOp> again =
      parseSourceString<ModuleOp>(once, module.getContext());
  require(bool(again), "a printed module parses", problem + once);
  std::string twice = print(*again);
  require(once == twice, "printing and parsing keep a module",
          once + "\n// and then:\n" + twice);
}

/// The passes that the first line names, or every phase.
static std::string getPipeline(llvm::StringRef text) {
  llvm::StringRef line = text.split('\n').first;
  if (!line.consume_front("// PIPELINE: "))
    return "nsa-pipeline";
  return line.str();
}

static void check(llvm::StringRef text) {
  if (!nsa::findUnparsable(text, "fuzz.mlir").empty())
    return;
  std::string pipeline = getPipeline(text);
  if (llvm::StringRef(pipeline).contains("binary"))
    return;
  MLIRContext &context = getContext();
  PassManager manager(&context, ModuleOp::getOperationName(),
                      OpPassManager::Nesting::Implicit);
  if (failed(parsePassPipeline(pipeline, manager, llvm::nulls())))
    return;
  manager.addInstrumentation(std::make_unique<FeatureInstrumentation>());
  unsigned errors = 0;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    require(!diagnostic.str().empty(), "a diagnostic has a text");
    countFeature(diagnostic.str());
    return success();
  });
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, &context, "fuzz.mlir");
  if (!module)
    return require(errors > 0, "what does not parse has an error");
  requireRoundTrip(*module);
  if (failed(manager.run(*module)))
    return require(errors > 0, "a pass that fails has an error");
  requireRoundTrip(*module);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A null character ends MLIR text.
  std::string text(reinterpret_cast<const char *>(data), size);
  if (text.find('\0') != std::string::npos)
    return -1;
  check(text);
  return 0;
}

//===----------------------------------------------------------------------===//
// Mutations
//===----------------------------------------------------------------------===//

static const TextMutator &getMutator() {
  static const TextMutator mutator = [] {
    std::vector<std::string> words = {
        "f32",  "bf16",  "f16",  "f64",  "i1",    "i32",    "i64",
        "none", "index", "unit", "true", "false", "tensor", "memref"};
    for (RegisteredOperationName name : getContext().getRegisteredOperations())
      words.push_back(name.getStringRef().str());
    return TextMutator(std::move(words));
  }();
  return mutator;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

static size_t store(const std::string &text, uint8_t *data) {
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t maxSize, unsigned seed) {
  if (seed % 8 == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string text(reinterpret_cast<char *>(data), size);
  return store(getMutator().mutate(std::move(text), maxSize, seed), data);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t sizeA,
                                            const uint8_t *b, size_t sizeB,
                                            uint8_t *out, size_t maxSize,
                                            unsigned seed) {
  std::string first(reinterpret_cast<const char *>(a), sizeA);
  std::string second(reinterpret_cast<const char *>(b), sizeB);
  return store(TextMutator::cross(first, second, maxSize, seed), out);
}
