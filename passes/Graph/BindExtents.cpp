//===- BindExtents.cpp - numbers in place of `?` --------------------------===//

#include "passes/Graph/BindExtents.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/IR/Verifier.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <set>

namespace nsa {
#define GEN_PASS_DEF_BINDEXTENTS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Odd primes, so that sizes that are multiples of them are multiples of
/// nothing else. The length is large: tiles are chosen as for long sequences.
static constexpr int64_t batches[] = {7, 11, 13, 17, 19, 23, 29, 31};
static constexpr int64_t lengths[] = {10007, 10009, 10037, 10039, 10061,
                                      10067, 10243, 10753, 11273, 11777};
/// Queries of a program that lists those which selected a block.
static constexpr int64_t listedQueries = 512;

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
  /// What takes the place of a `?`, and its name in `nn.dims`.
  struct Dimension {
    int64_t number;
    StringRef name;
  };

  LogicalResult chooseNumbers();
  /// For each dimension of an argument what it is, if it is `?`.
  FailureOr<SmallVector<std::optional<Dimension>>>
  findDimensions(func::FuncOp function, BlockArgument argument);
  LogicalResult bind(func::FuncOp function);
  LogicalResult checkTable(Operation *op);
  /// Gives the results of an op the types that follow from its operands.
  LogicalResult bindResults(Operation *op);
  /// Binds all functions and verifies them. Errors say `?` again.
  LogicalResult bindAll();
  /// A message with `?` for numbers that stand for it, where they are sizes.
  std::string restore(StringRef message) const;

  ModuleOp module;
  int64_t numbers[kNumExtents] = {};
};
} // namespace

/// Everything that a number must not be, so that it stands for one thing.
static std::set<int64_t> findConstants(ModuleOp module) {
  std::set<int64_t> constants;
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

/// How many blocks queries select, where it is more than one.
static std::set<int64_t> findCounts(ModuleOp module) {
  std::set<int64_t> counts;
  module.walk([&](Operation *op) {
    for (TypeRange types :
         {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
      for (Type type : types)
        if (auto indices = dyn_cast<RankedTensorType>(type);
            indices && indices.getRank() == 4 &&
            indices.getElementType().isInteger(32) && indices.getDimSize(3) > 1)
          counts.insert(indices.getDimSize(3));
  });
  return counts;
}

/// Verifies an op whose types are not known yet, up to what the verifier says
/// of them: an error that has one of the `expected` texts is none. Verifiers
/// look at numbers of values, attributes, types of operands and of results in
/// this order, then at what is inferred.
static LogicalResult verifyUpTo(ArrayRef<StringRef> expected, Operation *op) {
  SmallVector<Diagnostic> found;
  {
    ScopedDiagnosticHandler handler(op->getContext(), [&](Diagnostic &error) {
      found.push_back(std::move(error));
    });
    std::optional<RegisteredOperationName> name = op->getRegisteredInfo();
    if (!name || succeeded(name->verifyInvariants(op)))
      return success();
  }
  std::string first = found.empty() ? "" : found.front().str();
  if (llvm::any_of(expected, [&](StringRef text) {
        return StringRef(first).contains(text);
      }))
    return success();
  for (Diagnostic &error : found)
    op->getContext()->getDiagEngine().emit(std::move(error));
  return failure();
}

LogicalResult Binder::chooseNumbers() {
  std::set<int64_t> constants = findConstants(module);
  auto isFree = [&](int64_t number) { return constants.count(number) == 0; };
  const auto *batch = llvm::find_if(batches, isFree);
  std::set<int64_t> counts = findCounts(module);
  const auto *length = llvm::find_if(lengths, [&](int64_t length) {
    // A tile of some queries has a multiple of `count` blocks.
    int64_t lists = llvm::divideCeil(length, listedQueries);
    if (llvm::any_of(counts, [&](int64_t count) { return lists % count == 0; }))
      return false;
    // Rows may begin at multiples of 16 bytes.
    bool fits = isFree(length) && isFree(llvm::alignTo(length, 4));
    module.walk([&](Operation *op) {
      for (StringRef name : {"visibility", "compressed"})
        if (auto visibility = dyn_cast_or_null<VisibilityAttrInterface>(
                op->getInherentAttr(name).value_or(Attribute()))) {
          fits = fits && isFree(visibility.getNumKeys(length));
          // Lists by block have a row for each, one more at both ends.
          if (int64_t block = visibility.getIndexBlock())
            for (int64_t ends : {0, 1, 2})
              fits = fits && isFree(llvm::divideCeil(length, block) + ends);
        }
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

/// What says how many keys there are, if an argument is keys or values that are
/// blocks of tokens; null for others.
static CompressedAttr findCompression(BlockArgument argument) {
  auto ofAttention = [&](auto op) {
    bool isKeys = op.getKey() == argument || op.getValue() == argument;
    return isKeys ? dyn_cast<CompressedAttr>(op.getVisibility())
                  : CompressedAttr();
  };
  for (Operation *user : argument.getUsers()) {
    auto blocks = llvm::TypeSwitch<Operation *, CompressedAttr>(user)
                      .Case<AttentionOp, AttentionBackwardOp>(ofAttention)
                      .Case([&](SelectOp op) {
                        return op.getKey() == argument ? op.getCompressed()
                                                       : CompressedAttr();
                      })
                      .Case([&](CompressBackwardOp op) {
                        return op.getOutputGrad() == argument
                                   ? op.getCompressed()
                                   : CompressedAttr();
                      })
                      .Default(CompressedAttr());
    if (blocks)
      return blocks;
  }
  return {};
}

/// Whether an argument has the angles of each position.
static bool isTableOfAngles(BlockArgument argument) {
  return llvm::any_of(argument.getUsers(), [&](Operation *user) {
    auto rotary = dyn_cast<nn::RotaryOp>(user);
    return rotary && rotary.getTable() == argument;
  });
}

FailureOr<SmallVector<std::optional<Binder::Dimension>>>
Binder::findDimensions(func::FuncOp function, BlockArgument argument) {
  auto type = cast<RankedTensorType>(argument.getType());
  unsigned index = argument.getArgNumber();
  SmallVector<StringRef> names = nn::getArgumentDims(function, index);
  SmallVector<std::optional<Dimension>> dimensions(type.getRank());
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
  for (Operation *user : argument.getUsers())
    if (failed(verifyUpTo({" op operand #", " op result #"}, user)))
      return failure();
  CompressedAttr blocks = findCompression(argument);
  bool hasLength = false;
  for (size_t d = 0; d < dimensions.size(); ++d) {
    if (!type.isDynamicDim(d))
      continue;
    bool isBatch = names.empty() ? d == 0 && !isTableOfAngles(argument)
                                 : names[d] == nn::kBatchDim;
    if (!isBatch && blocks) {
      dimensions[d] = {blocks.getNumKeys(numbers[kSequenceExtent]), ""};
      continue;
    }
    if (!names.empty() && names[d].empty())
      return refuse(d, "which `nn.dims` calls neither batch nor seq");
    if (names.empty() && !isBatch && std::exchange(hasLength, true))
      return refuse(d, "but only the batch and the length of sequences are "
                       "known at the call");
    dimensions[d] = isBatch
                        ? Dimension{numbers[kBatchExtent], nn::kBatchDim}
                        : Dimension{numbers[kSequenceExtent], nn::kSequenceDim};
  }
  return dimensions;
}

/// Refuses angles of a number of positions for sequences of any length. The
/// result of `op` has `?` still.
LogicalResult Binder::checkTable(Operation *op) {
  // It is not verified yet.
  if (!isa<nn::RotaryOp>(op) || op->getNumOperands() < 2 ||
      op->getNumResults() < 1)
    return success();
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  auto table = dyn_cast<RankedTensorType>(op->getOperand(1).getType());
  bool isAny = result && result.getRank() > 1 && result.isDynamicDim(1);
  if (!isAny || !table || table.getRank() == 0 ||
      table.getDimSize(0) == numbers[kSequenceExtent])
    return success();
  return op->emitOpError("has a table of ")
         << table.getDimSize(0) << " positions, but sequences of any length; "
         << "write `?` for the first dimension of the table";
}

/// Whether numbers in place of `?` make the type `bound` of `declared`.
static bool isBoundOf(Type declared, Type bound) {
  auto open = dyn_cast<RankedTensorType>(declared);
  auto tensor = dyn_cast<RankedTensorType>(bound);
  return declared == bound ||
         (open && tensor && open.getElementType() == tensor.getElementType() &&
          succeeded(verifyCompatibleShape(open, tensor)));
}

LogicalResult Binder::bindResults(Operation *op) {
  if (failed(checkTable(op)))
    return failure();
  SmallVector<Type> declared(op->getResultTypes());
  // Nothing may be inferred of what is wrong without its results.
  for (OpResult result : op->getResults())
    if (isOpen(result.getType())) {
      auto type = cast<RankedTensorType>(result.getType());
      SmallVector<int64_t> shape(type.getShape());
      for (auto [d, size] : llvm::enumerate(shape))
        if (ShapedType::isDynamic(size))
          size = numbers[d == 0 ? kBatchExtent : kSequenceExtent];
      result.setType(type.clone(shape));
    }
  if (failed(verifyUpTo({" op inferred type(s) "}, op)) ||
      failed(inferResultTypes(op)))
    return failure();
  for (auto [result, type] : llvm::zip_equal(op->getResults(), declared))
    if (!isBoundOf(type, result.getType()))
      return op->emitOpError("has a result of type ")
             << type << ", its operands make it " << result.getType();
  return success();
}

LogicalResult Binder::bind(func::FuncOp function) {
  DenseSet<Value> changed;
  if (llvm::none_of(function.getArgumentTypes(), isOpen))
    return success();
  FailureOr<func::ReturnOp> ret = getReturn(function);
  if (failed(ret) || failed(verify(*ret)))
    return failure();
  for (BlockArgument argument : function.getArguments()) {
    if (!isOpen(argument.getType()))
      continue;
    auto dimensions = findDimensions(function, argument);
    if (failed(dimensions))
      return failure();
    auto type = cast<RankedTensorType>(argument.getType());
    SmallVector<int64_t> shape(type.getShape());
    SmallVector<StringRef> names(shape.size());
    for (auto [size, found, name] : llvm::zip_equal(shape, *dimensions, names))
      if (found) {
        size = found->number;
        name = found->name;
      }
    function.setArgAttr(argument.getArgNumber(), nn::kDimsAttr,
                        Builder(module.getContext()).getStrArrayAttr(names));
    argument.setType(type.clone(shape));
    changed.insert(argument);
  }
  for (Operation &op : function.front().without_terminator()) {
    if (llvm::none_of(op.getOperands(),
                      [&](Value v) { return changed.contains(v); }))
      continue;
    if (failed(bindResults(&op)))
      return failure();
    changed.insert(op.result_begin(), op.result_end());
  }
  updateFunctionType(function);
  return success();
}

std::string Binder::restore(StringRef message) const {
  std::string text;
  while (!message.empty()) {
    StringRef digits = message.take_while(llvm::isDigit);
    if (digits.empty()) {
      text += message.front();
      message = message.drop_front();
      continue;
    }
    message = message.drop_front(digits.size());
    int64_t number = 0;
    StringRef before = text;
    bool isSize = before.ends_with("x") || message.starts_with("x") ||
                  before.ends_with("shape ") ||
                  (before.ends_with("(") && message.starts_with(")"));
    bool isNumber = isSize && !digits.getAsInteger(10, number) &&
                    llvm::is_contained(numbers, number);
    text += isNumber ? StringRef("?") : digits;
  }
  return text;
}

LogicalResult Binder::bindAll() {
  SmallVector<Diagnostic> found;
  LogicalResult result = success();
  {
    ScopedDiagnosticHandler handler(module.getContext(),
                                    [&](Diagnostic &diagnostic) {
                                      found.push_back(std::move(diagnostic));
                                    });
    for (func::FuncOp function : module.getOps<func::FuncOp>())
      if (succeeded(result) && !function.isExternal())
        result = bind(function);
    if (succeeded(result))
      result = verify(module);
  }
  for (const Diagnostic &diagnostic : found) {
    Diagnostic shown(diagnostic.getLocation(), diagnostic.getSeverity());
    shown << restore(diagnostic.str());
    for (const Diagnostic &note : diagnostic.getNotes())
      shown.attachNote(note.getLocation()) << restore(note.str());
    module.getContext()->getDiagEngine().emit(std::move(shown));
  }
  return result;
}

LogicalResult Binder::run() {
  for (func::FuncOp function : module.getOps<func::FuncOp>())
    if (failed(verify(function, /*verifyRecursively=*/false)))
      return failure();
  bool isNeeded =
      llvm::any_of(module.getOps<func::FuncOp>(), [](func::FuncOp function) {
        return llvm::any_of(function.getArgumentTypes(), isOpen);
      });
  if (!isNeeded)
    return verify(module);
  if (failed(chooseNumbers()))
    return failure();
  ExtentTable table;
  for (unsigned index = 0; index < kNumExtents; ++index)
    table.add(Extent::argument(numbers[index], index, module.getContext()));
  table.writeTo(module);
  return bindAll();
}

LogicalResult nsa::bindExtents(ModuleOp module) { return Binder(module).run(); }

namespace {
struct BindExtentsPass : nsa::impl::BindExtentsBase<BindExtentsPass> {
  void runOnOperation() override {
    if (failed(bindExtents(getOperation())))
      signalPassFailure();
  }
};
} // namespace
