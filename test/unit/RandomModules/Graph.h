//===- Graph.h - modules that a program can take apart ----------*- C++ -*-===//
//
// Functions over nn and nsa operations as plain data: the generator builds
// them, the shrinker takes parts away, and `print` writes them as MLIR text.
// Result types are computed here and written out, so that parsing the text
// checks the inference of the operations.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_GRAPH_H
#define NSA_TEST_UNIT_RANDOMMODULES_GRAPH_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Compiler/Compiler.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nsa::test {

/// A size as the source has it and as it is once the compiler's options set
/// micro-batch and sequence length. Two sizes are equal only if both are.
struct Dim {
  int64_t written = 0, actual = 0;

  Dim() = default;
  /*implicit*/ Dim(int64_t size) : written(size), actual(size) {}
  Dim(int64_t written, int64_t actual) : written(written), actual(actual) {}

  bool isFixed() const { return written == actual; }
  bool operator==(const Dim &other) const {
    return written == other.written && actual == other.actual;
  }
  Dim operator*(const Dim &other) const {
    return {written * other.written, actual * other.actual};
  }
};

struct GraphType {
  std::vector<Dim> shape;
  DataType element = DataType::F32;

  size_t rank() const { return shape.size(); }
  const Dim &last() const { return shape.back(); }
  /// All dimensions but the last.
  std::vector<Dim> leading() const { return {shape.begin(), shape.end() - 1}; }
  /// Of the actual sizes.
  int64_t elements() const;
  int64_t rows() const;
  bool isEmpty() const;
  bool operator==(const GraphType &other) const {
    return shape == other.shape && element == other.element;
  }
  bool operator!=(const GraphType &other) const { return !(*this == other); }
};

/// An index into the values of a function.
using ValueId = unsigned;

struct GraphValue {
  GraphType type;
  /// About the root of the mean square of its elements.
  double scale = 1.0;
  /// A second result (lse, rstd, count), through which no gradient flows.
  bool isStatistic = false;
  /// The lse of rows that may see nothing.
  bool mayBeInfinite = false;
};

/// What an argument is filled with.
struct Fill {
  enum Kind {
    /// Normally distributed with standard deviation `scale`.
    Normal,
    /// The same, squared, plus a little: second moments.
    Positive,
    /// Integers of [0, limit), some outside if `scale` is not 0.
    Ids,
    /// Integers of [-1, limit).
    Targets,
    /// Block lists of tokens for blocks of `limit` tokens.
    Indices,
    /// Cosines and sines.
    Rotary,
    /// The scalars of nn.adamw.
    Hyper,
  };
  Kind kind = Normal;
  double scale = 1.0;
  int64_t limit = 0;

  bool operator==(const Fill &other) const {
    return kind == other.kind && scale == other.scale && limit == other.limit;
  }
};

struct GraphArgument {
  ValueId value;
  /// May be empty: then the program calls it arg<i>.
  std::string name;
  /// As `nn.role` spells it; empty for none.
  std::string role;
  Fill fill;
  bool decay = false;
  bool differentiate = false;

  bool isPersistent() const { return !role.empty() && role != "input"; }
};

struct GraphOp {
  /// With the keyword of its kind, as in "nsa.compress linear".
  std::string name;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  /// Without braces.
  std::string attributes;
  /// Between the operands and the attributes.
  std::string suffix;
  /// The only operand that gradients flow to, or -1 for all; -2 for none.
  int activeOperand = -1;
};

struct GraphResult {
  ValueId value;
  /// May be empty: then the program calls it result<i>.
  std::string name;
  /// The argument that it updates, or empty.
  std::string alias;
  bool isObjective = false;
};

struct GraphFunction {
  std::string name;
  bool isTrainable = false;
  std::vector<GraphValue> values;
  std::vector<GraphArgument> arguments;
  std::vector<GraphOp> ops;
  std::vector<GraphResult> results;

  const GraphType &type(ValueId value) const { return values[value].type; }
  const GraphArgument *findArgument(const std::string &name) const;
  bool hasGradients() const;
  /// For each value, whether a gradient of `objective` arrives there.
  std::vector<bool> findActive(ValueId objective) const;
  /// For each value, whether something uses it.
  std::vector<bool> findUsed() const;
  /// Removes operations whose results nobody uses.
  void eraseDeadOps();
};

struct GraphModule {
  uint64_t seed = 0;
  std::vector<GraphFunction> functions;
  Dim batch, sequence;
  /// Whether arguments say which of their dimensions follow the options.
  bool hasDims = false;
  CompilerOptions options;

  size_t countOps() const;
  bool hasGradients() const;
};

/// The module as text. The first line is a comment with seed and options.
std::string print(const GraphModule &module);

/// The options as nsa-compile takes them.
std::string printOptions(const CompilerOptions &options);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_GRAPH_H
