//===- CUDAExecutable.cpp - programs on a GPU -----------------------------===//

#include "runtime/CUDA/CUDAExecutable.h"
#include "runtime/CPU/Initialize.h"
#include "runtime/CPU/Memory.h"
#include "runtime/CUDA/BlasLt.h"
#include "runtime/CUDA/Commands.h"

#include <chrono>
#include <cstring>
#include <set>

using namespace nsa;
using namespace nsa::cuda;
using artifact::SegmentKind;
using artifact::Slice;

namespace {

/// Memory of a segment. Named tensors have a copy on the host, whose pages
/// exist once they are touched.
struct DeviceSegment {
  DevicePtr address = 0;
  uint64_t bytes = 0;
  PageMemory mirror;
};

class CUDAExecutable : public Executable {
public:
  CUDAExecutable(const Artifact &artifact, const RuntimeOptions &options)
      : source(artifact), options(options) {}
  ~CUDAExecutable() override;

  /// Everything that can fail.
  Status load();

  void *segment(unsigned index) const override {
    return segments[index].mirror.data();
  }
  RunResult run(unsigned entry) override;
  Status upload(const Slice &slice) override;
  Status download(const Slice &slice) override;
  uint64_t allocatedBytes() const override;
  int threads() const override { return 1; }
  std::string gemmLibrary() const override {
    return blas ? blas->description() : "";
  }
  const std::vector<uint64_t> &nanoseconds(unsigned entry) const override {
    return entries[entry].nanoseconds;
  }
  const std::vector<CommandSpan> &lastRun(unsigned entry) const override {
    return entries[entry].lastRun;
  }

private:
  struct ReadyEntry {
    std::vector<Command> commands;
    std::vector<uint64_t> nanoseconds;
    std::vector<CommandSpan> lastRun;
    /// Tensors that go to the device before and come back after a run.
    std::vector<Slice> inputs, outputs;
    std::vector<Slice> poisoned;
    /// The commands as a graph, after the first run; null if some of them need
    /// the host.
    GraphExec graph = nullptr;
    bool mayCapture = true, ranOnce = false;
  };

  Status selectDevice();
  Status allocateSegments();
  Status loadKernels();
  Status loadBlas();
  Status resolveEntries();
  DevicePtr address(const Slice &slice) const {
    return segments[slice.segment()].address + slice.offset();
  }
  char *mirror(const Slice &slice) const {
    return segments[slice.segment()].mirror.data() + slice.offset();
  }
  Status resolve(const artifact::Entry &entry);
  Result<Command> resolve(const artifact::Command &command);
  Result<Command> resolve(const artifact::Launch &launch) const;
  Result<Command> resolve(const artifact::Gemm &gemm);
  Result<Command> resolve(const artifact::Fill &fill) const;
  Result<Command> resolve(const artifact::Initialize &initialize) const;
  Status transfer(ReadyEntry &entry, bool toDevice);
  Status initialize(const InitializeTensor &command);
  Status issue(const Command &command);
  std::optional<CommandFailure> runEagerly(ReadyEntry &entry);
  Status capture(ReadyEntry &entry);

  Artifact source;
  RuntimeOptions options;
  const Driver *driver = nullptr;
  Device device = 0;
  Context context = nullptr;
  Stream stream = nullptr;
  Module code = nullptr;
  std::vector<DeviceSegment> segments;
  std::vector<Function> kernels;
  std::unique_ptr<BlasLt> blas;
  std::vector<ReadyEntry> entries;
};

} // namespace

CUDAExecutable::~CUDAExecutable() {
  if (!context)
    return;
  driver->CtxSetCurrent(context);
  if (stream)
    driver->StreamSynchronize(stream);
  for (ReadyEntry &entry : entries)
    if (entry.graph)
      driver->GraphExecDestroy(entry.graph);
  blas.reset();
  if (code)
    driver->ModuleUnload(code);
  for (DeviceSegment &segment : segments)
    if (segment.address)
      driver->MemFree(segment.address);
  if (stream)
    driver->StreamDestroy(stream);
  driver->DevicePrimaryCtxRelease(device);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Status CUDAExecutable::load() {
  Result<const Driver *> opened = Driver::open();
  if (!opened)
    return opened.takeError();
  driver = *opened;
  for (auto step :
       {&CUDAExecutable::selectDevice, &CUDAExecutable::allocateSegments,
        &CUDAExecutable::loadKernels, &CUDAExecutable::loadBlas,
        &CUDAExecutable::resolveEntries})
    if (Status status = (this->*step)(); !status)
      return status;
  return {};
}

/// Whether a GPU of this compute capability runs code for the target: a name
/// with a letter is for that one alone, others run on later ones of the same
/// generation.
static bool canRun(const std::string &target, int major, int minor) {
  std::string digits = target.substr(target.find('_') + 1);
  bool exact = !digits.empty() && digits.back() == 'a';
  int wanted = std::atoi(digits.c_str()), have = 10 * major + minor;
  return exact ? wanted == have : wanted / 10 == major && wanted <= have;
}

Status CUDAExecutable::selectDevice() {
  int count = 0, major = 0, minor = 0;
  driver->DeviceGetCount(&count);
  if (options.device < 0 || options.device >= count)
    return Error{"there is no GPU " + std::to_string(options.device) +
                 "; this machine has " + std::to_string(count)};
  char name[128] = {};
  driver->DeviceGet(&device, options.device);
  driver->DeviceGetName(name, sizeof name, device);
  driver->DeviceGetAttribute(&major, kComputeCapabilityMajor, device);
  driver->DeviceGetAttribute(&minor, kComputeCapabilityMinor, device);
  if (!canRun(source->target()->str(), major, minor))
    return Error{"is for the target '" + source->target()->str() + "'; the " +
                 name + " has compute capability " + std::to_string(major) +
                 "." + std::to_string(minor)};
  if (Status status =
          driver->check(driver->DevicePrimaryCtxRetain(&context, device),
                        "cuDevicePrimaryCtxRetain");
      !status)
    return status;
  if (Status status =
          driver->check(driver->CtxSetCurrent(context), "cuCtxSetCurrent");
      !status)
    return status;
  // A stream that does not wait for the default one.
  return driver->check(driver->StreamCreate(&stream, 1), "cuStreamCreate");
}

Status CUDAExecutable::allocateSegments() {
  for (const artifact::Segment *segment : *source->segments()) {
    DeviceSegment &memory = segments.emplace_back();
    memory.bytes = segment->size();
    if (memory.bytes == 0)
      continue;
    if (Status status = driver->check(
            driver->MemAlloc(&memory.address, memory.bytes), "cuMemAlloc");
        !status)
      return Error{"a segment of " + std::to_string(memory.bytes) +
                   " bytes does not fit: " + status.message()};
    if (Status status = driver->check(
            driver->MemsetD8Async(memory.address, 0, memory.bytes, stream),
            "cuMemsetD8Async");
        !status)
      return status;
    if (segment->kind() == SegmentKind::Arena ||
        segment->kind() == SegmentKind::Workspace)
      continue;
    Result<PageMemory> mirror = PageMemory::allocate(memory.bytes);
    if (!mirror)
      return mirror.takeError();
    memory.mirror = std::move(*mirror);
  }
  return {};
}

Status CUDAExecutable::loadKernels() {
  if (source->kernels()->size() == 0)
    return {};
  const artifact::Binary *found = nullptr;
  for (const artifact::Binary *binary : *source->binaries())
    if (binary->format()->string_view() == artifact::cubinFormat ||
        binary->format()->string_view() == artifact::ptxFormat)
      found = binary;
  if (!found)
    return Error{"has no binary for a GPU"};
  // Text has to end with a zero.
  std::string image(found->data()->begin(), found->data()->end());
  if (Status status = driver->check(
          driver->ModuleLoadDataEx(&code, image.c_str(), 0, nullptr, nullptr),
          "cuModuleLoadDataEx");
      !status)
    return status;
  for (const artifact::Kernel *kernel : *source->kernels()) {
    Function &function = kernels.emplace_back();
    if (Status status =
            driver->check(driver->ModuleGetFunction(&function, code,
                                                    kernel->symbol()->c_str()),
                          "cuModuleGetFunction");
        !status)
      return Error{"kernel '" + kernel->name()->str() +
                   "': " + status.message()};
    if (kernel->shared_bytes() <= 48 * 1024)
      continue;
    if (Status status = driver->check(
            driver->FuncSetAttribute(function, kMaxDynamicSharedSize,
                                     int(kernel->shared_bytes())),
            "cuFuncSetAttribute");
        !status)
      return Error{"kernel '" + kernel->name()->str() + "' needs " +
                   std::to_string(kernel->shared_bytes()) +
                   " bytes of shared memory: " + status.message()};
  }
  return {};
}

Status CUDAExecutable::loadBlas() {
  for (const artifact::Entry *entry : *source->entries())
    for (const artifact::Command *command : *entry->commands())
      if (command->action_as_Gemm() && !blas) {
        Result<std::unique_ptr<BlasLt>> opened =
            BlasLt::open(*driver, options.blasLibrary);
        if (!opened)
          return opened.takeError();
        blas = std::move(*opened);
      }
  return {};
}

//===----------------------------------------------------------------------===//
// Resolving commands
//===----------------------------------------------------------------------===//

Status CUDAExecutable::resolveEntries() {
  for (const artifact::Entry *entry : *source->entries())
    if (Status status = resolve(*entry); !status)
      return status;
  return driver->check(driver->StreamSynchronize(stream),
                       "cuStreamSynchronize");
}

Status CUDAExecutable::resolve(const artifact::Entry &entry) {
  ReadyEntry &ready = entries.emplace_back();
  for (const artifact::Command *command : *entry.commands()) {
    Result<Command> resolved = resolve(*command);
    if (!resolved)
      return resolved.takeError();
    if (std::holds_alternative<InitializeTensor>(*resolved))
      ready.mayCapture = false;
    ready.commands.push_back(std::move(*resolved));
  }
  ready.nanoseconds.resize(ready.commands.size());
  ready.lastRun.resize(ready.commands.size());
  std::set<uint32_t> inputs(entry.inputs()->begin(), entry.inputs()->end());
  for (uint32_t input : inputs)
    ready.inputs.push_back(*source->tensors()->Get(input)->slice());
  for (uint32_t output : *entry.outputs()) {
    const artifact::Tensor &tensor = *source->tensors()->Get(output);
    if (tensor.role() != TensorRole::Output)
      continue;
    ready.outputs.push_back(*tensor.slice());
    if (options.poison && !inputs.count(output))
      ready.poisoned.push_back(*tensor.slice());
  }
  for (unsigned i = 0; options.poison && i < segments.size(); ++i)
    if (SegmentKind kind = source->segments()->Get(i)->kind();
        kind == SegmentKind::Arena || kind == SegmentKind::Workspace)
      ready.poisoned.push_back(Slice(i, 0, segments[i].bytes));
  return {};
}

Result<Command> CUDAExecutable::resolve(const artifact::Launch &launch) const {
  const artifact::Kernel &kernel = *source->kernels()->Get(launch.kernel());
  LaunchKernel command;
  command.function = kernels[launch.kernel()];
  command.grid = {kernel.grid_x(), kernel.grid_y(), kernel.grid_z()};
  command.threads = kernel.threads();
  command.sharedBytes = kernel.shared_bytes();
  for (const Slice *slice : *launch.operands())
    command.arguments.push_back(address(*slice));
  return Command(std::move(command));
}

Result<Command> CUDAExecutable::resolve(const artifact::Gemm &gemm) {
  if (gemm.lhs_type() != gemm.rhs_type())
    return Error{std::string("a product of ") + typeName(gemm.lhs_type()) +
                 " and " + typeName(gemm.rhs_type()) +
                 " has no counterpart in cuBLASLt"};
  Result<unsigned> plan =
      blas->plan({int64_t(gemm.m()), int64_t(gemm.n()), int64_t(gemm.k()),
                  gemm.transpose_lhs(), gemm.transpose_rhs(), gemm.lhs_type(),
                  gemm.out_type(), gemm.beta(), address(*gemm.lhs()),
                  address(*gemm.rhs()), address(*gemm.out())});
  if (!plan)
    return plan.takeError();
  return Command(RunGemm{*plan});
}

Result<Command> CUDAExecutable::resolve(const artifact::Fill &fill) const {
  return makeFill(fill.type(), fill.value(), address(*fill.out()),
                  fill.out()->size());
}

Result<Command>
CUDAExecutable::resolve(const artifact::Initialize &initialize) const {
  const artifact::Tensor &tensor = *source->tensors()->Get(initialize.tensor());
  return Command(InitializeTensor{&tensor});
}

Result<Command> CUDAExecutable::resolve(const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return resolve(*launch);
  if (const auto *gemm = command.action_as_Gemm())
    return resolve(*gemm);
  if (const auto *fill = command.action_as_Fill())
    return resolve(*fill);
  if (const auto *copy = command.action_as_Copy())
    return Command(CopyMemory{address(*copy->source()), address(*copy->out()),
                              copy->out()->size()});
  return resolve(*command.action_as_Initialize());
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Status CUDAExecutable::upload(const Slice &slice) {
  driver->CtxSetCurrent(context);
  if (Status status =
          driver->check(driver->MemcpyHtoDAsync(address(slice), mirror(slice),
                                                slice.size(), stream),
                        "cuMemcpyHtoDAsync");
      !status)
    return status;
  return driver->check(driver->StreamSynchronize(stream),
                       "cuStreamSynchronize");
}

Status CUDAExecutable::download(const Slice &slice) {
  driver->CtxSetCurrent(context);
  if (Status status =
          driver->check(driver->MemcpyDtoHAsync(mirror(slice), address(slice),
                                                slice.size(), stream),
                        "cuMemcpyDtoHAsync");
      !status)
    return status;
  return driver->check(driver->StreamSynchronize(stream),
                       "cuStreamSynchronize");
}

Status CUDAExecutable::transfer(ReadyEntry &entry, bool toDevice) {
  for (const Slice &slice : toDevice ? entry.inputs : entry.outputs) {
    if (slice.size() == 0)
      continue;
    int code = toDevice ? driver->MemcpyHtoDAsync(address(slice), mirror(slice),
                                                  slice.size(), stream)
                        : driver->MemcpyDtoHAsync(mirror(slice), address(slice),
                                                  slice.size(), stream);
    if (Status status = driver->check(code, toDevice ? "cuMemcpyHtoDAsync"
                                                     : "cuMemcpyDtoHAsync");
        !status)
      return status;
  }
  if (!toDevice)
    return driver->check(driver->StreamSynchronize(stream),
                         "cuStreamSynchronize");
  for (const Slice &slice : entry.poisoned)
    if (slice.size() != 0)
      if (Status status = driver->check(
              driver->MemsetD8Async(address(slice), 0xFF, slice.size(), stream),
              "cuMemsetD8Async");
          !status)
        return status;
  return {};
}

/// Initial values are computed on the host, the same on every target.
Status CUDAExecutable::initialize(const InitializeTensor &command) {
  const Slice &slice = *command.tensor->slice();
  int64_t count = int64_t(slice.size() / elementBytes(command.tensor->type()));
  initializeTensor(*command.tensor, options.seed, mirror(slice), 0, count);
  return slice.size() ? upload(slice) : Status();
}

Status CUDAExecutable::issue(const Command &command) {
  if (const auto *gemm = std::get_if<RunGemm>(&command))
    return blas->run(gemm->plan, stream);
  if (const auto *tensor = std::get_if<InitializeTensor>(&command))
    return initialize(*tensor);
  return issueCommand(*driver, command, stream);
}

static uint64_t now() {
  return uint64_t(std::chrono::nanoseconds(
                      std::chrono::steady_clock::now().time_since_epoch())
                      .count());
}

std::optional<CommandFailure> CUDAExecutable::runEagerly(ReadyEntry &entry) {
  bool waits = options.profile || options.noGraph;
  for (size_t i = 0; i < entry.commands.size(); ++i) {
    uint64_t start = options.profile ? now() : 0;
    Status status = issue(entry.commands[i]);
    if (status.ok() && waits)
      status = driver->check(driver->StreamSynchronize(stream),
                             "cuStreamSynchronize");
    if (!status)
      return CommandFailure{i, status.message()};
    if (options.profile) {
      entry.lastRun[i] = {start, now() - start};
      entry.nanoseconds[i] += entry.lastRun[i].nanoseconds;
    }
  }
  return std::nullopt;
}

/// Records the commands as a graph, which nothing changes: what differs from
/// run to run is in memory.
Status CUDAExecutable::capture(ReadyEntry &entry) {
  constexpr int relaxed = 2;
  Graph graph = nullptr;
  if (Status status = driver->check(driver->StreamBeginCapture(stream, relaxed),
                                    "cuStreamBeginCapture");
      !status)
    return status;
  std::optional<CommandFailure> failed = runEagerly(entry);
  Status ended = driver->check(driver->StreamEndCapture(stream, &graph),
                               "cuStreamEndCapture");
  if (failed)
    return Error{failed->message};
  if (!ended)
    return ended;
  Status status = driver->check(
      driver->GraphInstantiate(&entry.graph, graph, 0), "cuGraphInstantiate");
  driver->GraphDestroy(graph);
  return status;
}

RunResult CUDAExecutable::run(unsigned index) {
  ReadyEntry &entry = entries[index];
  driver->CtxSetCurrent(context);
  if (Status status = transfer(entry, /*toDevice=*/true); !status)
    return CommandFailure{0, status.message()};
  bool usesGraph = entry.mayCapture && !options.profile && !options.noGraph;
  if (usesGraph && entry.ranOnce && !entry.graph)
    if (Status status = capture(entry); !status)
      return CommandFailure{0, status.message()};
  if (entry.graph) {
    if (Status status = driver->check(driver->GraphLaunch(entry.graph, stream),
                                      "cuGraphLaunch");
        !status)
      return CommandFailure{0, status.message()};
  } else if (std::optional<CommandFailure> failed = runEagerly(entry)) {
    return *failed;
  }
  entry.ranOnce = true;
  if (Status status = transfer(entry, /*toDevice=*/false); !status)
    return CommandFailure{entry.commands.size() - 1, status.message()};
  return std::monostate();
}

uint64_t CUDAExecutable::allocatedBytes() const {
  uint64_t bytes = blas ? blas->workspaceBytes() : 0;
  for (const DeviceSegment &segment : segments)
    bytes += segment.bytes;
  return bytes;
}

Result<std::unique_ptr<Executable>>
nsa::createCUDAExecutable(const Artifact &artifact,
                          const RuntimeOptions &options) {
  if (options.checkFinite)
    return Error{"checking the results of every command is not supported on "
                 "the target '" +
                 artifact->target()->str() + "'"};
  auto executable = std::make_unique<CUDAExecutable>(artifact, options);
  if (Status status = executable->load(); !status)
    return Error{status.message()};
  return std::unique_ptr<Executable>(std::move(executable));
}
