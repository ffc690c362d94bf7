//===- ConfigSchema.cpp - the keys, their checks and their printing -------===//

#include "lib/Support/Config.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/LayerKinds.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Text.h"

#include <cmath>
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

/// The values that a key takes.
struct Values {
  double minimum = 0.0;
  double maximum = 0.0;
  std::vector<std::string> choices;
  bool isFixed = false;
};

Values any() { return {}; }
Values within(double minimum, double maximum) { return {minimum, maximum, {}}; }
Values oneOf(std::vector<std::string> choices) {
  return {0.0, 0.0, std::move(choices)};
}

/// Of a key that gives what a checkpoint holds another meaning.
Values fixed(Values values) {
  values.isFixed = true;
  return values;
}

template <typename Section, typename T>
ConfigField makeField(const char *section, const char *key,
                      Section RunConfig::*sectionMember, T Section::*member,
                      const Values &values, const char *help) {
  ConfigField field;
  field.section = section;
  field.key = key;
  field.access = std::function<T &(RunConfig &)>(
      [=](RunConfig &config) -> T & { return config.*sectionMember.*member; });
  field.minimum = values.minimum;
  field.maximum = values.maximum;
  field.choices = values.choices;
  field.help = help;
  field.mayChange = !isModelKey(field) && !values.isFixed;
  return field;
}

std::vector<ConfigField> buildSchema() {
  std::vector<ConfigField> fields;
#define CONFIG_SECTION(Section, name)                                          \
  {                                                                            \
    using SectionType = Section;                                               \
    constexpr const char *sectionName = #name;                                 \
    constexpr auto section = &RunConfig::name;
#define CONFIG_KEY(type, member, key, value, values, help)                     \
  fields.push_back(makeField(sectionName, key, section, &SectionType::member,  \
                             values, help));
#define CONFIG_SECTION_END }
#include "lib/Support/ConfigKeys.inc"
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
  Status checkContextParallel() const;
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
  template <typename T, typename U>
  Error hasNoEffect(const std::string &path, const T &value,
                    const std::string &other, const U &reason) const {
    return conflict(path, name(path, value) + " has no effect with " +
                              name(other, reason));
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
  NSA_RETURN_IF_ERROR(checkDivides("model.n_kv_groups", m.nKvGroups,
                                   "model.n_heads", m.nHeads));
  if (m.ropeBase != 0 && m.ropeBase < 1)
    return conflict("model.rope_base", name("model.rope_base", m.ropeBase) +
                                           " must be 0 or at least 1");
  if (m.ropeBase != 0 && m.dK % 2 != 0)
    return conflict("model.d_k", name("model.d_k", m.dK) +
                                     " must be even for the rotary embedding");
  NSA_RETURN_IF_ERROR(checkRope());
  if (m.qkNormJoint && !m.qkNorm)
    return hasNoEffect("model.qk_norm_joint", m.qkNormJoint, "model.qk_norm",
                       m.qkNorm);
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
                   "' must begin with a number above 0, and a comma after it"};
    numbers.push_back(number);
    at = *end ? end + 1 : end;
  }
  return numbers;
}

Status ConflictFinder::checkRope() const {
  const ModelConfig &m = config.model;
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
  NSA_RETURN_IF_ERROR(checkAtMost(dim, m.ropeDim, "model.d_k", m.dK));
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
  NSA_RETURN_IF_ERROR(checkDivides("nsa.d", n.d, "nsa.l", n.l));
  NSA_RETURN_IF_ERROR(checkDivides("nsa.d", n.d, "nsa.l_sel", n.lSel));
  NSA_RETURN_IF_ERROR(checkAtMost("nsa.l", n.l, "nsa.l_sel", n.lSel));
  if (n.phiPos && n.phi == "mean")
    return hasNoEffect("nsa.phi_pos", n.phiPos, "nsa.phi", n.phi);
  return {};
}

Status ConflictFinder::checkContextParallel() const {
  int64_t ranks = config.train.contextParallel;
  if (ranks == 1 || config.train.seqLen % (2 * ranks) == 0)
    return {};
  return conflict("train.seq_len",
                  name("train.seq_len", config.train.seqLen) +
                      " must be a multiple of 2 x " +
                      name("train.context_parallel", ranks) +
                      ": each rank has two chunks of a sequence",
                  "train.context_parallel");
}

Status ConflictFinder::checkTrain() const {
  const TrainConfig &t = config.train;
  NSA_RETURN_IF_ERROR(checkDivides("train.micro_batch", t.microBatch,
                                   "train.batch_size", t.batchSize));
  int64_t passes = t.batchSize / t.microBatch;
  if (t.accumulateGradBatches != 0 && t.accumulateGradBatches != passes)
    return conflict(
        "train.accumulate_grad_batches",
        name("train.accumulate_grad_batches", t.accumulateGradBatches) +
            " must be batch_size / micro_batch (" + std::to_string(passes) +
            ")");
  NSA_RETURN_IF_ERROR(checkContextParallel());
  std::string steps = std::to_string(t.steps);
  std::string hint = "; to train only " + steps +
                     (t.steps == 1 ? " step" : " steps") +
                     " of a longer schedule, leave steps as they are and run "
                     "nsa-train --stop-after " +
                     steps;
  NSA_RETURN_IF_ERROR(checkAtMost("train.warmup_steps", t.warmupSteps,
                                  "train.steps", t.steps, hint));
  if (t.optimizer == "lion" && t.adamEps != TrainConfig().adamEps)
    return hasNoEffect("train.adam_eps", t.adamEps, "train.optimizer",
                       t.optimizer);
  if (t.lrSchedule != "wsd" && t.lrDecaySteps != 0)
    return hasNoEffect("train.lr_decay_steps", t.lrDecaySteps,
                       "train.lr_schedule", t.lrSchedule);
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
    NSA_RETURN_IF_ERROR((finder.*check)());
  return {};
}

Status nsa::validateConfig(const RunConfig &config, const KeyFilter &isGiven) {
  NSA_RETURN_IF_ERROR(checkOneStage(config, isGiven));
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
  return field.maximum < kMaxInt
             ? formatted("%.8g to %.8g", field.minimum, field.maximum)
             : formatted("at least %.8g", field.minimum);
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
  return toHex(hashBytes(text));
}
