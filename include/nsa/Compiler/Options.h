//===- Options.h - what a compilation may be told, as text ------*- C++ -*-===//
//
// The fields of CompilerOptions by name. The command line of nsa-compile, the
// keywords of nsa.compile in Python, what an artefact records and the options
// of the phases are made of this list: an option is declared here and in
// CompilerOptions, and nowhere else.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_COMPILER_OPTIONS_H
#define NSA_COMPILER_OPTIONS_H

#include "nsa/Compiler/Compiler.h"

#include <variant>

namespace nsa {

/// A field of CompilerOptions that the artefact depends on.
struct OptionField {
  using Member =
      std::variant<std::string CompilerOptions::*, int64_t CompilerOptions::*,
                   bool CompilerOptions::*,
                   std::vector<std::string> CompilerOptions::*>;

  /// As the command line spells it: "micro-batch".
  std::string name;
  Member member;
  /// A sentence without its period.
  std::string help;
  /// What a text or a number may be; empty: any text, any number in the range.
  std::vector<std::string> values = {};
  int64_t least = 0;
  int64_t most = int64_t(1) << 40;

  /// The value as text: "true" or "false" for a bool, items joined by ",".
  std::string read(const CompilerOptions &options) const;
  /// "unknown NAME 'VALUE'; known are ..." or "NAME VALUE, expected A to B" if
  /// the field has a value that it may not have. The default is always allowed.
  Status check(const CompilerOptions &options) const;
};

/// All of them, in the order in which the command line shows them.
const std::vector<OptionField> &optionFields();

} // namespace nsa

#endif // NSA_COMPILER_OPTIONS_H
