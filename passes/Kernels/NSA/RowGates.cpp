//===- RowGates.cpp - gates of the rows of a program ----------------------===//

#include "passes/Kernels/NSA/RowGates.h"
#include "passes/Kernels/NN/NNToTile.h"

#include <functional>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

SmallVector<tile::Operand> RowGates::place(const RowProgram &program,
                                           Value query, int64_t branch) const {
  Expr batch = program.range.batch;
  if (!activation)
    return {batch, query, program.head, branch};
  Value head = program.head;
  if (!isa<TileType>(head.getType()))
    head = program.b.splat(head, program.numRows(), 1);
  Value channel = program.b.map({head}, program.b.i32(), [&](ArrayRef<Expr> x) {
    return x[0] * static_cast<double>(branches) + static_cast<double>(branch);
  });
  return {batch, query, channel};
}

BranchTiles RowGates::load(const RowProgram &program) const {
  TileBuilder &b = program.b;
  BranchTiles values;
  for (int64_t c = 0; c < branches; ++c) {
    SmallVector<tile::Operand> indices = place(program, program.range.query, c);
    Value value = b.loadF32(gates, indices);
    if (bias)
      value = add(b, value, b.load(bias, {indices.back()}));
    values.push_back(value);
  }
  if (!activation)
    return values;
  if (activation == nn::GateActivation::Softmax)
    return b.map(values, SmallVector<Type>(branches, b.f32()), activateGates);
  for (Value &value : values)
    value = b.map({value}, ArrayRef<Type>(b.f32()), activateGates)[0];
  return values;
}

BranchTiles RowGates::differentiate(TileBuilder &b, const BranchTiles &grads,
                                    const BranchTiles &values) const {
  if (!activation)
    return grads;
  if (activation == nn::GateActivation::Softmax) {
    SmallVector<Value> inputs(grads);
    llvm::append_range(inputs, values);
    return b.map(inputs, SmallVector<Type>(branches, b.f32()),
                 differentiateGates);
  }
  BranchTiles results;
  for (auto [grad, value] : llvm::zip_equal(grads, values))
    results.push_back(
        b.map({grad, value}, ArrayRef<Type>(b.f32()), differentiateGates)[0]);
  return results;
}

void RowGates::store(const RowProgram &program, const BranchTiles &values,
                     Value ref) const {
  for (auto [c, value] : llvm::enumerate(values))
    program.b.store(value, ref,
                    place(program, program.stored, static_cast<int64_t>(c)));
}

/// Of several heads a dot with the matrix that says which row is of which head.
Value RowGates::sumOverQueries(const RowProgram &program,
                               const BranchTiles &grads) {
  TileBuilder &b = program.b;
  auto branches = static_cast<int64_t>(grads.size());
  SmallVector<Value> inputs(grads);
  inputs.push_back(b.range(0, branches, 1));
  Value columns = b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    std::function<Expr(int64_t)> pick = [&](int64_t c) -> Expr {
      if (c + 1 == branches)
        return x[c];
      Expr isOwn = x[branches] == static_cast<double>(c);
      return select(isOwn, x[c], pick(c + 1));
    };
    return pick(0);
  });
  if (!program.hasGroup())
    return b.reduceAdd(columns, /*axis=*/0);
  int64_t group = program.group, rows = program.numRows();
  if (rows == group)
    return columns;
  Value isOfHead =
      b.map({b.range(0, rows, 0), b.range(0, group, 1)}, b.f32(),
            [&](ArrayRef<Expr> x) {
              return convert(program.headInGroup(x[0]) == x[1], b.f32());
            });
  return b.dot(isOfHead, columns, b.zeros(group, branches),
               /*transposeB=*/false, /*transposeA=*/true);
}

/// Products and sums are written as multiply-adds, so that every kernel rounds
/// alike.
Value nsa::gatedSum(TileBuilder &b, ArrayRef<Value> gates,
                    ArrayRef<Value> outputs) {
  SmallVector<Value> inputs;
  for (auto [gate, output] : llvm::zip_equal(gates, outputs))
    inputs.append({gate, output});
  return b.map(inputs, b.f32(), [&](ArrayRef<Expr> x) {
    Expr sum = x[0] * x[1];
    for (size_t i = 2; i < x.size(); i += 2)
      sum = fma(x[i], x[i + 1], sum);
    return sum;
  });
}
