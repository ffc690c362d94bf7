//===- SplitFiles.cpp - files beside the shards of a split ----------------===//

#include "runtime/Data/SplitFiles.h"
#include "lib/Support/Hash.h"

namespace nsa {

namespace {
/// What a header says, and how errors call it.
struct Kind {
  int32_t magic;
  const char *name, *counted;
};
} // namespace

static constexpr Kind indexKind = {20251101, "an index", "documents"};
static constexpr Kind marksKind = {20251127, "the marks", "tokens"};
static constexpr int32_t version = 1;

static Result<FileInfo> write(const std::string &directory, std::string name,
                              const Kind &kind, uint64_t count,
                              const void *data, size_t bytes) {
  FileInfo info{std::move(name)};
  std::string path = directory + "/" + info.file;
  NSA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  const int32_t header[shardHeaderBytes / sizeof(int32_t)] = {
      kind.magic, version, int32_t(uint32_t(count)), int32_t(count >> 32)};
  NSA_RETURN_IF_ERROR(file.write(header, sizeof header));
  NSA_RETURN_IF_ERROR(file.write(data, bytes));
  NSA_RETURN_IF_ERROR(file.finish());
  NSA_ASSIGN_OR_RETURN(info.hash, hashFile(path));
  return info;
}

/// The elements after the header of a file that is as the manifest says.
template <typename Element>
static Result<std::vector<Element>> read(const std::string &path,
                                         const FileInfo &info, const Kind &kind,
                                         uint64_t count, uint64_t elements) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  std::string what = std::string(kind.name) + " of " + std::to_string(count) +
                     " " + kind.counted;
  uint64_t expected = shardHeaderBytes + elements * sizeof(Element);
  if (file.size() != expected)
    return Error{"'" + path + "' has " + std::to_string(file.size()) +
                 " bytes, " + what + " " + std::to_string(expected)};
  uint32_t header[4] = {};
  NSA_RETURN_IF_ERROR(file.readAt(0, header, sizeof header));
  uint64_t found = header[2] | uint64_t(header[3]) << 32;
  if (int32_t(header[0]) != kind.magic || header[1] != version ||
      found != count)
    return Error{"'" + path + "' is not " + what + ": magic " +
                 std::to_string(int32_t(header[0])) + " version " +
                 std::to_string(header[1]) + " of " + std::to_string(found) +
                 ", expected " + std::to_string(kind.magic) + " version " +
                 std::to_string(version)};
  std::vector<Element> data(static_cast<size_t>(elements));
  NSA_RETURN_IF_ERROR(file.readAt(shardHeaderBytes, data.data(),
                                  data.size() * sizeof(Element)));
  NSA_ASSIGN_OR_RETURN(uint64_t hash, hashFile(path));
  if (hash != info.hash)
    return Error{"'" + path + "' has hash " + toHex(hash) +
                 ", its manifest says " + toHex(info.hash)};
  return data;
}

Result<FileInfo> writeDocumentIndex(const std::string &directory,
                                    const std::string &split,
                                    const std::vector<uint64_t> &starts) {
  return write(directory, split + "_documents.idx", indexKind, starts.size(),
               starts.data(), starts.size() * sizeof(uint64_t));
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
  if (split.index.file.empty())
    return std::vector<uint64_t>();
  std::string path = directory + "/" + split.index.file;
  NSA_ASSIGN_OR_RETURN(std::vector<uint64_t> starts,
                       read<uint64_t>(path, split.index, indexKind,
                                      split.documents, split.documents));
  if (!ascends(starts, split.tokens))
    return Error{"'" + path + "' is damaged: the positions of its " +
                 std::to_string(split.documents) +
                 " documents do not ascend from 0 to below " +
                 std::to_string(split.tokens)};
  return starts;
}

static uint64_t bytesFor(uint64_t tokens) { return (tokens + 7) / 8; }

Result<FileInfo> writeTargetMarks(const std::string &directory,
                                  const std::string &split,
                                  const std::vector<bool> &marks) {
  std::string bits(size_t(bytesFor(marks.size())), '\0');
  for (size_t i = 0; i < marks.size(); ++i)
    if (marks[i])
      bits[i / 8] |= char(1 << i % 8);
  return write(directory, split + "_targets.bits", marksKind, marks.size(),
               bits.data(), bits.size());
}

Result<std::vector<uint8_t>> readTargetMarks(const std::string &directory,
                                             const SplitInfo &split) {
  if (split.marks.file.empty())
    return std::vector<uint8_t>();
  return read<uint8_t>(directory + "/" + split.marks.file, split.marks,
                       marksKind, split.tokens, bytesFor(split.tokens));
}

} // namespace nsa
