//===- PagePool.cpp - which sequence has which pages ----------------------===//

#include "runtime/Generate/PagePool.h"

#include <algorithm>

using namespace nsa;

PagePool::PagePool(int32_t *table, int64_t sequences, int64_t columns,
                   int64_t pages, int64_t pageTokens)
    : table(table), columns(columns), tokensOfPage(pageTokens),
      users(size_t(pages) + 1), counts(size_t(sequences)) {
  std::fill_n(table, sequences * columns, 0);
  for (auto page = int32_t(pages); page > 0; --page)
    unused.push_back(page);
}

void PagePool::release(int32_t &page) {
  if (--users[size_t(page)] == 0)
    unused.push_back(page);
  page = 0;
}

void PagePool::grow(int64_t sequence, int64_t tokens) {
  int64_t &count = counts[size_t(sequence)];
  for (; count < pagesOf(tokens); ++count) {
    table[sequence * columns + count] = unused.back();
    ++users[size_t(unused.back())];
    unused.pop_back();
  }
}

void PagePool::shrink(int64_t sequence, int64_t tokens) {
  int64_t &count = counts[size_t(sequence)];
  while (count > tokens / tokensOfPage)
    release(table[sequence * columns + --count]);
}

void PagePool::share(int64_t from, int64_t to, int64_t tokens) {
  int64_t &count = counts[size_t(to)];
  for (int64_t i = 0; i < tokens / tokensOfPage; ++i) {
    int32_t &own = table[to * columns + i];
    int32_t page = begin(from)[i];
    ++users[size_t(page)];
    if (i < count)
      release(own);
    own = page;
  }
  count = std::max(count, tokens / tokensOfPage);
}
