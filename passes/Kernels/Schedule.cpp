//===- Schedule.cpp - ways to cut one kernel ------------------------------===//

#include "passes/Kernels/Schedule.h"
#include <cassert>

using namespace nsa;

namespace {
struct Row {
  ScheduledKernel kernel;
  /// For heads of at least this width.
  int64_t narrowest;
  llvm::StringLiteral text;
};
} // namespace

using Kind = ScheduledKernel;

/// The order is that of predicted time: work per copy first, then registers.
/// Accumulators of gradients of keys take (dk + dv) / 2 registers of a thread
/// whatever the tile, twice as many with several heads in a group: only fewer
/// columns help. Each part multiplies all scores again.
static constexpr Row table[] = {
    {Kind::Forward, 0, "forward-queries=128 forward-keys=64 min-blocks=1"},
    {Kind::Forward, 0, "forward-queries=64 forward-keys=64 min-blocks=1"},
    {Kind::Forward, 0, "forward-queries=64 forward-keys=32 min-blocks=1"},
    {Kind::Forward, 0, "forward-queries=64 forward-keys=16 min-blocks=1"},
    {Kind::Forward, 0,
     "forward-queries=64 forward-keys=32 column-parts=2 min-blocks=1"},
    {Kind::Forward, 128,
     "forward-queries=64 forward-keys=16 column-parts=4 min-blocks=1"},
    {Kind::Forward, 0,
     "forward-queries=16 forward-keys=16 column-parts=4 min-blocks=1"},

    {Kind::RotaryForward, 0,
     "forward-queries=128 forward-keys=64 min-blocks=1"},
    {Kind::RotaryForward, 0, "forward-queries=64 forward-keys=64 min-blocks=1"},
    {Kind::RotaryForward, 0, "forward-queries=64 forward-keys=32 min-blocks=1"},
    {Kind::RotaryForward, 0, "forward-queries=64 forward-keys=16 min-blocks=1"},
    {Kind::RotaryForward, 0, "forward-queries=16 forward-keys=16 min-blocks=1"},

    {Kind::QueryGrad, 0, "backward-queries=64 backward-keys=64 min-blocks=1"},
    {Kind::QueryGrad, 0, "backward-queries=64 backward-keys=32 min-blocks=1"},
    {Kind::QueryGrad, 0, "backward-queries=64 backward-keys=16 min-blocks=1"},
    {Kind::QueryGrad, 0,
     "backward-queries=64 backward-keys=32 column-parts=2 min-blocks=1"},
    {Kind::QueryGrad, 128,
     "backward-queries=64 backward-keys=16 column-parts=4 min-blocks=1"},
    {Kind::QueryGrad, 0,
     "backward-queries=16 backward-keys=16 column-parts=4 min-blocks=1"},

    {Kind::KeyValueGrad, 0,
     "backward-queries=64 backward-keys=64 min-blocks=1"},
    {Kind::KeyValueGrad, 0,
     "backward-queries=32 backward-keys=64 min-blocks=1"},
    {Kind::KeyValueGrad, 0,
     "backward-queries=64 backward-keys=64 column-parts=2 min-blocks=1"},
    {Kind::KeyValueGrad, 0,
     "backward-queries=32 backward-keys=64 column-parts=2 min-blocks=1"},
    {Kind::KeyValueGrad, 128,
     "backward-queries=32 backward-keys=64 column-parts=4 min-blocks=1"},
    {Kind::KeyValueGrad, 0,
     "backward-queries=16 backward-keys=64 column-parts=4 min-blocks=1"},
    {Kind::KeyValueGrad, 0,
     "backward-queries=16 backward-keys=16 column-parts=4 min-blocks=1"},

    {Kind::MaskedForward, 0, "forward-queries=64 min-blocks=1"},
    {Kind::MaskedForward, 0,
     "forward-queries=64 selected-keys=32 min-blocks=1"},
    {Kind::MaskedForward, 0,
     "forward-queries=64 selected-keys=16 min-blocks=1"},
    {Kind::MaskedForward, 0,
     "forward-queries=64 selected-keys=32 column-parts=2 min-blocks=1"},
    {Kind::MaskedForward, 0,
     "forward-queries=16 selected-keys=16 column-parts=4 min-blocks=1"},

    {Kind::MaskedQueryGrad, 0, "backward-queries=64 min-blocks=1"},
    {Kind::MaskedQueryGrad, 0,
     "backward-queries=64 selected-keys=32 min-blocks=1"},
    {Kind::MaskedQueryGrad, 0,
     "backward-queries=64 selected-keys=16 min-blocks=1"},
    {Kind::MaskedQueryGrad, 0,
     "backward-queries=64 selected-keys=32 column-parts=2 min-blocks=1"},
    {Kind::MaskedQueryGrad, 0,
     "backward-queries=16 selected-keys=16 column-parts=4 min-blocks=1"},

    {Kind::MaskedKeyValueGrad, 0, "backward-queries=32 min-blocks=1"},
    {Kind::MaskedKeyValueGrad, 0,
     "backward-queries=64 column-parts=2 min-blocks=1"},
    {Kind::MaskedKeyValueGrad, 0,
     "backward-queries=32 column-parts=2 min-blocks=1"},
    {Kind::MaskedKeyValueGrad, 0,
     "backward-queries=32 column-parts=4 min-blocks=1"},
    {Kind::MaskedKeyValueGrad, 0,
     "backward-queries=16 selected-keys=16 column-parts=4 min-blocks=1"},

    {Kind::ListForward, 0, "min-blocks=1"},
    {Kind::ListForward, 0, "selected-keys=32 min-blocks=1"},
    {Kind::ListForward, 0, "selected-keys=16 min-blocks=1"},
    {Kind::ListForward, 0, "selected-queries=4 selected-keys=32 min-blocks=1"},
    {Kind::ListForward, 0, "selected-queries=1 selected-keys=32 min-blocks=1"},
    {Kind::ListForward, 0,
     "selected-queries=1 selected-keys=32 column-parts=2 min-blocks=1"},
    {Kind::ListForward, 0,
     "selected-queries=1 selected-keys=16 column-parts=4 min-blocks=1"},

    {Kind::ListQueryGrad, 0, "min-blocks=1"},
    {Kind::ListQueryGrad, 0, "selected-keys=32 min-blocks=1"},
    {Kind::ListQueryGrad, 0, "selected-keys=16 min-blocks=1"},
    {Kind::ListQueryGrad, 0,
     "selected-queries=4 selected-keys=32 min-blocks=1"},
    {Kind::ListQueryGrad, 0,
     "selected-queries=1 selected-keys=32 min-blocks=1"},
    {Kind::ListQueryGrad, 0,
     "selected-queries=1 selected-keys=16 min-blocks=1"},
    {Kind::ListQueryGrad, 0,
     "selected-queries=1 selected-keys=32 column-parts=2 min-blocks=1"},
    {Kind::ListQueryGrad, 0,
     "selected-queries=1 selected-keys=16 column-parts=2 min-blocks=1"},
    {Kind::ListQueryGrad, 0,
     "selected-queries=1 selected-keys=16 column-parts=4 min-blocks=1"},
    {Kind::ListQueryGrad, 144,
     "selected-queries=1 selected-keys=16 column-parts=2 min-blocks=1 "
     "spills=128"},

    {Kind::ListKeyValueGrad, 0, "gathered-queries=16 min-blocks=1"},
    {Kind::ListKeyValueGrad, 0, "gathered-queries=8"},
    {Kind::ListKeyValueGrad, 0, "gathered-queries=8 min-blocks=1"},
    {Kind::ListKeyValueGrad, 192,
     "gathered-queries=8 selected-keys=64 column-parts=2 min-blocks=1"},
    {Kind::ListKeyValueGrad, 192,
     "gathered-queries=4 selected-keys=64 column-parts=2 min-blocks=1"},
    {Kind::ListKeyValueGrad, 0,
     "gathered-queries=16 column-parts=2 min-blocks=1"},
    {Kind::ListKeyValueGrad, 0,
     "gathered-queries=8 column-parts=2 min-blocks=1"},
    {Kind::ListKeyValueGrad, 0,
     "gathered-queries=4 column-parts=4 min-blocks=1"},
    {Kind::ListKeyValueGrad, 144,
     "gathered-queries=1 selected-keys=64 column-parts=4 min-blocks=1"},
    {Kind::ListKeyValueGrad, 0,
     "gathered-queries=1 column-parts=4 min-blocks=1"},
    {Kind::ListKeyValueGrad, 144,
     "gathered-queries=1 selected-keys=64 column-parts=8 min-blocks=1"},
    {Kind::ListKeyValueGrad, 144,
     "gathered-queries=1 selected-keys=16 column-parts=8 min-blocks=1"},
    {Kind::ListKeyValueGrad, 144,
     "gathered-queries=4 column-parts=4 min-blocks=1 spills=128"},
    {Kind::ListKeyValueGrad, 144,
     "gathered-queries=1 selected-keys=16 column-parts=8 min-blocks=1 "
     "spills=128"},

    {Kind::GatheredForward, 0, "min-blocks=1"},
    {Kind::GatheredForward, 0, "selected-keys=32 min-blocks=1"},
    {Kind::GatheredForward, 0, "column-parts=2 min-blocks=1"},
    {Kind::GatheredForward, 0,
     "gathered-queries=16 selected-keys=16 column-parts=2 min-blocks=1"},
    {Kind::GatheredForward, 0,
     "gathered-queries=1 selected-keys=16 column-parts=4 min-blocks=1"},

    {Kind::GatheredQueryGrad, 0, "min-blocks=1"},
    {Kind::GatheredQueryGrad, 0, "selected-keys=32 min-blocks=1"},
    {Kind::GatheredQueryGrad, 0, "column-parts=2 min-blocks=1"},
    {Kind::GatheredQueryGrad, 0,
     "gathered-queries=16 selected-keys=16 column-parts=2 min-blocks=1"},
    {Kind::GatheredQueryGrad, 0,
     "gathered-queries=1 selected-keys=16 column-parts=4 min-blocks=1"},

    {Kind::Select, 0, "select-queries=64 select-blocks=16"},
    {Kind::Select, 0, "select-queries=64 select-blocks=8"},
    {Kind::Select, 0, "select-queries=64 select-blocks=4"},
    {Kind::Select, 0, "select-queries=64 select-blocks=1"},
    {Kind::Select, 0, "select-queries=32 select-blocks=8"},
    {Kind::Select, 0, "select-queries=16 select-blocks=4"},
    {Kind::Select, 0, "select-queries=16 select-blocks=1"},
};

Schedule Schedule::parse(llvm::StringRef text) {
  Schedule schedule;
  schedule.text = text.str();
  llvm::SmallVector<llvm::StringRef> words;
  text.split(words, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  std::vector<std::string> sizes;
  for (llvm::StringRef word : words) {
    auto [name, size] = word.split('=');
    int64_t *field = name == "column-parts" ? &schedule.columnParts
                     : name == "min-blocks" ? &schedule.minBlocks
                     : name == "spills"     ? &schedule.spills
                                            : nullptr;
    if (!field)
      sizes.push_back(word.str());
    else if (size.getAsInteger(10, *field))
      llvm_unreachable("no schedule");
  }
  [[maybe_unused]] std::string problem = schedule.sizes.parse(sizes);
  assert(problem.empty() && "no schedule");
  return schedule;
}

KernelCut Schedule::applyTo(KernelCut machine) const {
  for (const TileSizes::Size &entry : TileSizes::all())
    if (int64_t own = sizes.*entry.size; machine.fixed.*entry.size == 0)
      machine.fixed.*entry.size = own;
  return machine;
}

/// Rows of a program of lists are to fill M-tiles.
static void alignRows(Schedule &schedule, int64_t group,
                      const KernelCut &machine) {
  int64_t &selected = schedule.sizes.selectedQueries;
  if (selected != 0)
    selected = std::max(selected, machine.getLeastQueries(group));
}

llvm::SmallVector<Schedule> nsa::getSchedules(ScheduledKernel kernel,
                                              int64_t width, int64_t group,
                                              const KernelCut &machine) {
  llvm::SmallVector<Schedule> schedules(1);
  if (!machine.isParallel())
    return schedules;
  for (const Row &row : table)
    if (row.kernel == kernel && width >= row.narrowest)
      alignRows(schedules.emplace_back(Schedule::parse(row.text)), group,
                machine);
  return schedules;
}
