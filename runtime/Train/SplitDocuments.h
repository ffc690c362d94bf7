//===- SplitDocuments.h - documents and targets of a split ------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SPLITDOCUMENTS_H
#define NSA_RUNTIME_TRAIN_SPLITDOCUMENTS_H

#include "lib/Support/Config.h"
#include "runtime/Data/Sampler.h"

#include <vector>

namespace nsa {

/// Where documents of a split begin, and which of its targets count, as far as
/// the configuration asks for them.
struct SplitDocuments {
  /// Opens what `config` needs of the documents in `files`, and gives it to
  /// `samples`, a TrainSampler or ValidationWindows, which this has to outlive.
  template <typename SamplesT>
  Status open(const DataConfig &config,
              const std::vector<DocumentSource> &files, SamplesT &samples) {
    bool beginsAtThem = config.window == "document";
    if (config.isolateDocuments || beginsAtThem) {
      NSA_ASSIGN_OR_RETURN(documents, Documents::open(files));
      if (config.isolateDocuments)
        samples.isolate(documents);
      if (beginsAtThem)
        NSA_RETURN_IF_ERROR(samples.beginAt(documents));
    }
    if (config.targets == "marked") {
      NSA_ASSIGN_OR_RETURN(marks, TargetMarks::open(files));
      samples.countMarked(marks);
    }
    return {};
  }

  Documents documents;
  TargetMarks marks;
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SPLITDOCUMENTS_H
