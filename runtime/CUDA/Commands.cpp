//===- Commands.cpp - commands with their addresses on a GPU --------------===//

#include "runtime/CUDA/Commands.h"
#include "lib/Support/Float16.h"

#include <cstring>
#include <string>

using namespace nsa;
using namespace nsa::cuda;

Result<Command> nsa::cuda::makeFill(DataType type, double value, DevicePtr out,
                                    uint64_t bytes) {
  unsigned width = unsigned(elementBytes(type));
  uint32_t pattern = 0;
  switch (type) {
  case DataType::F32: {
    auto single = float(value);
    std::memcpy(&pattern, &single, sizeof pattern);
    break;
  }
  case DataType::BF16:
    pattern = floatToBF16(float(value));
    break;
  case DataType::F16:
    pattern = floatToF16(float(value));
    break;
  case DataType::U8:
  case DataType::I32:
    pattern = uint32_t(int32_t(value));
    break;
  case DataType::I64: {
    auto bits = uint64_t(int64_t(value));
    if (bits >> 32 != (bits & 0xFFFFFFFFu))
      return Error{"a fill of i64 with " + std::to_string(value) +
                   " has no command on a GPU"};
    pattern = uint32_t(bits);
    width = 4;
    break;
  }
  }
  return Command(FillMemory{out, width, pattern, bytes / width});
}

/// The number of a type of elements in CUtensorMapDataType.
static int mapType(DataType type) {
  constexpr int word = 3, half = 6, single = 7, bfloat = 9;
  if (type == DataType::I32)
    return word;
  if (type == DataType::F16)
    return half;
  return type == DataType::F32 ? single : bfloat;
}

/// The number of a swizzle of so many bytes in CUtensorMapSwizzle.
static int mapSwizzle(uint32_t bytes) {
  switch (bytes) {
  case 32:
    return 1;
  case 64:
    return 2;
  case 128:
    return 3;
  default:
    return 0;
  }
}

/// Lines of 256 bytes go to the cache at once; what lies outside of the tensor
/// is zero. An empty tensor has one element in a map, which is zero, too.
static int encode(const Driver &driver, const artifact::TensorMap &map,
                  DataType type, DevicePtr address, TensorMap &encoded) {
  constexpr int noInterleave = 0, promotion256 = 3, zeros = 0;
  constexpr uint32_t steps[maxTensorMapRank] = {1, 1, 1, 1, 1};
  constexpr uint64_t ones[maxTensorMapRank] = {1, 1, 1, 1, 1};
  constexpr uint64_t least[maxTensorMapRank] = {
      tensorMapAlignment, tensorMapAlignment, tensorMapAlignment,
      tensorMapAlignment, tensorMapAlignment};
  bool isEmpty = isEmptyTensorMap(*map.extents());
  return driver.TensorMapEncodeTiled(
      &encoded, mapType(type), map.extents()->size(), address,
      isEmpty ? ones : map.extents()->data(),
      isEmpty ? least : map.strides()->data(), map.box()->data(), steps,
      noInterleave, mapSwizzle(map.swizzle()), promotion256, zeros);
}

Status nsa::cuda::encodeTensorMaps(const Driver &driver,
                                   const artifact::Kernel &kernel,
                                   const std::vector<DevicePtr> &arguments,
                                   std::vector<TensorMap> &maps) {
  if (!maps.empty() && !driver.TensorMapEncodeTiled)
    return Error{"needs tensor maps, but the CUDA driver is too old: it has no "
                 "cuTensorMapEncodeTiled"};
  for (unsigned i = 0; i < maps.size(); ++i) {
    const artifact::TensorMap &map = *kernel.tensor_maps()->Get(i);
    DataType type = kernel.argument_types()->Get(map.argument());
    if (Status status = driver.check(
            encode(driver, map, type, arguments[map.argument()], maps[i]),
            "cuTensorMapEncodeTiled");
        !status)
      return Error{"tensor map " + std::to_string(i) + " of argument " +
                   std::to_string(map.argument()) + ": " + status.message()};
  }
  return {};
}

static int issue(const Driver &driver, const FillMemory &fill, Stream stream) {
  switch (fill.width) {
  case 1:
    return driver.MemsetD8Async(fill.out, uint8_t(fill.pattern), fill.count,
                                stream);
  case 2:
    return driver.MemsetD16Async(fill.out, uint16_t(fill.pattern), fill.count,
                                 stream);
  default:
    return driver.MemsetD32Async(fill.out, fill.pattern, fill.count, stream);
  }
}

static int issue(const Driver &driver, const LaunchKernel &launch,
                 Stream stream) {
  std::vector<void *> parameters;
  parameters.reserve(launch.arguments.size() + launch.maps.size() +
                     launch.extents.size());
  for (const DevicePtr &argument : launch.arguments)
    parameters.push_back(const_cast<DevicePtr *>(&argument));
  for (const TensorMap &map : launch.maps)
    parameters.push_back(const_cast<TensorMap *>(&map));
  for (const uint64_t &extent : launch.extents)
    parameters.push_back(const_cast<uint64_t *>(&extent));
  if (launch.beginsEarly && driver.LaunchKernelEx) {
    LaunchAttribute attribute = {kBeginsEarly, 1, {}};
    LaunchConfig config = {launch.grid[0],
                           launch.grid[1],
                           launch.grid[2],
                           launch.threads,
                           1,
                           1,
                           launch.sharedBytes,
                           stream,
                           &attribute,
                           1};
    return driver.LaunchKernelEx(&config, launch.function, parameters.data(),
                                 nullptr);
  }
  return driver.LaunchKernel(launch.function, launch.grid[0], launch.grid[1],
                             launch.grid[2], launch.threads, 1, 1,
                             launch.sharedBytes, stream, parameters.data(),
                             nullptr);
}

Status nsa::cuda::issueCommand(const Driver &driver, const Command &command,
                               Stream stream) {
  if (const auto *launch = std::get_if<LaunchKernel>(&command))
    return driver.check(issue(driver, *launch, stream), "cuLaunchKernel");
  if (const auto *fill = std::get_if<FillMemory>(&command))
    return driver.check(issue(driver, *fill, stream), "cuMemsetAsync");
  if (std::holds_alternative<PassOver>(command))
    return {};
  const auto &copy = std::get<CopyMemory>(command);
  if (copy.isUpload) {
    const CopyBytes &range = copy.ranges.front();
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto *source = reinterpret_cast<const void *>(copy.source);
    return driver.check(
        driver.MemcpyHtoDAsync(copy.out + range.outOffset,
                               static_cast<const char *>(source) +
                                   range.sourceOffset,
                               range.count, stream),
        "cuMemcpyHtoDAsync");
  }
  for (const CopyBytes &range : copy.ranges)
    NSA_RETURN_IF_ERROR(
        driver.check(driver.MemcpyDtoDAsync(copy.out + range.outOffset,
                                            copy.source + range.sourceOffset,
                                            range.count, stream),
                     "cuMemcpyDtoDAsync"));
  return {};
}
