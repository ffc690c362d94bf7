//===- ForeignShards.cpp - token files of other projects ------------------===//

#include "runtime/Data/ForeignShards.h"
#include "lib/Support/Hash.h"
#include "runtime/Data/MegatronIndex.h"

#include <algorithm>
#include <filesystem>

namespace nsa {

namespace fs = std::filesystem;

namespace {

/// A file of tokens that was looked at.
struct ForeignFile {
  std::string path;
  bool isMegatron = false;
  TokenWidth width = TokenWidth::U16;
  uint64_t tokens = 0;
  /// Where documents begin, if that is known.
  std::vector<uint64_t> documents;
  /// What says so.
  FileInfo index;

  Result<Shard> open() const {
    return isMegatron ? Shard::openRaw(path, width, tokens) : Shard::open(path);
  }
};

/// Shards and what the manifest says of them.
struct Part {
  std::vector<Shard> shards;
  SplitInfo info;
  /// Where documents begin in the tokens of all shards.
  std::vector<uint64_t> starts;
};

} // namespace

/// The .bin files that a path means.
static Result<std::vector<std::string>> findFiles(const std::string &path) {
  std::error_code code;
  fs::path given(path);
  if (fs::is_directory(given, code)) {
    std::vector<std::string> files;
    for (fs::directory_iterator entry(given, code), end; !code && entry != end;
         entry.increment(code))
      if (entry->path().extension() == ".bin" && entry->is_regular_file(code))
        files.push_back(entry->path().string());
    if (code)
      return Error{"cannot list '" + path + "': " + code.message()};
    std::sort(files.begin(), files.end());
    return files;
  }
  if (given.extension() == ".bin")
    return std::vector<std::string>{path};
  if (given.extension() == ".idx")
    return std::vector<std::string>{given.replace_extension(".bin").string()};
  if (fs::is_regular_file(path + ".idx", code))
    return std::vector<std::string>{path + ".bin"};
  return std::vector<std::string>();
}

Result<bool> hasForeignShards(const std::string &path) {
  std::error_code code;
  // A data set, or one that is being replaced.
  for (const char *own : {manifestName, replacementName})
    if (fs::exists(path + "/" + own, code))
      return false;
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> files, findFiles(path));
  return !files.empty();
}

static Result<ForeignFile> inspect(const std::string &path) {
  ForeignFile file;
  file.path = path;
  std::string index = fs::path(path).replace_extension(".idx").string();
  std::error_code code;
  if (fs::exists(index, code)) {
    NSA_ASSIGN_OR_RETURN(MegatronIndex read, MegatronIndex::read(index));
    file.isMegatron = true;
    file.width = read.width;
    file.tokens = read.tokens;
    file.documents = std::move(read.documents);
    file.index = {fs::path(index).filename().string(), read.hash};
  }
  NSA_ASSIGN_OR_RETURN(Shard shard, file.open());
  file.width = shard.width();
  file.tokens = shard.size();
  if (file.tokens == 0)
    return Error{"'" + path + "' holds no tokens"};
  return file;
}

/// What tells a file from others: its size, its beginning and its end.
static Result<uint64_t> identify(const Shard &shard) {
  const uint64_t most = 1 << 16, size = shard.bytes();
  std::vector<char> bytes(size_t(std::min(most, size)));
  StreamHash hash;
  hash.update(std::to_string(size) + "\n");
  for (uint64_t at : {uint64_t(0), size - bytes.size()}) {
    NSA_RETURN_IF_ERROR(shard.readBytes(at, bytes.size(), bytes.data()));
    hash.update(bytes.data(), bytes.size());
  }
  return hash.digest();
}

/// Adds the tokens begin .. end-1 of a file.
static Status add(Part &part, const ForeignFile &file, uint64_t begin,
                  uint64_t end) {
  NSA_ASSIGN_OR_RETURN(Shard shard, file.open());
  NSA_ASSIGN_OR_RETURN(uint64_t identity, identify(shard));
  shard.narrow(begin, end - begin);
  for (uint64_t start : file.documents)
    if (start >= begin && start < end)
      part.starts.push_back(part.info.tokens + start - begin);
  part.info.tokens += end - begin;
  part.info.documents = uint64_t(part.starts.size());
  part.info.shards.push_back({fs::path(file.path).filename().string(),
                              end - begin, identity, /*isHashed=*/false});
  part.shards.push_back(std::move(shard));
  return {};
}

static bool isValidation(const ForeignFile &file) {
  return fs::path(file.path).filename().string().find("val") !=
         std::string::npos;
}

/// How many tokens of the training files come before the validation split,
/// where no file is named as one.
static uint64_t chooseTrainTokens(const std::vector<ForeignFile> &files) {
  uint64_t total = 0;
  for (const ForeignFile &file : files)
    total += file.tokens;
  uint64_t held = std::max(total / 100, std::min<uint64_t>(65536, total / 10));
  uint64_t border = total - held, begin = 0;
  for (const ForeignFile &file : files) {
    if (border < begin + file.tokens) {
      auto next = std::upper_bound(file.documents.begin(), file.documents.end(),
                                   border - begin);
      return next == file.documents.begin() ? border : begin + *(next - 1);
    }
    begin += file.tokens;
  }
  return border;
}

static Status split(const std::vector<ForeignFile> &files, Part &train,
                    Part &val) {
  bool isNamed = std::any_of(files.begin(), files.end(), isValidation);
  uint64_t left = isNamed ? 0 : chooseTrainTokens(files);
  for (const ForeignFile &file : files) {
    uint64_t border = std::min(left, file.tokens);
    if (isNamed)
      border = isValidation(file) ? 0 : file.tokens;
    else
      left -= border;
    if (border > 0)
      NSA_RETURN_IF_ERROR(add(train, file, 0, border));
    if (border < file.tokens)
      NSA_RETURN_IF_ERROR(add(val, file, border, file.tokens));
  }
  return {};
}

Result<Dataset> openForeignShards(const std::string &path, int64_t vocabSize) {
  NSA_ASSIGN_OR_RETURN(std::vector<std::string> paths, findFiles(path));
  std::vector<ForeignFile> files;
  for (const std::string &name : paths) {
    NSA_ASSIGN_OR_RETURN(ForeignFile file, inspect(name));
    if (!files.empty() && files[0].isMegatron != file.isMegatron)
      return Error{"files of two projects: '" + files[0].path + "' is " +
                   (files[0].isMegatron ? "Megatron's" : "llm.c's") + ", '" +
                   file.path + "' is not"};
    files.push_back(std::move(file));
  }
  Part train, val;
  NSA_RETURN_IF_ERROR(split(files, train, val));
  bool has32Bits = files[0].width == TokenWidth::U32;
  Dataset data;
  data.directory = path;
  data.manifest.kind = files[0].isMegatron ? "megatron" : "llm.c";
  data.manifest.tool = data.manifest.kind;
  for (const ForeignFile &file : files)
    if (file.isMegatron)
      data.indices.push_back(file.index);
  data.manifest.vocabSize = vocabSize > 0 ? vocabSize
                            : has32Bits   ? maxVocabulary
                                          : 65536;
  for (auto [part, info, stream, documents] :
       {std::tuple(&train, &data.manifest.train, &data.train,
                   &data.trainDocuments),
        std::tuple(&val, &data.manifest.val, &data.val, &data.valDocuments)}) {
    documents->push_back({path, 0, part->info.tokens, data.manifest.endOfText,
                          SplitInfo(), std::move(part->starts)});
    *info = std::move(part->info);
    NSA_ASSIGN_OR_RETURN(*stream, TokenStream::make(std::move(part->shards),
                                                    data.manifest.vocabSize));
  }
  return data;
}

} // namespace nsa
