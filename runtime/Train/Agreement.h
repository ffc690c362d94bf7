//===- Agreement.h - does this artefact belong to this configuration
//-------===//

#ifndef NSA_RUNTIME_TRAIN_AGREEMENT_H
#define NSA_RUNTIME_TRAIN_AGREEMENT_H

#include "lib/Support/Config.h"
#include "nsa/Artifact/Artifact.h"

#include <string>

namespace nsa {

/// Checks that the program was made from the same `model` and `nsa` sections
/// and for the same precision, optimizer and recomputation as `config`. The
/// message names the key and both values. A program that carries no
/// configuration only has the latter three checked.
Status checkAgreement(const RunConfig &config, const Artifact &artifact);

/// The comparison of the sections; `modelConfig` is the JSON in the artefact.
Status checkModelConfig(const RunConfig &config,
                        const std::string &modelConfig);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_AGREEMENT_H
