//===- CPUFeatures.h - what this processor can do ---------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_CPUFEATURES_H
#define NSA_RUNTIME_CPU_CPUFEATURES_H

#include "nsa/Support/Result.h"

#include <set>
#include <string>
#include <string_view>

namespace nsa {

/// The flags of /proc/cpuinfo's first processor. They name what the operating
/// system allows, not only what the silicon has. Empty if there are none.
std::set<std::string> hostCPUFlags();

/// The flags in a text of the form of /proc/cpuinfo.
std::set<std::string> parseCPUFlags(std::string_view cpuinfo);

/// Whether the flags include a feature in LLVM's spelling ("sse4.1", "bmi").
bool hasFeature(const std::set<std::string> &flags, std::string_view feature);

/// The processors that this process may run on.
int availableProcessors();

} // namespace nsa

#endif // NSA_RUNTIME_CPU_CPUFEATURES_H
