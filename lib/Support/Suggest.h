//===- Suggest.h - "did you mean" -------------------------------*- C++ -*-===//

#ifndef NSA_SUPPORT_SUGGEST_H
#define NSA_SUPPORT_SUGGEST_H

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

/// Levenshtein distance of `a` from `b`, or from the nearest part of it:
/// insertions, deletions and substitutions cost 1.
size_t editDistance(std::string_view a, std::string_view b,
                    bool ofPart = false);

/// The candidate nearest to `word`, or an empty string when none is closer
/// than a third of the word (at least 2). The first of equals wins.
std::string nearest(std::string_view word,
                    const std::vector<std::string> &candidates);

/// "; did you mean 'X'?" of the nearest candidate, or else of those that have a
/// part like the word; or an empty string.
std::string suggestion(std::string_view word,
                       const std::vector<std::string> &candidates);

} // namespace nsa

#endif // NSA_SUPPORT_SUGGEST_H
