//===- GPU.cpp - one GPU of this machine ----------------------------------===//

#include "runtime/CUDA/GPU.h"
#include "lib/Support/Text.h"

#include <cstdlib>
#include <cstring>
#include <utility>

using namespace nsa;
using namespace nsa::cuda;

Result<std::unique_ptr<GPU>> GPU::open(int number, const Target &target) {
  Result<const Driver *> opened = Driver::open();
  if (!opened)
    return opened.takeError();
  std::unique_ptr<GPU> gpu(new GPU);
  gpu->functions = *opened;
  if (Status status = gpu->choose(number, target); !status)
    return Error{status.message()};
  if (Status status = gpu->start(); !status)
    return Error{status.message()};
  return gpu;
}

GPU::~GPU() {
  if (!context)
    return;
  makeCurrent();
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

Status GPU::choose(int number, const Target &target) {
  int count = 0, major = 0, minor = 0, version = 0;
  functions->DeviceGetCount(&count);
  if (number < 0 || number >= count)
    return Error{"there is no GPU " + std::to_string(number) +
                 "; this machine has " + std::to_string(count)};
  char name[128] = {};
  functions->DeviceGet(&device, number);
  functions->DeviceGetName(name, sizeof name, device);
  functions->DeviceGetAttribute(&major, kComputeCapabilityMajor, device);
  functions->DeviceGetAttribute(&minor, kComputeCapabilityMinor, device);
  functions->DriverGetVersion(&version);
  text = std::string(name) + ", CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
  if (canRun(target, major, minor))
    return {};
  return Error{"is for the target " + quote(target.name) + "; the " + name +
               " has compute capability " + std::to_string(major) + "." +
               std::to_string(minor)};
}

Status GPU::start() {
  if (Status status =
          functions->check(functions->DevicePrimaryCtxRetain(&context, device),
                           "cuDevicePrimaryCtxRetain");
      !status)
    return status;
  if (Status status = functions->check(functions->CtxSetCurrent(context),
                                       "cuCtxSetCurrent");
      !status)
    return status;
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
