//===- Pack.cpp - the bytes of files as token shards ----------------------===//

#include "runtime/Data/Pack.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "runtime/Data/DataFolder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace fs = std::filesystem;

namespace nsa {

namespace {

constexpr uint16_t endOfText = 0;

/// Files are read in pieces of so many bytes.
constexpr size_t pieceBytes = 1 << 20;

/// What a walk found, in byte-wise order and without duplicates.
struct FileList {
  std::vector<std::string> paths;
  /// What lies below the roots and is left out, and the first of each.
  uint64_t hidden = 0, links = 0;
  std::string firstHidden, firstLink;
};

struct Document {
  uint64_t bytes, hash;
};

/// Routes documents to the two splits.
class Packer {
public:
  Packer(const PackOptions &options, DataFolder &folder)
      : options(options), folder(folder),
        train(folder.staging(), "train", options.shardTokens),
        val(folder.staging(), "val", options.shardTokens) {}

  Status addFiles(const FileList &list);
  Result<Manifest> finish(const FileList &list);

private:
  Status addFile(const std::string &path);
  Result<Document> findDocument(const InputFile &file, uint64_t offset,
                                uint64_t fileHash) const;
  Status addDocument(const InputFile &file, uint64_t offset,
                     const Document &document);

  const PackOptions &options;
  DataFolder &folder;
  SplitWriter train, val;
  uint64_t trainDocuments = 0, valDocuments = 0;
  uint64_t files = 0, bytes = 0, binary = 0, empty = 0, overLimit = 0;
  StreamHash source;
};

/// Reads what of a file comes from `at` on and before `end`, up to a piece.
Status readPiece(const InputFile &file, uint64_t at, uint64_t end,
                 std::string &piece) {
  piece.resize(size_t(std::min<uint64_t>(pieceBytes, end - at)));
  return file.readAt(at, piece.data(), piece.size());
}

} // namespace

static void countLeftOut(const std::string &path, uint64_t &count,
                         std::string &first) {
  if (count++ == 0 || path < first)
    first = path;
}

/// The files under the roots, but for hidden ones, links, and the output.
static Result<FileList> listFiles(const PackOptions &options) {
  FileList list;
  for (const std::string &root : options.paths) {
    std::error_code code, ignored;
    if (!fs::exists(root, code))
      return Error{"no file or folder '" + root + "'"};
    if (!fs::is_directory(root, code)) {
      list.paths.push_back(root);
      continue;
    }
    fs::recursive_directory_iterator entry(root, code), end;
    for (; !code && entry != end; entry.increment(code)) {
      const std::string path = entry->path().string();
      bool isHidden = entry->path().filename().c_str()[0] == '.';
      if (isHidden || fs::equivalent(path, options.output, ignored))
        entry.disable_recursion_pending();
      if (isHidden)
        countLeftOut(path, list.hidden, list.firstHidden);
      else if (entry->is_symlink(ignored))
        countLeftOut(path, list.links, list.firstLink);
      else if (!entry->is_directory(ignored))
        list.paths.push_back(path);
    }
    if (code)
      return Error{"cannot list the folders in '" + root +
                   "': " + code.message()};
  }
  std::sort(list.paths.begin(), list.paths.end());
  list.paths.erase(std::unique(list.paths.begin(), list.paths.end()),
                   list.paths.end());
  return list;
}

/// Refuses what holds text in a form that nsa.data reads: by its name, and a
/// .json of several objects by its beginning.
static Status checkPlain(const std::string &path, std::string_view beginning) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  bool isPlain = true;
  for (const char *other :
       {".gz", ".zst", ".parquet", ".arrow", ".jsonl", ".ndjson"})
    isPlain &= ending != other;
  if (ending == ".json" && !beginning.empty() && beginning.front() == '{')
    isPlain = beginning.find("\n{") == std::string_view::npos;
  if (isPlain)
    return {};
  return Error{"'" + path +
               "' is no plain text: python -m nsa.data pack --tokenizer byte "
               "takes the text in it (--exclude there leaves files out)"};
}

Status Packer::addFile(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  StreamHash hash;
  std::string piece;
  bool hasNul = false;
  for (uint64_t at = 0; at < file.size() && !hasNul; at += piece.size()) {
    NSA_RETURN_IF_ERROR(readPiece(file, at, file.size(), piece));
    if (at == 0)
      NSA_RETURN_IF_ERROR(checkPlain(path, piece));
    hasNul = piece.find('\0') != std::string::npos;
    hash.update(piece);
  }
  bool isOver = options.maxBytes && bytes + file.size() > options.maxBytes;
  if (file.size() == 0 || hasNul || isOver) {
    ++(file.size() == 0 ? empty : hasNul ? binary : overLimit);
    return {};
  }
  ++files;
  bytes += file.size();
  for (uint64_t at = 0; at < file.size();) {
    NSA_ASSIGN_OR_RETURN(Document document,
                         findDocument(file, at, hash.digest()));
    NSA_RETURN_IF_ERROR(addDocument(file, at, document));
    at += document.bytes;
  }
  return {};
}

/// The document at `offset`: the whole file, or what ends at a newline.
Result<Document> Packer::findDocument(const InputFile &file, uint64_t offset,
                                      uint64_t fileHash) const {
  uint64_t most = options.maxDocumentBytes, left = file.size() - offset;
  if (most == 0 || file.size() <= most)
    return Document{left, fileHash};
  std::string text(size_t(std::min(left, most)), '\0');
  NSA_RETURN_IF_ERROR(file.readAt(offset, text.data(), text.size()));
  size_t newline = left > most ? text.rfind('\n') : std::string::npos;
  if (newline != std::string::npos)
    text.resize(newline + 1);
  return Document{text.size(), hashBytes(text)};
}

Status Packer::addDocument(const InputFile &file, uint64_t offset,
                           const Document &document) {
  source.update(file.path() + "\n" + std::to_string(document.bytes) + " " +
                toHex(document.hash) + "\n");
  bool isHeld = double(document.hash) * 0x1p-64 < options.valFraction;
  ++(isHeld ? valDocuments : trainDocuments);
  SplitWriter &writer = isHeld ? val : train;
  StreamHash same;
  std::string piece;
  const uint64_t end = offset + document.bytes;
  for (uint64_t at = offset; at < end; at += piece.size()) {
    NSA_RETURN_IF_ERROR(readPiece(file, at, end, piece));
    same.update(piece);
    const std::vector<uint8_t> values(piece.begin(), piece.end());
    const std::vector<uint16_t> tokens(values.begin(), values.end());
    NSA_RETURN_IF_ERROR(writer.append(tokens.data(), tokens.size()));
  }
  if (same.digest() != document.hash)
    return Error{"'" + file.path() +
                 "' changed while it was packed: its hash "
                 "was " +
                 toHex(document.hash) + ", then " + toHex(same.digest())};
  return writer.append(&endOfText, 1);
}

Status Packer::addFiles(const FileList &list) {
  for (const std::string &path : list.paths)
    if (overLimit)
      ++overLimit;
    else
      NSA_RETURN_IF_ERROR(addFile(path));
  return {};
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
  if (files == 0)
    return Error{"nothing to pack in '" + joined(options.paths) +
                 "': " + std::to_string(list.paths.size()) + " files, " +
                 std::to_string(binary) + " binary, " + std::to_string(empty) +
                 " empty, " + std::to_string(overLimit) + " over the limit"};
  if (trainDocuments == 0 || valDocuments == 0)
    return Error{
        std::string("the ") + (trainDocuments ? "validation" : "training") +
        " split is empty: " + std::to_string(trainDocuments + valDocuments) +
        " documents at --val-fraction " + shortest(options.valFraction) + " (" +
        (trainDocuments ? "a larger" : "a smaller") +
        " one, or --max-document-bytes, which cuts long files, helps)"};
  Manifest manifest;
  manifest.tool = options.tool;
  manifest.kind = "text";
  manifest.vocabSize = 256;
  manifest.endOfText = endOfText;
  manifest.options = {
      {"paths", joined(options.paths)},
      {"val_fraction", shortest(options.valFraction)},
      {"shard_tokens", std::to_string(options.shardTokens)},
      {"max_bytes", std::to_string(options.maxBytes)},
      {"max_document_bytes", std::to_string(options.maxDocumentBytes)}};
  manifest.counts = {{"files", files},
                     {"bytes", bytes},
                     {"binary_files_skipped", binary},
                     {"empty_files_skipped", empty},
                     {"files_over_limit", overLimit},
                     {"hidden_ignored", list.hidden},
                     {"links_ignored", list.links}};
  manifest.sourceDigest = source.digest();
  manifest.train = {train.tokens(), trainDocuments, std::move(trainShards)};
  manifest.val = {val.tokens(), valDocuments, std::move(valShards)};
  NSA_RETURN_IF_ERROR(folder.publish(manifest));
  return manifest;
}

/// Says what a user may not expect of the files that were found.
static void warnAbout(const FileList &list, const PackOptions &options) {
  if (list.hidden > 0)
    options.warn("hidden files and folders left out: " +
                 std::to_string(list.hidden) + ", the first is '" +
                 list.firstHidden + "' (give what to take by its name)");
  if (list.links > 0)
    options.warn("symbolic links not followed: " + std::to_string(list.links) +
                 ", the first is '" + list.firstLink + "'");
}

Result<Manifest> packFiles(const PackOptions &options) {
  if (!(options.valFraction > 0 && options.valFraction < 1))
    return Error{"the validation fraction must be in (0, 1), not " +
                 shortest(options.valFraction)};
  if (options.shardTokens < 1 || options.shardTokens > maxShardTokens)
    return Error{"a shard holds 1 to " + std::to_string(maxShardTokens) +
                 " tokens, not " + std::to_string(options.shardTokens)};
  NSA_ASSIGN_OR_RETURN(FileList list, listFiles(options));
  NSA_ASSIGN_OR_RETURN(DataFolder folder,
                       DataFolder::open(options.output, options.overwrite));
  if (options.warn)
    warnAbout(list, options);
  Packer packer(options, folder);
  NSA_RETURN_IF_ERROR(packer.addFiles(list));
  return packer.finish(list);
}

} // namespace nsa
