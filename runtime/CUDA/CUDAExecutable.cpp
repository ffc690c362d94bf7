//===- CUDAExecutable.cpp - loading programs on a GPU ---------------------===//

#include "runtime/CUDA/CUDAExecutable.h"
#include "lib/Support/Text.h"
#include "runtime/CUDA/CUDAExecutableImpl.h"
#include "runtime/Core/Parts.h"

#include <algorithm>
#include <cstdio>

using namespace nsa;
using namespace nsa::cuda;

/// Moves it to where nothing destroys it.
template <typename T>
static void keepForever(T &value) {
  (void)new T(std::move(value));
}

CUDAExecutable::~CUDAExecutable() {
  if (!gpu)
    return;
  if (reductions && reductions->hasFailed()) {
    // The GPU waits for a lost rank, and whatever is freed there waits for the
    // GPU: only the end of the process ends that.
    keepForever(entries);
    keepForever(blas);
    keepForever(memory);
    keepForever(reductions);
    keepForever(gpu);
    return;
  }
  CurrentGPU current(*gpu);
  (void)gpu->wait();
  if (hasEnqueued)
    gpu->driver().CtxSynchronize();
  for (ReadyEntry &entry : entries) {
    if (entry.graph)
      gpu->driver().GraphExecDestroy(entry.graph);
    for (Event event : entry.events)
      gpu->driver().EventDestroy(event);
  }
  for (Event event : {given, done})
    if (event)
      gpu->driver().EventDestroy(event);
  entries.clear();
  reductions.reset();
  blas.reset();
  if (code)
    gpu->driver().ModuleUnload(code);
  memory.reset();
}

static bool isText(const artifact::Binary &binary) {
  return binary.format()->string_view() == artifact::ptxFormat;
}

/// The code of the program's kernels for GPUs, in each form that it has.
static std::vector<const artifact::Binary *>
findCode(const artifact::Artifact &program) {
  std::vector<const artifact::Binary *> found;
  for (const artifact::Binary *binary : *program.binaries())
    if (binary->format()->string_view() == artifact::cubinFormat ||
        isText(*binary))
      found.push_back(binary);
  return found;
}

/// What the forms of the code are for; without kernels there is one all the
/// same, to tell on which GPUs the program runs.
static std::vector<GPU::Target>
findForms(const artifact::Artifact &program,
          const std::vector<const artifact::Binary *> &binaries) {
  std::vector<GPU::Target> forms;
  forms.reserve(binaries.size());
  for (const artifact::Binary *binary : binaries)
    forms.push_back({program.target()->str(), isText(*binary)});
  if (forms.empty())
    forms.push_back({program.target()->str()});
  return forms;
}

Status CUDAExecutable::load() {
  if (options.checkFinite)
    NSA_RETURN_IF_ERROR(canCheckResults(source.root()));
  int size = options.ranks ? options.ranks->size() : 1;
  NSA_RETURN_IF_ERROR(checkRanks(source.root(), size));
  std::vector<const artifact::Binary *> binaries = findCode(source.root());
  if (binaries.empty() && source->kernels()->size() != 0)
    return Error{"has no binary for a GPU"};
  NSA_ASSIGN_OR_RETURN(
      gpu, GPU::open(options.device, findForms(source.root(), binaries)));
  memory = std::make_unique<DeviceMemory>(*gpu);
  NSA_RETURN_IF_ERROR(memory->allocateEmpty(source.root()));
  if (options.externalMemory)
    memory->leaveToCallers(source.root());
  else if (Status status = memory->allocate(source.root()); !status)
    return status;
  for (auto step :
       {&CUDAExecutable::loadKernels, &CUDAExecutable::loadBlas,
        &CUDAExecutable::openReductions, &CUDAExecutable::resolveEntries,
        &CUDAExecutable::connectRanks})
    NSA_RETURN_IF_ERROR((this->*step)());
  return {};
}

/// The compiler refuses kernels that spill, as far as it sees the result of
/// ptxas; here the driver's is what there is to see.
static void warnOfLocalMemory(const Driver &driver,
                              const artifact::Kernel &kernel,
                              Function function) {
  int bytes = 0;
  if (driver.FuncGetAttribute(&bytes, kLocalBytes, function) == 0 && bytes > 0)
    std::fprintf(stderr,
                 "warning: kernel '%s' keeps %d bytes of each thread in local "
                 "memory, as the GPU's driver compiled it from PTX: it may be "
                 "slow\n",
                 kernel.name()->c_str(), bytes);
}

Status CUDAExecutable::loadKernels() {
  if (source->kernels()->size() == 0)
    return {};
  std::vector<const artifact::Binary *> binaries = findCode(source.root());
  const artifact::Binary *binary = *std::find_if(
      binaries.begin(), binaries.end(), [&](const artifact::Binary *candidate) {
        return isText(*candidate) == gpu->target().isText;
      });
  const Driver &driver = gpu->driver();
  // Text has to end with a zero.
  std::string image(binary->data()->begin(), binary->data()->end());
  char log[4096] = "";
  int keys[] = {kJITErrorLog, kJITErrorLogBytes};
  // The driver reads a number in the place of a pointer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void *values[] = {log, reinterpret_cast<void *>(sizeof log - 1)};
  if (Status status = driver.check(
          driver.ModuleLoadDataEx(&code, image.c_str(), 2, keys, values),
          "cuModuleLoadDataEx");
      !status)
    return Error{status.message() + (*log ? std::string(": ") + log : "")};
  for (const artifact::Kernel *kernel : *source->kernels()) {
    Function &function = kernels.emplace_back();
    if (Status status =
            driver.check(driver.ModuleGetFunction(&function, code,
                                                  kernel->symbol()->c_str()),
                         "cuModuleGetFunction");
        !status)
      return Error{"kernel " + quote(kernel->name()->str()) + ": " +
                   status.message()};
    if (gpu->target().isText)
      warnOfLocalMemory(driver, *kernel, function);
    if (kernel->shared_bytes() <= 48 * 1024)
      continue;
    if (Status status = driver.check(
            driver.FuncSetAttribute(function, kMaxDynamicSharedSize,
                                    int(kernel->shared_bytes())),
            "cuFuncSetAttribute");
        !status)
      return Error{"kernel " + quote(kernel->name()->str()) + " needs " +
                   std::to_string(kernel->shared_bytes()) +
                   " bytes of shared memory: " + status.message()};
  }
  return {};
}

Status CUDAExecutable::loadBlas() {
  for (const artifact::Entry *entry : *source->entries())
    for (const artifact::Command *command : *entry->commands())
      if (command->action_as_Gemm() && !blas) {
        NSA_ASSIGN_OR_RETURN(blas, BlasLt::open(options.blasLibrary));
      }
  return {};
}

Status CUDAExecutable::openReductions() {
  if (!options.ranks || options.ranks->size() == 1)
    return {};
  NSA_ASSIGN_OR_RETURN(
      reductions, Reductions::open(*gpu, *options.ranks, options.ncclLibrary));
  return {};
}

Status CUDAExecutable::connectRanks() {
  if (!reductions)
    return {};
  uint64_t before = gpu->usedBytes();
  Status status = reductions->connect(int(source->sequence_ranks()));
  connectedBytes = std::max(gpu->usedBytes(), before) - before;
  return status;
}

Result<std::unique_ptr<Executable>>
nsa::createCUDAExecutable(const Artifact &artifact,
                          const RuntimeOptions &options) {
  auto executable = std::make_unique<CUDAExecutable>(artifact, options);
  Result<const Driver *> driver = Driver::open();
  // Other users of GPUs on this thread get their context back.
  Context before = nullptr;
  if (driver)
    (*driver)->CtxGetCurrent(&before);
  Status status = executable->load();
  if (before)
    (*driver)->CtxSetCurrent(before);
  if (!status)
    return Error{status.message()};
  return std::unique_ptr<Executable>(std::move(executable));
}
