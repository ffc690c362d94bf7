//===- Preflight.cpp - what is known before the first step ----------------===//

#include "runtime/Train/Preflight.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Text.h"
#include "runtime/CUDA/GPU.h"
#include "runtime/Data/Sampler.h"
#include "runtime/Train/CheckpointLayout.h"
#include "runtime/Train/RunDirectory.h"

#include <algorithm>
#include <charconv>
#include <unistd.h>

namespace nsa {

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

Result<std::optional<Tokenizer>> checkVocabulary(const Dataset &data,
                                                 const std::string &setting,
                                                 int64_t vocabulary) {
  if (data.manifest.vocabSize > vocabulary)
    return Error{"the data has a vocabulary of " +
                 std::to_string(data.manifest.vocabSize) +
                 " tokens, the model one of " + std::to_string(vocabulary)};
  Result<std::optional<Tokenizer>> found = openTokenizer(data, setting);
  if (found && *found && (*found)->size() > vocabulary)
    return Error{
        "the tokenizer of the data has " + std::to_string((*found)->size()) +
        " tokens, the model a vocabulary of " + std::to_string(vocabulary)};
  return found;
}

/// Checks the windows of one length.
static Status checkWindows(const Dataset &data, int64_t seqLen) {
  NSA_ASSIGN_OR_RETURN(TrainSampler train,
                       TrainSampler::create(data, seqLen, /*seed=*/0));
  Result<ValidationWindows> val = ValidationWindows::create(data.val, seqLen);
  return val ? Status() : Error{val.message()};
}

Status checkWindows(const Dataset &data, const RunConfig &config) {
  size_t stages = std::max<size_t>(config.stages.size(), 1);
  for (size_t stage = 0; stage < stages; ++stage)
    if (Status status =
            checkWindows(data, withStage(config, stage).train.seqLen);
        !status)
      return Error{stage == 0 ? status.message()
                              : "stage " + std::to_string(stage + 1) + ": " +
                                    status.message()};
  bool needsDocuments =
      config.data.isolateDocuments || config.data.window == "document";
  for (const auto *sources : {&data.trainDocuments, &data.valDocuments}) {
    if (needsDocuments)
      if (Result<Documents> found = Documents::open(*sources); !found)
        return Error{found.message()};
    if (config.data.targets == "marked")
      if (Result<TargetMarks> found = TargetMarks::open(*sources); !found)
        return Error{found.message()};
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

Result<std::vector<std::string>> checkResumable(const Checkpoint &checkpoint,
                                                const ResumeRequest &request) {
  const TrainState &saved = checkpoint.state;
  const RunConfig &config = request.config;
  Result<std::vector<std::string>> changes = compareForResume(
      checkpoint.config, withStage(config, findStage(config, saved.step)),
      request.allowChangedBatch);
  if (!changes)
    return changes;
  if (saved.dataDigest != request.dataDigest && !request.allowChangedData)
    return Error{"cannot resume from '" + checkpoint.path +
                 "': it belongs to data " + toHex(saved.dataDigest) +
                 ", this is " + toHex(request.dataDigest) +
                 " (--allow-changed-data goes on with other data)"};
  uint64_t now = request.tokenizer ? request.tokenizer->hash() : 0;
  if (saved.tokenizerHash != now &&
      !(now && request.tokenizer->hasIdsOf(checkpoint.path + "/" +
                                               nsa::checkpoint::tokenizerFile,
                                           saved.tokenizerHash)))
    return Error{"cannot resume from '" + checkpoint.path +
                 "': its tokens were made by the tokenizer " +
                 toHex(saved.tokenizerHash) + ", those of the data by " +
                 toHex(now)};
  // At the last step there is a result to make, if it is not there.
  if (saved.step > config.train.steps ||
      (saved.step == config.train.steps && request.isFirst &&
       hasResult(runOf(checkpoint.path))))
    return Error{"nothing to resume: '" + checkpoint.path + "' is at step " +
                 std::to_string(saved.step) + ", train.steps is " +
                 std::to_string(config.train.steps)};
  return changes;
}

std::string describeFinished(const std::string &checkpoint,
                             const TrainState &saved, const RunConfig &config) {
  std::string run = runOf(checkpoint);
  if (saved.step < config.train.steps || !hasResult(run))
    return "";
  return "the run '" + run + "' is finished at step " +
         std::to_string(saved.step) + ", train.steps is " +
         std::to_string(config.train.steps) + ": nothing is left to do";
}

Result<FoundCheckpoint> findResume(const std::string &resume,
                                   const RunConfig &config,
                                   const CheckpointFilter &matches) {
  int64_t most = config.train.keepCheckpoints;
  if (resume != "auto")
    return findCheckpoint(resume, most);
  Result<FoundCheckpoint> found =
      findNewestCheckpoint(config.train.outDir, matches, most);
  if (!found || found->path.empty())
    return found;
  // Its absolute path.
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint again,
                       findCheckpoint(found->path, most));
  found->path = again.path;
  return found;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Bytes that the processes of this machine, or of its container, may use.
static uint64_t machineMemory() {
  uint64_t bytes =
      uint64_t(::sysconf(_SC_PHYS_PAGES)) * uint64_t(::sysconf(_SC_PAGESIZE));
  if (Result<std::string> text = readFile("/sys/fs/cgroup/memory.max")) {
    uint64_t most = bytes;
    // "max" is no limit.
    std::from_chars(text->data(), text->data() + text->size(), most);
    bytes = std::min(bytes, most);
  }
  return bytes;
}

Result<uint64_t> deviceMemory(const RunConfig &config, int gpu, int processes) {
  if (config.runtime.device != "cpu")
    return cuda::GPU::memory(gpu);
  return machineMemory() / uint64_t(processes);
}

Status checkPlan(const Artifact &artifact, uint64_t memory) {
  uint64_t planned = 0;
  for (const artifact::Segment *segment : *artifact->segments())
    planned += segment->size();
  if (planned <= memory)
    return {};
  return Error{artifact.name() + ": its plan takes " + grouped(planned) +
               " bytes, there are " + grouped(memory) +
               " (nsa-train --estimate says what others take)"};
}

} // namespace nsa
