//===- CheckpointLayout.h - names in and around a checkpoint ----*- C++ -*-===//
//
// Internal to the code that saves, reads and finds checkpoints.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_CHECKPOINTLAYOUT_H
#define NSA_RUNTIME_TRAIN_CHECKPOINTLAYOUT_H

#include "runtime/Train/Checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace nsa::checkpoint {

inline constexpr const char *stateFile = "state.json";
inline constexpr const char *configFile = "config.yaml";
inline constexpr const char *modelFile = "model.safetensors";
inline constexpr const char *optimizerFile = "optimizer.safetensors";
inline constexpr const char *tokenizerFile = "tokenizer.json";
inline constexpr const char *latestFile = "latest";
inline constexpr const char *folderPrefix = "step-";
inline constexpr const char *checkpointsFolder = "checkpoints";
inline constexpr const char *asidePrefix = "abandoned-";

/// The member of state.json with the hash of the others: of their text in
/// compact form, in the order of the file.
inline constexpr const char *stateHashMember = "state_xxh3";
inline constexpr const char *endOfTextMember = "end_of_text";
/// The format version of state.json. Format 1 had no stateHashMember.
inline constexpr int64_t stateFormat = 2;

/// A type as safetensors files name it.
const char *safetensorsType(DataType type);

/// The file with the optimizer's states that one of the ranks that share them
/// keeps.
std::string shareFile(int rank);

/// The file with the weights that one of the ranks keeps, until they are in the
/// model's file.
std::string weightsFile(int rank);

/// Whether a file is one of these two.
bool isRankFile(const std::string &file, int rank);

/// The file that keeps a tensor of one of the ranks that share the optimizer's
/// states. Empty: gradients are zero between steps, constants follow from the
/// program, and what samples need from the parameters.
std::string fileOf(const TensorView &tensor, const TensorSet &model, int rank);

/// The name of the folder of a step's checkpoint, such as step-00000004.
std::string folderName(int64_t step);

/// The step of a checkpoint folder's name, or -1.
int64_t stepOf(const std::string &name);

/// The hash that the state.json in `folder` says of one of its files.
Result<uint64_t> savedHash(const std::string &folder, const std::string &file);
/// Refuses a file that does not have this hash.
Status checkHash(const std::string &name, uint64_t expected);

/// The checkpoints below `root` by step.
std::vector<std::pair<int64_t, std::filesystem::path>>
listCheckpoints(const std::string &root);

} // namespace nsa::checkpoint

#endif // NSA_RUNTIME_TRAIN_CHECKPOINTLAYOUT_H
