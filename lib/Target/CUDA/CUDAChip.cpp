//===- CUDAChip.cpp - the GPU that code is made for -----------------------===//

#include "lib/Target/CUDA/CUDAChip.h"
#include "nsa/Artifact/Targets.h"

#include "llvm/ADT/STLExtras.h"

using namespace nsa;

// CUDA C++ Programming Guide, "Compute Capabilities": shared memory per block
// is that of the multiprocessor but for 1 KiB. PTX 7.0 would do for sm_80, but
// there LLVM takes registers of two halves apart by shifts.
static constexpr uint64_t small = 99 * 1024, large = 163 * 1024;
static constexpr CUDAChip chips[] = {
    {"sm_80", "sm_80", "+ptx71", large, false},
    {"sm_86", "sm_86", "+ptx71", small, false},
    {"sm_89", "sm_86", "+ptx71", small, false},
    // Shared memory of those with the code of sm_80 is larger than its own.
    {"sm_90", "sm_80", "+ptx71", large, false},
    {"sm_90a", "sm_90a", "+ptx80", 227 * 1024, true},
    {"sm_100", "sm_80", "+ptx71", large, false},
    {"sm_103", "sm_80", "+ptx71", large, false},
    {"sm_120", "sm_86", "+ptx71", small, false},
};

/// Whether the runtime knows the same chips.
static constexpr bool matchesRuntime() {
  if (std::size(chips) != std::size(artifact::gpuTargets))
    return false;
  for (size_t i = 0; i < std::size(chips); ++i)
    if (std::string_view(chips[i].name.data(), chips[i].name.size()) !=
        artifact::gpuTargets[i])
      return false;
  return true;
}
static_assert(matchesRuntime(), "nsa/Artifact/Targets.h has other chips");

llvm::ArrayRef<CUDAChip> nsa::getCUDAChips() { return chips; }

const CUDAChip *nsa::findCUDAChip(llvm::StringRef name) {
  const CUDAChip *chip = llvm::find_if(
      chips, [&](const CUDAChip &known) { return known.name == name; });
  return chip == std::end(chips) ? nullptr : chip;
}
