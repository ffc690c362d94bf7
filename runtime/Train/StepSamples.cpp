//===- StepSamples.cpp - what a rank trains on ----------------------------===//

#include "runtime/Train/StepSamples.h"
#include "runtime/Train/RunDirectory.h"

#include <algorithm>

namespace nsa {

void StepSamples::start(const TrainSampler &order, const BatchPlan &batch,
                        int ownRank, bool isolate,
                        const SelectionReplay *ofRollout) {
  sampler = &order;
  replay = ofRollout;
  plan = batch;
  rank = ownRank;
  size_t size = size_t(plan.passes * plan.microBatch * plan.seqLen);
  for (Step *step : {&current, &next}) {
    step->tokens.resize(size);
    step->targets.resize(size);
    step->starts.resize(isolate ? size : 0);
    step->rows.resize(size_t(plan.passes * plan.microBatch));
  }
  ahead = {};
}

Status StepSamples::readAhead(uint64_t consumed) {
  double begin = steadyClock();
  int64_t at = 0;
  ahead = {};
  for (int64_t pass = 0; pass < plan.passes && ahead; ++pass)
    for (int64_t row = 0; row < plan.microBatch && ahead;
         ++row, at += plan.seqLen) {
      ahead = sampler->read(
          plan.firstSample(consumed, pass, rank) + uint64_t(row),
          next.tokens.data() + at, next.targets.data() + at,
          next.starts.empty() ? nullptr : next.starts.data() + at);
      if (!replay || !ahead)
        continue;
      Result<uint64_t> found = replay->find(next.tokens.data() + at);
      if (found)
        next.rows[size_t(at / plan.seqLen)] = *found;
      else
        ahead = found.takeError();
    }
  readSeconds = steadyClock() - begin;
  return ahead;
}

void StepSamples::load(int64_t pass, const TrainBinding &binding) const {
  int64_t first = pass * plan.microBatch * plan.seqLen;
  binding.load(current.tokens.data() + first, current.targets.data() + first,
               binding.starts ? current.starts.data() + first : nullptr, rank);
  for (int64_t row = 0; replay && row < plan.microBatch; ++row)
    replay->load(current.rows[size_t(pass * plan.microBatch + row)], row,
                 binding);
}

} // namespace nsa
