//===- TokenShards.cpp - token ids as a data set --------------------------===//

#include "nsa/Runtime/TokenShards.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "runtime/Data/DataFolder.h"
#include "runtime/Data/SplitFiles.h"
#include "runtime/Data/TokenStream.h"
#include "runtime/Data/Tokenizer.h"
#include "runtime/Data/Verifier.h"

namespace nsa {

static Error noSplit(const std::string &name) {
  return Error{"a split is 'train' or 'val', not " + quote(name)};
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

struct TokenShardsWriter::Impl {
  struct Split {
    SplitWriter writer;
    std::vector<uint64_t> starts;
  };

  Impl(DataFolder opened, int64_t vocabSize, uint64_t tokensPerShard)
      : folder(std::move(opened)), vocabSize(vocabSize),
        train{SplitWriter(folder.staging(), "train", tokensPerShard,
                          widthFor(vocabSize)),
              {}},
        val{SplitWriter(folder.staging(), "val", tokensPerShard,
                        widthFor(vocabSize)),
            {}} {}

  template <typename T>
  Status append(const std::string &name, const T *tokens, uint64_t count,
                const uint64_t *lengths, size_t documents);
  Result<SplitInfo> finishSplit(Split &split, const std::string &name);

  DataFolder folder;
  int64_t vocabSize;
  Split train, val;
  FileInfo tokenizer;
};

TokenShardsWriter::TokenShardsWriter(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}
TokenShardsWriter::TokenShardsWriter(TokenShardsWriter &&) noexcept = default;
TokenShardsWriter::~TokenShardsWriter() = default;

Result<TokenShardsWriter>
TokenShardsWriter::create(const std::string &directory, bool overwrite,
                          int64_t vocabSize, uint64_t tokensPerShard) {
  if (vocabSize < 1 || vocabSize > maxVocabulary)
    return Error{"a vocabulary has 1 to " + std::to_string(maxVocabulary) +
                 " tokens, not " + std::to_string(vocabSize)};
  if (tokensPerShard < 1 || tokensPerShard > maxShardTokens)
    return Error{"a shard holds 1 to " + std::to_string(maxShardTokens) +
                 " tokens, not " + std::to_string(tokensPerShard)};
  NSA_ASSIGN_OR_RETURN(DataFolder folder,
                       DataFolder::open(directory, overwrite));
  return TokenShardsWriter(
      std::make_unique<Impl>(std::move(folder), vocabSize, tokensPerShard));
}

size_t TokenShardsWriter::tokenBytes() const {
  return size_t(widthFor(impl->vocabSize));
}

template <typename T>
Status TokenShardsWriter::Impl::append(const std::string &name, const T *tokens,
                                       uint64_t count, const uint64_t *lengths,
                                       size_t documents) {
  if (name != "train" && name != "val")
    return noSplit(name);
  Split &split = name == "train" ? train : val;
  uint64_t begin = split.writer.tokens();
  if (size_t found = findOutside(tokens, count, vocabSize); found < count)
    return Error{"token " + std::to_string(tokens[found]) + " at position " +
                 std::to_string(begin + found) + " of the split '" + name +
                 "' is not below the vocabulary size " +
                 std::to_string(vocabSize)};
  uint64_t sum = 0;
  for (size_t i = 0; i < documents; ++i) {
    if (lengths[i] == 0 || lengths[i] > count - sum)
      return Error{"document " + std::to_string(i) + " has " +
                   std::to_string(lengths[i]) + " tokens, " +
                   std::to_string(count - sum) + " are left"};
    split.starts.push_back(begin + sum);
    sum += lengths[i];
  }
  if (sum != count)
    return Error{std::to_string(documents) + " documents have " +
                 std::to_string(sum) + " tokens, there are " +
                 std::to_string(count)};
  return split.writer.append(tokens, count);
}

Status TokenShardsWriter::append(const std::string &split, const void *tokens,
                                 uint64_t count, const uint64_t *lengths,
                                 size_t documents) {
  if (tokenBytes() == sizeof(uint16_t))
    return impl->append(split, static_cast<const uint16_t *>(tokens), count,
                        lengths, documents);
  return impl->append(split, static_cast<const uint32_t *>(tokens), count,
                      lengths, documents);
}

Status TokenShardsWriter::setTokenizer(std::string_view text) {
  impl->tokenizer = {tokenizerName, hashBytes(text)};
  return writeFileAtomically(impl->folder.staging() + "/" + tokenizerName,
                             text);
}

Result<SplitInfo>
TokenShardsWriter::Impl::finishSplit(Split &split, const std::string &name) {
  SplitInfo info;
  info.tokens = split.writer.tokens();
  info.documents = split.starts.size();
  NSA_ASSIGN_OR_RETURN(info.shards, split.writer.finish());
  NSA_ASSIGN_OR_RETURN(
      info.index, writeDocumentIndex(folder.staging(), name, split.starts));
  return info;
}

Status TokenShardsWriter::finish(const TokenShardsInfo &info) {
  if (impl->train.writer.tokens() == 0)
    return Error{"no tokens for the training split"};
  Manifest manifest;
  manifest.kind = info.kind;
  manifest.tool = info.tool;
  manifest.endOfText = info.endOfText;
  manifest.options = info.options;
  manifest.counts = info.counts;
  manifest.sourceDigest = info.sourceDigest;
  manifest.vocabSize = impl->vocabSize;
  manifest.tokenizer = impl->tokenizer;
  NSA_ASSIGN_OR_RETURN(manifest.train, impl->finishSplit(impl->train, "train"));
  NSA_ASSIGN_OR_RETURN(manifest.val, impl->finishSplit(impl->val, "val"));
  return impl->folder.publish(manifest);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

struct TokenShards::Impl {
  /// Null for a name that is no split's.
  const TokenStream *find(const std::string &split) const {
    return split == "train" ? &data.train
           : split == "val" ? &data.val
                            : nullptr;
  }

  Dataset data;
};

TokenShards::TokenShards(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
TokenShards::TokenShards(TokenShards &&) noexcept = default;
TokenShards::~TokenShards() = default;

Result<TokenShards> TokenShards::open(const std::string &directory) {
  NSA_ASSIGN_OR_RETURN(Dataset data, Dataset::open(directory));
  return TokenShards(std::make_unique<Impl>(Impl{std::move(data)}));
}

int64_t TokenShards::vocabSize() const { return impl->data.manifest.vocabSize; }
int64_t TokenShards::endOfText() const { return impl->data.manifest.endOfText; }
const std::string &TokenShards::kind() const {
  return impl->data.manifest.kind;
}

Result<uint64_t> TokenShards::size(const std::string &split) const {
  const TokenStream *stream = impl->find(split);
  return stream ? Result<uint64_t>(stream->size()) : noSplit(split);
}

Status TokenShards::read(const std::string &split, uint64_t position,
                         uint64_t count, int32_t *out) const {
  const TokenStream *stream = impl->find(split);
  if (!stream)
    return noSplit(split);
  if (position > stream->size() || count > stream->size() - position)
    return Error{"tokens " + std::to_string(position) + " to " +
                 std::to_string(position + count) + " of the split '" + split +
                 "', which has " + std::to_string(stream->size())};
  return count == 0 ? Status() : stream->read(position, count, out);
}

Result<std::vector<uint64_t>>
TokenShards::documents(const std::string &split) const {
  if (!impl->find(split))
    return noSplit(split);
  const Manifest &manifest = impl->data.manifest;
  return readDocumentIndex(impl->data.directory,
                           split == "train" ? manifest.train : manifest.val);
}

Result<std::string> TokenShards::tokenizer() const {
  return readTokenizerText(impl->data.directory, impl->data.manifest);
}

Status TokenShards::verify() const { return verifyShards(impl->data); }

Result<TokenBytes> readTokenBytes(std::string text, const std::string &name) {
  NSA_ASSIGN_OR_RETURN(Tokenizer tokenizer,
                       Tokenizer::parse(std::move(text), name));
  TokenBytes found;
  found.bytes.resize(size_t(tokenizer.size()));
  for (size_t id = 0; id < found.bytes.size(); ++id)
    found.bytes[id] = tokenizer.bytesOf(int32_t(id));
  found.addsBlank = tokenizer.addsBlank();
  found.changes = tokenizer.changes();
  return found;
}

} // namespace nsa
