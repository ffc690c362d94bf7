//===- NNModuleReaders.cpp - operations that read parameters --------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNModuleDetail.h"
#include "dialects/NN/NNOps.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;
using namespace nsa::nn::detail;

//===----------------------------------------------------------------------===//
// Operations with parameters
//===----------------------------------------------------------------------===//

/// The parameter that `op` reads.
static FailureOr<ParameterOp> readParameter(Operation *op,
                                            SymbolTableCollection &tables,
                                            SymbolRefAttr reference) {
  FailureOr<ModelOp> model = getModel(op);
  if (failed(model))
    return failure();
  if (auto found = dyn_cast_or_null<ParameterOp>(
          tables.lookupSymbolIn(*model, reference)))
    return found;
  return op->emitOpError("reads ")
         << reference << ", which is no nn.parameter of the module";
}

static ArrayRef<int64_t> shapeOf(ParameterOp parameter) {
  return cast<RankedTensorType>(parameter.getType()).getShape();
}

/// The parameter has this shape.
static LogicalResult checkShapeOf(Operation *op, SymbolRefAttr reference,
                                  ParameterOp parameter,
                                  ArrayRef<int64_t> expected) {
  if (shapeOf(parameter) == expected)
    return success();
  return op->emitOpError("reads ")
         << reference << " of shape " << formatShape(shapeOf(parameter))
         << ", expected " << formatShape(expected);
}

/// `op` reads a parameter of this shape.
static LogicalResult checkParameter(Operation *op,
                                    SymbolTableCollection &tables,
                                    SymbolRefAttr reference,
                                    ArrayRef<int64_t> expected) {
  FailureOr<ParameterOp> parameter = readParameter(op, tables, reference);
  if (failed(parameter))
    return failure();
  return checkShapeOf(op, reference, *parameter, expected);
}

LogicalResult GetOp::verifySymbolUses(SymbolTableCollection &tables) {
  return checkParameter(*this, tables, getParameter(), getShape(getValue()));
}

LogicalResult LinearOp::verifySymbolUses(SymbolTableCollection &tables) {
  ArrayRef<int64_t> in = getShape(getInput()), out = getShape(getOutput());
  SmallVector<int64_t> columns(in.drop_back());
  int64_t width = out.back();
  if (auto heads = getHeads()) {
    if (out.size() != in.size() + 1 || in.size() != 3 ||
        out[out.size() - 2] != static_cast<int64_t>(*heads))
      return emitOpError("has a result of shape ")
             << formatShape(out) << " for " << *heads
             << " heads, expected the shape BxTxHxD";
    width = saturatingProduct(width, *heads);
    columns.push_back(*heads);
  }
  columns.push_back(out.back());
  if (out != ArrayRef(columns))
    return emitOpError("has a result of shape ")
           << formatShape(out) << " for an input of shape " << formatShape(in)
           << ", expected " << formatShape(columns);
  return checkParameter(*this, tables, getWeight(), {width, in.back()});
}

LogicalResult NormOp::verifySymbolUses(SymbolTableCollection &tables) {
  return checkParameter(*this, tables, getWeight(),
                        getShape(getInput()).back());
}

LogicalResult EmbedOp::verifySymbolUses(SymbolTableCollection &tables) {
  ArrayRef<int64_t> out = getShape(getOutput());
  if (out.drop_back() != getShape(getIds()))
    return emitOpError("has a result of shape ")
           << formatShape(out) << " for ids of shape "
           << formatShape(getShape(getIds()));
  FailureOr<ParameterOp> table = readParameter(*this, tables, getTable());
  if (failed(table))
    return failure();
  ArrayRef<int64_t> shape = shapeOf(*table);
  return checkShapeOf(*this, getTable(), *table,
                      {shape.empty() ? 0 : shape.front(), out.back()});
}

LogicalResult RopeOp::verifySymbolUses(SymbolTableCollection &tables) {
  FailureOr<ParameterOp> table = readParameter(*this, tables, getTable());
  if (failed(table))
    return failure();
  if (table->getInit().getKind() != InitKind::Rotary)
    return emitOpError("reads ")
           << getTable() << ", which starts from no rotary angles";
  ArrayRef<int64_t> shape = shapeOf(*table);
  int64_t rows = getDim(getInput(), 1), width = getDim(getInput(), 3);
  int64_t last = saturatingProduct(std::max<int64_t>(rows, 1) - 1,
                                   getStride().value_or(1));
  if (last >= shape[0])
    return emitOpError("reads position ")
           << last << ", " << getTable() << " has " << shape[0];
  if (width % 2 != 0)
    return emitOpError("rotates heads of ")
           << width << " channels, expected an even number";
  return checkShapeOf(*this, getTable(), *table, {shape[0], width / 2, 2});
}

LogicalResult GatesOp::verifySymbolUses(SymbolTableCollection &tables) {
  ArrayRef<int64_t> logits = getShape(getLogits()),
                    gates = getShape(getGates());
  if (logits.drop_back() != gates.take_front(2) ||
      logits.back() != saturatingProduct(gates[2], gates[3]))
    return emitOpError("has gates of shape ")
           << formatShape(gates) << " for logits of shape "
           << formatShape(logits);
  return checkParameter(*this, tables, getBias(), logits.back());
}

//===----------------------------------------------------------------------===//
// What they stand for
//===----------------------------------------------------------------------===//

Value GetOp::expand(OpBuilder &, Location, Value, Value parameter) {
  return parameter;
}

Value LinearOp::expand(OpBuilder &builder, Location loc, Value input,
                       Value weight) {
  Value product = MatmulOp::create(
      builder, loc, input, weight, /*accumulator=*/Value(),
      /*transpose_lhs=*/false, /*transpose_rhs=*/true, TypeAttr());
  if (!getHeads())
    return product;
  return SplitHeadsOp::create(builder, loc, product, *getHeads());
}

Value NormOp::expand(OpBuilder &builder, Location loc, Value input,
                     Value weight) {
  return RMSNormOp::create(builder, loc, input, weight, getEps(), getPlusOne())
      .getOutput();
}

Value EmbedOp::expand(OpBuilder &builder, Location loc, Value ids,
                      Value table) {
  return EmbeddingOp::create(builder, loc, table, ids);
}

Value RopeOp::expand(OpBuilder &builder, Location loc, Value input,
                     Value table) {
  return RotaryOp::create(builder, loc, input, table, /*start=*/Value(),
                          /*at=*/Value(), getStride().value_or(1),
                          /*inverse=*/false);
}

Value GatesOp::expand(OpBuilder &builder, Location loc, Value logits,
                      Value bias) {
  return GateOp::create(builder, loc, getActivation(), logits, bias,
                        getDim(getGates(), 3));
}
