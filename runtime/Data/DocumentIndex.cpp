//===- DocumentIndex.cpp - where documents begin --------------------------===//

#include "runtime/Data/DocumentIndex.h"
#include "lib/Support/Hash.h"

namespace nsa {

static constexpr int32_t indexMagic = 20251101;
static constexpr int32_t indexVersion = 1;

Result<FileInfo> writeDocumentIndex(const std::string &directory,
                                    const std::string &split,
                                    const std::vector<uint64_t> &starts) {
  FileInfo info{split + "_documents.idx"};
  std::string path = directory + "/" + info.file;
  NSA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  uint64_t count = starts.size();
  int32_t header[shardHeaderBytes / sizeof(int32_t)] = {
      indexMagic, indexVersion, int32_t(uint32_t(count)), int32_t(count >> 32)};
  NSA_RETURN_IF_ERROR(file.write(header, sizeof header));
  NSA_RETURN_IF_ERROR(file.write(starts.data(), count * sizeof(uint64_t)));
  NSA_RETURN_IF_ERROR(file.finish());
  NSA_ASSIGN_OR_RETURN(info.hash, hashFile(path));
  return info;
}

/// Whether positions ascend from 0 and stay below `tokens`.
static bool ascends(const std::vector<uint64_t> &starts, uint64_t tokens) {
  for (size_t i = 0; i < starts.size(); ++i)
    if (i == 0 ? starts[i] != 0 : starts[i] <= starts[i - 1])
      return false;
  return starts.empty() ? tokens == 0 : starts.back() < tokens;
}

Result<std::vector<uint64_t>> readDocumentIndex(const std::string &directory,
                                                const SplitInfo &split) {
  std::vector<uint64_t> starts;
  if (split.index.file.empty())
    return starts;
  std::string path = directory + "/" + split.index.file;
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  int32_t header[4] = {};
  uint64_t expected =
      shardHeaderBytes + split.documents * uint64_t(sizeof(uint64_t));
  if (file.size() != expected)
    return Error{"'" + path + "' has " + std::to_string(file.size()) +
                 " bytes, an index of " + std::to_string(split.documents) +
                 " documents " + std::to_string(expected)};
  NSA_RETURN_IF_ERROR(file.readAt(0, header, sizeof header));
  if (header[0] != indexMagic || header[1] != indexVersion)
    return Error{"'" + path + "' is no index of documents: magic " +
                 std::to_string(header[0]) + " version " +
                 std::to_string(header[1]) + ", expected " +
                 std::to_string(indexMagic) + " version " +
                 std::to_string(indexVersion)};
  starts.resize(size_t(split.documents));
  NSA_RETURN_IF_ERROR(file.readAt(shardHeaderBytes, starts.data(),
                                  starts.size() * sizeof(uint64_t)));
  NSA_ASSIGN_OR_RETURN(uint64_t hash, hashFile(path));
  if (hash != split.index.hash)
    return Error{"'" + path + "' has hash " + toHex(hash) +
                 ", its manifest says " + toHex(split.index.hash)};
  uint64_t count = uint64_t(uint32_t(header[2])) | uint64_t(uint32_t(header[3]))
                                                       << 32;
  if (count != split.documents || !ascends(starts, split.tokens))
    return Error{"'" + path + "' is damaged: the positions of its " +
                 std::to_string(count) +
                 " documents do not ascend from 0 to below " +
                 std::to_string(split.tokens)};
  return starts;
}

} // namespace nsa
