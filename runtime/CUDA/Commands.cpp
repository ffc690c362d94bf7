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
  parameters.reserve(launch.arguments.size());
  for (const DevicePtr &argument : launch.arguments)
    parameters.push_back(const_cast<DevicePtr *>(&argument));
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
  return driver.check(
      driver.MemcpyDtoDAsync(copy.out, copy.source, copy.bytes, stream),
      "cuMemcpyDtoDAsync");
}
