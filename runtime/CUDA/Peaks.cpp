//===- Peaks.cpp - what a GPU does at best --------------------------------===//

#include "runtime/CUDA/Peaks.h"
#include "runtime/CUDA/BlasLt.h"

#include <algorithm>
#include <functional>

using namespace nsa;
using namespace nsa::cuda;

namespace {
/// Memory and events for the time of the measurement.
class Bench {
public:
  explicit Bench(const GPU &gpu) : gpu(gpu) {}
  ~Bench();

  Status prepare();
  /// Seconds of the fastest of several runs of `work`.
  Result<double> time(const std::function<Status()> &work);

  static constexpr uint64_t bytes = 256u << 20;
  DevicePtr memory = 0;

private:
  const GPU &gpu;
  Event begin = nullptr, end = nullptr;
};
} // namespace

Bench::~Bench() {
  (void)gpu.wait();
  for (Event event : {begin, end})
    if (event)
      gpu.driver().EventDestroy(event);
  if (memory)
    gpu.driver().MemFree(memory);
}

Status Bench::prepare() {
  const Driver &driver = gpu.driver();
  for (Event *event : {&begin, &end})
    NSA_RETURN_IF_ERROR(
        driver.check(driver.EventCreate(event, 0), "cuEventCreate"));
  NSA_RETURN_IF_ERROR(
      driver.check(driver.MemAlloc(&memory, bytes), "cuMemAlloc"));
  return driver.check(driver.MemsetD8Async(memory, 0, bytes, gpu.stream()),
                      "cuMemsetD8Async");
}

Result<double> Bench::time(const std::function<Status()> &work) {
  constexpr int rounds = 8;
  const Driver &driver = gpu.driver();
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    float milliseconds = 0;
    const std::function<Status()> steps[] = {
        [&] {
          return driver.check(driver.EventRecord(begin, gpu.stream()),
                              "cuEventRecord");
        },
        work,
        [&] {
          return driver.check(driver.EventRecord(end, gpu.stream()),
                              "cuEventRecord");
        },
        [&] { return gpu.wait(); },
        [&] {
          return driver.check(
              driver.EventElapsedTime(&milliseconds, begin, end),
              "cuEventElapsedTime");
        }};
    for (const std::function<Status()> &step : steps)
      NSA_RETURN_IF_ERROR(step());
    double seconds = double(milliseconds) / 1e3;
    best = round == 0 ? seconds : std::min(best, seconds);
  }
  if (best <= 0)
    return Error{"its clock stands still"};
  return best;
}

/// Operations per second of a matmul that fills most of the memory.
static Result<double> measureProduct(const GPU &gpu, Bench &bench, BlasLt &blas,
                                     DataType type) {
  int64_t n = type == DataType::F32 ? 4096 : 6144, k = 4096;
  uint64_t operand = uint64_t(n) * uint64_t(k) * elementBytes(type);
  uint64_t result = uint64_t(n) * uint64_t(n) * elementBytes(type);
  uint64_t workspace = Bench::bytes - 2 * operand - result;
  NSA_ASSIGN_OR_RETURN(
      unsigned plan,
      blas.plan({n, n, k, /*transposeLhs=*/false, /*transposeRhs=*/true, type,
                 type,
                 /*beta=*/0.0f, std::min<uint64_t>(workspace, 32u << 20)}));
  MatmulMemory memory = {bench.memory, bench.memory + operand,
                         bench.memory + 2 * operand,
                         bench.memory + 2 * operand + result};
  Result<double> seconds =
      bench.time([&] { return blas.run(plan, memory, gpu.stream()); });
  if (!seconds)
    return seconds.takeError();
  return 2.0 * double(n) * double(n) * double(k) / *seconds;
}

Result<GPUPeaks> nsa::cuda::measurePeaks(const GPU &gpu,
                                         const std::string &library) {
  NSA_ASSIGN_OR_RETURN(std::unique_ptr<BlasLt> blas, BlasLt::open(library));
  Bench bench(gpu);
  NSA_RETURN_IF_ERROR(bench.prepare());
  GPUPeaks peaks;
  peaks.name = gpu.description();
  const Driver &driver = gpu.driver();
  constexpr uint64_t half = Bench::bytes / 2;
  Result<double> seconds = bench.time([&] {
    return driver.check(driver.MemcpyDtoDAsync(bench.memory + half,
                                               bench.memory, half,
                                               gpu.stream()),
                        "cuMemcpyDtoDAsync");
  });
  if (!seconds)
    return seconds.takeError();
  peaks.copy = 2.0 * double(half) / *seconds;
  for (auto [type, speed] : {std::pair(DataType::F32, &peaks.flops),
                             std::pair(DataType::BF16, &peaks.halfFlops)}) {
    NSA_ASSIGN_OR_RETURN(*speed, measureProduct(gpu, bench, *blas, type));
  }
  return peaks;
}
