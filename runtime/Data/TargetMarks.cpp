//===- TargetMarks.cpp - tokens that a loss counts ------------------------===//

#include "runtime/Data/TargetMarks.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"

#include <algorithm>

namespace nsa {

static constexpr int32_t marksMagic = 20251127;
static constexpr int32_t marksVersion = 1;

static uint64_t bytesFor(uint64_t tokens) { return (tokens + 7) / 8; }

Result<FileInfo> writeTargetMarks(const std::string &directory,
                                  const std::string &split,
                                  const std::vector<bool> &marks) {
  FileInfo info{split + "_targets.bits"};
  std::string path = directory + "/" + info.file;
  uint64_t count = marks.size();
  std::string bytes(shardHeaderBytes + bytesFor(count), '\0');
  const int32_t header[] = {marksMagic, marksVersion, int32_t(uint32_t(count)),
                            int32_t(count >> 32)};
  std::copy_n(reinterpret_cast<const char *>(header), sizeof header,
              bytes.begin());
  for (uint64_t i = 0; i < count; ++i)
    if (marks[i])
      bytes[shardHeaderBytes + i / 8] |= char(1 << i % 8);
  NSA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  NSA_RETURN_IF_ERROR(file.write(bytes));
  NSA_RETURN_IF_ERROR(file.finish());
  info.hash = hashBytes(bytes);
  return info;
}

Result<std::vector<uint8_t>> readTargetMarks(const std::string &directory,
                                             const SplitInfo &split) {
  std::vector<uint8_t> bits;
  if (split.marks.file.empty())
    return bits;
  std::string path = directory + "/" + split.marks.file;
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  uint64_t expected = shardHeaderBytes + bytesFor(split.tokens);
  if (file.size() != expected)
    return Error{"'" + path + "' has " + std::to_string(file.size()) +
                 " bytes, the marks of " + std::to_string(split.tokens) +
                 " tokens " + std::to_string(expected)};
  bits.resize(size_t(expected));
  NSA_RETURN_IF_ERROR(file.readAt(0, bits.data(), bits.size()));
  if (uint64_t hash = hashBytes(bits.data(), bits.size());
      hash != split.marks.hash)
    return Error{"'" + path + "' has hash " + toHex(hash) +
                 ", its manifest says " + toHex(split.marks.hash)};
  int32_t header[4];
  std::copy_n(bits.begin(), sizeof header, reinterpret_cast<uint8_t *>(header));
  uint64_t count = uint64_t(uint32_t(header[2])) | uint64_t(uint32_t(header[3]))
                                                       << 32;
  if (header[0] != marksMagic || header[1] != marksVersion ||
      count != split.tokens)
    return Error{"'" + path + "' has no marks of targets: magic " +
                 std::to_string(header[0]) + " version " +
                 std::to_string(header[1]) + " of " + std::to_string(count) +
                 " tokens, expected " + std::to_string(marksMagic) +
                 " version " + std::to_string(marksVersion) + " of " +
                 std::to_string(split.tokens)};
  bits.erase(bits.begin(), bits.begin() + shardHeaderBytes);
  return bits;
}

Result<TargetMarks>
TargetMarks::open(const std::vector<DocumentSource> &sources) {
  TargetMarks marks;
  for (const DocumentSource &source : sources) {
    if (source.info.marks.file.empty() && source.tokens > 0)
      return Error{"'" + source.name +
                   "' has no marks of targets, which data.targets: marked "
                   "needs"};
    NSA_ASSIGN_OR_RETURN(std::vector<uint8_t> bits,
                         readTargetMarks(source.name, source.info));
    marks.sources.push_back(
        {source.begin, source.begin + source.tokens, std::move(bits)});
  }
  return marks;
}

void TargetMarks::apply(uint64_t position, int32_t *targets,
                        uint64_t count) const {
  for (const Source &source : sources) {
    uint64_t first = std::max(position, source.begin);
    uint64_t last = std::min(position + count, source.end);
    for (uint64_t at = first; at < last; ++at) {
      uint64_t bit = at - source.begin;
      if (!(source.bits[bit / 8] >> bit % 8 & 1))
        targets[at - position] = -1;
    }
  }
}

bool TargetMarks::isAnySet() const {
  return std::any_of(sources.begin(), sources.end(), [](const Source &source) {
    return std::any_of(source.bits.begin(), source.bits.end(),
                       [](uint8_t bits) { return bits != 0; });
  });
}

} // namespace nsa
