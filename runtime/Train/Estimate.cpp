//===- Estimate.cpp - what a run will take --------------------------------===//

#include "runtime/Train/Estimate.h"
#include "lib/Support/LayerKinds.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Text.h"
#include "runtime/Train/Schedule.h"
#include "runtime/Train/Utilization.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

using namespace nsa;

Result<Estimate> nsa::readEstimate(const std::string &text) {
  std::map<std::string, double> found;
  std::istringstream lines(text);
  for (std::string line, name; std::getline(lines, line);) {
    std::istringstream words(line);
    double value = 0;
    if (words >> name >> value)
      found[name] = value;
  }
  Estimate estimate;
  const std::pair<const char *, double *> wanted[] = {
      {"parameters", &estimate.parameters},
      {"weights", &estimate.weights},
      {"gradients", &estimate.gradients},
      {"optimizer", &estimate.optimizer},
      {"arena", &estimate.activations},
      {"workspace", &estimate.workspace},
      {"total", &estimate.total},
      {"@accumulate:", &estimate.accumulateFlops},
      {"@step:", &estimate.stepFlops}};
  for (auto [name, value] : wanted) {
    if (!found.count(name))
      return Error{"nsa-compile --estimate says nothing of " +
                   std::string(name) + ": it is of another version"};
    *value = found[name];
  }
  return estimate;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static std::string describeGiB(double mebibytes) {
  return formatted("%.1f GiB", mebibytes / 1024);
}

Status nsa::checkMemory(const RunConfig &config, double memory,
                        const Estimator &estimate) {
  double most = memory / (1 << 20);
  NSA_ASSIGN_OR_RETURN(Estimate whole, estimate(config));
  if (whole.total <= most)
    return {};
  std::string fits;
  auto tryOther = [&](const RunConfig &other, const std::string &change) {
    Result<Estimate> needs = estimate(other);
    if (!needs || needs->total > most)
      return false;
    fits += (fits.empty() ? "; it fits with " : ", or with ") + change + " (" +
            describeGiB(needs->total) + ")";
    return true;
  };
  const std::string &now = config.runtime.gradientCheckpointing;
  for (const char *more : {"cheap", "block"}) {
    RunConfig other = config;
    other.runtime.gradientCheckpointing = more;
    if (now != "block" && now != more &&
        tryOther(other, "gradient_checkpointing " + std::string(more)))
      break;
  }
  RunConfig other = config;
  int64_t &sequences = other.train.microBatch;
  while (sequences % 2 == 0) {
    sequences /= 2;
    double share = double(sequences) / double(config.train.microBatch);
    // Half of the activations, for half of the sequences, or nearly so.
    if (whole.total - whole.activations * (1 - share) <= most &&
        tryOther(other, "micro_batch " + std::to_string(sequences)))
      break;
  }
  return Error{"the model does not fit: it needs " + describeGiB(whole.total) +
               ", and there are " + describeGiB(most) +
               (fits.empty() ? ", which neither gradient_checkpointing nor a "
                               "smaller micro_batch is enough for"
                             : fits)};
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// The part of a GPU's peak that steps reach, as measured on H100 and H200
/// (docs/performance.md): 0.51 to 0.54 where all layers are dense; with sparse
/// ones 0.27 to 0.39 in models 768 wide, 0.47 in one of 2,048.
static Result<double> findMeasuredPart(const RunConfig &config) {
  NSA_ASSIGN_OR_RETURN(std::vector<LayerKind> layers, getLayerKinds(config));
  bool dense =
      std::all_of(layers.begin(), layers.end(), [](const LayerKind &layer) {
        return layer.attention == "dense";
      });
  return dense ? 0.52 : config.model.dim >= 2048 ? 0.47 : 0.34;
}

static std::string describeTime(double seconds) {
  if (seconds < 2 * 60)
    return formatted("%.3g s", seconds);
  return seconds < 2 * 3600 ? formatted("%.3g minutes", seconds / 60)
                            : formatted("%.4g hours", seconds / 3600);
}

Result<std::string> nsa::describeCost(const RunConfig &config, int64_t ranks,
                                      const std::vector<Estimate> &stages) {
  const std::string &target = stages[0].target;
  double peak = config.runtime.peakTflops * 1e12;
  if (peak == 0 && config.runtime.precision != "fp32")
    peak = findPeakFlops(target).value_or(0);
  NSA_ASSIGN_OR_RETURN(double part, findMeasuredPart(config));
  std::string text =
      formatted("%s parameters; %s on %s, gradient_checkpointing %s\n",
                grouped(uint64_t(stages[0].parameters)).c_str(),
                config.runtime.precision.c_str(), target.c_str(),
                config.runtime.gradientCheckpointing.c_str());
  double seconds = 0, tokens = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const Estimate &needs = stages[stage];
    RunConfig now = withStage(config, stage);
    NSA_ASSIGN_OR_RETURN(
        BatchPlan plan,
        planBatch(now.train, now.train.microBatch, now.train.seqLen, ranks));
    int64_t steps = getLastStep(config, stage) -
                    (stage ? getLastStep(config, stage - 1) : 0);
    double flops =
        needs.accumulateFlops * double(plan.passes - 1) + needs.stepFlops;
    double step = peak > 0 ? flops / (part * peak) : 0;
    seconds += step * double(steps);
    tokens += double(plan.tokensPerStep()) * double(steps);
    if (stages.size() > 1)
      text += "stage " + std::to_string(stage + 1) + ", ";
    text += formatted(
        "%s steps of %lld x %lld tokens, in micro-batches of %lld on "
        "%lld rank%s",
        grouped(uint64_t(steps)).c_str(), (long long)plan.sequencesPerStep(),
        (long long)plan.seqLen, (long long)plan.microBatch, (long long)ranks,
        ranks == 1 ? "" : "s");
    if (plan.ranksOfGroup > 1)
      text += ", " + std::to_string(plan.ranksOfGroup) + " for each sequence";
    text += '\n';
    text += formatted("  memory %s MiB: parameters %.0f, gradients %.0f, "
                      "optimizer %.0f, activations %.0f, workspace %.0f\n",
                      grouped(uint64_t(std::ceil(needs.total))).c_str(),
                      needs.weights, needs.gradients, needs.optimizer,
                      needs.activations, needs.workspace);
    text += formatted("  %.4g TFLOP of each rank in a step", flops / 1e12);
    if (peak > 0)
      text += formatted(", %s at %.0f %% of %.4g TFLOP/s",
                        describeTime(step).c_str(), part * 100, peak / 1e12);
    text += '\n';
  }
  return text + grouped(uint64_t(tokens)) + " tokens in all, " +
         (peak > 0 ? describeTime(seconds) + ", +- a third; reductions, "
                                             "evaluations and saves not counted"
                   : "at a rate that is not known (runtime.peak_tflops)") +
         "\n";
}
