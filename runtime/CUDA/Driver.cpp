//===- Driver.cpp - the CUDA driver, opened at run time -------------------===//

#include "runtime/CUDA/Driver.h"

#include <dlfcn.h>
#include <string>

using namespace nsa;
using namespace nsa::cuda;

namespace {
/// Finds the functions of a library; remembers the first that is missing.
class Loader {
public:
  explicit Loader(void *library) : library(library) {}

  template <typename FunctionT>
  void find(FunctionT &function, const char *name) {
    function = reinterpret_cast<FunctionT>(::dlsym(library, name));
    if (!function && missing.empty())
      missing = name;
  }

  std::string missing;

private:
  void *library;
};
} // namespace

/// Names with a suffix are the ABI of today; those without are older.
static std::string findFunctions(Driver &driver, void *library) {
  Loader loader(library);
  loader.find(driver.Init, "cuInit");
  loader.find(driver.DriverGetVersion, "cuDriverGetVersion");
  loader.find(driver.GetErrorName, "cuGetErrorName");
  loader.find(driver.GetErrorString, "cuGetErrorString");
  loader.find(driver.DeviceGetCount, "cuDeviceGetCount");
  loader.find(driver.DeviceGet, "cuDeviceGet");
  loader.find(driver.DeviceGetName, "cuDeviceGetName");
  loader.find(driver.DeviceGetAttribute, "cuDeviceGetAttribute");
  loader.find(driver.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  loader.find(driver.DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  loader.find(driver.CtxSetCurrent, "cuCtxSetCurrent");
  loader.find(driver.MemGetInfo, "cuMemGetInfo_v2");
  loader.find(driver.MemAlloc, "cuMemAlloc_v2");
  loader.find(driver.MemFree, "cuMemFree_v2");
  loader.find(driver.MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  loader.find(driver.MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  loader.find(driver.MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  loader.find(driver.MemsetD8Async, "cuMemsetD8Async");
  loader.find(driver.MemsetD16Async, "cuMemsetD16Async");
  loader.find(driver.MemsetD32Async, "cuMemsetD32Async");
  loader.find(driver.ModuleLoadDataEx, "cuModuleLoadDataEx");
  loader.find(driver.ModuleUnload, "cuModuleUnload");
  loader.find(driver.ModuleGetFunction, "cuModuleGetFunction");
  loader.find(driver.FuncSetAttribute, "cuFuncSetAttribute");
  loader.find(driver.LaunchKernel, "cuLaunchKernel");
  loader.find(driver.StreamCreate, "cuStreamCreate");
  loader.find(driver.StreamDestroy, "cuStreamDestroy_v2");
  loader.find(driver.StreamSynchronize, "cuStreamSynchronize");
  loader.find(driver.StreamBeginCapture, "cuStreamBeginCapture_v2");
  loader.find(driver.StreamEndCapture, "cuStreamEndCapture");
  loader.find(driver.GraphInstantiate, "cuGraphInstantiateWithFlags");
  loader.find(driver.GraphDestroy, "cuGraphDestroy");
  loader.find(driver.GraphExecDestroy, "cuGraphExecDestroy");
  loader.find(driver.GraphLaunch, "cuGraphLaunch");
  loader.find(driver.EventCreate, "cuEventCreate");
  loader.find(driver.EventDestroy, "cuEventDestroy_v2");
  loader.find(driver.EventRecord, "cuEventRecord");
  loader.find(driver.EventElapsedTime, "cuEventElapsedTime");
  return loader.missing;
}

static Result<const Driver *> openOnce() {
  static Driver driver;
  void *library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Error{std::string("the CUDA driver cannot be opened: ") +
                 ::dlerror()};
  if (std::string missing = findFunctions(driver, library); !missing.empty())
    return Error{"the CUDA driver is too old: it has no " + missing};
  if (Status status = driver.check(driver.Init(0), "cuInit"); !status)
    return Error{status.message()};
  int count = 0;
  if (Status status =
          driver.check(driver.DeviceGetCount(&count), "cuDeviceGetCount");
      !status)
    return Error{status.message()};
  if (count == 0)
    return Error{"this machine has no NVIDIA GPU"};
  return &driver;
}

Result<const Driver *> Driver::open() {
  static const Result<const Driver *> driver = openOnce();
  return driver;
}

Status Driver::check(int code, const char *call) const {
  if (code == 0)
    return {};
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(code, &name) != 0 || GetErrorString(code, &text) != 0)
    return Error{std::string(call) + ": error " + std::to_string(code)};
  return Error{std::string(call) + ": " + text + " (" + name + ")"};
}
