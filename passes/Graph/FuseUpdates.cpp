//===- FuseUpdates.cpp - one update of many tensors -----------------------===//

#include "passes/Graph/FuseUpdates.h"
#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNOps.h"

#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

#define DEBUG_TYPE "nsa-fuse"

using namespace mlir;
using namespace nsa;

/// Elements of a flat group at most. They are a multiple of 16, so kernels see
/// them as up to 16 rows of equal length, whose elements they count in 32 bits.
static constexpr int64_t kMaxLength = int64_t(1) << 34;
static_assert(nn::kFlatAlignment == 16);

static constexpr StringLiteral kNotInPlace =
    "its tensors are not updated in place";

namespace {

/// Values and the persistent tensors that they are in.
struct Parts {
  SmallVector<Value> values;
  SmallVector<StringRef> tensors;

  void append(Value value, StringRef tensor) {
    values.push_back(value);
    tensors.push_back(tensor);
  }
  void append(const Parts &other) {
    values.append(other.values);
    tensors.append(other.tensors);
  }
  void reorder(ArrayRef<unsigned> order) {
    values = llvm::map_to_vector(order, [&](unsigned i) { return values[i]; });
    tensors =
        llvm::map_to_vector(order, [&](unsigned i) { return tensors[i]; });
  }
  int64_t getLength() const {
    return nn::getFlatLength(ValueRange(values).getTypes());
  }
};

/// Updates by one optimizer with the same attributes and scalars, and what they
/// read: weights, states, gradients.
struct Group {
  SmallVector<OptimizerOpInterface> updates;
  SmallVector<Parts> operands;
};

class UpdateFuser {
public:
  UpdateFuser(func::FuncOp function, FlatGroupLayout &layout)
      : function(function), ret(function.front().getTerminator()),
        layout(layout) {}

  unsigned run();

private:
  bool claim(ArrayRef<StringRef> tensors);
  StringRef collect(OptimizerOpInterface update);
  StringRef getGradientTensor(Value gradient);
  void collectGradient(OptimizerOpInterface update);
  void arrange(Group &group);
  bool fits(const Group &group);
  void fuse(Group &group);
  void fuseNorm(nn::GradientNormOp norm);
  void fuseFills();
  void refuse(Operation *op, StringRef reason);

  Value flatten(OpBuilder &builder, Location loc, const Parts &parts);
  ValueRange unflatten(OpBuilder &builder, Location loc, Value whole,
                       const Parts &parts);

  func::FuncOp function;
  Operation *ret;
  FlatGroupLayout &layout;
  /// By the optimizer, its attributes, norm, loss and hyper.
  llvm::MapVector<std::tuple<Attribute, Attribute, Value, Value, Value>, Group>
      groups;
  /// The gradients of all fused groups, and of updates that are not
  /// elementwise.
  Parts gradients, others;
  llvm::StringSet<> claimed;
  unsigned numReplaced = 0;
};

} // namespace

void UpdateFuser::refuse(Operation *op, StringRef reason) {
  remark::missed(op->getLoc(), remark::RemarkOpts::name("Flat group")
                                   .category(DEBUG_TYPE)
                                   .function(function.getName()))
      << remark::reason("{0}", reason);
}

//===----------------------------------------------------------------------===//
// What may be fused
//===----------------------------------------------------------------------===//

/// Whether the operation is a chain of sums, such as those of a table that two
/// operations read.
static bool isSum(Operation *op) {
  auto fused = dyn_cast_if_present<nn::FusedOp>(op);
  return fused && fused->getNumResults() == 1 &&
         llvm::all_of(fused.getBody().front().without_terminator(),
                      llvm::IsaPred<nn::AddOp>);
}

/// The tensor whose memory a gradient is in, or is summed into.
StringRef UpdateFuser::getGradientTensor(Value gradient) {
  // A mean over ranks replaces what it is the mean of.
  if (auto mean = gradient.getDefiningOp<nn::AllReduceOp>())
    gradient = mean.getInput();
  auto getName = [&](Value value) -> StringRef {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument ? nn::getArgumentName(function, argument.getArgNumber())
                    : StringRef();
  };
  if (StringRef name = getName(gradient); !name.empty())
    return name;
  Operation *op = gradient.getDefiningOp();
  if (auto rows = dyn_cast_if_present<nn::AccumulateRowsOp>(op))
    return getName(rows.getSums()[cast<OpResult>(gradient).getResultNumber()]);
  if (auto unflatten = dyn_cast_if_present<nn::UnflattenOp>(op)) {
    unsigned part = cast<OpResult>(gradient).getResultNumber();
    return cast<StringAttr>(unflatten.getTensors()[part]).getValue();
  }
  // Matmuls that are added up one after the other share one buffer.
  while (auto product = dyn_cast_if_present<nn::MatmulOp>(op)) {
    auto before = product.getAccumulator()
                      ? product.getAccumulator().getDefiningOp<nn::MatmulOp>()
                      : nn::MatmulOp();
    if (!before || !before->hasOneUse())
      break;
    op = before;
  }
  if (!isa_and_present<nn::AddOp, nn::MatmulOp>(op) && !isSum(op))
    return {};
  for (Value operand : op->getOperands()) {
    auto argument = dyn_cast<BlockArgument>(operand);
    if (argument && argument.hasOneUse() &&
        nn::getArgumentRole(function, argument.getArgNumber()) ==
            nn::ArgumentRole::Gradient)
      return getName(operand);
  }
  return {};
}

/// Whether no other update has one of the tensors: a flat group has each once.
bool UpdateFuser::claim(ArrayRef<StringRef> tensors) {
  if (llvm::any_of(tensors, [&](StringRef t) { return claimed.contains(t); }))
    return false;
  claimed.insert_range(tensors);
  return true;
}

/// Norm and fills are of all gradients, however their weights are updated.
void UpdateFuser::collectGradient(OptimizerOpInterface update) {
  Value gradient = update.getGradient();
  StringRef tensor = getGradientTensor(gradient);
  if (!tensor.empty() && claim(tensor))
    others.append(gradient, tensor);
}

/// Adds an update to its group. Returns why it has to stay as it is, or
/// nothing.
StringRef UpdateFuser::collect(OptimizerOpInterface update) {
  if (!update.isElementwise())
    return "its optimizer is not elementwise";
  SmallVector<StringRef> tensors(update.getTensors().size());
  for (unsigned i = 0; i + 1 < tensors.size(); ++i) {
    auto argument = dyn_cast<BlockArgument>(update->getOperand(i));
    if (!argument)
      return kNotInPlace;
    tensors[i] = nn::getArgumentName(function, argument.getArgNumber());
    Value result = update->getResult(i);
    if (tensors[i].empty() || !result.hasOneUse() ||
        !llvm::all_of(argument.getUsers(), [&](Operation *user) {
          return user == update || user->isBeforeInBlock(update);
        }))
      return kNotInPlace;
    OpOperand &use = *result.use_begin();
    if (use.getOwner() != ret ||
        nn::getResultAlias(function, use.getOperandNumber()) != tensors[i])
      return kNotInPlace;
  }
  tensors.back() = getGradientTensor(update.getGradient());
  if (tensors.back().empty())
    return kNotInPlace;
  if (!claim(tensors))
    return "another update has one of its tensors";
  Group &group =
      groups[{update->getName().getIdentifier(), update->getAttrDictionary(),
              update.getNorm(), update.getLoss(), update.getHyper()}];
  group.updates.push_back(update);
  group.operands.resize(tensors.size());
  for (auto [parts, operand, tensor] :
       llvm::zip_equal(group.operands, update.getTensors(), tensors))
    parts.append(operand, tensor);
  return "";
}

/// Orders the updates so that flat groups that are there already stay together.
void UpdateFuser::arrange(Group &group) {
  SmallVector<unsigned> order = layout.arrange(group.operands[0].tensors);
  group.updates =
      llvm::map_to_vector(order, [&](unsigned i) { return group.updates[i]; });
  for (Parts &parts : group.operands)
    parts.reorder(order);
}

bool UpdateFuser::fits(const Group &group) {
  if (group.updates.size() < 2)
    return false;
  OptimizerOpInterface first = group.updates.front();
  if (group.operands[0].getLength() > kMaxLength) {
    refuse(first, "the tensors together have too many elements");
    return false;
  }
  for (const Parts &parts : group.operands)
    if (!layout.claim(parts.tensors)) {
      refuse(first, "another function has its tensors in another order");
      return false;
    }
  return true;
}

//===----------------------------------------------------------------------===//
// Fused operations
//===----------------------------------------------------------------------===//

Value UpdateFuser::flatten(OpBuilder &builder, Location loc,
                           const Parts &parts) {
  auto type = RankedTensorType::get(parts.getLength(), builder.getF32Type());
  return nn::FlattenOp::create(builder, loc, type, parts.values,
                               builder.getStrArrayAttr(parts.tensors));
}

/// New values of the tensors that `parts` are in.
ValueRange UpdateFuser::unflatten(OpBuilder &builder, Location loc, Value whole,
                                  const Parts &parts) {
  return nn::UnflattenOp::create(builder, loc,
                                 ValueRange(parts.values).getTypes(), whole,
                                 builder.getStrArrayAttr(parts.tensors))
      .getParts();
}

void UpdateFuser::fuse(Group &group) {
  OptimizerOpInterface last = *llvm::max_element(
      group.updates, [](OptimizerOpInterface a, OptimizerOpInterface b) {
        return a->isBeforeInBlock(b);
      });
  OpBuilder builder(last);
  Location loc = last.getNorm().getLoc();
  SmallVector<Value> operands;
  for (const Parts &parts : group.operands)
    operands.push_back(flatten(builder, loc, parts));
  OptimizerOpInterface fused = last.createFor(builder, loc, operands);
  for (unsigned i = 0; i < fused->getNumResults(); ++i) {
    ValueRange parts =
        unflatten(builder, loc, fused->getResult(i), group.operands[i]);
    for (auto [update, part] : llvm::zip_equal(group.updates, parts))
      update->getResult(i).replaceAllUsesWith(part);
  }
  gradients.append(group.operands.back());
  numReplaced += group.updates.size();
  for (OptimizerOpInterface update : group.updates)
    update->erase();
}

/// Whether both have the same values, each as often.
static bool haveSameValues(ValueRange first, ValueRange second) {
  if (first.size() != second.size())
    return false;
  DenseMap<Value, int64_t> excess;
  for (auto [a, b] : llvm::zip_equal(first, second)) {
    ++excess[a];
    --excess[b];
  }
  return llvm::all_of(excess, [](auto &entry) { return entry.second == 0; });
}

void UpdateFuser::fuseNorm(nn::GradientNormOp norm) {
  if (!haveSameValues(norm.getGradients(), gradients.values))
    return refuse(norm, "its gradients are not those of fused updates");
  if (!layout.claim(gradients.tensors))
    return refuse(norm, "another function has the gradients in another order");
  OpBuilder builder(norm);
  Value all = flatten(builder, norm.getLoc(), gradients);
  norm.getGradientsMutable().assign(all);
  ++numReplaced;
}

/// Gradients that all get one value get it at once.
void UpdateFuser::fuseFills() {
  llvm::StringMap<unsigned> results;
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i)
    results[nn::getResultAlias(function, i)] = i;
  std::optional<APFloat> value;
  for (StringRef tensor : gradients.tensors) {
    auto result = results.find(tensor);
    auto fill =
        result == results.end()
            ? nn::FillOp()
            : ret->getOperand(result->second).getDefiningOp<nn::FillOp>();
    if (!fill || (value && !value->bitwiseIsEqual(fill.getValue())))
      return refuse(ret, "not all gradients are set to one value");
    value = fill.getValue();
  }
  if (!layout.claim(gradients.tensors))
    return refuse(ret, "another function has the gradients in another order");
  OpBuilder builder(ret);
  auto type =
      RankedTensorType::get(gradients.getLength(), builder.getF32Type());
  Location loc = function.getLoc();
  Value whole = nn::FillOp::create(
      builder, loc, builder.getF64FloatAttr(value->convertToDouble()),
      TypeAttr::get(type));
  ValueRange parts = unflatten(builder, loc, whole, gradients);
  for (auto [tensor, part] : llvm::zip_equal(gradients.tensors, parts)) {
    OpOperand &operand = ret->getOpOperand(results[tensor]);
    Operation *fill = operand.get().getDefiningOp();
    operand.set(part);
    if (fill->use_empty())
      fill->erase();
  }
  numReplaced += gradients.tensors.size();
}

unsigned UpdateFuser::run() {
  SmallVector<nn::GradientNormOp> norms(function.getOps<nn::GradientNormOp>());
  for (auto update : function.getOps<OptimizerOpInterface>()) {
    if (!update.isElementwise())
      collectGradient(update);
    if (StringRef obstacle = collect(update); !obstacle.empty())
      refuse(update, obstacle);
  }
  for (auto &[scalars, group] : groups) {
    arrange(group);
    if (fits(group))
      fuse(group);
  }
  others.reorder(layout.arrange(others.tensors));
  gradients.append(others);
  if (gradients.tensors.empty())
    return 0;
  if (gradients.getLength() > kMaxLength) {
    refuse(ret, "the gradients together have too many elements");
    return numReplaced;
  }
  for (nn::GradientNormOp norm : norms)
    fuseNorm(norm);
  fuseFills();
  return numReplaced;
}

unsigned nsa::fuseUpdates(func::FuncOp function, FlatGroupLayout &layout) {
  return UpdateFuser(function, layout).run();
}
