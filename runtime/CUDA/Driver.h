//===- Driver.h - the CUDA driver, opened at run time -----------*- C++ -*-===//
//
// Declares the few functions of libcuda.so.1 that the runtime uses, so that it
// builds without CUDA's headers and runs on machines without a GPU.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_CUDA_DRIVER_H
#define NSA_RUNTIME_CUDA_DRIVER_H

#include "nsa/Artifact/TensorMap.h"
#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>

namespace nsa::cuda {

// Handles of the driver's ABI.
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct ContextTag *;
using Module = struct ModuleTag *;
using Function = struct FunctionTag *;
using Stream = struct StreamTag *;
using Event = struct EventTag *;
using Graph = struct GraphTag *;
using GraphExec = struct GraphExecTag *;

/// A TMA descriptor (CUtensorMap): a parameter of a kernel, which passes its
/// address to TMA. Aligned as the driver declares it.
struct alignas(128) TensorMap {
  unsigned char bytes[tensorMapBytes];
};

/// CUlaunchAttribute with a number as value, and CUlaunchConfig.
struct alignas(8) LaunchAttribute {
  int id;
  alignas(8) int value;
  char rest[60];
};
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned numAttributes;
};
/// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: may begin when all
/// blocks of the launch before allow it.
constexpr int kBeginsEarly = 6;

/// The functions of the driver, by their names without "cu". Each returns 0 on
/// success; see `Driver::check`.
struct Driver {
  int (*Init)(unsigned flags);
  int (*DriverGetVersion)(int *version);
  int (*GetErrorName)(int error, const char **name);
  int (*GetErrorString)(int error, const char **text);
  int (*DeviceGetCount)(int *count);
  int (*DeviceGet)(Device *device, int ordinal);
  int (*DeviceGetName)(char *name, int length, Device device);
  int (*DeviceGetAttribute)(int *value, int attribute, Device device);
  int (*DevicePrimaryCtxRetain)(Context *context, Device device);
  int (*DevicePrimaryCtxRelease)(Device device);
  int (*CtxGetCurrent)(Context *context);
  int (*CtxSetCurrent)(Context context);
  int (*CtxSynchronize)();
  int (*MemGetInfo)(size_t *free, size_t *total);
  int (*DeviceTotalMem)(size_t *bytes, Device device);
  int (*MemAlloc)(DevicePtr *address, size_t bytes);
  int (*MemFree)(DevicePtr address);
  int (*MemHostAlloc)(void **address, size_t bytes, unsigned flags);
  int (*MemFreeHost)(void *address);
  int (*MemHostRegister)(void *address, size_t bytes, unsigned flags);
  int (*MemHostUnregister)(void *address);
  int (*MemcpyHtoDAsync)(DevicePtr to, const void *from, size_t bytes,
                         Stream stream);
  int (*MemcpyDtoHAsync)(void *to, DevicePtr from, size_t bytes, Stream stream);
  int (*MemcpyDtoDAsync)(DevicePtr to, DevicePtr from, size_t bytes,
                         Stream stream);
  int (*MemsetD8Async)(DevicePtr to, unsigned char value, size_t count,
                       Stream stream);
  int (*MemsetD16Async)(DevicePtr to, unsigned short value, size_t count,
                        Stream stream);
  int (*MemsetD32Async)(DevicePtr to, unsigned value, size_t count,
                        Stream stream);
  int (*ModuleLoadDataEx)(Module *module, const void *image, unsigned count,
                          int *options, void **values);
  int (*ModuleUnload)(Module module);
  int (*ModuleGetFunction)(Function *function, Module module, const char *name);
  int (*FuncSetAttribute)(Function function, int attribute, int value);
  int (*FuncGetAttribute)(int *value, int attribute, Function function);
  int (*LaunchKernel)(Function function, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned blockX, unsigned blockY,
                      unsigned blockZ, unsigned sharedBytes, Stream stream,
                      void **parameters, void **extra);
  /// Null in a driver older than CUDA 11.8.
  int (*LaunchKernelEx)(const LaunchConfig *config, Function function,
                        void **parameters, void **extra);
  int (*StreamCreate)(Stream *stream, unsigned flags);
  int (*StreamCreateWithPriority)(Stream *stream, unsigned flags, int priority);
  int (*CtxGetStreamPriorityRange)(int *least, int *greatest);
  int (*StreamDestroy)(Stream stream);
  int (*StreamSynchronize)(Stream stream);
  int (*StreamQuery)(Stream stream);
  int (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  int (*StreamIsCapturing)(Stream stream, int *status);
  int (*StreamBeginCapture)(Stream stream, int mode);
  int (*StreamEndCapture)(Stream stream, Graph *graph);
  int (*GraphInstantiate)(GraphExec *exec, Graph graph,
                          unsigned long long flags);
  int (*GraphDestroy)(Graph graph);
  int (*GraphExecDestroy)(GraphExec exec);
  int (*GraphLaunch)(GraphExec exec, Stream stream);
  int (*EventCreate)(Event *event, unsigned flags);
  int (*EventDestroy)(Event event);
  int (*EventRecord)(Event event, Stream stream);
  int (*EventRecordWithFlags)(Event event, Stream stream, unsigned flags);
  int (*EventElapsedTime)(float *milliseconds, Event start, Event end);
  /// Null in a driver older than CUDA 12. An address of the GPU is a number
  /// here and a pointer there, of one size.
  int (*TensorMapEncodeTiled)(TensorMap *map, int type, uint32_t rank,
                              DevicePtr address, const uint64_t *extents,
                              const uint64_t *strides, const uint32_t *box,
                              const uint32_t *steps, int interleave,
                              int swizzle, int promotion, int fill);

  /// Opens the library and initialises it. Fails where there is no driver or
  /// no GPU. The library stays open.
  static Result<const Driver *> open();

  /// The error of a call in words: "cuMemAlloc: out of memory
  /// (CUDA_ERROR_OUT_OF_MEMORY)". Success if `code` is 0.
  Status check(int code, const char *call) const;
};

/// Attributes of CUdevice_attribute and CUfunction_attribute.
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
/// What its compiler of PTX says of errors, and the size of that buffer.
constexpr int kJITErrorLog = 5, kJITErrorLogBytes = 6;
constexpr int kLocalBytes = 3, kMaxDynamicSharedSize = 8;
/// CUDA_ERROR_NOT_READY of StreamQuery: work is left.
constexpr int kNotReady = 600;
/// CU_STREAM_NON_BLOCKING: a stream that does not wait for the default one.
constexpr unsigned kNonBlocking = 1;
/// CU_EVENT_DISABLE_TIMING, and CU_EVENT_RECORD_EXTERNAL: an event of a graph
/// that the host can see.
constexpr unsigned kNoTiming = 2, kExternal = 1;

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_DRIVER_H
