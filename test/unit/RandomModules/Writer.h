//===- Writer.h - writes one random function --------------------*- C++ -*-===//
//
// A function grows by steps. Each step adds one operation, or a few that
// belong together such as a decoder layer, to values that are already there or
// to new arguments. Every value stays available, so any of them may get more
// readers later. Scales of values are estimated and kept moderate, so that
// rounding errors stay small compared to the values.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_RANDOMMODULES_WRITER_H
#define NSA_TEST_UNIT_RANDOMMODULES_WRITER_H

#include "test/unit/RandomModules/Graph.h"

#include <functional>
#include <optional>
#include <random>

namespace nsa::test {

/// Decisions from one seed, the same on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}

  uint64_t next() { return engine(); }
  /// A number of [0, count).
  int64_t below(int64_t count) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(count));
  }
  /// A number of [first, last].
  int64_t between(int64_t first, int64_t last) {
    return first + below(last - first + 1);
  }
  bool chance(double probability) {
    return static_cast<double>(engine() >> 11) * 0x1p-53 < probability;
  }
  template <typename T>
  const T &pick(const std::vector<T> &list) {
    return list[below(static_cast<int64_t>(list.size()))];
  }

private:
  std::mt19937_64 engine;
};

class FunctionWriter {
public:
  enum class Kind {
    /// Any operation, no gradient.
    Plain,
    /// One result is differentiated.
    Objective,
    /// A model to train.
    Training,
  };

  FunctionWriter(GraphModule &module, GraphFunction &function, Random &random,
                 Kind kind);

  /// Grows the function to about so many operations.
  void write(size_t operations);

private:
  using Step = void (FunctionWriter::*)();
  using Filter = std::function<bool(const GraphValue &)>;

  // Values and operations.
  ValueId value(GraphType type, double scale, bool isStatistic = false);
  bool canBeArgument(const GraphType &type) const;
  ValueId argument(const GraphType &type, const Fill &fill, const char *stem);
  /// An argument of normally distributed numbers.
  ValueId weight(const std::vector<Dim> &shape, DataType element, double scale);
  ValueId vector(const Dim &size, double scale);
  ValueId emit(const std::string &name, const std::vector<ValueId> &operands,
               const GraphType &type, double scale,
               const std::string &attributes = "",
               const std::string &suffix = "");
  /// Another result of the last operation.
  ValueId emitStatistic(const GraphType &type, double scale);
  /// By value: a new value moves the others.
  GraphType type(ValueId id) const { return function.type(id); }
  double scale(ValueId id) const { return function.values[id].scale; }
  DataType element(ValueId id) const { return type(id).element; }
  bool differentiates() const { return kind != Kind::Plain; }
  bool affords(double multiplications);

  // Choices among what is there, newer values more often.
  std::optional<ValueId> find(const Filter &filter);
  std::optional<ValueId> findLike(const GraphType &type);
  ValueId anyFloat();
  /// [batch, sequence, channels].
  ValueId activation();
  /// [batch, sequence, heads, width].
  ValueId headed();
  int64_t width();

  // Operations on given values.
  ValueId matmul(ValueId lhs, ValueId rhs, bool transposeLhs,
                 bool transposeRhs);
  ValueId project(ValueId x, int64_t columns);
  ValueId norm(ValueId x);
  ValueId rotate(ValueId x, int64_t stride);
  ValueId splitHeads(ValueId x, int64_t heads);
  ValueId mergeHeads(ValueId x);
  ValueId crossEntropy(ValueId logits);
  ValueId feedForward(ValueId x, int64_t columns);
  ValueId add(ValueId lhs, ValueId rhs);

  // Attention.
  struct Geometry;
  Geometry chooseGeometry();
  Geometry chooseGeometry(ValueId q);
  ValueId heads(ValueId x, int64_t count, int64_t width);
  ValueId compress(ValueId x, const Geometry &g);
  ValueId gates(ValueId x, int64_t heads);
  struct Attended {
    ValueId output, lse;
  };
  Attended attend(const std::string &op, std::vector<ValueId> operands,
                  const Geometry &g, double keys,
                  const std::string &attributes);
  Attended compressedBranch(ValueId x, ValueId q, const Geometry &g,
                            std::optional<ValueId> &keys);
  ValueId selectedBranch(ValueId x, ValueId q, const Geometry &g);
  ValueId windowBranch(ValueId x, ValueId q, const Geometry &g);
  ValueId select(ValueId q, ValueId keys, ValueId lse, const Geometry &g);
  ValueId attention(ValueId x);

  // Steps.
  void addStep();
  void siluStep();
  void swigluStep();
  void projectStep();
  void productStep();
  void normStep();
  void castStep();
  void fillStep();
  void headsStep();
  void rotaryStep();
  void gateStep();
  void embeddingStep();
  void compressStep();
  void attentionStep();
  void layerStep();
  void crossEntropyStep();
  void repeatStep();
  void barrierStep();
  void backwardStep();
  void normBackward();
  void gateBackward();
  void lossBackward();
  void compressBackward();
  void optimizerStep();
  void stateStep();
  void step();

  // The end.
  void finish();
  void chooseObjective();
  void chooseResults();
  bool canBeParameter(const GraphArgument &argument,
                      const std::vector<bool> &active) const;
  void makeTrainable();
  void addResult(ValueId value, const char *name = nullptr);
  void chooseRoles(const std::vector<bool> &active);
  bool shareName(GraphArgument &argument);

  GraphModule &module;
  GraphFunction &function;
  Random &random;
  Kind kind;
  DataType compute;
  double work = 0.0;
  /// Rows that are all 0 make scores of blocks equal.
  bool hasZeroRows = false;
  /// Scalars that can be the loss, and what it was computed from.
  std::vector<ValueId> losses, logits;
  /// Values that must be results: the choices of blocks that rounding may
  /// change.
  std::vector<ValueId> exposed;
  struct Update {
    ValueId value;
    ValueId argument;
  };
  std::vector<Update> updates;
};

/// A module that compiles, from a seed.
GraphModule generateModule(uint64_t seed);

} // namespace nsa::test

#endif // NSA_TEST_UNIT_RANDOMMODULES_WRITER_H
