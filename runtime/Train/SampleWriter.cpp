//===- SampleWriter.cpp - texts that a run shows --------------------------===//

#include "runtime/Train/SampleWriter.h"
#include "lib/Support/Text.h"
#include "runtime/Train/SampleText.h"

namespace nsa {

Status SampleWriter::check() {
  if (!run.tokenizer || run.config.train.sampleBytes == 0)
    return {};
  SampleOptions sample = makeSampleOptions(run.config.train, /*step=*/0);
  auto made = run.tokenizer->encode({sample.prompt});
  if (!made || made->front().empty()) {
    run.journal.note("no samples: " +
                     (made ? "their prompt has no tokens" : made.message()));
    return {};
  }
  prompt = sample.tokens = made->front();
  NSA_ASSIGN_OR_RETURN(std::string found, checkSample(run.binding, sample));
  if (!found.empty())
    run.journal.note(found);
  return {};
}

Status SampleWriter::show(const std::string &title, double secondsAllowed) {
  const TrainConfig &train = run.config.train;
  if (train.sampleBytes == 0)
    return {};
  NSA_RETURN_IF_ERROR(run.model.gatherWeights());
  if (!run.ranks.isFirst())
    return {};
  if (!run.tokenizer) {
    bool isText = run.data.manifest.kind == "text" ||
                  run.data.manifest.isOfUnknownTokenizer();
    run.journal.say(
        "no sample " + title +
        (isText
             ? ": what the " + grouped(uint64_t(run.data.manifest.vocabSize)) +
                   " tokens of the data stand for is not known"
             : ": the data is not text but " + run.data.manifest.kind));
    return {};
  }
  if (prompt.empty())
    return {};
  SampleOptions sample = makeSampleOptions(train, run.state.step);
  sample.tokens = prompt;
  sample.end = run.state.endOfText >= 0 ? run.state.endOfText
                                        : run.tokenizer->endOfText();
  run.journal.busy("sampling");
  double begin = steadyClock(), end = begin + secondsAllowed;
  bool cut = false;
  Result<SampleText> made =
      generate(run.model, run.binding, *run.tokenizer, sample, [&] {
        cut = cut || steadyClock() >= end;
        return !cut && !run.signals.stopRequested();
      });
  if (!made)
    return made.takeError();
  allSeconds += steadyClock() - begin;
  std::string heading =
      "sample " + title + " (step " + std::to_string(run.state.step) +
      (cut            ? ", cut short to save time"
       : made->isFull ? ", cut short: the artefact takes no more tokens"
                      : "") +
      "):";
  run.journal.say(heading);
  run.journal.say("| " + [&] {
    std::string shown = printable(made->text);
    for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos;)
      shown.replace(at, 1, "\n| "), at += 3;
    return shown;
  }());
  run.journal.publish({.step = run.state.step,
                       .sample = "== " + heading + "\n" + made->text + "\n"});
  return {};
}

} // namespace nsa
