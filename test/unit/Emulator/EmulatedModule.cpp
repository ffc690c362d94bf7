//===- EmulatedModule.cpp - modules compiled for the emulator -------------===//

#include "test/unit/Emulator/EmulatedModule.h"
#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Compiler/Driver.h"
#include "lib/Support/Hash.h"
#include "lib/Target/Artifact/ArtifactWriter.h"
#include "lib/Target/CUDA/ArgumentAlignment.h"
#include "lib/Target/CUDA/CUDABinary.h"
#include "lib/Target/CUDA/LaunchOverlap.h"
#include "lib/Target/OutlinedKernels.h"
#include "mlir/Pass/PassManager.h"
#include "passes/TileGPU/Passes.h"

#include <cstdlib>

using namespace mlir;
using namespace nsa;
using namespace nsa::emulator;

/// Lowers the kernels as the phases of GPUs do and gives their text.
static FailureOr<std::string> lowerKernels(ModuleOp module,
                                           const CUDAChip &chip) {
  noteArgumentAlignment(module);
  noteLaunchOverlap(module);
  OutlinedKernels detached(module);
  PassManager manager(module.getContext());
  // Shapes of tests are small: in every other module a warpgroup copies for
  // others wherever that is possible, in the rest where it pays.
  std::string source;
  llvm::raw_string_ostream(source) << *detached.getSources();
  bool isEager = hashBytes(source.data(), source.size()) % 2 == 0;
  buildTileToNVVMPipeline(manager, chip.sharedLimit, chip.wgmma,
                          isEager ? 0 : kProducerSums);
  if (failed(manager.run(detached.getSources())) ||
      failed(describeLaunches(detached)))
    return failure();
  std::string text;
  llvm::raw_string_ostream(text) << *detached.getSources();
  return text;
}

static void dump(const std::string &text) {
  const char *path = std::getenv("NSA_EMULATOR_DUMP");
  if (!path)
    return;
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << text;
}

Result<CompiledArtifact>
nsa::emulator::compileForEmulator(const std::string &text,
                                  const CompilerOptions &options) {
  Driver driver(options, {});
  const CUDAChip *chip = findCUDAChip(options.target);
  if (!chip)
    return Error{"'" + options.target + "' is no GPU"};
  if (failed(driver.parse(text, "test.mlir")) ||
      failed(driver.runPhases(Phase::Plan)))
    return Error{driver.takeMessages()};
  ModuleOp module = driver.getModule();
  std::string image;
  if (!module.getOps<tile::KernelOp>().empty()) {
    FailureOr<std::string> lowered = lowerKernels(module, *chip);
    if (failed(lowered))
      return Error{driver.takeMessages()};
    image = std::move(*lowered);
    dump(image);
    auto builder = OpBuilder::atBlockBegin(module.getBody());
    rt::BinaryOp::create(builder, module.getLoc(), "kernels", kEmulatedFormat,
                         chip->name, image.size(),
                         toHex(hashBytes(image.data(), image.size())));
  }
  ArtifactMetadata metadata;
  metadata.producer = "emulator test";
  metadata.target = options.target;
  metadata.cpu = options.target;
  FailureOr<std::string> bytes =
      writeArtifact(module, {ArrayRef(image.data(), image.size())}, metadata);
  if (failed(bytes))
    return Error{driver.takeMessages()};
  CompiledArtifact artifact;
  artifact.bytes = std::move(*bytes);
  return artifact;
}
