//===- LineBreaks.h - IR that fits a page -----------------------*- C++ -*-===//

#ifndef NSA_SUPPORT_LINEBREAKS_H
#define NSA_SUPPORT_LINEBREAKS_H

#include <cstddef>
#include <string>
#include <string_view>

namespace nsa {

/// Columns that printed IR has at most, where it can be broken.
inline constexpr size_t kIRColumns = 140;

/// The text of MLIR with lines of more than `columns` broken at blanks between
/// tokens: where the fewest brackets are open, so that an operand, an argument
/// or an entry of a dictionary stays whole as long as it fits. What follows is
/// indented by four more. It parses to the same IR. Strings and comments are
/// not broken.
std::string breakLines(std::string_view text, size_t columns);

} // namespace nsa

#endif // NSA_SUPPORT_LINEBREAKS_H
