//===- Agreement.cpp - does this artefact belong to this configuration ----===//

#include "runtime/Train/Agreement.h"
#include "lib/Support/Text.h"

namespace nsa {

Status checkModelConfig(const RunConfig &config,
                        const std::string &modelConfig) {
  NSA_ASSIGN_OR_RETURN(
      RunConfig compiled,
      parseModelConfig(modelConfig, "the artefact's configuration"));
  for (const ConfigDifference &found : compareConfigs(compiled, config))
    if (isModelKey(*found.field))
      return Error{found.field->path() + " is " + found.after +
                   ", the artefact was compiled from a model with " +
                   found.before};
  return {};
}

/// Compares a key of the configuration with the compiler's option for it.
static Status checkOption(const Artifact &artifact, const char *option,
                          const std::string &key, const std::string &value) {
  if (!artifact->options())
    return {};
  for (const artifact::Option *compiled : *artifact->options())
    if (compiled->key()->str() == option && compiled->value()->str() != value)
      return Error{key + " is " + value + ", the artefact was compiled for " +
                   oneLine(compiled->value()->str()) + " (nsa-compile --" +
                   option + "=" + value + ", or --set " + key + "=" +
                   oneLine(compiled->value()->str()) + ")"};
  return {};
}

static Status checkDevice(const std::string &device,
                          const std::string &target) {
  if ((device == "cpu") == (target == artifact::cpuTarget))
    return {};
  return Error{"runtime.device is " + device +
               ", the artefact was compiled for the target " + target};
}

Status checkAgreement(const RunConfig &config, const Artifact &artifact) {
  NSA_RETURN_IF_ERROR(
      checkDevice(config.runtime.device, artifact->target()->str()));
  const auto *carried = artifact->model_config();
  if (carried && carried->size() > 0)
    NSA_RETURN_IF_ERROR(checkModelConfig(config, carried->str()));
  NSA_RETURN_IF_ERROR(checkOption(artifact, "precision", "runtime.precision",
                                  config.runtime.precision));
  NSA_RETURN_IF_ERROR(checkOption(artifact, "optimizer", "train.optimizer",
                                  config.train.optimizer));
  NSA_RETURN_IF_ERROR(checkOption(artifact, "recompute",
                                  "runtime.gradient_checkpointing",
                                  config.runtime.gradientCheckpointing));
  return checkOption(artifact, "recompute-budget", "runtime.recompute_budget",
                     std::to_string(config.runtime.recomputeBudget));
}

} // namespace nsa
