//===- TokenStream.cpp - the shards of a split as one sequence ------------===//

#include "runtime/Data/TokenStream.h"
#include "runtime/Data/ForeignShards.h"

#include <algorithm>
#include <iterator>

namespace nsa {

/// Shards of a split that stay open: together with those of the other one fewer
/// than the 1,024 files that a process may have.
static constexpr size_t mostOpenShards = 256;

Status TokenStream::add(Shard shard) {
  if (!shards.empty() && shards[0].width() != shard.width())
    return Error{"tokens of mixed widths: '" + shards[0].path() + "' has " +
                 widthName(shards[0].width()) + ", '" + shard.path() + "' " +
                 widthName(shard.width())};
  starts.push_back(total);
  total += shard.size();
  if (shards.size() >= mostOpenShards)
    shard.close();
  shards.push_back(std::move(shard));
  return {};
}

Status TokenStream::append(TokenStream other) {
  vocab = std::max(vocab, other.vocab);
  for (Shard &shard : other.shards)
    NSA_RETURN_IF_ERROR(add(std::move(shard)));
  return {};
}

Result<TokenStream> TokenStream::make(std::vector<Shard> shards,
                                      int64_t vocabSize) {
  TokenStream stream;
  stream.vocab = vocabSize;
  for (Shard &shard : shards)
    NSA_RETURN_IF_ERROR(stream.add(std::move(shard)));
  return stream;
}

Result<TokenStream> TokenStream::open(const std::string &directory,
                                      const SplitInfo &split,
                                      int64_t vocabSize) {
  TokenStream stream;
  stream.vocab = vocabSize;
  for (const ShardInfo &info : split.shards) {
    NSA_ASSIGN_OR_RETURN(Shard shard, Shard::open(directory + "/" + info.file));
    if (shard.size() != info.tokens)
      return Error{"'" + shard.path() + "' holds " +
                   std::to_string(shard.size()) +
                   " tokens, its manifest says " + std::to_string(info.tokens)};
    if (shard.size() == 0)
      return Error{"'" + shard.path() + "' holds no tokens"};
    NSA_RETURN_IF_ERROR(stream.add(std::move(shard)));
  }
  return stream;
}

Error tokenOutside(const Shard &shard, uint64_t position, uint32_t token,
                   int64_t vocab) {
  return Error{"'" + shard.path() + "' is corrupted: token " +
               std::to_string(token) + " at position " +
               std::to_string(position) + " is not below the vocabulary size " +
               std::to_string(vocab)};
}

/// Reads tokens of one shard, which are of type T.
template <typename T>
static Status readTokens(const Shard &shard, uint64_t first, uint64_t count,
                         int64_t vocab, int32_t *out) {
  T tokens[8192];
  for (uint64_t done = 0; done < count;) {
    uint64_t take = std::min<uint64_t>(count - done, std::size(tokens));
    NSA_RETURN_IF_ERROR(shard.read(first + done, take, tokens));
    if (size_t found = findOutside(tokens, take, vocab); found < take)
      return tokenOutside(shard, first + done + found, tokens[found], vocab);
    std::copy(tokens, tokens + take, out + done);
    done += take;
  }
  return {};
}

Status TokenStream::read(uint64_t position, uint64_t count,
                         int32_t *out) const {
  assert(count <= total && "more tokens than the stream has");
  position %= total;
  size_t index =
      size_t(std::upper_bound(starts.begin(), starts.end(), position) -
             starts.begin()) -
      1;
  uint64_t offset = position - starts[index];
  while (count > 0) {
    const Shard &shard = shards[index];
    uint64_t take = std::min(count, shard.size() - offset);
    Status status = shard.width() == TokenWidth::U16
                        ? readTokens<uint16_t>(shard, offset, take, vocab, out)
                        : readTokens<uint32_t>(shard, offset, take, vocab, out);
    if (!status)
      return status;
    out += take;
    count -= take;
    offset = 0;
    index = index + 1 == shards.size() ? 0 : index + 1;
  }
  return {};
}

Result<Dataset> Dataset::open(const std::string &directory, int64_t vocabSize) {
  NSA_ASSIGN_OR_RETURN(bool isForeign, hasForeignShards(directory));
  if (isForeign)
    return openForeignShards(directory, vocabSize);
  NSA_ASSIGN_OR_RETURN(Manifest manifest, Manifest::load(directory));
  return open(directory, std::move(manifest));
}

Result<Dataset> Dataset::open(const std::string &directory, Manifest manifest) {
  Dataset data;
  data.directory = directory;
  data.manifest = std::move(manifest);
  int64_t vocab = data.manifest.vocabSize;
  NSA_ASSIGN_OR_RETURN(
      data.train, TokenStream::open(directory, data.manifest.train, vocab));
  NSA_ASSIGN_OR_RETURN(data.val,
                       TokenStream::open(directory, data.manifest.val, vocab));
  for (auto [sources, split] :
       {std::pair(&data.trainDocuments, &data.manifest.train),
        std::pair(&data.valDocuments, &data.manifest.val)})
    sources->push_back(
        {directory, 0, split->tokens, data.manifest.endOfText, *split});
  return data;
}

} // namespace nsa
