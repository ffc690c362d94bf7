//===- Documents.cpp - documents that share a window ----------------------===//

#include "runtime/Data/Documents.h"
#include "runtime/Data/DocumentIndex.h"

#include <algorithm>

namespace nsa {

Result<Documents> Documents::open(const std::vector<DocumentSource> &sources) {
  Documents documents;
  for (const DocumentSource &source : sources) {
    Source own = {source.begin, source.begin + source.tokens, source.endOfText,
                  source.starts};
    if (!source.info.index.file.empty()) {
      Result<std::vector<uint64_t>> starts =
          readDocumentIndex(source.name, source.info);
      if (!starts)
        return starts.takeError();
      own.starts = std::move(*starts);
    }
    if (own.starts.empty() && own.endOfText < 0 && source.tokens > 0)
      return Error{"'" + source.name +
                   "' says neither where documents begin nor which token ends "
                   "one, which data.isolate_documents needs"};
    for (uint64_t &start : own.starts)
      start += source.begin;
    documents.sources.push_back(std::move(own));
  }
  return documents;
}

void Documents::mark(uint64_t position, const int32_t *tokens, uint64_t count,
                     char *begins) const {
  uint64_t end = position + count;
  for (const Source &source : sources) {
    uint64_t first = std::max(position, source.begin);
    uint64_t last = std::min(end, source.end);
    if (first >= last)
      continue;
    if (first == source.begin)
      begins[first - position] = 1;
    auto next =
        std::lower_bound(source.starts.begin(), source.starts.end(), first);
    for (; next != source.starts.end() && *next < last; ++next)
      begins[*next - position] = 1;
    if (!source.starts.empty())
      continue;
    for (uint64_t at = first + 1; at < last; ++at)
      if (tokens[at - 1 - position] == source.endOfText)
        begins[at - position] = 1;
  }
}

Result<bool> Documents::hasTargets(const TokenStream &split) const {
  constexpr uint64_t most = 1 << 16;
  std::vector<int32_t> tokens(most);
  // The last token of a part is the first of the next, which it may end.
  for (uint64_t at = 0; at + 1 < split.size(); at += most - 1) {
    uint64_t count = std::min(most, split.size() - at);
    if (Status status = split.read(at, count, tokens.data()); !status)
      return Error{status.message()};
    std::vector<char> begins(count);
    mark(at, tokens.data(), count, begins.data());
    if (std::count(begins.begin() + 1, begins.end(), 0) > 0)
      return true;
  }
  return false;
}

} // namespace nsa
