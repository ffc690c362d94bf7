//===- ConfigSchema.cpp - the keys, their checks and their printing -------===//

#include "lib/Support/Config.h"
#include "lib/Support/Json.h"
#include "lib/Support/LayerKinds.h"
#include "lib/Support/Stages.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace nsa;
using namespace std::string_literals;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace {

constexpr double kMaxInt = 9e15;
/// Kernels count tokens with 32 bits.
constexpr double kMaxTokens = 2147483647;

template <typename Section>
struct SectionBuilder {
  std::vector<ConfigField> &fields;
  const char *name;
  Section RunConfig::*section;
  /// Of the keys that follow.
  bool mayChange = false;

  ConfigField &add(const char *key, const char *help) {
    fields.emplace_back();
    ConfigField &field = fields.back();
    field.section = name;
    field.key = key;
    field.help = help;
    field.mayChange = mayChange;
    return field;
  }

  /// For a key that gives what a checkpoint holds another meaning.
  SectionBuilder fixed() const { return {fields, name, section}; }

  void number(const char *key, int64_t Section::*member, int64_t minimum,
              double maximum, const char *help) {
    ConfigField &field = add(key, help);
    field.minimum = static_cast<double>(minimum);
    field.maximum = maximum;
    field.access = ConfigField::IntAccess(
        [=, s = section](RunConfig &c) -> int64_t & { return c.*s.*member; });
  }

  void real(const char *key, double Section::*member, double minimum,
            double maximum, const char *help) {
    ConfigField &field = add(key, help);
    field.minimum = minimum;
    field.maximum = maximum;
    field.access = ConfigField::FloatAccess(
        [=, s = section](RunConfig &c) -> double & { return c.*s.*member; });
  }

  void text(const char *key, std::string Section::*member,
            std::vector<std::string> choices, const char *help) {
    ConfigField &field = add(key, help);
    field.choices = std::move(choices);
    field.access = ConfigField::StringAccess(
        [=, s = section](RunConfig &c) -> std::string & {
          return c.*s.*member;
        });
  }

  void flag(const char *key, bool Section::*member, const char *help) {
    add(key, help).access = ConfigField::BoolAccess(
        [=, s = section](RunConfig &c) -> bool & { return c.*s.*member; });
  }
};

void addModel(std::vector<ConfigField> &fields) {
  using C = ModelConfig;
  SectionBuilder<C> s{fields, "model", &RunConfig::model};
  s.number("dim", &C::dim, 1, 65536, "width of the residual stream");
  s.number("n_layers", &C::nLayers, 1, 1000, "decoder layers");
  s.number("n_heads", &C::nHeads, 1, 1024, "query heads");
  s.number("n_kv_groups", &C::nKvGroups, 1, 1024,
           "key/value heads; divides n_heads");
  s.number("d_k", &C::dK, 2, 512,
           "width of a query and key head; even with a rotary embedding");
  s.number("d_v", &C::dV, 1, 512, "width of a value head");
  s.text("mlp", &C::mlp, {"silu", "swiglu", "gelu", "geglu", "relu2"},
         "activation of the feed-forward layer; swiglu and geglu have a gate");
  s.number("mlp_dim", &C::mlpDim, 0, 1 << 20,
           "hidden width of the feed-forward layer; 0 is 4 * dim");
  s.number("vocab_size", &C::vocabSize, 2, 1 << 20, "number of tokens");
  s.real("rope_base", &C::ropeBase, 0.0, 1e12,
         "base of the rotary embedding, at least 1; 0 leaves it out");
  s.number("rope_dim", &C::ropeDim, 0, 512,
           "channels of a head that are rotated, an even number; 0 is d_k");
  s.text("rope_scaling", &C::ropeScaling,
         {"none", "linear", "ntk", "yarn", "llama3", "longrope"},
         "scaling of the rotary embedding to longer sequences");
  s.real("rope_factor", &C::ropeFactor, 1.0, 1e6,
         "how much longer they are than those of training");
  s.number(
      "rope_length", &C::ropeLength, 0, kMaxTokens,
      "tokens of the sequences of training, for yarn, llama3 and longrope");
  s.text("rope_divisors", &C::ropeDivisors, {},
         "what longrope divides angles by: a number above 0 for each pair of "
         "channels");
  s.real(
      "window_rope_base", &C::windowRopeBase, 0.0, 1e12,
      "base of window layers, at least 1, without scaling; 0 is as in others");
  s.real("norm_eps", &C::normEps, 1e-12, 1.0, "epsilon of the RMS norms");
  s.flag("norm_plus_one", &C::normPlusOne, "RMS norms multiply by 1 + weight");
  s.text(
      "norms", &C::norms, {"before", "after", "both"},
      "whether the norms of a layer's parts are before them, after, or both");
  s.real("init_std", &C::initStd, 1e-6, 10.0,
         "standard deviation of the initial weights");
  s.flag("zero_init_output", &C::zeroInitOutput,
         "projections to the residual stream start at 0");
  s.flag("tied_embeddings", &C::tiedEmbeddings,
         "the head is the embedding's table");
  s.real("embedding_scale", &C::embeddingScale, 1e-6, 1e6,
         "what rows of the embedding are multiplied with");
  s.flag("qkv_bias", &C::qkvBias,
         "projections to queries, keys and values have biases");
  s.flag("qk_norm", &C::qkNorm, "RMS norms of query and key heads");
  s.flag("qk_norm_joint", &C::qkNormJoint, "these are over all heads at once");
  s.real("attention_scale", &C::attentionScale, 0.0, 1e6,
         "what scores are multiplied with; 0 is 1 / sqrt(d_k)");
  s.real("logit_softcap", &C::logitSoftcap, 0.0, 1e6,
         "logits become cap * tanh(logits / cap); 0 leaves it out");
  s.text("attention", &C::attention, {"nsa", "dense", "window"},
         "three gated branches, all tokens so far, or the window alone");
  s.text("layers", &C::layers, {},
         "attention by layer, as 'dense/nope, nsa*10, window:256', /nope "
         "without rotary embedding; one kind alone is that of all layers, '' "
         "what attention says");
}

void addNsa(std::vector<ConfigField> &fields) {
  using C = NsaConfig;
  SectionBuilder<C> s{fields, "nsa", &RunConfig::nsa};
  s.number("l", &C::l, 1, 65536, "compression block, tokens");
  s.number("d", &C::d, 1, 65536, "compression stride, tokens; divides l");
  s.number("l_sel", &C::lSel, 1, 65536,
           "selection block, tokens; a multiple of d, at least l");
  s.number("n_sel", &C::nSel, 1, 4096, "selected blocks per query");
  s.number("n_initial", &C::nInitial, 0, 4096,
           "of these, first blocks of the sequence that are always selected");
  s.number("n_local", &C::nLocal, 1, 4096,
           "of these, last blocks up to the query's own that are always "
           "selected");
  s.number("w", &C::w, 1, kMaxTokens, "sliding window, tokens");
  s.text("phi", &C::phi, {"mean", "linear", "mlp"}, "compression");
  s.flag("phi_pos", &C::phiPos,
         "learned embedding of the place in a compression block; not for mean");
  s.flag("shared_kv", &C::sharedKv,
         "one projection of keys and one of values for the three branches");
  s.text("gate", &C::gate, {"sigmoid", "softmax"}, "activation of the gates");
}

void addDataAndRuntime(std::vector<ConfigField> &fields) {
  SectionBuilder<DataConfig> data{fields, "data", &RunConfig::data,
                                  /*mayChange=*/true};
  data.text("tokenizer", &DataConfig::tokenizer, {},
            "how text becomes tokens: byte, shards for the tokenizer that the "
            "data has, or a tokenizer.json");
  data.fixed().flag("isolate_documents", &DataConfig::isolateDocuments,
                    "documents that share a sequence do not see each other");
  data.fixed().text("window", &DataConfig::window, {"stream", "document"},
                    "where windows begin: anywhere, or at documents");
  data.fixed().text("targets", &DataConfig::targets, {"all", "marked"},
                    "targets that losses count: all, or those that the data "
                    "marks");
  using C = RuntimeConfig;
  SectionBuilder<C> s{fields, "runtime", &RunConfig::runtime,
                      /*mayChange=*/true};
  s.text("device", &C::device, {"cpu", "cuda"}, "where the program runs");
  s.text("precision", &C::precision, {"fp32", "bf16", "fp16"},
         "compute type; master weights are fp32, fp16 scales the loss");
  s.text("gradient_checkpointing", &C::gradientCheckpointing,
         {"none", "cheap", "block"}, "recomputation of activations");
  s.number("threads", &C::threads, 0, 1024, "worker threads; 0 is all cores");
  s.real(
      "peak_tflops", &C::peakTflops, 0.0, 1e6,
      "peak of a device, of which MFU is a part; 0 is that of the GPU's data "
      "sheet in bf16 and fp16");
}

void addTrain(std::vector<ConfigField> &fields) {
  using C = TrainConfig;
  SectionBuilder<C> s{fields, "train", &RunConfig::train, /*mayChange=*/true};
  s.number("steps", &C::steps, 1, kMaxInt, "optimizer steps");
  s.fixed().number("seq_len", &C::seqLen, 1, 1 << 24, "tokens per sequence");
  s.fixed().number("batch_size", &C::batchSize, 1, 1 << 24,
                   "global sequences per optimizer step");
  s.number("micro_batch", &C::microBatch, 1, 1 << 20,
           "sequences per pass; divides batch_size");
  s.number(
      "accumulate_grad_batches", &C::accumulateGradBatches, 0, 1 << 20,
      "passes per optimizer step; 0 derives it, as does another batch_size "
      "or micro_batch of --set or a stage");
  s.fixed().text("optimizer", &C::optimizer, {"adamw", "lion", "muon"},
                 "how gradients become updates; muon has adamw for "
                 "embeddings, norms, gates, head");
  s.real("lr", &C::lr, 0.0, 100.0, "peak learning rate");
  s.text("lr_schedule", &C::lrSchedule, {"cosine", "linear", "constant", "wsd"},
         "decay after the warm-up, counted in optimizer steps; wsd is constant "
         "and then linear");
  s.number("lr_decay_steps", &C::lrDecaySteps, 0, kMaxInt,
           "last steps of wsd, in which it decays; 0 is a fifth of steps");
  s.real("lr_min", &C::lrMin, 0.0, 100.0, "learning rate at the last step");
  s.number("warmup_steps", &C::warmupSteps, 0, kMaxInt,
           "optimizer steps of linear warm-up");
  s.real("weight_decay", &C::weightDecay, 0.0, 100.0,
         "decoupled weight decay of matrices");
  s.real("beta1", &C::beta1, 0.0, 0.999999,
         "first-moment decay, also muon's; lion's share of the average in a "
         "step");
  s.real("beta2", &C::beta2, 0.0, 0.9999999,
         "second-moment decay; lion's decay of the average");
  s.real("adam_eps", &C::adamEps, 1e-30, 1.0, "epsilon of adamw");
  s.real("grad_clip", &C::gradClip, 0.0, 1e30,
         "largest global gradient norm; 0 switches clipping off");
  s.number("log_every", &C::logEvery, 1, kMaxInt, "steps between log lines");
  s.number("eval_every", &C::evalEvery, 0, kMaxInt,
           "steps between evaluations; 0 evaluates at the end only");
  s.number("eval_batches", &C::evalBatches, 1, kMaxInt,
           "validation micro-batches per evaluation");
  s.number("final_eval_batches", &C::finalEvalBatches, 0, kMaxInt,
           "validation micro-batches at the end; 0 takes all");
  s.number("save_every", &C::saveEvery, 0, kMaxInt,
           "steps between checkpoints; 0 saves by save_minutes and at the end");
  s.real("save_minutes", &C::saveMinutes, 0.0, 1e6,
         "minutes between checkpoints, by rank 0's clock; 0 saves by "
         "save_every and at the end");
  s.flag("save_async", &C::saveAsync,
         "checkpoints are written beside the steps that follow them");
  s.number("keep_checkpoints", &C::keepCheckpoints, 0, 1 << 20,
           "checkpoints kept; 0 keeps all");
  s.fixed().number("seed", &C::seed, 0, kMaxInt,
                   "seed of weights, data order, samples");
  s.text("out_dir", &C::outDir, {}, "folder of run directories");
  s.number("sample_bytes", &C::sampleBytes, 0, 1 << 20,
           "bytes generated before and after training");
  s.number("sample_every", &C::sampleEvery, 0, kMaxInt,
           "steps between samples during training; 0 has none");
  s.text("sample_prompt", &C::samplePrompt, {}, "start of the samples");
  s.real("sample_temperature", &C::sampleTemperature, 0.0, 100.0,
         "0 takes the most likely token");
  s.number("sample_top_k", &C::sampleTopK, 0, 1 << 20,
           "likeliest tokens that samples choose from; 0 is all");
}

std::vector<ConfigField> buildSchema() {
  std::vector<ConfigField> fields;
  fields.reserve(64);
  addModel(fields);
  addNsa(fields);
  addDataAndRuntime(fields);
  addTrain(fields);
  return fields;
}

} // namespace

const std::vector<ConfigField> &nsa::configSchema() {
  static const std::vector<ConfigField> schema = buildSchema();
  return schema;
}

//===----------------------------------------------------------------------===//
// Checks across keys
//===----------------------------------------------------------------------===//

namespace {

/// Looks for values that contradict each other, or themselves.
class ConflictFinder {
public:
  ConflictFinder(const RunConfig &config, const KeyFilter &isGiven)
      : config(config), isGiven(isGiven) {}

  Status checkModel() const;
  Status checkRope() const;
  Status checkNsa() const;
  Status checkTrain() const;

private:
  /// A key with its value: "d (16)", or "d (16, the default)" where nobody
  /// chose it.
  template <typename T>
  std::string name(const std::string &path, const T &value) const {
    std::string text;
    if constexpr (std::is_same_v<T, std::string>)
      text = value;
    else
      text = nlohmann::json(value).dump();
    return path.substr(path.find('.') + 1) + " (" + text +
           (isDefault(path) ? ", the default)" : ")");
  }
  bool isDefault(const std::string &path) const {
    return isGiven && !isGiven(path);
  }
  /// An error at the key, or at `other` if only that was given.
  Error conflict(const std::string &path, const std::string &text,
                 const std::string &other = "") const {
    bool isAtOther = isDefault(path) && !other.empty() && !isDefault(other);
    return Error{(isAtOther ? other : path) + ": " + text};
  }
  Status checkDivides(const std::string &path, int64_t value,
                      const std::string &other, int64_t multiple) const {
    if (multiple % value == 0)
      return {};
    return conflict(path,
                    name(path, value) + " must divide " + name(other, multiple),
                    other);
  }
  template <typename T>
  Status checkAtMost(const std::string &path, T value, const std::string &other,
                     T bound, const std::string &hint = "") const {
    if (value <= bound)
      return {};
    return conflict(path,
                    name(path, value) + " must not exceed " +
                        name(other, bound) + hint,
                    other);
  }

  const RunConfig &config;
  const KeyFilter &isGiven;
};

} // namespace

Status ConflictFinder::checkModel() const {
  const ModelConfig &m = config.model;
  if (Status status = checkDivides("model.n_kv_groups", m.nKvGroups,
                                   "model.n_heads", m.nHeads);
      !status)
    return status;
  if (m.ropeBase != 0 && m.ropeBase < 1)
    return conflict("model.rope_base", name("model.rope_base", m.ropeBase) +
                                           " must be 0 or at least 1");
  if (m.ropeBase != 0 && m.dK % 2 != 0)
    return conflict("model.d_k", name("model.d_k", m.dK) +
                                     " must be even for the rotary embedding");
  if (Status status = checkRope(); !status)
    return status;
  if (m.qkNormJoint && !m.qkNorm)
    return conflict("model.qk_norm_joint",
                    name("model.qk_norm_joint", m.qkNormJoint) +
                        " has no effect with " +
                        name("model.qk_norm", m.qkNorm));
  if (config.data.tokenizer == "byte" && m.vocabSize < 256)
    return conflict("model.vocab_size",
                    name("model.vocab_size", m.vocabSize) +
                        " must be at least 256 for the byte tokenizer");
  if (Result<std::vector<LayerKind>> kinds = getLayerKinds(config); !kinds)
    return conflict("model.layers", kinds.message());
  return {};
}

Result<std::vector<double>> nsa::getRopeDivisors(const ModelConfig &model) {
  std::vector<double> numbers;
  for (const char *at = model.ropeDivisors.c_str(); *at;) {
    char *end = nullptr;
    double number = std::strtod(at, &end);
    if (end == at || !(number > 0) || !std::isfinite(number) ||
        (*end && *end != ','))
      return Error{"'" + std::string(at) +
                   "' must begin with a number above 0, and a comma behind it"};
    numbers.push_back(number);
    at = *end ? end + 1 : end;
  }
  return numbers;
}

Status ConflictFinder::checkRope() const {
  const ModelConfig &m = config.model;
  auto hasNoEffect = [&](const std::string &path, const auto &value,
                         const std::string &other, const auto &reason) {
    return conflict(path, name(path, value) + " has no effect with " +
                              name(other, reason));
  };
  std::string dim = "model.rope_dim", scaling = "model.rope_scaling";
  if (m.ropeBase == 0 && m.ropeDim != 0)
    return hasNoEffect(dim, m.ropeDim, "model.rope_base", m.ropeBase);
  if (m.ropeBase == 0 && m.ropeScaling != "none")
    return hasNoEffect(scaling, m.ropeScaling, "model.rope_base", m.ropeBase);
  std::string window = "model.window_rope_base";
  if (m.windowRopeBase != 0 && m.windowRopeBase < 1)
    return conflict(window, name(window, m.windowRopeBase) +
                                " must be 0 or at least 1");
  if (m.ropeBase == 0 && m.windowRopeBase != 0)
    return hasNoEffect(window, m.windowRopeBase, "model.rope_base", m.ropeBase);
  if (m.ropeDim % 2 != 0)
    return conflict(dim, name(dim, m.ropeDim) + " must be even");
  if (Status status = checkAtMost(dim, m.ropeDim, "model.d_k", m.dK); !status)
    return status;
  if (m.ropeScaling == "none" && m.ropeFactor != 1)
    return hasNoEffect("model.rope_factor", m.ropeFactor, scaling,
                       m.ropeScaling);
  bool isLong = m.ropeScaling == "longrope";
  bool hasLength =
      isLong || m.ropeScaling == "yarn" || m.ropeScaling == "llama3";
  if (!hasLength && m.ropeLength != 0)
    return hasNoEffect("model.rope_length", m.ropeLength, scaling,
                       m.ropeScaling);
  if (hasLength && m.ropeLength < (isLong ? 2 : 1))
    return conflict("model.rope_length",
                    name("model.rope_length", m.ropeLength) +
                        " must be at least " + (isLong ? "2" : "1") + " with " +
                        name(scaling, m.ropeScaling),
                    scaling);
  int64_t rotated = m.ropeDim ? m.ropeDim : m.dK;
  Result<std::vector<double>> divisors = getRopeDivisors(m);
  if (!divisors)
    return conflict("model.rope_divisors", divisors.message());
  size_t expected = isLong ? static_cast<size_t>(rotated / 2) : 0;
  if (divisors->size() != expected)
    return conflict("model.rope_divisors",
                    "rope_divisors has " + std::to_string(divisors->size()) +
                        " numbers, but " + name(scaling, m.ropeScaling) +
                        " asks for " + std::to_string(expected));
  if (m.ropeScaling == "ntk" && rotated < 4)
    return conflict(scaling, name(scaling, m.ropeScaling) +
                                 " needs at least 4 rotated channels, there "
                                 "are " +
                                 std::to_string(rotated));
  return {};
}

Status ConflictFinder::checkNsa() const {
  const NsaConfig &n = config.nsa;
  if (Status status = checkDivides("nsa.d", n.d, "nsa.l", n.l); !status)
    return status;
  if (Status status = checkDivides("nsa.d", n.d, "nsa.l_sel", n.lSel); !status)
    return status;
  if (Status status = checkAtMost("nsa.l", n.l, "nsa.l_sel", n.lSel); !status)
    return status;
  if (n.phiPos && n.phi == "mean")
    return conflict("nsa.phi_pos", name("nsa.phi_pos", n.phiPos) +
                                       " has no effect with " +
                                       name("nsa.phi", n.phi));
  return {};
}

Status ConflictFinder::checkTrain() const {
  const TrainConfig &t = config.train;
  if (Status status = checkDivides("train.micro_batch", t.microBatch,
                                   "train.batch_size", t.batchSize);
      !status)
    return status;
  int64_t passes = t.batchSize / t.microBatch;
  if (t.accumulateGradBatches != 0 && t.accumulateGradBatches != passes)
    return conflict(
        "train.accumulate_grad_batches",
        name("train.accumulate_grad_batches", t.accumulateGradBatches) +
            " must be batch_size / micro_batch (" + std::to_string(passes) +
            ")");
  std::string steps = std::to_string(t.steps);
  std::string hint = "; to train only " + steps +
                     (t.steps == 1 ? " step" : " steps") +
                     " of a longer schedule, leave steps as they are and run "
                     "nsa-train --stop-after " +
                     steps;
  if (Status status = checkAtMost("train.warmup_steps", t.warmupSteps,
                                  "train.steps", t.steps, hint);
      !status)
    return status;
  if (t.optimizer == "lion" && t.adamEps != TrainConfig().adamEps)
    return conflict("train.adam_eps", name("train.adam_eps", t.adamEps) +
                                          " has no effect with " +
                                          name("train.optimizer", t.optimizer));
  if (t.lrSchedule != "wsd" && t.lrDecaySteps != 0)
    return conflict("train.lr_decay_steps",
                    name("train.lr_decay_steps", t.lrDecaySteps) +
                        " has no effect with " +
                        name("train.lr_schedule", t.lrSchedule));
  if (t.warmupSteps + t.lrDecaySteps > t.steps)
    return conflict("train.lr_decay_steps",
                    name("train.lr_decay_steps", t.lrDecaySteps) + " and " +
                        name("train.warmup_steps", t.warmupSteps) +
                        " must not exceed " + name("train.steps", t.steps) +
                        " together",
                    "train.steps");
  return checkAtMost("train.lr_min", t.lrMin, "train.lr", t.lr);
}

static Status checkOneStage(const RunConfig &config, const KeyFilter &isGiven) {
  ConflictFinder finder(config, isGiven);
  for (auto check : {&ConflictFinder::checkModel, &ConflictFinder::checkNsa,
                     &ConflictFinder::checkTrain})
    if (Status status = (finder.*check)(); !status)
      return status;
  return {};
}

Status nsa::validateConfig(const RunConfig &config, const KeyFilter &isGiven) {
  if (Status status = checkOneStage(config, isGiven); !status)
    return status;
  for (size_t stage = 1; stage < config.stages.size(); ++stage)
    if (Status status = checkOneStage(withStage(config, stage), {}); !status)
      return Error{"stages: stage " + std::to_string(stage + 1) + ": " +
                   status.message()};
  return checkStages(config);
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

static nlohmann::ordered_json fieldToJson(const ConfigField &field,
                                          RunConfig &config) {
  return std::visit(
      [&](const auto &access) {
        return nlohmann::ordered_json(access(config));
      },
      field.access);
}

bool nsa::isModelKey(const ConfigField &field) {
  return field.section == "model" || field.section == "nsa";
}

std::vector<ConfigDifference> nsa::compareConfigs(const RunConfig &before,
                                                  const RunConfig &after) {
  // Fields are read through references that could also write.
  RunConfig first = before, second = after;
  std::vector<ConfigDifference> found;
  for (const ConfigField &field : configSchema()) {
    std::string was = jsonText(fieldToJson(field, first));
    if (std::string is = jsonText(fieldToJson(field, second)); is != was)
      found.push_back({&field, std::move(was), std::move(is)});
  }
  return found;
}

/// The stages as a list.
static nlohmann::ordered_json stagesToJson(const RunConfig &config) {
  auto list = nlohmann::ordered_json::array();
  for (const StageConfig &stage : config.stages)
    list.push_back({{"steps", stage.steps},
                    {"seq_len", stage.seqLen},
                    {"batch_size", stage.batchSize},
                    {"micro_batch", stage.microBatch},
                    {"rope_base", stage.ropeBase}});
  return list;
}

static nlohmann::ordered_json
printJson(const RunConfig &config,
          const std::function<bool(const ConfigField &)> &include) {
  RunConfig copy = config;
  nlohmann::ordered_json root;
  for (const ConfigField &field : configSchema())
    if (include(field))
      root[field.section][field.key] = fieldToJson(field, copy);
  return root;
}

std::string nsa::printConfigJson(const RunConfig &config) {
  nlohmann::ordered_json root =
      printJson(withStage(config, 0), [](const ConfigField &) { return true; });
  if (!config.stages.empty())
    root["stages"] = stagesToJson(config);
  return jsonText(root, 2);
}

std::string nsa::printModelJson(const RunConfig &config) {
  return jsonText(printJson(config, isModelKey), 2);
}

/// A line for every key; `finish` ends it.
static std::string printYaml(
    const RunConfig &config,
    const std::function<void(std::string &, const ConfigField &)> &finish) {
  RunConfig copy = config;
  std::string text, section;
  for (const ConfigField &field : configSchema()) {
    if (field.section != section) {
      section = field.section;
      text += section + ":\n";
    }
    // A JSON scalar is a YAML scalar, quoted strings included.
    std::string line =
        "  " + field.key + ": " + jsonText(fieldToJson(field, copy));
    finish(line, field);
    text += line + "\n";
  }
  return text;
}

std::string nsa::printConfigYaml(const RunConfig &config) {
  std::string text = printYaml(withStage(config, 0),
                               [](std::string &, const ConfigField &) {});
  if (config.stages.empty())
    return text;
  text += "stages:\n";
  for (const nlohmann::ordered_json &stage : stagesToJson(config))
    text += "  - " + jsonText(stage) + "\n";
  return text;
}

/// "1 to 8", "at least 1", "nsa or window"; empty for a flag and any text.
static std::string describeValues(const ConfigField &field) {
  std::string text;
  for (const std::string &choice : field.choices)
    text += (text.empty() ? "" : " or ") + choice;
  if (!std::holds_alternative<ConfigField::IntAccess>(field.access) &&
      !std::holds_alternative<ConfigField::FloatAccess>(field.access))
    return text;
  char bounds[80];
  if (field.maximum < kMaxInt)
    std::snprintf(bounds, sizeof bounds, "%.8g to %.8g", field.minimum,
                  field.maximum);
  else
    std::snprintf(bounds, sizeof bounds, "at least %.8g", field.minimum);
  return bounds;
}

std::string nsa::printConfigReference() {
  static constexpr size_t column = 34;
  return printYaml({}, [](std::string &line, const ConfigField &field) {
    line.resize(std::max(line.size() + 1, column), ' ');
    line += "# " + field.help;
    if (std::string values = describeValues(field); !values.empty())
      line += " (" + values + ")";
  });
}

std::string nsa::configHash(const RunConfig &config) {
  std::string text = printConfigJson(config);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64,
                static_cast<uint64_t>(XXH3_64bits(text.data(), text.size())));
  return digits;
}
