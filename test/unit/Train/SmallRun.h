//===- SmallRun.h - a run that tests of the trainer begin with --*- C++ -*-===//

#ifndef NSA_TEST_UNIT_TRAIN_SMALLRUN_H
#define NSA_TEST_UNIT_TRAIN_SMALLRUN_H

#include "lib/Support/Config.h"
#include "runtime/Data/Sampler.h"
#include "runtime/Data/Synth.h"
#include "test/unit/TempDir.h"

namespace nsa {

/// Makes data below `dir`, and sets what trains on it for 20 steps of sequences
/// of 8 tokens, in micro-batches of 2.
inline void makeSmallRun(const TempDir &dir, int64_t batchSize,
                         RunConfig &config) {
  SynthOptions options;
  options.output = dir / "data";
  options.vocab = 16;
  options.tokens = 4000;
  ASSERT_TRUE(synthesize(options).ok());
  config.train.steps = 20;
  config.train.warmupSteps = 3;
  config.train.seqLen = 8;
  config.train.batchSize = batchSize;
  config.train.microBatch = 2;
  config.train.evalEvery = 8;
  config.train.evalBatches = 3;
  config.train.finalEvalBatches = 0;
  config.train.saveEvery = 5;
  config.train.lr = 0.05;
  config.train.outDir = dir / "runs";
}

/// Cuts both splits into documents of 1 to 40 tokens, most of them short, which
/// do not see each other: windows have from none to all of their targets.
inline void isolateDocuments(Dataset &data, RunConfig &config) {
  config.data.isolateDocuments = true;
  for (auto *sources : {&data.trainDocuments, &data.valDocuments}) {
    DocumentSource &source = sources->front();
    for (uint64_t at = 0, i = 0; at < source.tokens; ++i) {
      source.starts.push_back(at);
      at += i % 30 == 0 ? 40 : i % 7 == 0 ? 5 : 1;
    }
  }
}

} // namespace nsa

#endif // NSA_TEST_UNIT_TRAIN_SMALLRUN_H
