//===- CheckpointLayout.cpp - names in and around a checkpoint ------------===//

#include "runtime/Train/CheckpointLayout.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace fs = std::filesystem;

namespace nsa::checkpoint {

const char *safetensorsType(DataType type) {
  // The two formats have the same names.
  return artifact::EnumNameDataType(type);
}

std::string shareFile(int rank) {
  return "optimizer_rank" + std::to_string(rank) + ".safetensors";
}

std::string weightsFile(int rank) {
  return "weights_rank" + std::to_string(rank) + ".safetensors";
}

bool isRankFile(const std::string &file, int rank) {
  return file == shareFile(rank) || file == weightsFile(rank);
}

std::string fileOf(const TensorView &tensor, const TensorSet &model, int rank) {
  switch (tensor.role) {
  case TensorRole::Parameter:
    return modelFile;
  case TensorRole::State:
    if (training::isDerivedState(tensor.name))
      return "";
    if (tensor.state == training::weightState)
      return weightsFile(rank);
    return !tensor.state.empty() && model.sharingRanks() > 0 ? shareFile(rank)
                                                             : optimizerFile;
  default:
    return tensor.frozen ? modelFile : "";
  }
}

std::string folderName(int64_t step) {
  return formatted("%s%08" PRId64, folderPrefix, step);
}

int64_t stepOf(const std::string &name) {
  size_t prefix = std::strlen(folderPrefix);
  if (name.compare(0, prefix, folderPrefix) != 0 || name.size() == prefix)
    return -1;
  if (name.find_first_not_of("0123456789", prefix) != std::string::npos ||
      name.size() > prefix + 18)
    return -1;
  return std::stoll(name.substr(prefix));
}

std::vector<std::pair<int64_t, fs::path>>
listCheckpoints(const std::string &root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator entry(root, code), end; !code && entry != end;
       entry.increment(code))
    if (int64_t step = stepOf(entry->path().filename().string()); step >= 0)
      found.emplace_back(step, entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

} // namespace nsa::checkpoint
