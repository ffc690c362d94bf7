//===- Debug.h - what passes tell a developer -------------------*- C++ -*-===//
//
// LLVM_DEBUG is empty, and --debug-only unknown, in a release build of LLVM.
// This one is always there. After `#define DEBUG_TYPE "nsa-plan"`,
//
//     NSA_DEBUG() << op << " stays where it is: " << reason;
//
// prints one line to stderr if the type is on. If not, nothing is evaluated,
// and the cost is a load and a branch.
//
// Remarks are for people who write models: what was decided, one per decision.
// Debug output is for people who write passes: what was considered on the way.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_SUPPORT_DEBUG_H
#define NSA_PASSES_SUPPORT_DEBUG_H

#include "mlir/IR/Location.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>
#include <cstdint>
#include <string_view>

namespace nsa::debug {

/// Everything that has debug output: arguments of passes, in the order in which
/// a compilation runs them.
inline constexpr std::string_view types[] = {
    "nsa-differentiate", "nsa-recompute", "nsa-fuse", "nsa-convert-to-tile",
    "nsa-buffer",        "nsa-schedule",  "nsa-plan", "nsa-tile-to-cpu",
};

/// The position of a type in `types`, or -1.
constexpr int find(std::string_view type) {
  for (unsigned i = 0; i < std::size(types); ++i)
    if (types[i] == type)
      return static_cast<int>(i);
  return -1;
}

namespace detail {
/// One bit for each type. Of the whole process, as in LLVM: a tool sets it
/// before it runs passes.
inline std::atomic<uint32_t> enabledTypes{0};
static_assert(std::size(types) <= 32, "enabledTypes has a bit for each type");
} // namespace detail

/// Turns the output of the type at a position of `types` on.
inline void enable(unsigned type) {
  detail::enabledTypes.fetch_or(uint32_t(1) << type, std::memory_order_relaxed);
}

/// Whether the output of a type is on.
template <int Type>
bool isEnabled() {
  static_assert(Type >= 0, "list DEBUG_TYPE in nsa::debug::types");
  return detail::enabledTypes.load(std::memory_order_relaxed) >> Type & 1;
}

/// A line of output, written at once when it ends: lines of several threads do
/// not mix.
class Line {
public:
  explicit Line(llvm::StringRef type) { stream << '[' << type << "] "; }
  Line(const Line &) = delete;
  Line &operator=(const Line &) = delete;
  ~Line();

  template <typename T>
  Line &operator<<(const T &value) {
    stream << value;
    return *this;
  }
  /// `model.mlir:3:8`.
  Line &operator<<(mlir::Location location);
  /// `nn.matmul at model.mlir:3:8`.
  Line &operator<<(mlir::Operation *op);

private:
  std::string text;
  llvm::raw_string_ostream stream{text};
};

} // namespace nsa::debug

/// A stream that exists while the file's DEBUG_TYPE is on.
#define NSA_DEBUG()                                                            \
  if (!::nsa::debug::isEnabled<::nsa::debug::find(DEBUG_TYPE)>()) {            \
  } else                                                                       \
    ::nsa::debug::Line(DEBUG_TYPE)

#endif // NSA_PASSES_SUPPORT_DEBUG_H
