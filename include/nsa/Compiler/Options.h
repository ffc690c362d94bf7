//===- Options.h - what a compilation may be told ---------------*- C++ -*-===//
//
// One struct from the command line to the pipelines, and its fields by name.
// The command line of nsa-compile, the keywords of nsa.compile in Python, what
// an artefact records and the options of nsa-opt's pipelines are made of this
// list: an option is declared in these two, and nowhere else.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_COMPILER_OPTIONS_H
#define NSA_COMPILER_OPTIONS_H

#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Support/Result.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace nsa {

/// What to compile for. Every field ends up in the artefact's options.
struct CompilerOptions {
  /// The kind of machine: "cpu", or a GPU such as "sm_90a".
  std::string target = "cpu";
  /// For a GPU: the program ptxas, which makes a cubin. Empty: the artefact has
  /// PTX, which the driver of the machine that runs it compiles.
  std::string ptxas;
  /// For a GPU: whether code says which lines of the model and of its kernels
  /// over tiles it is for. The instructions do not depend on it.
  bool lineInfo = false;
  /// The processor: "x86-64-v2", "x86-64-v3", "x86-64-v4", or "native" for the
  /// one that compiles.
  std::string cpu = "x86-64-v3";
  /// Sequences per call of the model; 0 keeps what the source says.
  int64_t microBatch = 0;
  /// Tokens per sequence; 0 keeps what the source says.
  int64_t seqLen = 0;
  /// Tokens of a sequence that is generated, at most; 0 makes the entries that
  /// train instead of those that generate.
  int64_t context = 0;
  /// Tokens of a prompt that one sequence takes in at once, by an entry
  /// `prefill_part` in place of `prefill`; 0 makes the latter.
  int64_t prefillChunk = 0;
  /// Pages of the caches that all sequences share, each of one selected block
  /// of tokens; 0 gives each sequence the whole context.
  int64_t pages = 0;
  /// Tokens of a sample that the trainer generates, at most: one sequence goes
  /// on by an entry `decode` beside those that train, in place of `forward`. 0
  /// makes `forward`.
  int64_t sampleContext = 0;
  /// Whether an artefact that trains has `forward` where nothing else took its
  /// place. Training alone does without, and without the memory of its logits.
  bool forward = true;
  /// Whether what layers select is a result of the entries that have logits.
  bool selection = false;
  /// Whether training attends to blocks that are given to it, inputs of the
  /// entries accumulate and step.
  bool replaySelection = false;
  /// Compute type of the model: "fp32", "bf16" or "fp16" (fp32 statistics, sums
  /// and master weights in any case). "fp16" scales the loss, by what the
  /// gradients allow. Empty: what the model says, fp32 if it says nothing.
  std::string precision;
  /// What the backward graph of training computes again instead of keeping it:
  /// "none", "cheap" (elementwise operations, norms, rotations, casts) or
  /// "block" (everything in a layer but attention outputs, lse and indices).
  /// The results of a program do not depend on it.
  std::string recompute = "none";
  /// MiB that values kept for the backward graph may need: no more than that
  /// takes is computed again. 0 applies the policy everywhere.
  int64_t recomputeBudget = 0;
  /// Names of arguments of functions to differentiate with respect to. Each
  /// function that has some gets their gradients as results `grad.NAME`, of its
  /// result marked `nn.objective` or, without one, its first floating-point
  /// result. Where that is no scalar, its gradient is a new argument
  /// `grad.RESULT`. Models are differentiated by their parameters, without
  /// this.
  std::vector<std::string> gradients;
  /// Whether operations are fused into fewer commands. Sums may round
  /// otherwise.
  bool fuse = true;
  /// Performance lints that training entries may take; any other is an error.
  /// "scalar-loop", "scalar-access" (kernels that do not use vectors),
  /// "scalar-product" (16-bit dots off tensor cores), "unfused" (branches
  /// of attention), "spill", "serialised", "copy", or "all"; "spill@NAME" is
  /// that of one kernel.
  std::vector<std::string> allowSlowPaths;
  /// MiB that logits and their gradient may take at once: larger ones are made
  /// in chunks of tokens, at most 8, if operations are fused.
  int64_t logitsMiB = 256;
  /// MiB of gradients that are averaged over ranks as one: enough for the
  /// bandwidth of a network, little enough to start during backward.
  int64_t bucketMiB = 25;
  /// In what gradients go from rank to rank: "fp32", or "bf16", half the bytes,
  /// rounded before and after; sums of micro-batches and the update stay fp32.
  std::string reducePrecision = "fp32";
  /// The optimizer: "adamw" or "lion".
  std::string optimizer = training::defaultOptimizer;
  /// What ranks keep a part of each (ZeRO): "none", "optimizer" (its states),
  /// "gradients" (these too) or "parameters" (all three).
  std::string shard = "none";
  /// These ranks: a power of two up to 64. The artefact runs on exactly as
  /// many; where nothing is sharded, on any number.
  int64_t shardRanks = 1;
  /// Ranks that share each sequence, of neighbouring numbers: the artefact runs
  /// on a multiple of them. 1: each has sequences of its own.
  int64_t contextParallel = 1;
  /// Threads that compile. The artefact does not depend on it.
  unsigned threads = 2;
};

/// A field of CompilerOptions that the artefact depends on.
struct OptionField {
  using Member =
      std::variant<std::string CompilerOptions::*, int64_t CompilerOptions::*,
                   bool CompilerOptions::*,
                   std::vector<std::string> CompilerOptions::*>;

  /// As the command line spells it: "micro-batch".
  std::string name;
  Member member;
  /// A sentence without its period.
  std::string help;
  /// Phases whose passes read it, as `compilerPhases` has them.
  std::vector<std::string> phases = {};
  /// What a text or a number may be; empty: any text, any number in the range.
  std::vector<std::string> values = {};
  int64_t least = 0;
  int64_t most = int64_t(1) << 40;

  /// The value as text: "true" or "false" for a bool, items joined by ",".
  std::string read(const CompilerOptions &options) const;
  /// Sets the value from such a text, and checks it.
  Status write(CompilerOptions &options, const std::string &text) const;
  /// "unknown NAME 'VALUE'; known are ..." or "NAME VALUE, expected A to B" if
  /// the field has a value that it may not have. The default is always allowed.
  Status check(const CompilerOptions &options) const;
};

/// All of them, in the order in which the command line shows them.
const std::vector<OptionField> &optionFields();

} // namespace nsa

#endif // NSA_COMPILER_OPTIONS_H
