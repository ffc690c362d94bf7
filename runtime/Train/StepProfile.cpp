//===- StepProfile.cpp - where the time of a training step goes -----------===//

#include "runtime/Train/StepProfile.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <tuple>

using namespace nsa;

using Json = nlohmann::ordered_json;

/// Groups that the table shows.
static constexpr size_t shownGroups = 10;

static double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

//===----------------------------------------------------------------------===//
// Recording
//===----------------------------------------------------------------------===//

StepProfile::StepProfile(int64_t wanted, int threads,
                         std::optional<GPUPeaks> peaks, int ranks)
    : wanted(wanted), ranks(ranks), gpu(std::move(peaks)) {
  if (gpu)
    return;
  one = measurePeaks(1);
  all = measurePeaks(threads);
}

void StepProfile::measureAgain() {
  if (gpu)
    return;
  one.raiseTo(measurePeaks(one.threads));
  all.raiseTo(measurePeaks(all.threads));
}

void StepProfile::record(const Program &program, const EntryInfo &entry) {
  bool ends = training::endsStep(entry.name);
  if ((!ends &&
       training::withoutGathers(entry.name) != training::accumulateEntry) ||
      steps() == wanted)
    return;
  if (warmUpDone < warmUpSteps) {
    warmUpDone += ends;
    return;
  }
  const std::vector<CommandSpan> &spans = program.lastRun(entry);
  for (unsigned i = 0; i < spans.size(); ++i)
    events.push_back({entry.index, i, spans[i]});
  ++runs[entry.index];
  if (!ends || stepBegin == events.size())
    return;
  const CommandSpan &last = events.back().span;
  stepSeconds.push_back(
      double(last.start + last.nanoseconds - events[stepBegin].span.start) /
      1e9);
  stepBegin = events.size();
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

/// Operations per second that a command could reach: kernels use the vectors
/// that they were compiled for, the library the widest of the machine. On a GPU
/// the types decide.
double StepProfile::peakFlops(const Program &program,
                              const CommandProfile &command) const {
  if (gpu)
    return command.hasHalf ? gpu->halfFlops : gpu->flops;
  bool wide = command.command.rfind("gemm", 0) == 0;
  if (const auto *features = program.artifact()->cpu_features())
    for (const flatbuffers::String *feature : *features)
      wide |= feature->string_view() == "avx512f";
  return wide ? std::max(all.wideFlops, all.flops) : all.flops;
}

StepProfile::Limit StepProfile::limit(const Program &program,
                                      const CommandProfile &command) const {
  double compute = ratio(double(command.flops), peakFlops(program, command));
  double memory = ratio(double(command.bytes), gpu ? gpu->copy : all.copy);
  return {std::max(compute, memory), compute > memory};
}

double StepProfile::medianStep() const { return median(stepSeconds); }

double StepProfile::tokensPerStep(const Program &program) const {
  const TensorView *tokens = program.findTensor(training::tokensInput);
  double perRun = tokens ? double(tokens->elements()) : 0;
  double passes = 0;
  for (auto [index, count] : runs)
    if (program.entries()[index].name != training::updateEntry)
      passes += double(count);
  return perRun * ratio(passes, double(steps())) * ranks;
}

std::vector<CommandGroup> StepProfile::groups(const Program &program) const {
  // Seconds of each command in each run.
  std::map<std::pair<unsigned, unsigned>, std::vector<double>> times;
  for (const Event &event : events)
    times[{event.entry, event.command}].push_back(
        double(event.span.nanoseconds) / 1e9);
  std::map<unsigned, std::vector<CommandProfile>> commands;
  std::map<std::string, size_t> numbers;
  std::vector<CommandGroup> list;
  for (const auto &[key, values] : times) {
    auto [entry, index] = key;
    if (!commands.count(entry))
      commands[entry] = program.profile(program.entries()[entry]);
    const CommandProfile &command = commands[entry][index];
    auto [number, isNew] = numbers.try_emplace(command.command, list.size());
    if (isNew)
      list.push_back({command.command, command.location});
    CommandGroup &group = list[number->second];
    double perStep = ratio(double(values.size()), double(steps()));
    Limit least = limit(program, command);
    group.count += unsigned(std::lround(perStep));
    group.seconds += median(values) * perStep;
    group.flops += uint64_t(double(command.flops) * perStep);
    group.bytes += uint64_t(double(command.bytes) * perStep);
    group.limitSeconds += least.seconds * perStep;
    group.computeBound = least.computeBound;
    group.startsReduction = command.startsReduction;
    group.endsReduction = command.endsReduction;
  }
  std::sort(list.begin(), list.end(),
            [](const CommandGroup &a, const CommandGroup &b) {
              return std::tie(b.seconds, a.command) <
                     std::tie(a.seconds, b.command);
            });
  return list;
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

static std::string describe(const MachinePeaks &peaks) {
  return formatted(
      "FMA peak %.1f GFLOP/s (512-bit vectors %.1f), copy %.1f GB/s on %d "
      "threads\n",
      peaks.flops / 1e9, peaks.wideFlops / 1e9, peaks.copy / 1e9,
      peaks.threads);
}

static std::string describe(const GPUPeaks &peaks) {
  return formatted("%s: matmuls of f32 %.1f TFLOP/s, of bf16 %.1f TFLOP/s, "
                   "copy %.1f GB/s\n",
                   peaks.name.c_str(), peaks.flops / 1e12,
                   peaks.halfFlops / 1e12, peaks.copy / 1e9);
}

/// Seconds of a step in commands that run one after the other.
static double addSeconds(const std::vector<CommandGroup> &list) {
  double seconds = 0;
  for (const CommandGroup &group : list)
    seconds += group.startsReduction ? 0 : group.seconds;
  return seconds;
}

/// The share of a group; what runs beside the others has none.
static double shareOf(const CommandGroup &group, double inCommands) {
  return group.startsReduction ? 0 : ratio(group.seconds, inCommands);
}

/// How long reductions take and how much of that other commands hide; empty
/// where there are none or they are not measured.
std::string
StepProfile::describeReductions(const std::vector<CommandGroup> &list) const {
  double taken = 0, waited = 0;
  unsigned count = 0;
  for (const CommandGroup &group : list) {
    taken += group.startsReduction ? group.seconds : 0;
    count += group.startsReduction ? group.count : 0;
    waited += group.endsReduction ? group.seconds : 0;
  }
  if (count == 0)
    return "";
  return formatted("%u reductions over ranks: %.3f ms per step, %.1f %% of it "
                   "overlaps other commands\n",
                   count, taken * 1e3,
                   100 * ratio(std::max(taken - waited, 0.0), taken));
}

std::string StepProfile::table(const Program &program) const {
  std::vector<CommandGroup> list = groups(program);
  double inCommands = addSeconds(list);
  double step = medianStep();
  std::string text = gpu ? describe(*gpu) : describe(one) + describe(all);
  text += formatted("%" PRId64 " steps after %" PRId64
                    ": median %.3f ms, %.0f tokens/s, %.1f %% of it in "
                    "commands\n",
                    steps(), warmUpSteps, step * 1e3,
                    ratio(tokensPerStep(program), step),
                    100 * ratio(inCommands, step));
  text += describeReductions(list);
  text += " share  ms/step  count  GFLOP/s    GB/s  of limit  command\n";
  for (size_t i = 0; i < std::min(list.size(), shownGroups); ++i) {
    const CommandGroup &group = list[i];
    text +=
        formatted("%5.1f%% %8.3f %6u %8.1f %7.1f %8.0f%%  %s  %s\n",
                  100 * shareOf(group, inCommands), group.seconds * 1e3,
                  group.count, ratio(double(group.flops), group.seconds) / 1e9,
                  ratio(double(group.bytes), group.seconds) / 1e9,
                  100 * ratio(group.limitSeconds, group.seconds),
                  group.command.c_str(), group.location.c_str());
  }
  return text;
}

static Json toJson(const MachinePeaks &peaks) {
  return {{"threads", peaks.threads},
          {"fma_gflops", peaks.flops / 1e9},
          {"fma_gflops_512", peaks.wideFlops / 1e9},
          {"copy_gbytes", peaks.copy / 1e9}};
}

static Json toJson(const GPUPeaks &peaks) {
  return {{"gpu", peaks.name},
          {"f32_gflops", peaks.flops / 1e9},
          {"bf16_gflops", peaks.halfFlops / 1e9},
          {"copy_gbytes", peaks.copy / 1e9}};
}

static Json toJson(const CommandGroup &group, double inCommands) {
  return {{"command", group.command},
          {"location", group.location},
          {"count", group.count},
          {"ms", group.seconds * 1e3},
          {"share", shareOf(group, inCommands)},
          {"flops", group.flops},
          {"bytes", group.bytes},
          {"gflops", ratio(double(group.flops), group.seconds) / 1e9},
          {"gbytes", ratio(double(group.bytes), group.seconds) / 1e9},
          {"compute_bound", group.computeBound},
          {"beside_others", group.startsReduction},
          {"of_limit", ratio(group.limitSeconds, group.seconds)}};
}

std::string StepProfile::trace(const Program &program) const {
  std::map<unsigned, std::vector<CommandProfile>> commands;
  for (auto [entry, count] : runs)
    commands[entry] = program.profile(program.entries()[entry]);
  Json slices = Json::array();
  uint64_t begin = events.empty() ? 0 : events.front().span.start;
  for (const Event &event : events) {
    const CommandProfile &command = commands[event.entry][event.command];
    double seconds = double(event.span.nanoseconds) / 1e9;
    slices.push_back(
        {{"name", command.location},
         {"cat", command.command.substr(0, command.command.find(' '))},
         {"ph", "X"},
         {"ts", double(event.span.start - begin) / 1e3},
         {"dur", double(event.span.nanoseconds) / 1e3},
         {"pid", 0},
         {"tid", command.startsReduction ? 1 : 0},
         {"args",
          {{"entry", program.entries()[event.entry].name},
           {"command", command.command},
           {"bytes", command.bytes},
           {"flops", command.flops},
           {"of_limit", ratio(limit(program, command).seconds, seconds)}}}});
  }
  std::vector<CommandGroup> list = groups(program);
  double inCommands = addSeconds(list);
  Json kinds = Json::array();
  for (const CommandGroup &group : list)
    kinds.push_back(toJson(group, inCommands));
  Json machine = Json::array();
  if (gpu)
    machine.push_back(toJson(*gpu));
  else
    machine = {toJson(one), toJson(all)};
  Json whole = {
      {"displayTimeUnit", "ms"},
      {"traceEvents", std::move(slices)},
      {"otherData",
       {{"steps", steps()},
        {"step_ms", medianStep() * 1e3},
        {"tokens_per_second", ratio(tokensPerStep(program), medianStep())},
        {"machine", std::move(machine)},
        {"groups", std::move(kinds)}}}};
  return jsonText(whole) + "\n";
}
