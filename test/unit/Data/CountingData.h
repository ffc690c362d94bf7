//===- CountingData.h - a data set of numbers in a row ----------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_DATA_COUNTINGDATA_H
#define NSA_TEST_UNIT_DATA_COUNTINGDATA_H

#include "runtime/Data/Sampler.h"
#include "runtime/Data/SplitFiles.h"
#include "test/unit/TempDir.h"

#include <numeric>

namespace nsa {

/// Writes a data set of the tokens first, first + 1, ... in both splits, whose
/// documents begin at `starts`, by an index, or end with token `endOfText`.
inline void writeCounting(const std::string &folder, uint16_t first,
                          uint16_t count, int64_t endOfText,
                          const std::string &kind = "tokens",
                          const std::vector<uint64_t> &starts = {}) {
  std::filesystem::create_directories(folder);
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  Manifest manifest;
  manifest.tool = "test";
  manifest.kind = kind;
  manifest.vocabSize = 65536;
  manifest.endOfText = endOfText;
  for (auto [split, info] :
       {std::pair("train", &manifest.train), std::pair("val", &manifest.val)}) {
    SplitWriter writer(folder, split, 70);
    EXPECT_TRUE(writer.append(tokens.data(), tokens.size()));
    *info = {tokens.size(), std::max<size_t>(starts.size(), 1),
             *writer.finish()};
    if (!starts.empty())
      info->index = *writeDocumentIndex(folder, split, starts);
  }
  EXPECT_TRUE(manifest.save(folder));
}

} // namespace nsa

#endif // NSA_TEST_UNIT_DATA_COUNTINGDATA_H
