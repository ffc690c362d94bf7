//===- RunSession.cpp - the run that a process begins or continues --------===//

#include "runtime/Train/RunSession.h"
#include "lib/Support/Hash.h"
#include "runtime/Train/Environment.h"
#include "runtime/Train/InitialWeights.h"
#include "runtime/Train/NamedTensors.h"
#include "runtime/Train/Preflight.h"

#include <filesystem>
#include <unistd.h>

namespace nsa {

//===----------------------------------------------------------------------===//
// Which run
//===----------------------------------------------------------------------===//

/// Decisions of the first rank for all.
struct RunSession::Choice {
  /// Of the checkpoint to continue from; empty to begin anew.
  std::string checkpoint;
  /// The same, where it was verified while it was chosen.
  std::optional<Checkpoint> opened;
  /// The run directory to begin in.
  std::string directory;
  /// That the run to go on with is finished; empty if it is not.
  std::string finished;
};

/// The checkpoint to go on from; no path if a new run begins.
Result<FoundCheckpoint> RunSession::findStart() {
  if (run.options.found)
    return *run.options.found;
  if (run.options.resume.empty())
    return FoundCheckpoint();
  return findResume(run.options.resume, run.config,
                    [&](const std::string &folder, const TrainState &saved) {
                      return isOfThisRun(folder, saved);
                    });
}

Result<RunSession::Choice> RunSession::choose() {
  Choice choice;
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint found, findStart());
  for (const std::string &text : found.warnings)
    run.journal.warn(text);
  choice.opened = std::move(found.opened);
  choice.checkpoint = found.path;
  bool isNamed = run.options.resume != "auto";
  if (!found.path.empty()) {
    NSA_RETURN_IF_ERROR(checkInRun(found.path));
    NSA_ASSIGN_OR_RETURN(TrainState saved, readTrainState(found.path));
    // Nothing is wrong with a finished run that was not asked for by name.
    if (!isNamed)
      choice.finished = describeFinished(found.path, saved, run.config);
    return choice;
  }
  if (!isNamed)
    run.journal.note("resume auto: no checkpoint of these parameters and data "
                     "below '" +
                     run.config.train.outDir + "' (" +
                     std::to_string(found.others) +
                     " of others), starting at step 0");
  std::string label = std::filesystem::path(run.options.configPath).stem();
  NSA_ASSIGN_OR_RETURN(RunDirectory created,
                       RunDirectory::create(run.config.train.outDir,
                                            run.options.runName, label));
  choice.directory = created.path();
  return choice;
}

/// Makes this process, of the first rank, the only one that writes the run.
Status RunSession::hold(const Choice &choice) {
  std::string path = choice.directory;
  if (!choice.checkpoint.empty())
    path = runOf(choice.checkpoint);
  NSA_ASSIGN_OR_RETURN(FileLock taken, RunDirectory::lock(path));
  if (!taken.isHeld())
    run.journal.note("the file system of '" + path +
                     "' has no locks: no other process may continue this run");
  else
    for (const std::string &text : removeUnfinished(path))
      run.journal.warn(text);
  lock.emplace(std::move(taken));
  return {};
}

/// Whether a checkpoint is one that `--resume auto` may take: of the same
/// parameters, model, length and data. What else differs is an error of its
/// own, not a reason to begin anew.
Result<bool> RunSession::isOfThisRun(const std::string &folder,
                                     const TrainState &saved) const {
  if (saved.dataDigest != run.state.dataDigest && !run.options.allowChangedData)
    return false;
  if (saved.artefactHash == run.state.artefactHash)
    return true;
  Result<bool> isSame = hasModelOf(folder, saved.step, run.config);
  if (!isSame || !*isSame)
    return isSame;
  return hasParametersOf(folder, run.model);
}

//===----------------------------------------------------------------------===//
// Its state
//===----------------------------------------------------------------------===//

/// Takes the weights that a new run is to begin with.
Status RunSession::loadInitial() {
  if (run.options.initFrom.empty())
    return {};
  Status status;
  Result<InitialWeights> weights = loadInitialWeights(
      run.options.initFrom, run.model, run.config, run.options.initPartial,
      run.tokenizer ? &*run.tokenizer : nullptr);
  if (weights) {
    run.state.history.initFrom = weights->file;
    run.state.history.initHash = weights->hash;
    for (const std::string &text : weights->notes)
      run.journal.note(text);
  } else {
    status = Error{weights.message()};
  }
  status = run.ranks.synchronizeStatus("the initial weights are there", status);
  if (!status)
    return status;
  return run.ranks.checkSame("the file of the initial weights",
                             toHex(run.state.history.initHash));
}

/// Takes over tensors and state, and notes what is not as it was.
Status RunSession::takeOver(const Checkpoint &checkpoint) {
  uint64_t artefact = run.state.artefactHash, digest = run.state.dataDigest;
  bool isSame = checkpoint.state.artefactHash == artefact;
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> lost,
      restoreByName(checkpoint.path, run.model, run.ranks.rank(), isSame));
  if (!isSame)
    run.journal.note(
        "same parameters, other kernels: not bit for bit (artefact " +
        toHex(checkpoint.state.artefactHash) + " -> " + toHex(artefact) + ")");
  for (const std::string &text : lost)
    run.journal.note(text);
  run.state = checkpoint.state;
  run.state.artefactHash = artefact;
  run.state.dataDigest = digest;
  run.state.endOfText = run.data.manifest.endOfText;
  int64_t seqLen = 0;
  if (!run.config.stages.empty()) {
    // A run that began without stages was all of one length.
    for (BatchPeriod &period : run.state.history.batches)
      if (period.seqLen == 0)
        period.seqLen = checkpoint.config.train.seqLen;
    seqLen = run.plan.seqLen;
    run.state.samples = convertSamples(run.state.samples,
                                       checkpoint.config.train.seqLen, seqLen);
  }
  run.state.history.setBatch(run.state.step, run.state.samples,
                             run.plan.sequencesPerStep(), seqLen);
  run.state.history.setData(run.state.step, digest);
  return {};
}

/// Goes on from a checkpoint, which is `opened` where this rank has verified it
/// already.
Status RunSession::resumeFrom(const std::string &folder,
                              const std::optional<Checkpoint> &opened) {
  NSA_ASSIGN_OR_RETURN(Checkpoint checkpoint, opened
                                                  ? Result<Checkpoint>(*opened)
                                                  : Checkpoint::open(folder));
  NSA_ASSIGN_OR_RETURN(
      std::vector<std::string> changes,
      checkResumable(checkpoint,
                     {run.config, run.state.dataDigest,
                      run.tokenizer ? &*run.tokenizer : nullptr,
                      run.options.allowChangedBatch,
                      run.options.allowChangedData, run.ranks.isFirst()}));
  NSA_RETURN_IF_ERROR(guard.expectFiles(checkpoint));
  run.journal.note("resuming from " + folder + " at step " +
                   std::to_string(checkpoint.state.step));
  NSA_RETURN_IF_ERROR(takeOver(checkpoint));
  if (run.ranks.isFirst()) {
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> abandoned, returnTo(folder));
    for (const std::string &path : abandoned)
      run.journal.note("later than that, set aside: " + path);
  }
  run.saved.step = run.state.step;
  run.saved.path = folder;
  if (!checkpoint.isSealed && run.ranks.isFirst())
    run.journal.warn(
        "'" + folder +
        "' is of format 1, without a hash of its state.json: of that only "
        "step, samples and seed could be verified");
  if (checkpoint.state.dataDigest != run.state.dataDigest)
    changes.push_back("data: " + toHex(checkpoint.state.dataDigest) + " -> " +
                      toHex(run.state.dataDigest));
  for (const std::string &change : changes)
    run.journal.note("changed since: " + change);
  return {};
}

//===----------------------------------------------------------------------===//
// Its directory
//===----------------------------------------------------------------------===//

/// Takes up the run that the first rank chose. The directory of a rank on a
/// machine with a file system of its own may have to be made.
Status RunSession::enter(const Choice &choice) {
  std::string folder = choice.directory;
  if (!choice.checkpoint.empty()) {
    NSA_RETURN_IF_ERROR(resumeFrom(choice.checkpoint, choice.opened));
    folder = runOf(choice.checkpoint);
  } else {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
  }
  NSA_ASSIGN_OR_RETURN(RunDirectory opened, RunDirectory::reopen(folder));
  int64_t step = run.state.step;
  bool isComplete = step == run.config.train.steps;
  NSA_RETURN_IF_ERROR(
      run.journal.open(std::move(opened), step, isComplete ? step - 1 : step));
  if (!run.ranks.isFirst())
    return {};
  // Of the process that this one continues.
  for (const char *name : {".anomaly_type", "metrics.json"})
    ::unlink(run.journal.directory().file(name).c_str());
  return writeRunFiles();
}

Status RunSession::open() {
  Choice choice;
  Status status;
  if (run.ranks.isFirst()) {
    Result<Choice> chosen = choose();
    if (chosen)
      choice = *chosen;
    status = chosen ? Status() : Error{chosen.message()};
    if (chosen && choice.finished.empty())
      status = hold(choice);
  }
  status = run.ranks.synchronizeStatus("the run is chosen", status);
  if (!status)
    return status;
  for (std::string *text :
       {&choice.checkpoint, &choice.directory, &choice.finished}) {
    NSA_ASSIGN_OR_RETURN(std::vector<std::string> all,
                         run.ranks.exchange("the place of the run", *text));
    *text = all[0];
  }
  finished = choice.finished;
  if (!finished.empty())
    return {};
  return run.ranks.synchronizeStatus("the run is open", enter(choice));
}

Status RunSession::writeRunFiles() const {
  std::vector<std::pair<std::string, std::string>> facts = run.options.facts;
  facts.emplace_back("run_id", run.journal.directory().id());
  facts.emplace_back("config", run.options.configPath);
  facts.emplace_back("config_hash", configHash(run.config));
  facts.emplace_back("artefact_hash", toHex(run.state.artefactHash));
  facts.emplace_back("data", run.data.name());
  facts.emplace_back("data_digest", toHex(run.state.dataDigest));
  if (!run.state.history.initFrom.empty()) {
    facts.emplace_back("init_from", run.state.history.initFrom);
    facts.emplace_back("init_hash", toHex(run.state.history.initHash));
  }
  if (run.tokenizer && !run.tokenizer->text().empty()) {
    facts.emplace_back("tokenizer_hash", toHex(run.tokenizer->hash()));
    NSA_RETURN_IF_ERROR(
        run.journal.directory().write(tokenizerName, run.tokenizer->text()));
  }
  for (const auto &[name, text] :
       {std::pair<const char *, std::string>{"config.yaml",
                                             printConfigYaml(run.config)},
        {"config.json", printConfigJson(run.config) + "\n"},
        {"env.json", describeEnvironment(facts)},
        {"dtypes_report.txt", describeTensors(run.model)}})
    NSA_RETURN_IF_ERROR(run.journal.directory().write(name, text));
  return {};
}

} // namespace nsa
