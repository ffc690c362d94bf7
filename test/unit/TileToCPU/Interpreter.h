//===- Interpreter.h - what a tile kernel means -----------------*- C++ -*-===//
//
// Runs a kernel of elementwise operations, dots and reductions one by one in
// double precision, straight from the definitions in TileOps.td. No vectors, no
// buffers, no fusion: the oracle for compiled kernels.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_TILETOCPU_INTERPRETER_H
#define NSA_TEST_UNIT_TILETOCPU_INTERPRETER_H

#include "dialects/Tile/TileOps.h"
#include "llvm/ADT/DenseMap.h"
#include <vector>

namespace nsa::test {

/// The nearest number of a float type, ties to even; NaN stays NaN.
double roundTo(mlir::Type type, double value);

class Interpreter {
public:
  /// `memory` holds one vector per kernel argument; programs read and write it.
  Interpreter(tile::KernelOp kernel, std::vector<std::vector<double>> &memory)
      : kernel(kernel), memory(memory) {}

  /// Runs every program of the grid in order.
  void run();

private:
  /// A scalar is a tile of one element.
  struct Tile {
    int64_t rows = 1, cols = 1;
    std::vector<double> elements;

    double at(int64_t row, int64_t col) const {
      return elements[(rows > 1 ? row : 0) * cols + (cols > 1 ? col : 0)];
    }
  };

  void runBlock(mlir::Block &block);
  void runOp(mlir::Operation *op);
  void runMap(tile::MapOp op);
  void runDot(tile::DotOp op);
  void runReduce(tile::ReduceOp op);
  double evaluate(mlir::Operation *op);
  Tile makeTile(mlir::Value value) const;
  double scalar(mlir::Value value) { return values[value].elements[0]; }
  /// The place of an element in an argument's memory, or -1 outside.
  int64_t place(mlir::Value ref, mlir::ValueRange indices, int64_t row,
                int64_t col);
  std::vector<double> &memoryOf(mlir::Value ref);

  tile::KernelOp kernel;
  std::vector<std::vector<double>> &memory;
  llvm::DenseMap<mlir::Value, Tile> values;
  int64_t program = 0;
};

} // namespace nsa::test

#endif // NSA_TEST_UNIT_TILETOCPU_INTERPRETER_H
