//===- Manifest.cpp - what a data directory holds -------------------------===//

#include "runtime/Data/Manifest.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"

#include <set>

namespace nsa {

using Json = nlohmann::ordered_json;

/// Since format 2 a manifest has a hash of its own; format 3 names files beside
/// the shards, format 4 marks of targets: each is written where there are some.
static constexpr int64_t plainFormat = 2, filesFormat = 3, latestFormat = 4;
static constexpr const char *ownHashKey = "xxh3";

std::optional<double> Manifest::fact(const std::string &name) const {
  for (const auto &[key, value] : facts)
    if (key == name)
      return value;
  return std::nullopt;
}

std::optional<uint64_t> Manifest::count(const std::string &name) const {
  for (const auto &[key, value] : counts)
    if (key == name)
      return value;
  return std::nullopt;
}

uint64_t Manifest::digest() const {
  StreamHash hash;
  for (const SplitInfo *split : {&train, &val}) {
    for (const ShardInfo &shard : split->shards)
      hash.update(shard.file + " " + toHex(shard.hash) + "\n");
    hash.update("\n");
  }
  return hash.digest();
}

static Json printFile(const FileInfo &info) {
  return {{"file", info.file}, {"xxh3", toHex(info.hash)}};
}

static Json printSplit(const SplitInfo &split) {
  Json shards = Json::array();
  for (const ShardInfo &shard : split.shards)
    shards.push_back({{"file", shard.file},
                      {"tokens", shard.tokens},
                      {"xxh3", toHex(shard.hash)}});
  Json json = {{"tokens", split.tokens},
               {"documents", split.documents},
               {"shards", shards}};
  if (!split.index.file.empty())
    json["index"] = printFile(split.index);
  if (!split.marks.file.empty())
    json["marks"] = printFile(split.marks);
  return json;
}

/// Everything but the file's own hash.
static Json printContents(const Manifest &manifest) {
  Json root;
  bool isPlain = manifest.tokenizer.file.empty() &&
                 manifest.train.index.file.empty() &&
                 manifest.val.index.file.empty();
  bool hasMarks =
      !manifest.train.marks.file.empty() || !manifest.val.marks.file.empty();
  root["format"] = hasMarks  ? latestFormat
                   : isPlain ? plainFormat
                             : filesFormat;
  root["tool"] = manifest.tool;
  root["kind"] = manifest.kind;
  root["vocab_size"] = manifest.vocabSize;
  root["end_of_text"] = manifest.endOfText;
  if (!manifest.tokenizer.file.empty())
    root["tokenizer"] = printFile(manifest.tokenizer);
  root["options"] = Json::object();
  for (const auto &[key, value] : manifest.options)
    root["options"][key] = value;
  root["counts"] = Json::object();
  for (const auto &[key, value] : manifest.counts)
    root["counts"][key] = value;
  root["facts"] = Json::object();
  for (const auto &[key, value] : manifest.facts)
    root["facts"][key] = value;
  root["source_digest"] = toHex(manifest.sourceDigest);
  root["train"] = printSplit(manifest.train);
  root["val"] = printSplit(manifest.val);
  return root;
}

uint64_t Manifest::contentHash() const {
  return hashBytes(jsonText(printContents(*this)));
}

std::string Manifest::print() const {
  Json root = printContents(*this);
  root[ownHashKey] = toHex(contentHash());
  return jsonText(root, 2) + "\n";
}

Status Manifest::checkOwnHash(const std::string &directory) const {
  if (uint64_t hash = contentHash(); ownHash && *ownHash != hash)
    return Error{"'" + directory + "/" + manifestName +
                 "' is damaged: the hash of its values is " + toHex(hash) +
                 ", it says " + toHex(*ownHash)};
  return {};
}

/// Refuses the name of a file that is not simply one of the directory.
static void checkName(const std::string &file) {
  if (file.empty() || file.find('/') != std::string::npos)
    throw std::runtime_error("file name " + quote(file) +
                             " leaves the directory");
  // Messages quote the name, which may not hold such characters.
  if (file != oneLine(file))
    throw std::runtime_error("file name " + quote(file) +
                             " has characters that cannot be shown");
}

static FileInfo readFileInfo(const Json &json) {
  FileInfo info{json.at("file").get<std::string>(), readHash(json.at("xxh3"))};
  checkName(info.file);
  return info;
}

/// Counts whose bytes, and sums, are 64-bit numbers.
static uint64_t readCount(const Json &json, const char *what) {
  constexpr uint64_t most = uint64_t(1) << 48;
  uint64_t count = readUnsigned(json.at(what));
  if (count > most)
    throw std::runtime_error(std::to_string(count) + " " + what + ", " +
                             std::to_string(most) + " are allowed");
  return count;
}

static SplitInfo readSplit(const Json &root, const std::string &name) {
  SplitInfo split;
  const Json &json = root.at(name);
  split.tokens = readCount(json, "tokens");
  split.documents = readCount(json, "documents");
  uint64_t sum = 0;
  for (const Json &entry : json.at("shards")) {
    ShardInfo shard{entry.at("file").get<std::string>(),
                    readCount(entry, "tokens"), readHash(entry.at("xxh3"))};
    checkName(shard.file);
    sum += shard.tokens;
    split.shards.push_back(std::move(shard));
  }
  if (sum != split.tokens)
    throw std::runtime_error(name + " has " + std::to_string(split.tokens) +
                             " tokens, its shards have " + std::to_string(sum));
  if (json.contains("index"))
    split.index = readFileInfo(json.at("index"));
  if (json.contains("marks"))
    split.marks = readFileInfo(json.at("marks"));
  return split;
}

/// An unknown name may be a damaged one.
static void refuseUnknown(const Json &root, int64_t format) {
  static const std::set<std::string> known = {
      "format", "tool",  "kind",  "vocab_size",    "end_of_text", "options",
      "counts", "facts", "train", "source_digest", "val"};
  for (const auto &[key, value] : root.items())
    if (known.count(key) == 0 && !(format > 1 && key == ownHashKey) &&
        !(format > 2 && key == "tokenizer"))
      throw std::runtime_error("unknown name '" + key + "'");
}

static Manifest readManifest(const Json &root) {
  Manifest manifest;
  int64_t format = readInteger(root.at("format"));
  if (format < 1 || format > latestFormat)
    throw std::runtime_error("format " + std::to_string(format) +
                             ", expected 1 to " + std::to_string(latestFormat));
  manifest.tool = root.at("tool").get<std::string>();
  manifest.kind = root.at("kind").get<std::string>();
  manifest.vocabSize = readInteger(root.at("vocab_size"));
  manifest.endOfText = readInteger(root.at("end_of_text"));
  for (const auto &[key, value] : root.at("options").items())
    manifest.options.emplace_back(key, value.get<std::string>());
  for (const auto &[key, value] : root.at("counts").items())
    manifest.counts.emplace_back(key, readUnsigned(value));
  for (const auto &[key, value] : root.at("facts").items())
    manifest.facts.emplace_back(key, value.get<double>());
  manifest.sourceDigest = readHash(root.at("source_digest"));
  if (root.contains("tokenizer"))
    manifest.tokenizer = readFileInfo(root.at("tokenizer"));
  manifest.train = readSplit(root, "train");
  manifest.val = readSplit(root, "val");
  refuseUnknown(root, format);
  if (format > 1)
    manifest.ownHash = readHash(root.at(ownHashKey));
  if (manifest.vocabSize < 1 || manifest.vocabSize > maxVocabulary)
    throw std::runtime_error("vocab_size " +
                             std::to_string(manifest.vocabSize) +
                             " is not in 1.." + std::to_string(maxVocabulary));
  return manifest;
}

Result<Manifest> Manifest::load(const std::string &directory) {
  std::string path = directory + "/" + manifestName;
  Result<std::string> text = readFile(path);
  if (Result<bool> isReady =
          fileExists(directory + "/" + replacementName + "/" + manifestName);
      !text && isReady && *isReady)
    return Error{"the data set in '" + directory +
                 "' is being replaced, or that was interrupted: nsa-data info "
                 "finishes it"};
  if (!text)
    return Error{"no token shards in '" + directory + "': " + text.message() +
                 " (nsa-data pack makes shards from texts)"};
  try {
    return readManifest(parseJson<Json>(text->begin(), text->end()));
  } catch (const std::exception &error) {
    return Error{"'" + path +
                 "' is no data manifest: " + oneLine(error.what())};
  }
}

Status Manifest::save(const std::string &directory) const {
  return writeFileAtomically(directory + "/" + manifestName, print());
}

Result<std::string> readTokenizerText(const std::string &directory,
                                      const Manifest &manifest) {
  if (manifest.tokenizer.file.empty())
    return std::string();
  std::string path = directory + "/" + manifest.tokenizer.file;
  Result<std::string> text = readFile(path);
  if (text && hashBytes(*text) != manifest.tokenizer.hash)
    return Error{"'" + path + "' has hash " + toHex(hashBytes(*text)) +
                 ", its manifest says " + toHex(manifest.tokenizer.hash)};
  return text;
}

std::optional<double> reachableEntropy(const Manifest &manifest, int64_t seqLen,
                                       bool beginsAtDocuments, bool isIsolated,
                                       bool isMarked) {
  std::optional<double> entropy = manifest.fact("entropy");
  if (manifest.kind == "markov" && entropy && !isMarked) {
    double missing = 0;
    for (int64_t known = 1; known <= seqLen; ++known) {
      std::optional<double> more =
          manifest.fact(entropyAfter + std::to_string(known));
      if (!more)
        break;
      missing += *more - *entropy;
    }
    return *entropy + missing / double(seqLen);
  }
  std::optional<uint64_t> length = manifest.count(documentTokensKey);
  if (!length || !beginsAtDocuments || uint64_t(seqLen) < *length)
    return std::nullopt;
  if (isMarked)
    return manifest.fact("entropy_marked");
  if (uint64_t(seqLen) % *length != 0)
    return std::nullopt;
  return isIsolated ? manifest.fact("entropy_isolated") : entropy;
}

} // namespace nsa
