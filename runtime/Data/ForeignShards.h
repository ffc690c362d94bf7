//===- ForeignShards.h - token files of other projects ----------*- C++ -*-===//
//
// Files that train as they are: the .bin of llm.c and modded-nanogpt, and
// Megatron-LM's .bin with .idx. They have no manifest, so one is made up: kind
// llm.c or megatron, the vocabulary of the model, hashes that only tell files
// apart.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_FOREIGNSHARDS_H
#define NSA_RUNTIME_DATA_FOREIGNSHARDS_H

#include "runtime/Data/TokenStream.h"

#include <string>

namespace nsa {

/// Whether `path` is such a file (a .bin, an .idx, or both without the ending),
/// or a folder of .bin files without a manifest.
Result<bool> hasForeignShards(const std::string &path);

/// Opens them. Files with `val` in their name are the validation split; if
/// there is none, it is the last hundredth of the tokens, but at least 65,536
/// or a tenth of them, from the beginning of a document on where that is known.
/// Every token is to be below `vocabSize`; 0 takes what the width holds, up to
/// maxVocabulary.
Result<Dataset> openForeignShards(const std::string &path, int64_t vocabSize);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_FOREIGNSHARDS_H
