//===- RefusedSchedules.cpp - what the assembler has refused --------------===//

#include "lib/Compiler/RefusedSchedules.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/LaunchOverlap.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Target/CUDA/Assembler.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

using namespace mlir;
using namespace nsa;

namespace {
/// Answers that come with the compiler: how many schedules the chips, separated
/// by spaces, refuse of kernels, which their hashes name in ascending order.
struct Answers {
  llvm::StringLiteral chips;
  int64_t refused;
  std::initializer_list<uint64_t> kernels;
};
} // namespace

// Written by test/shapes.py --update.
static const Answers answers[] = {
#include "lib/Compiler/ScheduleAnswers.inc"
};

static int64_t findShipped(StringRef kernel, StringRef chip) {
  Result<uint64_t> hash = nsa::fromHex(kernel);
  for (const Answers &group : answers)
    if (hash && llvm::is_contained(llvm::split(group.chips, ' '), chip) &&
        std::binary_search(group.kernels.begin(), group.kernels.end(), *hash))
      return group.refused;
  return 0;
}

namespace {
/// The schedule that a kernel, or its description, has.
struct KernelAnswer {
  std::string kernel;
  int64_t number;
  bool isLast, isRefused;
};
} // namespace

/// Those of all kernels, wherever they are by now.
static std::vector<KernelAnswer> getKernels(ModuleOp module) {
  std::vector<KernelAnswer> found;
  module->walk([&](Operation *op) {
    auto schedule = op->getAttrOfType<DictionaryAttr>(kScheduleAttr);
    if (!schedule)
      return;
    auto kernel = schedule.getAs<StringAttr>("kernel");
    auto number = schedule.getAs<IntegerAttr>("number");
    if (kernel && number)
      found.push_back({kernel.str(), number.getInt(),
                       op->hasAttr(kLastScheduleAttr),
                       op->hasAttr(kRefusedAttr)});
  });
  return found;
}

std::string RefusedSchedules::getFile(StringRef kernel) {
  const char *folder = std::getenv("NSA_KERNEL_CACHE");
  if (!folder || !*folder || ptxas.empty())
    return "";
  if (!version)
    version = getAssemblerVersion(ptxas);
  std::string key = kernel.str() + '\n' + chip.name.str() + '\n' + *version +
                    '\n' + NSA_VERSION;
  // pruneCache only removes files with this prefix.
  return std::string(folder) + "/llvmcache-schedules-" + toHex(hashBytes(key));
}

int64_t RefusedSchedules::find(StringRef kernel) {
  std::string file = getFile(kernel);
  if (file.empty())
    return findShipped(kernel, chip.architecture);
  // The folder is checked where code comes from it; a wrong number costs time
  // only.
  constexpr uint64_t most = 256;
  Result<std::string> text = readOwnFile(file, most);
  int64_t refused = 0;
  if (!text ||
      StringRef(*text).trim().rsplit(' ').second.getAsInteger(10, refused) ||
      refused < 0)
    return findShipped(kernel, chip.architecture);
  kept[kernel.str()] = refused;
  return refused;
}

bool RefusedSchedules::addKnown(ModuleOp module) {
  bool isNew = false;
  for (const KernelAnswer &known : getKernels(module)) {
    auto [count, isFirst] = counts.try_emplace(known.kernel, known.number);
    if (isFirst)
      count->second = std::max(known.number, find(known.kernel));
    // Shorter lists than the answer is about end before.
    isNew |= isFirst && !known.isLast && count->second > known.number;
  }
  return isNew;
}

bool RefusedSchedules::addMarked(ModuleOp module, bool isAssembled) {
  bool isNew = false;
  for (const KernelAnswer &known : getKernels(module)) {
    if (isAssembled && !known.isRefused)
      accepted[known.kernel] = known.number;
    int64_t &count = counts[known.kernel];
    if (!known.isRefused || known.isLast || count > known.number)
      continue;
    count = known.number + 1;
    isNew = true;
  }
  return isNew;
}

void RefusedSchedules::keepUnknown(ModuleOp module) const {
  for (auto kernel : module.getOps<tile::KernelOp>()) {
    auto schedule = kernel->getAttrOfType<DictionaryAttr>(kScheduleAttr);
    if (schedule) {
      auto known = accepted.find(schedule.getAs<StringAttr>("kernel").str());
      if (known == accepted.end() ||
          known->second != schedule.getAs<IntegerAttr>("number").getInt())
        continue;
    }
    Block &body = kernel.getBody().front();
    while (&body.front() != body.getTerminator())
      body.getTerminator()->getPrevNode()->erase();
    for (StringRef name : {kLaunchOverlapAttr, kPrefetchAttr, kProducerAttr})
      kernel->removeAttr(name);
  }
}

void RefusedSchedules::writeTo(ModuleOp module) const {
  Builder builder(module.getContext());
  SmallVector<NamedAttribute> refused;
  for (const auto &[kernel, count] : counts)
    if (count != 0)
      refused.push_back(
          builder.getNamedAttr(kernel, builder.getI64IntegerAttr(count)));
  if (!refused.empty())
    module->setAttr(kRefusedSchedulesAttr, builder.getDictionaryAttr(refused));
}

Status RefusedSchedules::keep(ModuleOp module) {
  bool isOpen = false;
  for (const KernelAnswer &known : getKernels(module)) {
    auto before = kept.find(known.kernel);
    if (known.number == (before == kept.end() ? 0 : before->second))
      continue;
    std::string file = getFile(known.kernel);
    if (file.empty())
      return Status();
    kept[known.kernel] = known.number;
    if (!std::exchange(isOpen, true))
      NSA_RETURN_IF_ERROR(openOwnFolder(std::getenv("NSA_KERNEL_CACHE"),
                                        "the folder in NSA_KERNEL_CACHE,"));
    NSA_RETURN_IF_ERROR(
        writeFileAtomically(file,
                            known.kernel + " " + chip.name.str() + " " +
                                std::to_string(known.number) + "\n",
                            /*isOwn=*/true));
  }
  return Status();
}
