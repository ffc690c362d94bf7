//===- OpenModule.h - modules with `?`, and with numbers --------*- C++ -*-===//
//
// A module with `?` for batch and sequence, compiled once, against modules with
// numbers.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_OPENMODULE_H
#define NSA_TEST_UNIT_OPENMODULE_H

#include "test/unit/CompiledModule.h"

#include <optional>

namespace nsa::test {

struct Shape {
  uint64_t batch, sequence;
};

/// A function @f whose types say B, T and N for the batch, the length and the
/// number of compressed blocks: `?`, or the numbers of a shape.
struct OpenModule {
  /// An argument or result.
  struct Named {
    std::string name, type;
  };

  /// Results are called after their values: "o_out".
  std::string text(std::optional<Shape> shape = std::nullopt) const;

  std::vector<Named> in, out;
  std::string body;
  /// Arguments to differentiate by; none for forward alone.
  std::vector<std::string> by = {};
  uint64_t block = 8, stride = 4;
};

/// Types of tensors of two key heads with `group` query heads each, all of
/// `width` channels.
struct OpenTypes {
  OpenTypes(int group, int width, const std::string &element);

  std::string q, k, lse, compressed, gates, indices;
};

OpenModule openAttention(const OpenTypes &types, const std::string &visibility);

/// The gated sum of three branches, of means of 8 tokens and 4 selected blocks
/// of 16, and with `by` its gradients. What of it is fused is the compiler's
/// affair.
OpenModule openBranches(const OpenTypes &types, std::vector<std::string> by);

/// The same with queries and keys that are rotated by the angles `table`.
OpenModule openRotaryBranches(const OpenTypes &types, int width,
                              std::vector<std::string> by);

/// How modules are compared.
struct OpenCheck {
  std::vector<Shape> shapes;
  /// Sizes of tiles ("forward-queries=32") of all modules, and of those with
  /// numbers alone: what the compiler chooses for long sequences.
  std::vector<std::string> tiles = {}, fixedTiles = {};
  /// The largest difference, of numbers of about 1; bits are the same if it is
  /// 0. Sums may have other orders.
  double tolerance = 0;
  std::string target = "cpu", selectedForm = "auto";
  Compile compile = {};
};

/// Compiles a module with `?`.
Result<Artifact> compileOpen(const OpenModule &module,
                             const OpenCheck &check = {});

/// Runs one artefact at all shapes and compares every output with that of one
/// artefact each.
void checkOpen(const OpenModule &module, const OpenCheck &check);

/// Runs one artefact without sequences, and without tokens; `name` is an output
/// that is then empty.
void checkEmpty(const OpenModule &module, const OpenCheck &check,
                const std::string &name);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_OPENMODULE_H
