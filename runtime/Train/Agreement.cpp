//===- Agreement.cpp - does this artefact belong to this configuration ----===//

#include "runtime/Train/Agreement.h"
#include "lib/Support/Json.h"

namespace nsa {

Status checkModelConfig(const RunConfig &config,
                        const std::string &modelConfig) {
  Result<RunConfig> compiled =
      parseConfig(modelConfig, "the artefact's configuration");
  if (!compiled)
    return compiled.takeError();
  RunConfig mine = config;
  for (const ConfigField &field : configSchema()) {
    if (field.section != "model" && field.section != "nsa")
      continue;
    auto print = [&](RunConfig &from) {
      return std::visit(
          [&](const auto &access) {
            return jsonText(nlohmann::json(access(from)));
          },
          field.access);
    };
    std::string here = print(mine), there = print(*compiled);
    if (here != there)
      return Error{field.path() + " is " + here +
                   ", the artefact was compiled from a model with " + there};
  }
  return {};
}

static Status checkPrecision(const RunConfig &config,
                             const Artifact &artifact) {
  if (!artifact->options())
    return {};
  for (const artifact::Option *option : *artifact->options()) {
    if (option->key()->str() != "precision")
      continue;
    if (std::string compiled = option->value()->str();
        compiled != config.runtime.precision)
      return Error{"runtime.precision is " + config.runtime.precision +
                   ", the artefact was compiled for " + compiled};
  }
  return {};
}

Status checkAgreement(const RunConfig &config, const Artifact &artifact) {
  const auto *carried = artifact->model_config();
  if (carried && carried->size() > 0)
    if (Status status = checkModelConfig(config, carried->str()); !status)
      return status;
  return checkPrecision(config, artifact);
}

} // namespace nsa
