//===- Tokenizer.cpp - what tokens stand for ------------------------------===//

#include "runtime/Data/Tokenizer.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Process.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <unordered_map>
#include <utility>

namespace nsa {

using Json = nlohmann::json;

//===----------------------------------------------------------------------===//
// How tokens are written
//===----------------------------------------------------------------------===//

/// The bytes of the characters that byte-level tokenizers write for them:
/// printable ones are themselves, the n-th other one is U+0100 + n.
static std::array<int, 512> byteLevelBytes() {
  std::array<int, 512> bytes;
  bytes.fill(-1);
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    bool isPrintable = (byte >= 0x21 && byte <= 0x7E) ||
                       (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    bytes[size_t(isPrintable ? byte : 256 + others++)] = byte;
  }
  return bytes;
}

/// The code point of one or two bytes of UTF-8, or -1: no byte is written with
/// more.
static int shortCodePoint(std::string_view text, size_t length) {
  auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  return length == 1   ? at(0)
         : length == 2 ? (at(0) & 0x1F) << 6 | (at(1) & 0x3F)
                       : -1;
}

/// The bytes of a token of a byte-level tokenizer. A token with a character
/// that stands for no byte, such as an added one, is text.
static std::string fromByteLevel(const std::string &token) {
  static const std::array<int, 512> bytes = byteLevelBytes();
  std::string result;
  for (size_t at = 0; at < token.size();) {
    size_t length =
        std::max<size_t>(utf8Length(token.data() + at, token.size() - at), 1);
    int code = shortCodePoint(std::string_view(token).substr(at), length);
    int byte =
        code >= 0 && size_t(code) < bytes.size() ? bytes[size_t(code)] : -1;
    if (byte < 0)
      return token;
    result += char(byte);
    at += length;
  }
  return result;
}

static std::string replaceAll(std::string text, const std::string &from,
                              const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The bytes of a token of a tokenizer that writes U+2581 for a space and, with
/// `byteFallback`, "<0x41>" for a byte.
static std::string fromMetaspace(const std::string &token, bool byteFallback) {
  if (byteFallback && token.size() == 6 && token.rfind("<0x", 0) == 0 &&
      token[5] == '>')
    if (Result<uint64_t> byte = fromHex(
            "00000000000000" + std::string{char(std::tolower(token[3])),
                                           char(std::tolower(token[4]))}))
      return std::string(1, char(*byte));
  return replaceAll(token, "\u2581", " ");
}

/// The parts that a part of a tokenizer is a sequence of, or it alone.
static std::vector<Json> partsOf(const Json &root, const char *name) {
  std::vector<Json> parts;
  auto found = root.find(name);
  if (found == root.end() || !found->is_object())
    return parts;
  parts.push_back(*found);
  for (const char *list : {"pretokenizers", "decoders", "normalizers"})
    if (auto all = found->find(list); all != found->end())
      parts.assign(all->begin(), all->end());
  parts.erase(
      std::remove_if(parts.begin(), parts.end(),
                     [](const Json &part) { return !part.is_object(); }),
      parts.end());
  return parts;
}

static bool hasPart(const Json &root, const char *name, const char *type) {
  std::vector<Json> parts = partsOf(root, name);
  return std::any_of(parts.begin(), parts.end(), [&](const Json &part) {
    return part.value("type", "") == type;
  });
}

/// Whether a part of a normalizer or pre-tokenizer puts a space in front.
static bool putsBlank(const Json &part) {
  std::string type = part.value("type", "");
  if (type == "Prepend") {
    std::string text = part.value("prepend", "");
    return text == " " || text == "\u2581";
  }
  if (type == "Metaspace" && part.contains("prepend_scheme"))
    return part.value("prepend_scheme", "") != "never";
  return (type == "Metaspace" || type == "ByteLevel") &&
         part.value("add_prefix_space", true);
}

/// Whether a normalizer gives other bytes than those of the text, or than
/// U+2581 for its spaces.
static bool changesBytes(const Json &part) {
  std::string type = part.value("type", "");
  if (type == "Replace")
    return part.value("pattern", Json()) != Json{{"String", " "}} ||
           part.value("content", "") != "\u2581";
  return type != "ByteLevel" && !putsBlank(part);
}

/// Whether a pre-tokenizer leaves bytes out, or puts some between others: a
/// space before each of the parts that another one made.
static bool changesBytes(const Json &part, bool isFirst) {
  std::string type = part.value("type", "");
  return type == "Whitespace" || type == "WhitespaceSplit" ||
         type == "BertPreTokenizer" || type == "CharDelimiterSplit" ||
         part.value("behavior", "") == "Removed" ||
         (type == "ByteLevel" && !isFirst && putsBlank(part));
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace {

/// Tokens and ids in the order of the file.
using Entries = std::vector<std::pair<std::string, int64_t>>;

} // namespace

/// A vocabulary is an object of ids by token, or a list of [token, score].
static Entries readEntries(const Json &vocabulary) {
  Entries entries;
  entries.reserve(vocabulary.size());
  if (vocabulary.is_object())
    for (const auto &[token, id] : vocabulary.items())
      entries.emplace_back(token, readInteger(id));
  else
    for (const Json &entry : vocabulary)
      entries.emplace_back(entry.at(0).get<std::string>(),
                           int64_t(entries.size()));
  return entries;
}

static void put(std::vector<std::string> &table, int64_t id,
                std::string bytes) {
  if (id < 0 || id >= maxVocabulary)
    throw std::runtime_error("token " + std::to_string(id) + " is not in 0.." +
                             std::to_string(maxVocabulary - 1));
  if (table.size() <= size_t(id))
    table.resize(size_t(id) + 1);
  table[size_t(id)] = std::move(bytes);
}

static std::vector<std::string> readTable(const Json &root) {
  const Json &model = root.at("model");
  bool isByteLevel = hasPart(root, "decoder", "ByteLevel") ||
                     hasPart(root, "pre_tokenizer", "ByteLevel");
  bool isMetaspace = hasPart(root, "decoder", "Metaspace") ||
                     hasPart(root, "decoder", "ByteFallback") ||
                     hasPart(root, "pre_tokenizer", "Metaspace");
  if (!isByteLevel && !isMetaspace)
    throw std::runtime_error(
        "its tokens do not say which bytes they stand for: it is neither "
        "byte-level, as those of GPT-2 and Llama 3 are, nor has it U+2581 for "
        "spaces");
  bool byteFallback = model.value("byte_fallback", false);
  std::vector<std::string> table;
  for (const auto &[token, id] : readEntries(model.at("vocab")))
    put(table, id,
        isByteLevel ? fromByteLevel(token)
                    : fromMetaspace(token, byteFallback));
  for (const Json &added : root.value("added_tokens", Json::array())) {
    bool isSpecial = added.value("special", false);
    put(table, readInteger(added.at("id")),
        isSpecial ? "" : added.at("content").get<std::string>());
  }
  return table;
}

/// Whether a space is put before a text, and names of what changes it.
static std::pair<bool, std::string> readChanges(const Json &root) {
  bool isBlankInFront = false;
  std::string changes;
  auto look = [&](const Json &part, bool changesText) {
    isBlankInFront = isBlankInFront || putsBlank(part);
    if (changesText)
      changes += (changes.empty() ? "" : ", ") + part.value("type", "");
  };
  for (const Json &part : partsOf(root, "normalizer"))
    look(part, changesBytes(part));
  bool isFirst = true;
  for (const Json &part : partsOf(root, "pre_tokenizer"))
    look(part, changesBytes(part, std::exchange(isFirst, false)));
  return {isBlankInFront, changes};
}

using Ids = std::unordered_map<std::string, int64_t>;

static Ids readIds(const Json &root) {
  Ids ids;
  for (const auto &[token, id] : readEntries(root.at("model").at("vocab")))
    ids[token] = id;
  for (const Json &added : root.value("added_tokens", Json::array()))
    ids[added.at("content").get<std::string>()] = readInteger(added.at("id"));
  return ids;
}

/// Of a tokenizer.json that can be read.
static Ids parseIds(const std::string &text) {
  return readIds(parseJson<Json>(text.begin(), text.end(),
                                 /*mostNames=*/maxVocabulary));
}

static int64_t findEnd(const Ids &ids) {
  // In the order of nsa.data.
  for (const char *name :
       {"<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>"})
    if (auto found = ids.find(name); found != ids.end())
      return found->second;
  return -1;
}

Tokenizer Tokenizer::ofBytes() {
  Tokenizer tokenizer;
  tokenizer.end = 0;
  for (int byte = 0; byte < 256; ++byte)
    tokenizer.table.emplace_back(1, char(byte));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::parse(std::string text, const std::string &path) {
  Tokenizer tokenizer;
  tokenizer.path = path;
  try {
    Json root = parseJson<Json>(text.begin(), text.end(),
                                /*mostNames=*/maxVocabulary);
    tokenizer.table = readTable(root);
    std::tie(tokenizer.blankInFront, tokenizer.textChanges) = readChanges(root);
    tokenizer.end = findEnd(readIds(root));
  } catch (const std::exception &error) {
    return Error{"'" + path +
                 "' is no tokenizer to train with: " + oneLine(error.what())};
  }
  if (tokenizer.table.empty())
    return Error{"'" + path + "' has no tokens"};
  tokenizer.sourceHash = hashBytes(text);
  tokenizer.source = std::move(text);
  return tokenizer;
}

Result<Tokenizer> Tokenizer::load(const std::string &path) {
  Result<std::string> text = readFile(path);
  return text ? parse(std::move(*text), path) : text.takeError();
}

std::vector<int32_t> Tokenizer::silentTokens(int64_t vocab, int64_t end) const {
  std::vector<int32_t> silent;
  for (int64_t id = 0; id < vocab; ++id)
    if (id != end && (id >= size() || bytesOf(int32_t(id)).empty()))
      silent.push_back(int32_t(id));
  return silent;
}

bool Tokenizer::hasIdsOf(const std::string &path, uint64_t fileHash) const {
  if (fileHash == sourceHash)
    return true;
  if (fileHash == 0 || sourceHash == 0)
    return false;
  Result<Tokenizer> other = load(path);
  return other && parseIds(other->source) == parseIds(source);
}

Result<int64_t> findEndOfText(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(std::string text, readFile(path));
  try {
    return findEnd(parseIds(text));
  } catch (const std::exception &error) {
    return Error{"'" + path + "' is no tokenizer: " + oneLine(error.what())};
  }
}

/// Encodes as nsa.data does, whose tokens a model is trained on.
static constexpr const char *encodeScript = R"(
import json, sys
try:
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with open(sys.argv[2]) as texts:
        all = tokenizer.encode_batch(json.load(texts), add_special_tokens=False)
    print(json.dumps([one.ids for one in all]))
except Exception as error:
    print(json.dumps(f"{type(error).__name__}: {error}"))
)";

/// What the library prints for a list of texts in JSON.
static Result<std::string> runLibrary(const std::string &path,
                                      const std::string &texts) {
  std::string python = findProgram("python3", {}, readVariable);
  if (python.empty())
    return Error{"there is no python3 on the PATH"};
  // The child sees it as a file; it has no name that others could take.
  Descriptor file(::memfd_create("prompts", /*flags=*/0));
  for (size_t at = 0; at < texts.size();) {
    ssize_t count = ::write(file, texts.data() + at, texts.size() - at);
    if (count <= 0)
      return Error{std::string("cannot hand the texts over: ") +
                   std::strerror(errno)};
    at += size_t(count);
  }
  return runProgram({python, "-c", encodeScript, path,
                     "/proc/" + std::to_string(::getpid()) + "/fd/" +
                         std::to_string(int(file))});
}

Result<std::vector<std::vector<int32_t>>>
Tokenizer::encode(const std::vector<std::string> &texts) const {
  std::vector<std::vector<int32_t>> all;
  if (source.empty()) {
    for (const std::string &text : texts) {
      const auto *bytes = reinterpret_cast<const uint8_t *>(text.data());
      all.emplace_back(bytes, bytes + text.size());
    }
    return all;
  }
  auto fail = [&](const std::string &why) {
    return Error{"cannot make tokens of '" + path + "': " + oneLine(why) +
                 "; it takes a python3 with the package tokenizers, and ids "
                 "take none"};
  };
  try {
    Result<std::string> printed = runLibrary(path, Json(texts).dump());
    if (!printed)
      return fail(printed.message());
    Json ids = Json::parse(*printed);
    if (ids.is_string())
      return fail(ids.get<std::string>());
    return ids.get<std::vector<std::vector<int32_t>>>();
  } catch (const std::exception &error) {
    return fail(error.what());
  }
}

//===----------------------------------------------------------------------===//
// Of a data set
//===----------------------------------------------------------------------===//

/// The tokenizer that lies beside the shards.
static Result<Tokenizer> openOwn(const Dataset &data) {
  NSA_ASSIGN_OR_RETURN(std::string text,
                       readTokenizerText(data.directory, data.manifest));
  return Tokenizer::parse(std::move(text),
                          data.directory + "/" + data.manifest.tokenizer.file);
}

static Result<std::optional<Tokenizer>> openNamed(const Dataset &data,
                                                  const std::string &path) {
  const Manifest &manifest = data.manifest;
  Result<Tokenizer> named = Tokenizer::load(path);
  if (!named)
    return Error{"data.tokenizer: " + named.message()};
  if (!manifest.tokenizer.file.empty() &&
      !named->hasIdsOf(data.directory + "/" + manifest.tokenizer.file,
                       manifest.tokenizer.hash))
    return Error{"data.tokenizer: '" + path + "' has hash " +
                 toHex(named->hash()) + ", the tokens in '" + data.directory +
                 "' were made by a tokenizer with hash " +
                 toHex(manifest.tokenizer.hash)};
  if (manifest.tokenizer.file.empty() && !manifest.isOfUnknownTokenizer())
    return Error{"data.tokenizer: the tokens in '" + data.directory + "' are " +
                 (manifest.isBytes() ? "bytes" : "of kind " + manifest.kind) +
                 ", no tokenizer made them, '" + path + "' neither"};
  if (named->size() < manifest.vocabSize && !manifest.isForeign())
    return Error{"data.tokenizer: '" + path + "' has " +
                 std::to_string(named->size()) + " tokens, the data in '" +
                 data.directory + "' " + std::to_string(manifest.vocabSize)};
  return std::optional<Tokenizer>(std::move(*named));
}

Result<std::optional<Tokenizer>> openTokenizer(const Dataset &data,
                                               const std::string &setting) {
  const Manifest &manifest = data.manifest;
  if (setting != "byte" && setting != "shards")
    return openNamed(data, setting);
  bool hasOwn = !manifest.tokenizer.file.empty();
  if (setting == "byte" && (hasOwn || manifest.isOfUnknownTokenizer()))
    return Error{"data.tokenizer is byte, the tokens in '" + data.directory +
                 "' were made by " +
                 (hasOwn ? "its " + manifest.tokenizer.file +
                               ": set data.tokenizer to shards"
                         : "a tokenizer that it does not name: set "
                           "data.tokenizer to its tokenizer.json, or to shards "
                           "to train without")};
  if (hasOwn) {
    NSA_ASSIGN_OR_RETURN(Tokenizer own, openOwn(data));
    return std::optional<Tokenizer>(std::move(own));
  }
  return manifest.isBytes() ? std::optional<Tokenizer>(Tokenizer::ofBytes())
                            : std::nullopt;
}

} // namespace nsa
