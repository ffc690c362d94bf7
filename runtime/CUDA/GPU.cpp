//===- GPU.cpp - one GPU of this machine ----------------------------------===//

#include "runtime/CUDA/GPU.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Targets.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

using namespace nsa;
using namespace nsa::cuda;

Result<std::unique_ptr<GPU>> GPU::open(int number,
                                       const std::vector<Target> &forms) {
  NSA_ASSIGN_OR_RETURN(const Driver *opened, Driver::open());
  std::unique_ptr<GPU> gpu(new GPU);
  gpu->functions = opened;
  NSA_RETURN_IF_ERROR(gpu->choose(number, forms));
  NSA_RETURN_IF_ERROR(gpu->start());
  return gpu;
}

GPU::~GPU() {
  if (!context)
    return;
  CurrentGPU current(*this);
  if (commands)
    functions->StreamDestroy(commands);
  functions->DevicePrimaryCtxRelease(device);
}

/// Whether a GPU of this compute capability runs code for the target: a name
/// with a letter is for that one alone, other names stand for later ones too,
/// as text without end and as machine code within their generation.
static bool canRun(const GPU::Target &target, int major, int minor) {
  std::string digits = target.name.substr(target.name.find('_') + 1);
  bool exact = !digits.empty() && digits.back() == 'a';
  long wanted = std::strtol(digits.c_str(), nullptr, 10);
  long have = 10L * major + minor;
  if (exact)
    return wanted == have;
  return wanted <= have && (target.isText || wanted / 10 == major);
}

namespace {
/// A GPU as the driver describes it.
struct Description {
  Device device = 0;
  std::string name;
  int major = 0, minor = 0;

  /// "the NVIDIA L4 has compute capability 8.9".
  std::string capability() const {
    return "the " + name + " has compute capability " + std::to_string(major) +
           "." + std::to_string(minor);
  }
};
} // namespace

static Result<Description> describe(const Driver &functions, int number) {
  int count = 0;
  functions.DeviceGetCount(&count);
  if (number < 0 || number >= count)
    return Error{"there is no GPU " + std::to_string(number) +
                 "; this machine has " + std::to_string(count)};
  Description found;
  char name[128] = {};
  functions.DeviceGet(&found.device, number);
  functions.DeviceGetName(name, sizeof name, found.device);
  functions.DeviceGetAttribute(&found.major, kComputeCapabilityMajor,
                               found.device);
  functions.DeviceGetAttribute(&found.minor, kComputeCapabilityMinor,
                               found.device);
  found.name = name;
  return found;
}

Result<GPU::Target> GPU::findTarget(int number) {
  NSA_ASSIGN_OR_RETURN(const Driver *opened, Driver::open());
  NSA_ASSIGN_OR_RETURN(Description found, describe(*opened, number));
  std::string known;
  for (bool isText : {false, true})
    // From the newest on.
    for (size_t i = std::size(artifact::gpuTargets); i-- > 0;)
      if (Target target{std::string(artifact::gpuTargets[i]), isText};
          canRun(target, found.major, found.minor))
        return target;
  for (std::string_view target : artifact::gpuTargets)
    known += (known.empty() ? "" : ", ") + std::string(target);
  return Error{found.capability() + ", artefacts are for " + known};
}

Result<uint64_t> GPU::memory(int number) {
  NSA_ASSIGN_OR_RETURN(const Driver *opened, Driver::open());
  NSA_ASSIGN_OR_RETURN(Description found, describe(*opened, number));
  size_t bytes = 0;
  NSA_RETURN_IF_ERROR(opened->check(
      opened->DeviceTotalMem(&bytes, found.device), "cuDeviceTotalMem"));
  return uint64_t(bytes);
}

Status GPU::choose(int number, const std::vector<Target> &forms) {
  NSA_ASSIGN_OR_RETURN(Description found, describe(*functions, number));
  int version = 0;
  functions->DriverGetVersion(&version);
  device = found.device;
  text = found.name + ", CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
  bool hasText = false;
  for (const Target &form : forms) {
    hasText |= form.isText;
    if (canRun(form, found.major, found.minor)) {
      chosen = form;
      return {};
    }
  }
  // Of an older target, PTX would have done.
  bool isOlder =
      canRun({forms.front().name, /*isText=*/true}, found.major, found.minor);
  return Error{"is for the target " + quote(forms.front().name) +
               (isOlder && !hasText ? ", without PTX for later GPUs" : "") +
               "; " + found.capability()};
}

Status GPU::start() {
  NSA_RETURN_IF_ERROR(
      functions->check(functions->DevicePrimaryCtxRetain(&context, device),
                       "cuDevicePrimaryCtxRetain"));
  NSA_RETURN_IF_ERROR(
      functions->check(functions->CtxSetCurrent(context), "cuCtxSetCurrent"));
  Status status = functions->check(
      functions->StreamCreate(&commands, kNonBlocking), "cuStreamCreate");
  freeAtStart = freeBytes();
  return status;
}

Status GPU::wait() const {
  return functions->check(functions->StreamSynchronize(commands),
                          "cuStreamSynchronize");
}

uint64_t GPU::freeBytes() const {
  size_t free = 0, total = 0;
  functions->MemGetInfo(&free, &total);
  return free;
}

uint64_t GPU::usedBytes() const {
  uint64_t free = freeBytes();
  return free < freeAtStart ? freeAtStart - free : 0;
}

//===----------------------------------------------------------------------===//
// Pinned memory
//===----------------------------------------------------------------------===//

Result<PinnedMemory> PinnedMemory::allocate(const GPU &gpu, uint64_t bytes) {
  PinnedMemory memory;
  memory.gpu = &gpu;
  void *address = nullptr;
  if (Status status = gpu.driver().check(
          gpu.driver().MemHostAlloc(&address, bytes, 0), "cuMemHostAlloc");
      !status)
    return Error{std::to_string(bytes) +
                 " bytes of host memory: " + status.message()};
  memory.address = static_cast<char *>(address);
  std::memset(address, 0, bytes);
  return memory;
}

PinnedMemory::PinnedMemory(PinnedMemory &&other) noexcept
    : gpu(other.gpu), address(std::exchange(other.address, nullptr)) {}

PinnedMemory &PinnedMemory::operator=(PinnedMemory &&other) noexcept {
  std::swap(gpu, other.gpu);
  std::swap(address, other.address);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (address)
    gpu->driver().MemFreeHost(address);
}
