//===- TokenStream.cpp - the shards of a split as one sequence ------------===//

#include "runtime/Data/TokenStream.h"

#include <algorithm>
#include <iterator>

namespace nsa {

/// Shards of a split that stay open: together with those of the other one fewer
/// than the 1,024 files that a process may have.
static constexpr size_t mostOpenShards = 256;

Result<TokenStream> TokenStream::open(const std::string &directory,
                                      const SplitInfo &split,
                                      int64_t vocabSize) {
  TokenStream stream;
  stream.vocab = vocabSize;
  for (const ShardInfo &info : split.shards) {
    Result<Shard> shard = Shard::open(directory + "/" + info.file);
    if (!shard)
      return shard.takeError();
    if (shard->size() != info.tokens)
      return Error{"'" + shard->path() + "' holds " +
                   std::to_string(shard->size()) +
                   " tokens, its manifest says " + std::to_string(info.tokens)};
    if (shard->size() == 0)
      return Error{"'" + shard->path() + "' holds no tokens"};
    stream.starts.push_back(stream.total);
    stream.total += shard->size();
    if (stream.shards.size() >= mostOpenShards)
      shard->close();
    stream.shards.push_back(std::move(*shard));
  }
  return stream;
}

Error tokenOutside(const Shard &shard, uint64_t position, uint16_t token,
                   int64_t vocab) {
  return Error{"'" + shard.path() + "' is corrupted: token " +
               std::to_string(token) + " at position " +
               std::to_string(position) + " is not below the vocabulary size " +
               std::to_string(vocab)};
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
  uint16_t tokens[8192];
  while (count > 0) {
    const Shard &shard = shards[index];
    uint64_t take =
        std::min<uint64_t>({count, shard.size() - offset, std::size(tokens)});
    if (Status status = shard.read(offset, take, tokens); !status)
      return status;
    for (uint64_t i = 0; i < take; ++i) {
      if (tokens[i] >= vocab)
        return tokenOutside(shard, offset + i, tokens[i], vocab);
      out[i] = tokens[i];
    }
    out += take;
    count -= take;
    offset += take;
    if (offset == shard.size()) {
      offset = 0;
      index = index + 1 == shards.size() ? 0 : index + 1;
    }
  }
  return {};
}

Result<Dataset> Dataset::open(const std::string &directory) {
  Result<Manifest> manifest = Manifest::load(directory);
  if (!manifest)
    return manifest.takeError();
  return open(directory, std::move(*manifest));
}

Result<Dataset> Dataset::open(const std::string &directory, Manifest manifest) {
  Dataset data;
  data.directory = directory;
  data.manifest = std::move(manifest);
  int64_t vocab = data.manifest.vocabSize;
  Result<TokenStream> train =
      TokenStream::open(directory, data.manifest.train, vocab);
  if (!train)
    return train.takeError();
  data.train = std::move(*train);
  Result<TokenStream> val =
      TokenStream::open(directory, data.manifest.val, vocab);
  if (!val)
    return val.takeError();
  data.val = std::move(*val);
  return data;
}

} // namespace nsa
