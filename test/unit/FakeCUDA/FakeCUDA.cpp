//===- FakeCUDA.cpp - a GPU in host memory --------------------------------===//
//
// Stands in for libcuda.so.1 and libcublasLt.so.13, so that the runtime for
// GPUs is tested without one. Work on the stream waits in a queue until the
// host synchronises, as it may on a GPU: what is read too early or overwritten
// too soon shows. Kernels come from a shared object for the processor
// (Kernels.c); those of other images do nothing. Time is counted, not measured.
//
//===----------------------------------------------------------------------===//

#include "test/unit/FakeCUDA/FakeCUDA.h"
#include "test/unit/FakeCUDA/FakeStream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <elf.h>
#include <map>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

/// Returns whether it is done; if not, it is tried again.
using Work = std::function<bool()>;
using KernelFunction = void (*)(void *const *, int64_t, int64_t);

// The names are those of the libraries, and addresses there are numbers.
// NOLINTBEGIN(readability-identifier-naming,performance-no-int-to-ptr)

using namespace fake;

namespace {

struct FakeModule {
  void *library = nullptr;
};
struct FakeFunction {
  std::string name;
  KernelFunction run = nullptr;
  int arguments = 0, maps = 0;
};
/// A tensor map is a parameter of so many bytes.
struct alignas(128) MapParameter {
  unsigned char bytes[128];
};
struct FakeEvent {
  double seconds = 0;
};
using FakeGraph = std::vector<Work>;

struct State {
  std::vector<std::string> log;
  std::map<std::string, int> failures;
  /// By the symbol of a kernel.
  std::map<std::string, int> localBytes;
  /// Bytes of memory on the GPU and pinned memory on the host, by address.
  std::map<uintptr_t, size_t> device, pinned;
  uint64_t extraBytes = 0;
  /// They live as long as the process, as their module might.
  std::vector<std::unique_ptr<FakeFunction>> functions;
  std::deque<Work> queue;
  FakeGraph *captured = nullptr;
  bool isRecording = false;
  double seconds = 0;
};

/// Of the calling thread.
void *&currentContext() {
  thread_local void *context = nullptr;
  return context;
}

State &state() {
  static State state;
  return state;
}

constexpr uint64_t kTotalBytes = uint64_t(80) << 30;
constexpr uint64_t kContextBytes = uint64_t(500) << 20;
constexpr int kInjected = 700;

void put(Work work) {
  if (state().captured)
    state().captured->push_back(std::move(work));
  else
    state().queue.push_back(std::move(work));
}

/// Does what can be done; whether that was all.
bool advance() {
  std::deque<Work> &queue = state().queue;
  while (!queue.empty() && queue.front()())
    queue.pop_front();
  return queue.empty();
}

void drain() {
  while (!advance())
    ::usleep(100);
}

bool isPinned(const void *address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  auto next = state().pinned.upper_bound(at);
  return next != state().pinned.begin() &&
         at < std::prev(next)->first + std::prev(next)->second;
}

char *pointer(unsigned long long address) {
  return reinterpret_cast<char *>(address);
}

} // namespace

int fake::call(const char *name, const std::string &details) {
  std::string line = name + (details.empty() ? "" : " " + details);
  state().log.push_back(line);
  if (const char *path = std::getenv("FAKE_CUDA_LOG"))
    if (std::FILE *file = std::fopen(path, "a")) {
      std::fprintf(file, "%s\n", line.c_str());
      std::fclose(file);
    }
  auto found = state().failures.find(name);
  if (found == state().failures.end() || --found->second > 0)
    return 0;
  return kInjected;
}

void fake::enqueue(double seconds, std::function<void()> work) {
  put([seconds, work = std::move(work)] {
    work();
    state().seconds += seconds;
    return true;
  });
}

template <typename T>
static int fill(const char *name, unsigned long long to, T value,
                size_t count) {
  enqueue(1e-6, [=] {
    for (size_t i = 0; i < count; ++i)
      std::memcpy(pointer(to) + i * sizeof value, &value, sizeof value);
  });
  return call(name, std::to_string(count * sizeof value));
}

extern "C" {

//===----------------------------------------------------------------------===//
// For tests
//===----------------------------------------------------------------------===//

const char *fakeCUDALog() {
  static std::string text;
  text.clear();
  for (const std::string &line : state().log)
    text += line + "\n";
  return text.c_str();
}

void fakeCUDAReset() {
  state().log.clear();
  state().failures.clear();
  state().localBytes.clear();
  state().extraBytes = 0;
}

void fakeCUDAFail(const char *name, int nth) { state().failures[name] = nth; }

void fakeCUDASpill(const char *symbol, int bytes) {
  state().localBytes[symbol] = bytes;
}

void fakeCUDARecord(bool isRecording) { state().isRecording = isRecording; }

void fakeCUDAUse(uint64_t bytes) { state().extraBytes = bytes; }

void fakeCUDAEnqueue(bool (*work)(void *), void *argument) {
  put([=] { return work(argument); });
}

//===----------------------------------------------------------------------===//
// Driver
//===----------------------------------------------------------------------===//

int cuInit(unsigned) { return call("cuInit"); }

int cuDriverGetVersion(int *version) {
  *version = 12080;
  return 0;
}

int cuGetErrorName(int error, const char **name) {
  *name = error == kInjected ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
  return 0;
}

int cuGetErrorString(int error, const char **text) {
  *text = error == kInjected ? "an illegal memory access was encountered"
                             : "wrong use of the fake";
  return 0;
}

int cuDeviceGetCount(int *count) {
  *count = 1;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetName(char *name, int length, int) {
  std::snprintf(name, size_t(length), "Fake H100");
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int) {
  // Major and minor of the compute capability.
  const char *capability = std::getenv("FAKE_CUDA_CAPABILITY");
  int both =
      capability ? static_cast<int>(std::strtol(capability, nullptr, 10)) : 90;
  *value = attribute == 75 ? both / 10 : attribute == 76 ? both % 10 : 0;
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &state();
  return call("cuDevicePrimaryCtxRetain");
}
int cuDevicePrimaryCtxRelease_v2(int) {
  return call("cuDevicePrimaryCtxRelease");
}
int cuCtxSetCurrent(void *context) {
  currentContext() = context;
  return 0;
}
int cuCtxGetCurrent(void **context) {
  *context = currentContext();
  return 0;
}

int cuCtxSynchronize() {
  drain();
  return call("cuCtxSynchronize");
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = kTotalBytes;
  *free = kTotalBytes - kContextBytes - state().extraBytes;
  for (auto [address, bytes] : state().device)
    *free -= bytes;
  return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = kTotalBytes;
  return 0;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  if (int error = call("cuMemAlloc", std::to_string(bytes)))
    return error;
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<unsigned long long>(memory);
  state().device[uintptr_t(*address)] = bytes;
  return 0;
}

int cuMemFree_v2(unsigned long long address) {
  drain();
  std::free(pointer(address));
  return state().device.erase(uintptr_t(address)) ? call("cuMemFree") : 1;
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned) {
  *address = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  state().pinned[reinterpret_cast<uintptr_t>(*address)] = bytes;
  return call("cuMemHostAlloc", std::to_string(bytes));
}

int cuMemFreeHost(void *address) {
  drain();
  std::free(address);
  return state().pinned.erase(reinterpret_cast<uintptr_t>(address))
             ? call("cuMemFreeHost")
             : 1;
}

int cuMemHostRegister_v2(void *address, size_t bytes, unsigned) {
  state().pinned[reinterpret_cast<uintptr_t>(address)] = bytes;
  return call("cuMemHostRegister", std::to_string(bytes));
}

int cuMemHostUnregister(void *address) {
  return state().pinned.erase(reinterpret_cast<uintptr_t>(address))
             ? call("cuMemHostUnregister")
             : 1;
}

/// A copy from or to memory that is not pinned makes the host wait.
static int copy(const char *name, const void *host, void *to, const void *from,
                size_t bytes) {
  bool pinned = isPinned(host);
  if (int error = call(name, std::to_string(bytes) +
                                 (pinned ? " pinned" : " pageable")))
    return error;
  enqueue(1e-6, [=] { std::memcpy(to, from, bytes); });
  if (!pinned)
    drain();
  return 0;
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                         void *) {
  return copy("cuMemcpyHtoDAsync", from, pointer(to), from, bytes);
}

int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                         void *) {
  return copy("cuMemcpyDtoHAsync", to, to, pointer(from), bytes);
}

int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from,
                         size_t bytes, void *) {
  // What only measures the speed is not copied.
  bool copies = bytes < (64 << 20);
  enqueue(2.0 * double(bytes) / kFakeCopySpeed, [=] {
    if (copies)
      std::memcpy(pointer(to), pointer(from), bytes);
  });
  return call("cuMemcpyDtoDAsync", std::to_string(bytes));
}

int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t count,
                    void *) {
  return fill("cuMemsetD8Async", to, value, count);
}
int cuMemsetD16Async(unsigned long long to, unsigned short value, size_t count,
                     void *) {
  return fill("cuMemsetD16Async", to, value, count);
}
int cuMemsetD32Async(unsigned long long to, unsigned value, size_t count,
                     void *) {
  return fill("cuMemsetD32Async", to, value, count);
}

int cuModuleLoadDataEx(void **handle, const void *image, unsigned, int *,
                       void **) {
  auto *module = new FakeModule;
  *handle = module;
  Elf64_Ehdr header;
  std::memcpy(&header, image, SELFMAG);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    std::memcpy(&header, image, sizeof header);
    if (header.e_machine == EM_X86_64) {
      size_t size =
          header.e_shoff + size_t(header.e_shnum) * header.e_shentsize;
      int file = ::memfd_create("fake-kernels", MFD_CLOEXEC);
      if (::write(file, image, size) != ssize_t(size))
        return 1;
      std::string path = "/proc/self/fd/" + std::to_string(file);
      module->library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!module->library)
        return 1;
    }
  }
  return call("cuModuleLoadDataEx");
}

int cuModuleUnload(void *module) {
  delete static_cast<FakeModule *>(module);
  return call("cuModuleUnload");
}

int cuModuleGetFunction(void **handle, void *module, const char *name) {
  state().functions.push_back(std::make_unique<FakeFunction>());
  FakeFunction *function = state().functions.back().get();
  function->name = name;
  *handle = function;
  void *library = static_cast<FakeModule *>(module)->library;
  if (!library)
    return 0;
  function->run = reinterpret_cast<KernelFunction>(::dlsym(library, name));
  auto count = [&](const char *suffix) {
    std::string symbol = std::string(name) + suffix;
    auto *found = static_cast<const int *>(::dlsym(library, symbol.c_str()));
    return found ? *found : 0;
  };
  function->arguments = count("_arguments");
  function->maps = count("_maps");
  return function->run ? 0 : 500;
}

int cuFuncSetAttribute(void *, int, int) { return call("cuFuncSetAttribute"); }

int cuFuncGetAttribute(int *value, int attribute, void *handle) {
  constexpr int localBytes = 3;
  if (attribute != localBytes)
    return 1;
  auto found =
      state().localBytes.find(static_cast<FakeFunction *>(handle)->name);
  *value = found == state().localBytes.end() ? 0 : found->second;
  return call("cuFuncGetAttribute");
}

int cuLaunchKernel(void *handle, unsigned x, unsigned y, unsigned z, unsigned,
                   unsigned, unsigned, unsigned, void *, void **parameters,
                   void **) {
  auto *function = static_cast<FakeFunction *>(handle);
  std::vector<void *> arguments;
  arguments.reserve(size_t(function->arguments));
  for (int i = 0; i < function->arguments; ++i)
    arguments.push_back(*static_cast<void **>(parameters[i]));
  // What they hold now is what the kernel reads, whenever it runs.
  std::vector<MapParameter> maps;
  maps.reserve(size_t(function->maps));
  for (int i = 0; i < function->maps; ++i)
    maps.push_back(
        *static_cast<MapParameter *>(parameters[function->arguments + i]));
  int64_t programs = int64_t(x) * y * z;
  enqueue(1e-3, [=]() mutable {
    std::vector<void *> all = arguments;
    for (MapParameter &map : maps)
      all.push_back(&map);
    if (function->run)
      function->run(all.data(), 0, programs);
  });
  return call("cuLaunchKernel", function->name);
}

/// CUlaunchConfig, of which the attributes are not looked at.
int cuLaunchKernelEx(const void *config, void *handle, void **parameters,
                     void **extra) {
  const auto *grid = static_cast<const unsigned *>(config);
  if (int failed = call("cuLaunchKernelEx"))
    return failed;
  return cuLaunchKernel(handle, grid[0], grid[1], grid[2], 1, 1, 1, 0, nullptr,
                        parameters, extra);
}

/// Refuses, as the driver does, a map or an address that is misaligned.
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address,
                           const uint64_t *extents, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion,
                           int fill) {
  auto isAligned = [](const void *pointer, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  };
  if (!isAligned(map, 64) || !isAligned(address, 16) || rank < 1 || rank > 5)
    return 1;
  FakeTensorMap fake = {};
  fake.address = reinterpret_cast<uintptr_t>(address);
  std::copy_n(extents, rank, fake.extents);
  std::copy_n(strides, rank - 1, fake.strides);
  std::copy_n(box, rank, fake.box);
  std::copy_n(steps, rank, fake.steps);
  fake.rank = uint8_t(rank);
  fake.type = uint8_t(type);
  fake.interleave = uint8_t(interleave);
  fake.swizzle = uint8_t(swizzle);
  fake.promotion = uint8_t(promotion);
  fake.fill = uint8_t(fill);
  static_assert(sizeof fake <= sizeof(MapParameter));
  std::memcpy(map, &fake, sizeof fake);
  return call("cuTensorMapEncodeTiled");
}

int cuStreamCreate(void **stream, unsigned) {
  *stream = &state().queue;
  return call("cuStreamCreate");
}
int cuStreamCreateWithPriority(void **stream, unsigned, int) {
  *stream = &state().queue;
  return call("cuStreamCreateWithPriority");
}
int cuCtxGetStreamPriorityRange(int *, int *greatest) {
  *greatest = -5;
  return call("cuCtxGetStreamPriorityRange");
}
int cuStreamDestroy_v2(void *) { return call("cuStreamDestroy"); }

int cuStreamSynchronize(void *) {
  drain();
  return call("cuStreamSynchronize");
}

int cuStreamQuery(void *) {
  constexpr int notReady = 600;
  return advance() ? 0 : notReady;
}

/// There is one queue for all streams.
int cuStreamWaitEvent(void *, void *, unsigned) { return 0; }
int cuStreamIsCapturing(void *, int *status) {
  *status = state().isRecording;
  return 0;
}

int cuStreamBeginCapture_v2(void *, int) {
  state().captured = new FakeGraph;
  return call("cuStreamBeginCapture");
}

int cuStreamEndCapture(void *, void **graph) {
  *graph = state().captured;
  state().captured = nullptr;
  return call("cuStreamEndCapture");
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  *exec = new FakeGraph(*static_cast<FakeGraph *>(graph));
  return call("cuGraphInstantiate");
}
int cuGraphDestroy(void *graph) {
  delete static_cast<FakeGraph *>(graph);
  return 0;
}
int cuGraphExecDestroy(void *exec) {
  delete static_cast<FakeGraph *>(exec);
  return 0;
}

int cuGraphLaunch(void *exec, void *) {
  for (const Work &work : *static_cast<FakeGraph *>(exec))
    state().queue.push_back(work);
  return call("cuGraphLaunch");
}

int cuEventCreate(void **event, unsigned) {
  *event = new FakeEvent;
  return 0;
}
int cuEventDestroy_v2(void *event) {
  delete static_cast<FakeEvent *>(event);
  return 0;
}
int cuEventRecord(void *event, void *) {
  enqueue(0,
          [=] { static_cast<FakeEvent *>(event)->seconds = state().seconds; });
  return 0;
}
int cuEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  constexpr unsigned external = 1;
  if (flags == external && !state().captured)
    return 1;
  return cuEventRecord(event, stream);
}
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  *milliseconds = float(1e3 * (static_cast<FakeEvent *>(end)->seconds -
                               static_cast<FakeEvent *>(start)->seconds));
  return 0;
}

} // extern "C"

// NOLINTEND(readability-identifier-naming,performance-no-int-to-ptr)
