//===- PagePool.h - which sequence has which pages --------------*- C++ -*-===//
//
// Caches of a program with pages (nsa/Artifact/TrainingContract.h) hold the
// tokens of all sequences in pages. Here it says whose they are: sequences that
// begin alike share the pages of whole pages of tokens.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_GENERATE_PAGEPOOL_H
#define NSA_RUNTIME_GENERATE_PAGEPOOL_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nsa {

class PagePool {
public:
  /// One without pages.
  PagePool() = default;
  /// `table` [sequences, columns] has the numbers of pages, from 1, of
  /// `pageTokens` tokens each; 0 is none.
  PagePool(int32_t *table, int64_t sequences, int64_t columns, int64_t pages,
           int64_t pageTokens);

  explicit operator bool() const { return table; }
  int64_t pages() const { return int64_t(users.size()) - 1; }
  int64_t pageTokens() const { return tokensOfPage; }
  int64_t free() const { return int64_t(unused.size()); }
  int64_t pagesOf(int64_t tokens) const {
    return (tokens + tokensOfPage - 1) / tokensOfPage;
  }

  /// The numbers of a sequence's pages, in order.
  const int32_t *begin(int64_t sequence) const {
    return table + sequence * columns;
  }
  const int32_t *end(int64_t sequence) const {
    return begin(sequence) + counts[size_t(sequence)];
  }
  bool isShared(int32_t page) const { return users[size_t(page)] > 1; }

  /// Gives a sequence the pages that `tokens` tokens need besides those that it
  /// has; there are as many.
  void grow(int64_t sequence, int64_t tokens);
  /// Takes all but the whole pages of the first `tokens` tokens from it.
  void shrink(int64_t sequence, int64_t tokens);
  /// Makes the whole pages of the first `tokens` tokens of `from` those of
  /// `to`, in place of its own.
  void share(int64_t from, int64_t to, int64_t tokens);

private:
  void release(int32_t &page);

  int32_t *table = nullptr;
  int64_t columns = 0, tokensOfPage = 1;
  /// Of each page, from 1, how many sequences have it.
  std::vector<int32_t> users, unused;
  std::vector<int64_t> counts;
};

} // namespace nsa

#endif // NSA_RUNTIME_GENERATE_PAGEPOOL_H
