//===- CPUDescription.cpp - the processor that code is made for -----------===//

#include "lib/Target/CPU/CPUDescription.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/TargetParser/Host.h"

using namespace llvm;

namespace {
/// A feature that the runtime knows how to look for, and the first of the
/// levels v2, v3, v4 that includes it (5: none does).
struct KnownFeature {
  StringLiteral name;
  unsigned level;
};
} // namespace

// Sorted by name, so that what is recorded is sorted as well.
static constexpr KnownFeature knownFeatures[] = {
    {"avx", 3},        {"avx2", 3},     {"avx512bf16", 5}, {"avx512bw", 4},
    {"avx512cd", 4},   {"avx512dq", 4}, {"avx512f", 4},    {"avx512vl", 4},
    {"avx512vnni", 5}, {"bmi", 3},      {"bmi2", 3},       {"f16c", 3},
    {"fma", 3},        {"lzcnt", 3},    {"movbe", 3},      {"popcnt", 2},
    {"sse3", 2},       {"sse4.1", 2},   {"sse4.2", 2},     {"ssse3", 2},
};

std::string nsa::CPUDescription::getFeatureString() const {
  std::string text;
  for (const std::string &feature : features)
    text += (text.empty() ? "+" : ",+") + feature;
  return text;
}

unsigned nsa::CPUDescription::getVectorWidth() const {
  if (is_contained(features, "avx512f"))
    return 16;
  return is_contained(features, "avx") ? 8 : 4;
}

/// The machine that runs this. Only features that the runtime can look for are
/// used: the code must not contain what cannot be checked before it runs.
static nsa::CPUDescription describeHost() {
  nsa::CPUDescription cpu;
  cpu.name = cpu.tune = sys::getHostCPUName().str();
  cpu.base = "x86-64";
  StringMap<bool> host = sys::getHostCPUFeatures();
  for (const KnownFeature &feature : knownFeatures)
    if (host.lookup(feature.name))
      cpu.features.push_back(feature.name.str());
  return cpu;
}

Expected<nsa::CPUDescription> nsa::describeCPU(StringRef name) {
  if (name == "native")
    return describeHost();
  unsigned level = StringSwitch<unsigned>(name)
                       .Case("x86-64-v2", 2)
                       .Case("x86-64-v3", 3)
                       .Case("x86-64-v4", 4)
                       .Default(0);
  if (level == 0)
    return createStringError("unknown cpu '" + name +
                             "'; known are x86-64-v2, x86-64-v3, x86-64-v4 "
                             "and native");
  CPUDescription cpu;
  cpu.name = cpu.base = cpu.tune = name.str();
  for (const KnownFeature &feature : knownFeatures)
    if (feature.level <= level)
      cpu.features.push_back(feature.name.str());
  return cpu;
}
