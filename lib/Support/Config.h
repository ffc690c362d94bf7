//===- Config.h - the run configuration -------------------------*- C++ -*-===//
//
// One YAML file describes a model and its training run. The reader is strict:
// an unknown key, a wrong type, a duplicate, a value out of range or a
// conflict is an error that names file, line and column. The keys are one table
// (ConfigKeys.inc), so help texts, printing, overrides and tests walk the same
// list (configSchema) that the reader uses.
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

// The sections, each a structure of its keys.
#define CONFIG_SECTION(Section, name) struct Section {
#define CONFIG_KEY(type, member, key, value, values, help) type member = value;
#define CONFIG_SECTION_END }
#include "lib/Support/ConfigKeys.inc"

/// The numbers of `ropeDivisors`. The message of an error names no key.
Result<std::vector<double>> getRopeDivisors(const ModelConfig &model);

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
