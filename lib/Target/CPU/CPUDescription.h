//===- CPUDescription.h - the processor that code is made for ---*- C++ -*-===//

#ifndef NSA_LIB_TARGET_CPU_CPUDESCRIPTION_H
#define NSA_LIB_TARGET_CPU_CPUDESCRIPTION_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace nsa {

/// A processor: what it is called, what the code may use, and what it is
/// scheduled for.
struct CPUDescription {
  /// The name that an artefact records: a level such as "x86-64-v3", or the
  /// name of the host's processor.
  std::string name;
  /// LLVM's name of the instruction set that the code starts from.
  std::string base;
  /// LLVM's name of the processor that the code is scheduled for.
  std::string tune;
  /// Every feature that the code may use, in LLVM's spelling and sorted. The
  /// runtime refuses a machine that lacks one of them.
  std::vector<std::string> features;

  /// The features in the form that LLVM's target machine takes, "+avx,+avx2".
  std::string getFeatureString() const;

  /// How many f32 a vector register holds: 16, 8 or 4.
  unsigned getVectorWidth() const;
};

/// Describes a processor by name: "x86-64-v2", "x86-64-v3", "x86-64-v4", or
/// "native" for the machine that runs this. Fails on any other name.
llvm::Expected<CPUDescription> describeCPU(llvm::StringRef name);

} // namespace nsa

#endif // NSA_LIB_TARGET_CPU_CPUDESCRIPTION_H
