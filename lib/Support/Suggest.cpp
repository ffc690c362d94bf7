//===- Suggest.cpp - "did you mean" ---------------------------------------===//

#include "lib/Support/Suggest.h"

#include <algorithm>

namespace nsa {

size_t editDistance(std::string_view a, std::string_view b, bool ofPart) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = ofPart ? 0 : j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return ofPart ? *std::min_element(row.begin(), row.end()) : row.back();
}

std::string nearest(std::string_view word,
                    const std::vector<std::string> &candidates) {
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::string found;
  for (const std::string &candidate : candidates) {
    size_t distance = editDistance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string suggestion(std::string_view word,
                       const std::vector<std::string> &candidates) {
  std::string found = nearest(word, candidates);
  // Part of a name, such as soft_cap of logit_softcap.
  if (found.empty() && word.size() > 3)
    for (const std::string &candidate : candidates)
      if (editDistance(word, candidate, /*ofPart=*/true) <= word.size() / 4)
        found += (found.empty() ? "" : "' or '") + candidate;
  return found.empty() ? "" : "; did you mean '" + found + "'?";
}

} // namespace nsa
