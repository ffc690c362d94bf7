//===- Mixture.cpp - several data sets as one -----------------------------===//

#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "runtime/Data/Tokenizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace nsa {

std::string Dataset::name() const {
  if (sources.empty())
    return directory;
  std::string text;
  for (const DataSource &source : sources)
    text += (text.empty() ? "" : ", ") + source.name;
  return text;
}

uint64_t Dataset::digest() const {
  if (sources.empty())
    return manifest.digest();
  StreamHash hash;
  hash.update(toHex(manifest.digest()));
  for (const DataSource &source : sources)
    hash.update(" " + std::to_string(source.tokens) + " " +
                shortest(source.weight));
  return hash.digest();
}

static Status checkWeights(const std::vector<std::string> &paths,
                           const std::vector<double> &weights) {
  if (!weights.empty() && paths.size() == 1)
    return Error{"weights have no effect on one source, '" + paths[0] + "'"};
  if (!weights.empty() && weights.size() != paths.size())
    return Error{"there are " + std::to_string(weights.size()) +
                 " weights for " + std::to_string(paths.size()) + " sources"};
  for (size_t i = 0; i < weights.size(); ++i)
    if (!std::isfinite(weights[i]) || weights[i] <= 0)
      return Error{"the weight of '" + paths[i] + "' is " +
                   shortest(weights[i]) + ", not a positive number"};
  return {};
}

/// How the manifest names the origin of the tokens.
static std::string describeTokens(const Manifest &manifest) {
  return manifest.tokenizer.file.empty()
             ? "of kind " + manifest.kind
             : "of the tokenizer " + toHex(manifest.tokenizer.hash);
}

/// Whether tokens of both stand for the same.
static Result<bool> haveSameTokens(const Dataset &mixture,
                                   const Dataset &source) {
  const FileInfo &own = mixture.manifest.tokenizer;
  const FileInfo &other = source.manifest.tokenizer;
  if (own.file.empty() || other.file.empty() || own.hash == other.hash)
    return describeTokens(mixture.manifest) == describeTokens(source.manifest);
  NSA_ASSIGN_OR_RETURN(Tokenizer tokenizer,
                       Tokenizer::load(mixture.directory + "/" + own.file));
  return tokenizer.hasIdsOf(source.directory + "/" + other.file, other.hash);
}

/// Merges the splits of manifests.
static void append(SplitInfo &split, const SplitInfo &other) {
  split.tokens += other.tokens;
  split.documents += other.documents;
  split.shards.insert(split.shards.end(), other.shards.begin(),
                      other.shards.end());
  // Positions are those of one source.
  split.index = split.marks = {};
}

/// Puts the splits of a source after those of the mixture.
static Status append(Dataset &mixture, Dataset source) {
  Manifest &all = mixture.manifest;
  const Manifest &next = source.manifest;
  NSA_ASSIGN_OR_RETURN(bool same, haveSameTokens(mixture, source));
  if (!same)
    return Error{"other tokens in one mixture: those in '" + mixture.directory +
                 "' are " + describeTokens(all) + ", those in '" +
                 source.directory + "' " + describeTokens(next)};
  bool haveEnds = all.endOfText >= 0 && next.endOfText >= 0;
  if (haveEnds && all.endOfText != next.endOfText)
    return Error{"documents end with token " + std::to_string(all.endOfText) +
                 " in '" + mixture.directory + "', with " +
                 std::to_string(next.endOfText) + " in '" + source.directory +
                 "'"};
  all.endOfText = std::max(all.endOfText, next.endOfText);
  all.vocabSize = std::max(all.vocabSize, next.vocabSize);
  for (auto [sources, more, stream] :
       {std::tuple(&mixture.trainDocuments, &source.trainDocuments,
                   &mixture.train),
        std::tuple(&mixture.valDocuments, &source.valDocuments, &mixture.val)})
    for (DocumentSource &own : *more) {
      own.begin += stream->size();
      sources->push_back(std::move(own));
    }
  mixture.indices.insert(mixture.indices.end(), source.indices.begin(),
                         source.indices.end());
  append(all.train, next.train);
  append(all.val, next.val);
  NSA_RETURN_IF_ERROR(mixture.train.append(std::move(source.train)));
  return mixture.val.append(std::move(source.val));
}

Result<Dataset> Dataset::openMixture(const std::vector<std::string> &paths,
                                     std::vector<double> weights,
                                     int64_t vocabSize) {
  assert(!paths.empty() && "a mixture of nothing");
  NSA_RETURN_IF_ERROR(checkWeights(paths, weights));
  std::optional<Dataset> mixture;
  std::vector<DataSource> sources;
  for (size_t i = 0; i < paths.size(); ++i) {
    Result<Dataset> source = open(paths[i], vocabSize);
    if (!source || paths.size() == 1)
      return source;
    NSA_RETURN_IF_ERROR(source->manifest.checkOwnHash(paths[i]));
    uint64_t tokens = source->train.size();
    sources.push_back({paths[i], mixture ? mixture->train.size() : 0, tokens,
                       weights.empty() ? double(tokens) : weights[i]});
    if (!mixture) {
      mixture.emplace(std::move(*source));
      mixture->manifest.facts.clear();
      mixture->manifest.counts.clear();
      mixture->manifest.ownHash.reset();
      for (SplitInfo *split :
           {&mixture->manifest.train, &mixture->manifest.val})
        split->index = split->marks = {};
    } else if (Status status = append(*mixture, std::move(*source)); !status) {
      return Error{status.message()};
    }
  }
  mixture->sources = std::move(sources);
  return std::move(*mixture);
}

} // namespace nsa
