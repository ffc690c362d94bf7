//===- TextMutator.h - changes to MLIR text by tokens -----------*- C++ -*-===//
//
// Random bytes in MLIR text are nearly always a syntax error. These mutations
// replace, move and repeat whole tokens and lines instead, so that most of
// what comes out parses and reaches verifiers and passes.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_FUZZ_OPT_TEXTMUTATOR_H
#define NSA_TEST_FUZZ_OPT_TEXTMUTATOR_H

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace nsa::fuzz {

class TextMutator {
public:
  /// `words` are what a word may become: names of operations, types,
  /// attributes.
  explicit TextMutator(std::vector<std::string> words)
      : words(std::move(words)) {}

  /// `text` after one to three changes, cut at a line to `maxSize` bytes.
  std::string mutate(std::string text, size_t maxSize, unsigned seed) const;

  /// The first lines of `a` and the last lines of `b`.
  static std::string cross(const std::string &a, const std::string &b,
                           size_t maxSize, unsigned seed);

private:
  std::string changeToken(const std::string &text,
                          std::minstd_rand &random) const;

  std::vector<std::string> words;
};

} // namespace nsa::fuzz

#endif // NSA_TEST_FUZZ_OPT_TEXTMUTATOR_H
