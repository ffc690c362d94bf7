//===- Pack.cpp - text files to token shards ------------------------------===//

#include "runtime/Data/Pack.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "runtime/Data/DataFolder.h"
#include "runtime/Data/DocumentFile.h"

#include <algorithm>
#include <filesystem>

namespace nsa {

namespace {

constexpr uint16_t endOfText = 0;

/// Files of fewer bytes are read at once, others in pieces, twice.
constexpr size_t memoryBytes = 16 << 20;
constexpr size_t pieceBytes = 1 << 20;

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
  Status addPiped(const std::string &path);
  Status addWhole(const std::string &path, const char *data, size_t size);
  Status addLong(const std::string &path);
  Status addInPieces(const std::string &path, DocumentFile &file,
                     uint64_t bytes, uint64_t hash);
  Status addCut(const std::string &path, DocumentFile &file, uint64_t hash);
  Status skip(const std::string &message);
  bool accepts(uint64_t bytes, bool isText);
  Status addDocument(const std::string &path, const char *data, size_t size);
  SplitWriter &beginDocument(const std::string &path, uint64_t size,
                             uint64_t hash);

  const PackOptions &options;
  DataFolder &folder;
  SplitWriter train, val;
  uint64_t trainDocuments = 0, valDocuments = 0;
  Counts counts;
  StreamHash source;
  std::vector<char> buffer;
};

} // namespace

/// The bytes of the first document of more than `most` bytes.
static size_t firstCut(const char *data, uint64_t most) {
  size_t length = size_t(most);
  while (length > 0 && data[length - 1] != '\n')
    --length;
  return length == 0 ? size_t(most) : length;
}

std::vector<size_t> cutDocuments(const char *data, size_t size,
                                 uint64_t maxDocumentBytes) {
  std::vector<size_t> lengths;
  while (maxDocumentBytes != 0 && size > maxDocumentBytes) {
    size_t length = firstCut(data, maxDocumentBytes);
    lengths.push_back(length);
    data += length;
    size -= length;
  }
  if (size > 0)
    lengths.push_back(size);
  return lengths;
}

/// Counts a document, and returns where its bytes go, and end-of-text after.
SplitWriter &Packer::beginDocument(const std::string &path, uint64_t size,
                                   uint64_t hash) {
  source.update(path + "\n" + std::to_string(size) + " " + toHex(hash) + "\n");
  bool held = double(hash) * 0x1p-64 < options.valFraction;
  ++(held ? valDocuments : trainDocuments);
  return held ? val : train;
}

static Status appendBytes(SplitWriter &writer, const char *data, size_t size) {
  uint16_t tokens[4096];
  while (size > 0) {
    size_t count = std::min(size, sizeof tokens / sizeof *tokens);
    for (size_t i = 0; i < count; ++i)
      tokens[i] = static_cast<unsigned char>(data[i]);
    NSA_RETURN_IF_ERROR(writer.append(tokens, count));
    data += count;
    size -= count;
  }
  return {};
}

Status Packer::addDocument(const std::string &path, const char *data,
                           size_t size) {
  SplitWriter &writer = beginDocument(path, size, hashBytes(data, size));
  NSA_RETURN_IF_ERROR(appendBytes(writer, data, size));
  return writer.append(&endOfText, 1);
}

Status Packer::skip(const std::string &message) {
  ++counts.unreadable;
  if (options.warn)
    options.warn(message + ", skipped");
  return {};
}

/// Whether a file is taken; counts it either way.
bool Packer::accepts(uint64_t bytes, bool isText) {
  if (bytes == 0)
    ++counts.empty;
  else if (!isText)
    ++counts.binary;
  else if (options.maxBytes && counts.bytes + bytes > options.maxBytes)
    ++counts.overLimit;
  else {
    ++counts.files;
    counts.bytes += bytes;
    return true;
  }
  return false;
}

Status Packer::addWhole(const std::string &path, const char *data,
                        size_t size) {
  if (!accepts(size, isText(reinterpret_cast<const uint8_t *>(data), size)))
    return {};
  for (size_t length : cutDocuments(data, size, options.maxDocumentBytes)) {
    NSA_RETURN_IF_ERROR(addDocument(path, data, length));
    data += length;
  }
  return {};
}

/// A pipe or a device, which can be read once.
Status Packer::addPiped(const std::string &path) {
  Result<std::string> text = readFile(path, mostPipedBytes);
  return text ? addWhole(path, text->data(), text->size())
              : skip(text.message());
}

Status Packer::addFile(const std::string &path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code))
    return addPiped(path);
  Result<DocumentFile> file =
      DocumentFile::open(path, options.maxInflatedBytes);
  if (!file)
    return skip(file.message());
  buffer.resize(memoryBytes);
  Result<size_t> got = file->read(buffer.data(), buffer.size());
  if (!got)
    return skip(got.message());
  if (const char *format = findFormat(path, {buffer.data(), *got}))
    return Error{"'" + path + "' holds " + format +
                 ", which is no plain text: python -m nsa.data pack takes the "
                 "texts in it (--exclude leaves files out)"};
  return *got < buffer.size() ? addWhole(path, buffer.data(), *got)
                              : addLong(path);
}

/// A file whose split is known only at its end.
Status Packer::addLong(const std::string &path) {
  TextScan scan;
  StreamHash hash;
  uint64_t bytes = 0;
  Result<DocumentFile> file =
      DocumentFile::open(path, options.maxInflatedBytes);
  if (!file)
    return skip(file.message());
  for (size_t size = pieceBytes; size == pieceBytes && !scan.isBinary();) {
    Result<size_t> got = file->read(buffer.data(), pieceBytes);
    if (!got)
      return skip(got.message());
    size = *got;
    scan.add(buffer.data(), size);
    hash.update(buffer.data(), size);
    bytes += size;
  }
  if (!accepts(bytes, scan.finish()))
    return {};
  NSA_ASSIGN_OR_RETURN(DocumentFile again,
                       DocumentFile::open(path, options.maxInflatedBytes));
  return options.maxDocumentBytes > 0 && bytes > options.maxDocumentBytes
             ? addCut(path, again, hash.digest())
             : addInPieces(path, again, bytes, hash.digest());
}

static Status checkUnchanged(const std::string &path, uint64_t first,
                             uint64_t second) {
  if (first == second)
    return {};
  return Error{"'" + path + "' changed while it was packed: its hash was " +
               toHex(first) + ", then " + toHex(second)};
}

/// Adds a long file as one document.
Status Packer::addInPieces(const std::string &path, DocumentFile &file,
                           uint64_t bytes, uint64_t hash) {
  SplitWriter &writer = beginDocument(path, bytes, hash);
  StreamHash same;
  for (size_t size = pieceBytes; size == pieceBytes;) {
    NSA_ASSIGN_OR_RETURN(size, file.read(buffer.data(), pieceBytes));
    same.update(buffer.data(), size);
    NSA_RETURN_IF_ERROR(appendBytes(writer, buffer.data(), size));
  }
  NSA_RETURN_IF_ERROR(checkUnchanged(path, hash, same.digest()));
  return writer.append(&endOfText, 1);
}

/// Adds a long file as many documents.
Status Packer::addCut(const std::string &path, DocumentFile &file,
                      uint64_t hash) {
  std::string held;
  StreamHash same;
  for (size_t size = pieceBytes; size == pieceBytes;) {
    NSA_ASSIGN_OR_RETURN(size, file.read(buffer.data(), pieceBytes));
    same.update(buffer.data(), size);
    held.append(buffer.data(), size);
    size_t done = 0;
    while (held.size() - done > options.maxDocumentBytes) {
      size_t length = firstCut(held.data() + done, options.maxDocumentBytes);
      NSA_RETURN_IF_ERROR(addDocument(path, held.data() + done, length));
      done += length;
    }
    held.erase(0, done);
  }
  NSA_RETURN_IF_ERROR(checkUnchanged(path, hash, same.digest()));
  return held.empty() ? Status() : addDocument(path, held.data(), held.size());
}

static std::string joined(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : " ") + word;
  return text;
}

Result<Manifest> Packer::finish(const FileList &list) {
  NSA_ASSIGN_OR_RETURN(std::vector<ShardInfo> trainShards, train.finish());
  NSA_ASSIGN_OR_RETURN(std::vector<ShardInfo> valShards, val.finish());
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
      {"hidden", options.filter.hidden ? "true" : "false"},
      {"val_fraction", shortest(options.valFraction)},
      {"shard_tokens", std::to_string(options.shardTokens)},
      {"max_bytes", std::to_string(options.maxBytes)},
      {"max_document_bytes", std::to_string(options.maxDocumentBytes)},
      {"max_inflated_bytes", std::to_string(options.maxInflatedBytes)}};
  manifest.counts = {
      {"files", counts.files},
      {"bytes", counts.bytes},
      {"binary_files_skipped", counts.binary},
      {"empty_files_skipped", counts.empty},
      {"unreadable_skipped", counts.unreadable + list.unreadable},
      {"files_over_limit", counts.overLimit},
      {"files_filtered_out", list.filtered},
      {"hidden_files_ignored", list.hidden},
      {"links_ignored", list.links},
      {"special_files_ignored", list.special}};
  manifest.sourceDigest = source.digest();
  manifest.train = {train.tokens(), trainDocuments, std::move(trainShards)};
  manifest.val = {val.tokens(), valDocuments, std::move(valShards)};
  NSA_RETURN_IF_ERROR(folder.publish(manifest));
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
    NSA_RETURN_IF_ERROR(packer.addFile(list.paths[seen++]));
  packer.countLeftOut(list.paths.size() - seen);
  return packer.finish(list);
}

/// Says what a user may not expect of the files that were found.
static void warnAbout(const FileList &list, const PackOptions &options) {
  if (!options.warn)
    return;
  if (list.hidden > 0)
    options.warn("hidden files left out: " + std::to_string(list.hidden) +
                 ", the first in '" + list.firstHidden +
                 "' (--hidden takes them)");
  if (list.links > 0)
    options.warn("symbolic links not followed: " + std::to_string(list.links) +
                 ", the first is '" + list.firstLink + "'");
}

Result<Manifest> packText(const PackOptions &options) {
  if (!(options.valFraction >= 0 && options.valFraction < 1))
    return Error{"the validation fraction must be in [0, 1), not " +
                 shortest(options.valFraction)};
  if (options.shardTokens < 1 || options.shardTokens > maxShardTokens)
    return Error{"a shard holds 1 to " + std::to_string(maxShardTokens) +
                 " tokens, not " + std::to_string(options.shardTokens)};
  NSA_ASSIGN_OR_RETURN(FileList list, listFiles(options.paths, options.filter));
  NSA_ASSIGN_OR_RETURN(DataFolder folder,
                       DataFolder::open(options.output, options.overwrite));
  dropOutput(list, options.output);
  warnAbout(list, options);
  return packFiles(options, folder, list);
}

} // namespace nsa
