//===- TargetMarks.cpp - tokens that a loss counts ------------------------===//

#include "runtime/Data/TargetMarks.h"
#include "runtime/Data/SplitFiles.h"

#include <algorithm>

namespace nsa {

Result<TargetMarks>
TargetMarks::open(const std::vector<DocumentSource> &sources) {
  TargetMarks marks;
  for (const DocumentSource &source : sources) {
    if (source.info.marks.file.empty() && source.tokens > 0)
      return Error{"'" + source.name +
                   "' has no marks of targets, which data.targets: marked "
                   "needs"};
    NSA_ASSIGN_OR_RETURN(std::vector<uint8_t> bits,
                         readTargetMarks(source.name, source.info));
    marks.sources.push_back(
        {source.begin, source.begin + source.tokens, std::move(bits)});
  }
  return marks;
}

void TargetMarks::apply(uint64_t position, int32_t *targets,
                        uint64_t count) const {
  for (const Source &source : sources) {
    uint64_t first = std::max(position, source.begin);
    uint64_t last = std::min(position + count, source.end);
    for (uint64_t at = first; at < last; ++at) {
      uint64_t bit = at - source.begin;
      if (!(source.bits[bit / 8] >> bit % 8 & 1))
        targets[at - position] = -1;
    }
  }
}

bool TargetMarks::isAnySet() const {
  return std::any_of(sources.begin(), sources.end(), [](const Source &source) {
    return std::any_of(source.bits.begin(), source.bits.end(),
                       [](uint8_t bits) { return bits != 0; });
  });
}

} // namespace nsa
