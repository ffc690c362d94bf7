//===- Compiler.cpp - from MLIR text to an artefact -----------------------===//

#include "nsa/Compiler/Compiler.h"
#include "lib/Compiler/Driver.h"
#include "lib/Target/Artifact/ArtifactWriter.h"
#include "lib/Target/CUDA/CUDAChip.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Artifact/LaunchOverlap.h"
#include "nsa/Artifact/TrainingContract.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace nsa;

double nsa::CompileReport::totalSeconds() const {
  double total = 0;
  for (const auto &[phase, time] : seconds)
    total += time;
  return total;
}

const std::vector<std::string> &nsa::compilerPhases() {
  static const std::vector<std::string> phases = {
      "precision", "gradient",   "optimizer", "kernel", "buffer",
      "schedule",  "collective", "plan",      "binary"};
  return phases;
}

const std::vector<std::string> &nsa::gpuPhases() {
  static const std::vector<std::string> phases = {"layout", "nvvm", "ptx"};
  return phases;
}

/// The phase of this name for `target`, or an error that lists the names. The
/// binary phase makes PTX.
static Result<Phase> findPhase(const std::string &name,
                               const std::string &target) {
  if (llvm::is_contained(gpuPhases(), name) && target == artifact::cpuTarget)
    return Error{"phase '" + name + "' needs a GPU as target, not " + target};
  if (name == "ptx")
    return Phase::Binary;
  for (unsigned number = 0; number <= static_cast<unsigned>(Phase::Binary);
       ++number)
    if (auto phase = static_cast<Phase>(number); getPhaseName(phase) == name)
      return phase;
  return Error{"unknown phase '" + name + "'; the phases are " +
               llvm::join(compilerPhases(), ", ") + " and, for GPUs, " +
               llvm::join(gpuPhases(), ", ")};
}

static ArtifactMetadata makeMetadata(const CompilerOptions &options,
                                     const CPUDescription &cpu) {
  ArtifactMetadata metadata;
  metadata.producer = "nsa " NSA_VERSION;
  metadata.target = options.target;
  bool isCPU = options.target == artifact::cpuTarget;
  metadata.cpu = isCPU ? cpu.name : options.target;
  if (isCPU)
    metadata.cpuFeatures = cpu.features;
  // What entries there are is said where they are others; so are lines.
  static constexpr StringRef unusualOptions[] = {"context",
                                                 "prefill-chunk",
                                                 "pages",
                                                 training::sampleContextOption,
                                                 "forward",
                                                 "selection",
                                                 "replay-selection",
                                                 "line-info"};
  const CompilerOptions usual;
  for (const OptionField &field : optionFields())
    if (!llvm::is_contained(unusualOptions, field.name) ||
        field.read(options) != field.read(usual))
      metadata.options.emplace_back(field.name, field.read(options));
  bool decodes = options.context != 0 || options.sampleContext != 0;
  const CUDAChip *chip = findCUDAChip(options.target);
  if (decodes && chip && chip->wgmma)
    for (const char *entry : {training::decodeEntry, training::nextEntry})
      metadata.options.emplace_back(artifact::overlappedEntryOption, entry);
  return metadata;
}

Result<CompiledArtifact> nsa::compile(const std::string &source,
                                      const std::string &name,
                                      const CompilerOptions &options,
                                      const DebugOptions &debug) {
  Driver driver(options, debug);
  if (failed(driver.parse(source, name)) ||
      failed(driver.runPhases(Phase::Binary)))
    return Error{driver.takeMessages()};
  CompiledArtifact artifact;
  LogicalResult written = driver.timed("write", [&]() -> LogicalResult {
    FailureOr<std::string> bytes =
        writeArtifact(driver.getModule(), driver.getImages(),
                      makeMetadata(driver.getOptions(), driver.getCPU()));
    if (succeeded(bytes))
      artifact.bytes = std::move(*bytes);
    return bytes;
  });
  if (failed(written))
    return Error{driver.takeMessages()};
  artifact.report = driver.getReport();
  driver.passOnMessages();
  return artifact;
}

Result<std::string> nsa::compileTo(const std::string &phase,
                                   const std::string &source,
                                   const std::string &name,
                                   const CompilerOptions &options,
                                   const DebugOptions &debug) {
  NSA_ASSIGN_OR_RETURN(Phase last, findPhase(phase, options.target));
  Driver driver(options, debug);
  if (failed(driver.parse(source, name)) || failed(driver.runPhases(last)))
    return Error{driver.takeMessages()};
  driver.passOnMessages();
  if (phase == "ptx")
    return driver.getPTX().str();
  return driver.getText();
}

Result<CompileReport> nsa::estimate(const std::string &source,
                                    const std::string &name,
                                    const CompilerOptions &options,
                                    const DebugOptions &debug) {
  Driver driver(options, debug);
  if (failed(driver.parse(source, name)) ||
      failed(driver.runPhases(Phase::Plan)))
    return Error{driver.takeMessages()};
  driver.passOnMessages();
  return driver.getReport();
}
