//===- Environment.h - what a run ran on ------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_ENVIRONMENT_H
#define NSA_RUNTIME_TRAIN_ENVIRONMENT_H

#include "runtime/Train/Model.h"

#include <string>
#include <utility>
#include <vector>

namespace nsa {

/// Resident memory of this process in bytes, now and at most.
struct ProcessMemory {
  uint64_t resident = 0;
  uint64_t peak = 0;
};
ProcessMemory processMemory();

/// The text of env.json: machine, system and process, then `facts` in order.
std::string describeEnvironment(
    const std::vector<std::pair<std::string, std::string>> &facts);

/// The text of dtypes_report.txt: one line per tensor, then bytes per role.
std::string describeTensors(const Model &model);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_ENVIRONMENT_H
