//===- Config.h - the run configuration -------------------------*- C++ -*-===//
//
// One YAML file describes a model and its training run. The reader is strict:
// an unknown key, a wrong type, a duplicate, a value out of range or a
// conflict is an error that names file, line and column. The schema is a
// table (configSchema), so help texts, printing, overrides and tests walk the
// same list that the reader uses.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_CONFIG_H
#define NSA_SUPPORT_CONFIG_H

#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Support/Result.h"

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace nsa {

/// The decoder's shape.
struct ModelConfig {
  int64_t dim = 128;
  int64_t nLayers = 4;
  int64_t nHeads = 4;
  /// Key/value heads. Must divide nHeads.
  int64_t nKvGroups = 2;
  int64_t dK = 32;
  int64_t dV = 32;
  /// silu, gelu, relu2: up, activation, down. swiglu, geglu: silu(gate) * up or
  /// gelu(gate) * up, down.
  std::string mlp = "silu";
  /// Width of the hidden layer; 0 stands for 4 * dim.
  int64_t mlpDim = 0;
  int64_t vocabSize = 256;
  /// 0: no rotary embedding.
  double ropeBase = 10000.0;
  /// Channels of a head that are rotated, those of the first pairs (i, i +
  /// dK / 2); 0: all.
  int64_t ropeDim = 0;
  /// none, linear, ntk, yarn, llama3 or longrope: what is done for sequences
  /// that are ropeFactor times as long as those of ropeLength tokens (the last
  /// three ask for it).
  std::string ropeScaling = "none";
  double ropeFactor = 1.0;
  int64_t ropeLength = 0;
  /// What longrope divides the angles by, one number a pair ("1.0, 1.25").
  std::string ropeDivisors;
  /// Base in window layers, whose angles are not scaled; 0: they are as others.
  double windowRopeBase = 0.0;
  double normEps = 1e-5;
  /// RMS norms multiply by 1 + weight.
  bool normPlusOne = false;
  /// before, after, both: whether the RMS norms of attention and feed-forward
  /// layer are of what goes in, of what comes out, or of both.
  std::string norms = "before";
  /// Standard deviation of the initial weights; the projections that write to
  /// the residual stream use initStd / sqrt(2 * nLayers).
  double initStd = 0.02;
  /// Those projections start at 0 instead.
  bool zeroInitOutput = false;
  /// The head reads the table of the embedding.
  bool tiedEmbeddings = false;
  /// What rows of the embedding are multiplied with.
  double embeddingScale = 1.0;
  /// Projections to queries, keys and values have biases.
  bool qkvBias = false;
  /// RMS norms of the query and key heads, before compression and rotation.
  bool qkNorm = false;
  /// These are over all heads at once.
  bool qkNormJoint = false;
  /// What scores are multiplied with; 0: 1 / sqrt(dK).
  double attentionScale = 0.0;
  /// Logits become cap * tanh(logits / cap); 0 leaves them as they are.
  double logitSoftcap = 0.0;
  /// nsa: three gated branches. dense: all tokens so far. window: the sliding
  /// window alone.
  std::string attention = "nsa";
  /// The attention of each layer ("dense/nope, nsa*10, window:256"), see
  /// LayerKinds.h; empty: that of all layers is `attention`.
  std::string layers;
};

/// The numbers of `ropeDivisors`. The message of an error names no key.
Result<std::vector<double>> getRopeDivisors(const ModelConfig &model);

/// Native Sparse Attention, arXiv 2502.11089 section 3.
struct NsaConfig {
  /// Compression block and stride, selection block, blocks, window (tokens).
  int64_t l = 32;
  int64_t d = 16;
  int64_t lSel = 64;
  int64_t nSel = 16;
  /// Of these, blocks from the start of the sequence and up to the query's own
  /// that are selected whatever their score.
  int64_t nInitial = 1;
  int64_t nLocal = 2;
  int64_t w = 512;
  /// Compression: mean, linear or mlp.
  std::string phi = "mean";
  /// Whether linear and mlp add a learned embedding of the place in the block.
  bool phiPos = false;
  /// One projection of keys and one of values for the three branches.
  bool sharedKv = false;
  /// Gate activation: sigmoid or softmax.
  std::string gate = "sigmoid";
};

struct DataConfig {
  /// Whether documents that share a sequence do not see each other.
  bool isolateDocuments = false;
  /// Where windows begin: at any token of the stream, or at documents.
  std::string window = "stream";
  /// Which targets losses count: all, or those that the data marks.
  std::string targets = "all";
  /// byte, shards for the tokenizer that the data has, or the path of a
  /// tokenizer.json, which has to be that of the data.
  std::string tokenizer = "byte";
};

struct RuntimeConfig {
  /// cpu or cuda.
  std::string device = "cpu";
  /// Compute type: fp32, bf16 or fp16 (fp32 master weights in all).
  std::string precision = "fp32";
  /// What backward computes again: none, cheap or block.
  std::string gradientCheckpointing = "none";
  /// Worker threads; 0 stands for all cores.
  int64_t threads = 0;
  /// What a device does at its peak, 10^12 floating-point operations per
  /// second, of which MFU is a part; 0 stands for that of the GPU's data sheet,
  /// in bf16 and fp16.
  double peakTflops = 0;
};

struct TrainConfig {
  /// Optimizer steps.
  int64_t steps = 1000;
  /// Tokens per sequence.
  int64_t seqLen = 256;
  /// Global sequences per optimizer step.
  int64_t batchSize = 8;
  /// Sequences per pass through the compiled program; batchSize must be a
  /// multiple.
  int64_t microBatch = 8;
  /// Micro-batches per optimizer step; 0 derives it from batchSize. If given,
  /// it must agree.
  int64_t accumulateGradBatches = 0;
  /// How gradients become updates: adamw, lion or muon. The artefact has it
  /// compiled.
  std::string optimizer = training::defaultOptimizer;
  double lr = 1e-3;
  /// cosine, linear, constant or wsd, after the warm-up.
  std::string lrSchedule = "cosine";
  /// Last steps of wsd, in which it decays; 0: a fifth of all.
  int64_t lrDecaySteps = 0;
  double lrMin = 0.0;
  int64_t warmupSteps = 100;
  double weightDecay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double adamEps = 1e-8;
  /// Largest global gradient norm; 0 switches clipping off.
  double gradClip = 1.0;
  int64_t logEvery = 10;
  /// 0 switches evaluation during training off.
  int64_t evalEvery = 250;
  /// Validation micro-batches per evaluation during training.
  int64_t evalBatches = 16;
  /// Validation micro-batches of the evaluation at the end; 0 takes all.
  int64_t finalEvalBatches = 64;
  /// Steps between checkpoints, and minutes; 0 does not save by that. One is
  /// always saved at the end.
  int64_t saveEvery = 0;
  double saveMinutes = 10;
  /// Whether files of checkpoints are written beside the steps that follow.
  bool saveAsync = false;
  /// Checkpoints kept; 0 keeps all.
  int64_t keepCheckpoints = 2;
  int64_t seed = 1;
  std::string outDir = "runs";
  /// Bytes generated before and after training; 0 switches samples off.
  int64_t sampleBytes = 200;
  /// Steps between samples during training; 0 has none.
  int64_t sampleEvery = 0;
  std::string samplePrompt = "The ";
  double sampleTemperature = 0.8;
  /// The most likely tokens that samples choose from; 0 takes all.
  int64_t sampleTopK = 0;
};

/// A part of a run (Stages.h): keys of `train` and `model` that it has values
/// of its own for.
struct StageConfig {
  int64_t steps = 0;
  int64_t seqLen = 0;
  int64_t batchSize = 0;
  int64_t microBatch = 0;
  double ropeBase = 0;
};

struct RunConfig {
  ModelConfig model;
  NsaConfig nsa;
  DataConfig data;
  RuntimeConfig runtime;
  TrainConfig train;
  /// One after the other; empty for a run that is all alike.
  std::vector<StageConfig> stages;
};

/// One key of the schema.
struct ConfigField {
  using IntAccess = std::function<int64_t &(RunConfig &)>;
  using FloatAccess = std::function<double &(RunConfig &)>;
  using StringAccess = std::function<std::string &(RunConfig &)>;
  using BoolAccess = std::function<bool &(RunConfig &)>;

  std::string section;
  std::string key;
  std::variant<IntAccess, FloatAccess, StringAccess, BoolAccess> access;
  /// Inclusive bounds of a number.
  double minimum = 0.0;
  double maximum = 0.0;
  /// The accepted words of a string; empty accepts any text.
  std::vector<std::string> choices;
  /// What the key means, for help texts.
  std::string help;
  /// Whether a run may go on from its checkpoint with another value.
  bool mayChange = false;

  std::string path() const { return section + "." + key; }
};

/// Every key, in the order in which configurations are printed.
const std::vector<ConfigField> &configSchema();

/// The contents of a file that should be a configuration.
Result<std::string> readConfigText(const std::string &path);

/// Reads `path`, then applies `overrides` of the form `section.key=value`.
/// On failure the message starts with `file:line:column:` or with the
/// override's text.
Result<RunConfig> loadConfig(const std::string &path,
                             const std::vector<std::string> &overrides = {});

/// The same for text; `name` stands for the file in messages.
Result<RunConfig> parseConfig(const std::string &text, const std::string &name,
                              const std::vector<std::string> &overrides = {});

/// Whether a key, by its path, was given a value.
using KeyFilter = std::function<bool(const std::string &path)>;

/// Checks what involves several keys. The message starts with the path of a key
/// at fault, without a file, and says which values are defaults: those of keys
/// that were not given.
Status validateConfig(const RunConfig &config, const KeyFilter &isGiven = {});

/// The whole configuration with every default filled in, in its first stage;
/// parsing it gives the same configuration.
std::string printConfigYaml(const RunConfig &config);
std::string printConfigJson(const RunConfig &config);

/// The sections `model` and `nsa` alone, which say what a model computes.
std::string printModelJson(const RunConfig &config);

/// Reads these sections. They do not say what its tokens are: its vocabulary
/// may be that of any data.
Result<RunConfig> parseModelConfig(const std::string &text,
                                   const std::string &name);

/// Whether a key belongs to these sections.
bool isModelKey(const ConfigField &field);

/// A key with other values in two configurations, as JSON.
struct ConfigDifference {
  const ConfigField *field;
  std::string before, after;
};

/// Every key that differs, in the order of the schema.
std::vector<ConfigDifference> compareConfigs(const RunConfig &before,
                                             const RunConfig &after);

/// Every key with its default as YAML; comments say what it means and which
/// values it takes.
std::string printConfigReference();

/// XXH3-64 of printConfigJson, as 16 hexadecimal digits.
std::string configHash(const RunConfig &config);

} // namespace nsa

#endif // NSA_SUPPORT_CONFIG_H
