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

/// What the program's memory is, in readable lines: the plan by segment, what
/// is allocated, and on a GPU how far what came into use there is from the
/// plan. That may be 2 % of the plan or 256 MiB, for code and libraries, and
/// what connections to other ranks took; more is a warning. No line without a
/// program.
std::vector<std::string> describeMemory(const MemoryUse &use);

/// The text of env.json: machine, system and process, then `facts` in order.
std::string describeEnvironment(
    const std::vector<std::pair<std::string, std::string>> &facts);

/// The text of dtypes_report.txt: one line per tensor with its shape, type and
/// role, one per class of activations with elements and number of arrays, then
/// bytes per role.
std::string describeTensors(const Model &model);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_ENVIRONMENT_H
