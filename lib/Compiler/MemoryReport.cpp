//===- MemoryReport.cpp - what a planned program allocates ----------------===//

#include "lib/Compiler/MemoryReport.h"
#include "dialects/RT/RTOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Analysis/ArenaPacker.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// The sum that a persistent tensor counts in, or null for inputs and outputs.
static uint64_t *findSum(rt::TensorOp tensor, PersistentMemory &memory) {
  switch (tensor.getRole()) {
  case rt::TensorRole::Parameter:
    return &memory.weights;
  case rt::TensorRole::Gradient:
    return &memory.gradients;
  case rt::TensorRole::Constant:
    return &memory.constants;
  case rt::TensorRole::State:
    return tensor.getState() == training::weightState ||
                   training::isGathered(tensor.getSymName())
               ? &memory.weights
           : tensor.getState() ? &memory.optimizer
                               : &memory.state;
  case rt::TensorRole::Input:
  case rt::TensorRole::Output:
    return nullptr;
  }
  llvm_unreachable("unknown role");
}

static uint64_t &findSum(rt::SegmentKind kind, CompileReport &report) {
  switch (kind) {
  case rt::SegmentKind::Persistent:
    return report.persistentBytes;
  case rt::SegmentKind::IO:
    return report.ioBytes;
  case rt::SegmentKind::Arena:
    return report.arenaBytes;
  case rt::SegmentKind::Workspace:
    return report.workspaceBytes;
  case rt::SegmentKind::Host:
    return report.hostBytes;
  }
  llvm_unreachable("unknown kind");
}

/// The entry's peak and the bytes that are alive at its worst command.
static ActivationPeak describePeak(rt::EntryOp entry, uint64_t alignment) {
  std::vector<ArenaBuffer> buffers;
  for (const rt::Lifetime &lifetime : rt::getLifetimes(entry))
    buffers.push_back({rt::getByteSize(rt::BufferOp(lifetime.buffer).getType()),
                       lifetime.first, lifetime.last});
  return {entry.getSymName().str(), uint64_t(entry.getArenaPeak().value_or(0)),
          getPeakLiveBytes(buffers, alignment)};
}

void nsa::describeMemory(ModuleOp module, CompileReport &report) {
  uint64_t alignment = 0;
  for (auto segment : module.getOps<rt::SegmentOp>()) {
    findSum(segment.getKind(), report) += segment.getSize();
    alignment = segment.getAlignment();
  }
  if (alignment == 0)
    return;
  for (auto tensor : module.getOps<rt::TensorOp>()) {
    if (tensor.getRole() == rt::TensorRole::Parameter)
      report.parameters += tensor.getMemoryType().getNumElements();
    if (tensor.getHost())
      continue;
    if (uint64_t *sum = findSum(tensor, report.persistent))
      *sum += alignUp(rt::getByteSize(tensor.getMemoryType()), alignment);
  }
  for (auto entry : module.getOps<rt::EntryOp>())
    if (ActivationPeak peak = describePeak(entry, alignment); peak.bytes > 0) {
      report.liveBytes = std::max(report.liveBytes, peak.liveBytes);
      report.peaks.push_back(std::move(peak));
    }
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

std::string nsa::formatMemory(const CompileReport &report) {
  std::string text;
  llvm::raw_string_ostream os(text);
  auto toMiB = [](uint64_t bytes) { return double(bytes) / (1 << 20); };
  auto print = [&](const char *name, uint64_t bytes, const char *comment = "") {
    os << llvm::formatv("{0,-12} {1,12:f2} MiB{2}\n", name, toMiB(bytes),
                        comment);
  };
  const PersistentMemory &kinds = report.persistent;
  print("persistent", report.persistentBytes);
  print("  weights", kinds.weights);
  print("  optimizer", kinds.optimizer);
  print("  gradients", kinds.gradients);
  print("  constants", kinds.constants);
  print("  state", kinds.state);
  print("io", report.ioBytes);
  print("arena", report.arenaBytes, "  (activations)");
  print("workspace", report.workspaceBytes, "  (of matmuls)");
  print("total", report.persistentBytes + report.ioBytes + report.arenaBytes +
                     report.workspaceBytes);
  if (report.hostBytes)
    print("host", report.hostBytes, "  (all weights, while read or written)");
  os << llvm::formatv("{0,-12} {1,12}\n", "parameters", report.parameters);
  for (const ActivationPeak &peak : report.peaks) {
    uint64_t flops = 0;
    for (const CommandReport &command : report.table)
      if (command.entry == peak.entry)
        flops += command.flops.value_or(0);
    os << llvm::formatv("@{0}: {1} flops, activations {2:f2} MiB, lower bound "
                        "{3:f2} MiB, ratio {4:f3}\n",
                        peak.entry, flops, toMiB(peak.bytes),
                        toMiB(peak.liveBytes),
                        double(peak.bytes) / double(peak.liveBytes));
  }
  os << report.kernels << " kernels, " << report.commands << " commands\n";
  return text;
}
