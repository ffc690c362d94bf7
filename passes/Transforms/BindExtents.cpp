//===- BindExtents.cpp - numbers in place of `?` --------------------------===//

#include "passes/Transforms/BindExtents.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NSA/NSADialect.h"
#include "passes/Transforms/FunctionUtils.h"

using namespace mlir;
using namespace nsa;

/// Odd primes, so that sizes which are multiples of them are multiples of
/// nothing else. Sequences of the second kind are long: tiles are chosen as for
/// them.
static constexpr int64_t batches[] = {7, 11, 13, 17, 19, 23, 29, 31};
static constexpr int64_t lengths[] = {10007, 10009, 10037, 10039, 10061, 10067};

static bool isOpen(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && !tensor.hasStaticShape();
}

namespace {
class Binder {
public:
  explicit Binder(ModuleOp module) : module(module) {}
  LogicalResult run();

private:
  LogicalResult chooseNumbers();
  /// For each dimension of an argument the extent that it is, if it is `?`.
  FailureOr<SmallVector<std::optional<unsigned>>>
  findExtents(func::FuncOp function, BlockArgument argument);
  LogicalResult bind(func::FuncOp function);

  ModuleOp module;
  int64_t numbers[kNumExtents] = {};
};
} // namespace

/// Everything that a number must not be, so that it stands for one thing.
static DenseSet<int64_t> findConstants(ModuleOp module) {
  DenseSet<int64_t> constants;
  auto add = [&](TypeRange types) {
    for (Type type : types)
      if (auto shaped = dyn_cast<ShapedType>(type); shaped && shaped.hasRank())
        constants.insert(shaped.getShape().begin(), shaped.getShape().end());
  };
  module.walk([&](Operation *op) {
    add(op->getOperandTypes());
    add(op->getResultTypes());
    for (Region &region : op->getRegions())
      for (Block &block : region)
        add(block.getArgumentTypes());
  });
  return constants;
}

LogicalResult Binder::chooseNumbers() {
  DenseSet<int64_t> constants = findConstants(module);
  auto isFree = [&](int64_t number) { return !constants.contains(number); };
  const auto *batch = llvm::find_if(batches, isFree);
  const auto *length = llvm::find_if(lengths, [&](int64_t length) {
    bool fits = isFree(length);
    module.walk([&](Operation *op) {
      for (StringRef name : {"visibility", "compressed"})
        if (auto visibility = dyn_cast_or_null<VisibilityAttrInterface>(
                op->getInherentAttr(name).value_or(Attribute())))
          fits = fits && isFree(visibility.getNumKeys(length));
    });
    return fits;
  });
  if (batch == std::end(batches) || length == std::end(lengths))
    return module.emitError("has constants of all the numbers that could stand "
                            "for `?`, such as ")
           << batches[0] << " and " << lengths[0];
  numbers[kBatchExtent] = *batch;
  numbers[kSequenceExtent] = *length;
  return success();
}

FailureOr<SmallVector<std::optional<unsigned>>>
Binder::findExtents(func::FuncOp function, BlockArgument argument) {
  auto type = cast<RankedTensorType>(argument.getType());
  unsigned index = argument.getArgNumber();
  SmallVector<StringRef> names = nn::getArgumentDims(function, index);
  SmallVector<std::optional<unsigned>> extents(type.getRank());
  auto refuse = [&](size_t d, StringRef why) {
    return emitError(argument.getLoc(), "argument ")
           << index << " of `" << function.getName() << "`, " << type
           << ", has `?` in dimension " << d << ", " << why;
  };
  if (auto role = nn::getArgumentRole(function, index);
      role && *role != nn::ArgumentRole::Input)
    return emitError(argument.getLoc(), "argument ")
           << index << " of `" << function.getName() << "`, " << type
           << ", has `?`, but outlives the call";
  bool hasLength = false;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (!type.isDynamicDim(d))
      continue;
    bool isBatch = names.empty() ? d == 0 : names[d] == nn::kBatchDim;
    if (!names.empty() && names[d].empty())
      return refuse(d, "which `nn.dims` calls neither batch nor seq");
    if (names.empty() && !isBatch && std::exchange(hasLength, true))
      return refuse(d, "but only the batch and the length of sequences are "
                       "known at the call");
    extents[d] = isBatch ? kBatchExtent : kSequenceExtent;
  }
  return extents;
}

LogicalResult Binder::bind(func::FuncOp function) {
  DenseSet<Value> changed;
  for (BlockArgument argument : function.getArguments()) {
    if (!isOpen(argument.getType()))
      continue;
    auto extents = findExtents(function, argument);
    if (failed(extents))
      return failure();
    auto type = cast<RankedTensorType>(argument.getType());
    SmallVector<int64_t> shape(type.getShape());
    SmallVector<StringRef> names(shape.size());
    for (auto [size, extent, name] : llvm::zip_equal(shape, *extents, names))
      if (extent) {
        size = numbers[*extent];
        name = *extent == kBatchExtent ? nn::kBatchDim : nn::kSequenceDim;
      }
    function.setArgAttr(argument.getArgNumber(), nn::kDimsAttr,
                        Builder(module.getContext()).getStrArrayAttr(names));
    argument.setType(type.clone(shape));
    changed.insert(argument);
  }
  if (changed.empty())
    return success();
  if (failed(getReturn(function)))
    return failure();
  for (Operation &op : function.front().without_terminator()) {
    if (llvm::none_of(op.getOperands(),
                      [&](Value v) { return changed.contains(v); }))
      continue;
    if (failed(inferResultTypes(&op)))
      return failure();
    changed.insert(op.result_begin(), op.result_end());
  }
  updateFunctionType(function);
  return success();
}

LogicalResult Binder::run() {
  auto functions = module.getOps<func::FuncOp>();
  bool isNeeded = llvm::any_of(functions, [](func::FuncOp function) {
    return llvm::any_of(function.getArgumentTypes(), isOpen);
  });
  if (!isNeeded)
    return success();
  if (failed(chooseNumbers()))
    return failure();
  ExtentTable table;
  for (unsigned index = 0; index < kNumExtents; ++index)
    table.add(Extent::argument(numbers[index], index, module.getContext()));
  table.writeTo(module);
  for (func::FuncOp function : functions)
    if (!function.isExternal() && failed(bind(function)))
      return failure();
  return success();
}

LogicalResult nsa::bindExtents(ModuleOp module) { return Binder(module).run(); }
