//===- TargetMarks.h - tokens that a loss counts ----------------*- C++ -*-===//
//
// A file beside the shards of a split: a header of 256 little-endian i32 (magic
// 20251127, version 1, number of tokens in two halves, the lower one first,
// zeros), then a bit for each token, the lowest of a byte first. With
// data.targets: marked, a loss counts the targets whose bit is set.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_TARGETMARKS_H
#define NSA_RUNTIME_DATA_TARGETMARKS_H

#include "runtime/Data/TokenStream.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa {

/// Writes `<split>_targets.bits`, of a token for each of `marks`, and returns
/// its name and hash.
Result<FileInfo> writeTargetMarks(const std::string &directory,
                                  const std::string &split,
                                  const std::vector<bool> &marks);

/// The bits of a split, empty if it has none. A file that is not what the
/// manifest says is an error that names it.
Result<std::vector<uint8_t>> readTargetMarks(const std::string &directory,
                                             const SplitInfo &split);

/// Those of a split of one source or of several.
class TargetMarks {
public:
  /// A source that has none is an error that names it.
  static Result<TargetMarks> open(const std::vector<DocumentSource> &sources);

  /// Sets to -1 those of `count` targets, the tokens from `position` on, that
  /// are not marked.
  void apply(uint64_t position, int32_t *targets, uint64_t count) const;

  /// Whether any token is marked.
  bool isAnySet() const;

private:
  struct Source {
    uint64_t begin, end;
    std::vector<uint8_t> bits;
  };
  std::vector<Source> sources;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TARGETMARKS_H
