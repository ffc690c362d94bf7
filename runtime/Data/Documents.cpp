//===- Documents.cpp - documents that share a window ----------------------===//

#include "runtime/Data/Documents.h"
#include "runtime/Data/SplitFiles.h"

#include <algorithm>

namespace nsa {

Result<Documents> Documents::open(const std::vector<DocumentSource> &sources) {
  Documents documents;
  for (const DocumentSource &source : sources) {
    Source own = {source.begin, source.begin + source.tokens, source.endOfText,
                  source.starts};
    if (!source.info.index.file.empty()) {
      NSA_ASSIGN_OR_RETURN(std::vector<uint64_t> starts,
                           readDocumentIndex(source.name, source.info));
      own.starts = std::move(starts);
    }
    if (own.starts.empty() && own.endOfText < 0 && source.tokens > 0)
      return Error{"'" + source.name +
                   "' says neither where documents begin nor which token ends "
                   "one, which data.isolate_documents and data.window: "
                   "document need"};
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
    NSA_RETURN_IF_ERROR(split.read(at, count, tokens.data()));
    std::vector<char> begins(count);
    mark(at, tokens.data(), count, begins.data());
    if (std::count(begins.begin() + 1, begins.end(), 0) > 0)
      return true;
  }
  return false;
}

/// Where documents begin in begin .. end-1, ascending; the first one with
/// `begin`.
Result<std::vector<uint64_t>> Documents::findStarts(const TokenStream &stream,
                                                    uint64_t begin,
                                                    uint64_t end) const {
  constexpr uint64_t most = 1 << 16;
  std::vector<uint64_t> found;
  std::vector<int32_t> tokens(size_t(most) + 1);
  std::vector<char> begins;
  bool isIndexed =
      std::all_of(sources.begin(), sources.end(),
                  [](const Source &source) { return !source.starts.empty(); });
  for (uint64_t at = begin; at < end; at += most) {
    uint64_t count = std::min(most, end - at);
    // The end token of the previous document.
    uint64_t first = std::max(at, begin + 1) - 1;
    if (!isIndexed)
      NSA_RETURN_IF_ERROR(
          stream.read(first, at + count - first, tokens.data()));
    begins.assign(size_t(at + count - first), 0);
    mark(first, tokens.data(), at + count - first, begins.data());
    for (uint64_t i = at; i < at + count; ++i)
      if (i == begin || begins[size_t(i - first)])
        found.push_back(i);
  }
  return found;
}

Result<std::vector<uint64_t>> Documents::findWindows(const TokenStream &stream,
                                                     uint64_t begin,
                                                     uint64_t end,
                                                     uint64_t length) const {
  NSA_ASSIGN_OR_RETURN(std::vector<uint64_t> starts,
                       findStarts(stream, begin, end));
  std::vector<uint64_t> windows;
  for (uint64_t at = begin; at < end;) {
    windows.push_back(at);
    uint64_t next = at + length;
    uint64_t cut = *(std::upper_bound(starts.begin(), starts.end(), next) - 1);
    at = next < end && cut > at ? cut : next;
  }
  return windows;
}

} // namespace nsa
