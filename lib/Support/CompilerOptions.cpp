//===- CompilerOptions.cpp - what a compilation may be told, as text ------===//

#include "lib/Support/Text.h"
#include "nsa/Compiler/Options.h"

#include <algorithm>
#include <charconv>
#include <sstream>

using namespace nsa;

static std::string toText(const std::string &value) { return value; }
static std::string toText(int64_t value) { return std::to_string(value); }
static std::string toText(bool value) { return value ? "true" : "false"; }
static std::string toText(const std::vector<std::string> &items) {
  std::string text;
  for (const std::string &item : items)
    text += (text.empty() ? "" : ",") + item;
  return text;
}

std::string OptionField::read(const CompilerOptions &options) const {
  return std::visit([&](auto field) { return toText(options.*field); }, member);
}

static bool fromText(const std::string &text, std::string &value) {
  value = text;
  return true;
}
static bool fromText(const std::string &text, int64_t &value) {
  const char *end = text.data() + text.size();
  auto [stop, code] = std::from_chars(text.data(), end, value);
  return code == std::errc() && stop == end;
}
static bool fromText(const std::string &text, bool &value) {
  value = text == "true";
  return value || text == "false";
}
static bool fromText(const std::string &text, std::vector<std::string> &items) {
  std::stringstream stream(text);
  items.clear();
  for (std::string item; std::getline(stream, item, ',');)
    items.push_back(item);
  return true;
}

Status OptionField::write(CompilerOptions &options,
                          const std::string &text) const {
  if (!std::visit([&](auto field) { return fromText(text, options.*field); },
                  member))
    return Error{name + " " + quote(text) + ", expected " +
                 (std::holds_alternative<bool CompilerOptions::*>(member)
                      ? "true or false"
                      : std::to_string(least) + " to " + std::to_string(most))};
  return check(options);
}

/// "a, b and c".
static std::string list(const std::vector<std::string> &items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

Status OptionField::check(const CompilerOptions &options) const {
  std::string text = read(options);
  if (text == read(CompilerOptions()))
    return {};
  if (!values.empty()) {
    if (std::find(values.begin(), values.end(), text) != values.end())
      return {};
    return Error{"unknown " + name + " " + quote(text) + "; known are " +
                 list(values)};
  }
  if (const auto *number = std::get_if<int64_t CompilerOptions::*>(&member))
    if (int64_t value = options.**number; value < least || value > most)
      return Error{name + " " + text + ", expected " + std::to_string(least) +
                   " to " + std::to_string(most)};
  return {};
}

const std::vector<OptionField> &nsa::optionFields() {
  using Options = CompilerOptions;
  static const std::vector<OptionField> fields = {
      {"target", &Options::target,
       "Kind of machine: cpu, sm_80, sm_86, sm_90a (H100, H200), or with code "
       "for sm_80 or sm_86: sm_89, sm_90, sm_100, sm_103, sm_120"},
      {"cpu", &Options::cpu,
       "Processor: x86-64-v2, x86-64-v3, x86-64-v4 or native"},
      {"micro-batch",
       &Options::microBatch,
       "Sequences per call; 0 keeps what the model says",
       {"precision"}},
      {"seq-len",
       &Options::seqLen,
       "Tokens per sequence; 0 keeps what the model says",
       {"precision"}},
      {"context",
       &Options::context,
       "Tokens of a sequence that is generated, at most: the artefact has the "
       "entries prefill and decode, for nsa-generate, instead of those that "
       "train; 0 for none",
       {"precision", "gradient"}},
      {"prefill-chunk",
       &Options::prefillChunk,
       "With --context: tokens of a prompt that one sequence takes in at once, "
       "by the entry prefill_part in place of prefill; 0 takes in whole "
       "sequences",
       {"gradient"}},
      {"pages",
       &Options::pages,
       "With --prefill-chunk: pages of the caches that all sequences share, "
       "each "
       "of one selected block of tokens; 0 gives each sequence the whole "
       "context",
       {"gradient"}},
      {"sample-context",
       &Options::sampleContext,
       "Tokens of a sample of nsa-train, at most: it grows by the entry "
       "decode, which the artefact then has in place of forward, for one "
       "sequence whatever the micro-batch; 0 for none",
       {"precision", "gradient"}},
      {"forward",
       &Options::forward,
       "Leave out the entry forward and the memory of its logits: the artefact "
       "trains, and makes no samples",
       {"gradient"}},
      {"selection",
       &Options::selection,
       "The blocks that each layer selects are results selection.N of the "
       "entries forward, prefill and decode",
       {"gradient"}},
      {"replay-selection",
       &Options::replaySelection,
       "Training attends to given blocks, inputs selection.N of the entries "
       "accumulate and step, in place of those that layers select",
       {"gradient"}},
      {"precision",
       &Options::precision,
       "Compute type: fp32, or bf16 or fp16 with fp32 statistics and weights; "
       "fp16 scales the loss; that of the model, else fp32, if none is given",
       {"precision"},
       {"fp32", "bf16", "fp16"}},
      {"gradients", &Options::gradients,
       "Arguments of functions to differentiate with respect to: their "
       "gradients become results grad.NAME of the first floating-point result, "
       "or the one marked nn.objective"},
      {"fuse",
       &Options::fuse,
       "Give every operation its own commands, for comparison",
       {"precision", "optimizer"}},
      {"allow-slow-path", &Options::allowSlowPaths,
       "Performance lints that training entries may take: scalar-loop, "
       "scalar-access, scalar-product, unfused, spill, serialised, copy or "
       "all, in all kernels or in one (PATH@KERNEL); any other is an error"},
      {"logits-mib",
       &Options::logitsMiB,
       "MiB that logits and their gradient may take at once: larger ones are "
       "made in chunks of tokens, at most 8",
       {"optimizer"},
       {},
       /*least=*/1},
      {"bucket-mib",
       &Options::bucketMiB,
       "MiB of gradients that ranks average as one, during backward",
       {"collective"},
       {},
       /*least=*/1},
      {"reduce-precision",
       &Options::reducePrecision,
       "In what ranks average gradients: fp32, or bf16 with half the bytes; "
       "they are summed and used in fp32",
       {"collective"},
       {"fp32", "bf16"}},
      {"optimizer",
       &Options::optimizer,
       "How gradients become updates: adamw, muon with adamw for embeddings, "
       "norms, gates and the head, or lion with its beta1 and beta2 (0.9 and "
       "0.99 are usual) and a smaller train.lr",
       {"precision", "optimizer"}},
      {"shard",
       &Options::shard,
       "What ranks keep only a part of each: none, optimizer (its states and "
       "the weights that it updates, gathered once a step), gradients (these "
       "too) or parameters (all, gathered layer by layer where they are used)",
       {"optimizer", "collective"},
       {"none", "optimizer", "gradients", "parameters"}},
      {"shard-ranks",
       &Options::shardRanks,
       "With --shard: the ranks, 2, 4, 8, 16, 32 or 64; the artefact runs on "
       "exactly as many",
       {"optimizer", "collective"},
       {"1", "2", "4", "8", "16", "32", "64"}},
      {"context-parallel",
       &Options::contextParallel,
       "Ranks that share each sequence, in two chunks each: the artefact runs "
       "on "
       "a multiple of them; 1 shares none",
       {"gradient"},
       {},
       /*least=*/1,
       /*most=*/1024},
      {"recompute",
       &Options::recompute,
       "What backward computes again instead of keeping it: none, cheap "
       "(elementwise, norms, rotations, casts) or block (everything in a layer "
       "but attention outputs)",
       {"gradient"},
       {"none", "cheap", "block"}},
      {"recompute-budget",
       &Options::recomputeBudget,
       "MiB that values kept for backward may need: no more than that takes is "
       "computed again; 0 is no limit",
       {"gradient"}},
      {"line-info", &Options::lineInfo,
       "For a GPU: note lines of the model and of NAME.tile.mlir (see "
       "--save-kernels) in the code, for ncu and cuda-gdb"}};
  return fields;
}
