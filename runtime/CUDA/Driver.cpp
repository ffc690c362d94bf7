//===- Driver.cpp - the CUDA driver, opened at run time -------------------===//

#include "runtime/CUDA/Driver.h"
#include "runtime/CPU/SharedLibrary.h"

#include <string>

using namespace nsa;
using namespace nsa::cuda;

/// Names with a suffix are the ABI of today; those without are older.
static void findFunctions(Driver &driver, SharedLibrary &library) {
  library.find(driver.Init, "cuInit");
  library.find(driver.DriverGetVersion, "cuDriverGetVersion");
  library.find(driver.GetErrorName, "cuGetErrorName");
  library.find(driver.GetErrorString, "cuGetErrorString");
  library.find(driver.DeviceGetCount, "cuDeviceGetCount");
  library.find(driver.DeviceGet, "cuDeviceGet");
  library.find(driver.DeviceGetName, "cuDeviceGetName");
  library.find(driver.DeviceGetAttribute, "cuDeviceGetAttribute");
  library.find(driver.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  library.find(driver.DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  library.find(driver.CtxGetCurrent, "cuCtxGetCurrent");
  library.find(driver.CtxSetCurrent, "cuCtxSetCurrent");
  library.find(driver.CtxSynchronize, "cuCtxSynchronize");
  library.find(driver.MemGetInfo, "cuMemGetInfo_v2");
  library.find(driver.DeviceTotalMem, "cuDeviceTotalMem_v2");
  library.find(driver.MemAlloc, "cuMemAlloc_v2");
  library.find(driver.MemFree, "cuMemFree_v2");
  library.find(driver.MemHostAlloc, "cuMemHostAlloc");
  library.find(driver.MemFreeHost, "cuMemFreeHost");
  library.find(driver.MemHostRegister, "cuMemHostRegister_v2");
  library.find(driver.MemHostUnregister, "cuMemHostUnregister");
  library.find(driver.MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  library.find(driver.MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  library.find(driver.MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  library.find(driver.MemsetD8Async, "cuMemsetD8Async");
  library.find(driver.MemsetD16Async, "cuMemsetD16Async");
  library.find(driver.MemsetD32Async, "cuMemsetD32Async");
  library.find(driver.ModuleLoadDataEx, "cuModuleLoadDataEx");
  library.find(driver.ModuleUnload, "cuModuleUnload");
  library.find(driver.ModuleGetFunction, "cuModuleGetFunction");
  library.find(driver.FuncSetAttribute, "cuFuncSetAttribute");
  library.find(driver.FuncGetAttribute, "cuFuncGetAttribute");
  library.find(driver.LaunchKernel, "cuLaunchKernel");
  library.find(driver.StreamCreate, "cuStreamCreate");
  library.find(driver.StreamCreateWithPriority, "cuStreamCreateWithPriority");
  library.find(driver.CtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange");
  library.find(driver.StreamDestroy, "cuStreamDestroy_v2");
  library.find(driver.StreamSynchronize, "cuStreamSynchronize");
  library.find(driver.StreamQuery, "cuStreamQuery");
  library.find(driver.StreamWaitEvent, "cuStreamWaitEvent");
  library.find(driver.StreamIsCapturing, "cuStreamIsCapturing");
  library.find(driver.StreamBeginCapture, "cuStreamBeginCapture_v2");
  library.find(driver.StreamEndCapture, "cuStreamEndCapture");
  library.find(driver.GraphInstantiate, "cuGraphInstantiateWithFlags");
  library.find(driver.GraphDestroy, "cuGraphDestroy");
  library.find(driver.GraphExecDestroy, "cuGraphExecDestroy");
  library.find(driver.GraphLaunch, "cuGraphLaunch");
  library.find(driver.EventCreate, "cuEventCreate");
  library.find(driver.EventDestroy, "cuEventDestroy_v2");
  library.find(driver.EventRecord, "cuEventRecord");
  library.find(driver.EventRecordWithFlags, "cuEventRecordWithFlags");
  library.find(driver.EventElapsedTime, "cuEventElapsedTime");
}

static Result<const Driver *> openOnce() {
  static Driver driver;
  NSA_ASSIGN_OR_RETURN(
      SharedLibrary library,
      SharedLibrary::open("the CUDA driver", "", {"libcuda.so.1"},
                          "NVIDIA's driver for the GPU, which is in the "
                          "package libcuda1 of Debian and not on PyPI"));
  findFunctions(driver, library);
  if (!library.missing.empty())
    return Error{"the CUDA driver is too old: it has no " + library.missing};
  // Only programs with tensor maps need it.
  library.find(driver.TensorMapEncodeTiled, "cuTensorMapEncodeTiled");
  // Without it, launches begin one after the other.
  library.find(driver.LaunchKernelEx, "cuLaunchKernelEx");
  NSA_RETURN_IF_ERROR(driver.check(driver.Init(0), "cuInit"));
  int count = 0;
  NSA_RETURN_IF_ERROR(
      driver.check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
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
