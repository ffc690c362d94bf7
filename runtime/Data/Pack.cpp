//===- Pack.cpp - text files to token shards ------------------------------===//

#include "runtime/Data/Pack.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "runtime/Data/DataFolder.h"

#include <algorithm>
#include <filesystem>

namespace nsa {

namespace {

constexpr uint16_t endOfText = 0;

struct Counts {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t binary = 0;
  uint64_t empty = 0;
  uint64_t unreadable = 0;
  uint64_t overLimit = 0;
};

/// Routes documents to the two splits.
class Packer {
public:
  Packer(const PackOptions &options, DataFolder &folder)
      : options(options), folder(folder),
        train(folder.staging(), "train", options.shardTokens),
        val(folder.staging(), "val", options.shardTokens) {}

  Status addFile(const std::string &path);

  /// No further file is taken.
  bool full() const { return counts.overLimit != 0; }
  void countLeftOut(uint64_t files) { counts.overLimit += files; }

  Result<Manifest> finish(const FileList &list);

private:
  Status addDocument(const std::string &path, const char *data, size_t size);

  const PackOptions &options;
  DataFolder &folder;
  SplitWriter train, val;
  uint64_t trainDocuments = 0, valDocuments = 0;
  Counts counts;
  StreamHash source;
};

} // namespace

std::vector<size_t> cutDocuments(const char *data, size_t size,
                                 uint64_t maxDocumentBytes) {
  std::vector<size_t> lengths;
  while (maxDocumentBytes != 0 && size > maxDocumentBytes) {
    size_t length = size_t(maxDocumentBytes);
    while (length > 0 && data[length - 1] != '\n')
      --length;
    if (length == 0)
      length = size_t(maxDocumentBytes);
    lengths.push_back(length);
    data += length;
    size -= length;
  }
  if (size > 0)
    lengths.push_back(size);
  return lengths;
}

Status Packer::addDocument(const std::string &path, const char *data,
                           size_t size) {
  uint64_t hash = hashBytes(data, size);
  source.update(path + "\n" + std::to_string(size) + " " + toHex(hash) + "\n");
  bool held = double(hash) * 0x1p-64 < options.valFraction;
  SplitWriter &writer = held ? val : train;
  ++(held ? valDocuments : trainDocuments);
  uint16_t tokens[4096];
  while (size > 0) {
    size_t count = std::min(size, sizeof tokens / sizeof *tokens);
    for (size_t i = 0; i < count; ++i)
      tokens[i] = static_cast<unsigned char>(data[i]);
    if (Status status = writer.append(tokens, count); !status)
      return status;
    data += count;
    size -= count;
  }
  return writer.append(&endOfText, 1);
}

Status Packer::addFile(const std::string &path) {
  Result<std::string> text = readDocument(path);
  if (!text) {
    ++counts.unreadable;
    if (options.warn)
      options.warn(text.message() + ", skipped");
    return {};
  }
  if (text->empty()) {
    ++counts.empty;
    return {};
  }
  if (!isText(reinterpret_cast<const uint8_t *>(text->data()), text->size())) {
    ++counts.binary;
    return {};
  }
  if (options.maxBytes && counts.bytes + text->size() > options.maxBytes) {
    ++counts.overLimit;
    return {};
  }
  ++counts.files;
  counts.bytes += text->size();
  const char *next = text->data();
  for (size_t length :
       cutDocuments(text->data(), text->size(), options.maxDocumentBytes)) {
    if (Status status = addDocument(path, next, length); !status)
      return status;
    next += length;
  }
  return {};
}

static std::string joined(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

Result<Manifest> Packer::finish(const FileList &list) {
  Result<std::vector<ShardInfo>> trainShards = train.finish();
  if (!trainShards)
    return trainShards.takeError();
  Result<std::vector<ShardInfo>> valShards = val.finish();
  if (!valShards)
    return valShards.takeError();
  if (counts.files == 0)
    return Error{"nothing to pack in '" + joined(options.paths) +
                 "': " + std::to_string(list.paths.size()) + " files, " +
                 std::to_string(counts.binary) + " binary, " +
                 std::to_string(counts.empty) + " empty, " +
                 std::to_string(counts.unreadable + list.unreadable) +
                 " unreadable, " + std::to_string(counts.overLimit) +
                 " over the limit"};
  if (trainDocuments == 0 || (valDocuments == 0 && options.valFraction > 0))
    return Error{
        std::string("the ") + (trainDocuments ? "validation" : "training") +
        " split is empty: " + std::to_string(trainDocuments + valDocuments) +
        " documents at a validation fraction of " +
        shortest(options.valFraction) +
        " (--max-document-bytes cuts long files into more)"};
  Manifest manifest;
  manifest.tool = options.tool;
  manifest.kind = "text";
  manifest.vocabSize = 256;
  manifest.endOfText = endOfText;
  manifest.options = {
      {"paths", joined(options.paths)},
      {"include", joined(options.filter.include)},
      {"exclude", joined(options.filter.exclude)},
      {"val_fraction", shortest(options.valFraction)},
      {"shard_tokens", std::to_string(options.shardTokens)},
      {"max_bytes", std::to_string(options.maxBytes)},
      {"max_document_bytes", std::to_string(options.maxDocumentBytes)}};
  manifest.counts = {
      {"files", counts.files},
      {"bytes", counts.bytes},
      {"binary_files_skipped", counts.binary},
      {"empty_files_skipped", counts.empty},
      {"unreadable_skipped", counts.unreadable + list.unreadable},
      {"files_over_limit", counts.overLimit},
      {"files_filtered_out", list.filtered},
      {"hidden_links_and_special_ignored", list.ignored}};
  manifest.sourceDigest = source.digest();
  manifest.train = {train.tokens(), trainDocuments, std::move(*trainShards)};
  manifest.val = {val.tokens(), valDocuments, std::move(*valShards)};
  if (Status status = folder.publish(manifest); !status)
    return Error{status.message()};
  return manifest;
}

/// Drops what lies in the output folder, which may be inside a root.
static void dropOutput(FileList &list, const std::string &output) {
  namespace fs = std::filesystem;
  std::error_code code;
  std::string prefix =
      (fs::absolute(output, code) / "").lexically_normal().string();
  auto inside = [&](const std::string &path) {
    std::string full = fs::absolute(path, code).lexically_normal().string();
    return full.compare(0, prefix.size(), prefix) == 0;
  };
  list.paths.erase(std::remove_if(list.paths.begin(), list.paths.end(), inside),
                   list.paths.end());
}

static Result<Manifest> packFiles(const PackOptions &options,
                                  DataFolder &folder, const FileList &list) {
  Packer packer(options, folder);
  size_t seen = 0;
  while (seen < list.paths.size() && !packer.full())
    if (Status status = packer.addFile(list.paths[seen++]); !status)
      return Error{status.message()};
  packer.countLeftOut(list.paths.size() - seen);
  return packer.finish(list);
}

Result<Manifest> packText(const PackOptions &options) {
  if (!(options.valFraction >= 0 && options.valFraction < 1))
    return Error{"the validation fraction must be in [0, 1), not " +
                 shortest(options.valFraction)};
  if (options.shardTokens < 1 || options.shardTokens > maxShardTokens)
    return Error{"a shard holds 1 to " + std::to_string(maxShardTokens) +
                 " tokens, not " + std::to_string(options.shardTokens)};
  Result<FileList> list = listFiles(options.paths, options.filter);
  if (!list)
    return list.takeError();
  Result<DataFolder> folder =
      DataFolder::open(options.output, options.overwrite);
  if (!folder)
    return folder.takeError();
  dropOutput(*list, options.output);
  return packFiles(options, *folder, *list);
}

} // namespace nsa
