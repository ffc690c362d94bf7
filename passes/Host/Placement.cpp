//===- Placement.cpp - values that share memory ---------------------------===//

#include "passes/Host/Placement.h"
#include "dialects/Interfaces/ShapeChecks.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-buffer"

using namespace mlir;
using namespace nsa;

static bool isView(Operation *op) {
  return op && op->hasTrait<ViewOfOperand>();
}

static int64_t countElements(Value value) {
  return ShapedType::getNumElements(getShape(value));
}

static Place getWhole(Value value) {
  return {value, 0, RowLayout::dense(countElements(value))};
}

bool Place::isWhole() const {
  return offset == 0 && layout == RowLayout::dense(countElements(root));
}

bool Place::overlaps(const Place &other) const {
  if (root != other.root)
    return false;
  if (layout.pitch != other.layout.pitch || isDense() || other.isDense())
    return true;
  return offset < other.offset + other.layout.width &&
         other.offset < offset + layout.width;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// The slice of a part in that of the whole, if a layout describes it.
static std::optional<Place> getColumns(const Place &whole, Value value,
                                       int64_t width, int64_t begin) {
  int64_t row = getShape(value).back();
  if (row == 0 || width == row)
    return whole;
  if (whole.isWhole()) {
    bool isRow = countElements(value) == row;
    return Place{whole.root, begin,
                 isRow ? RowLayout::dense(width) : RowLayout{width, row}};
  }
  if (whole.isDense() || whole.layout.width != row)
    return std::nullopt;
  return Place{whole.root, whole.offset + begin,
               RowLayout{width, whole.layout.pitch}};
}

std::optional<Place> Placement::getPart(nn::SplitOp split,
                                        unsigned index) const {
  Value input = split.getInput();
  Place whole = get(input);
  int64_t begin = 0;
  for (int64_t size : split.getSizes().take_front(index))
    begin += size;
  int64_t size = split.getSizes()[index];
  if (!split.getRows() || getShape(input).size() == 1)
    return getColumns(whole, input, size, begin);
  if (!whole.isDense())
    return std::nullopt;
  int64_t row = ShapedType::getNumElements(getShape(input).drop_front());
  return Place{whole.root, whole.offset + begin * row,
               RowLayout::dense(size * row)};
}

Place Placement::getSource(Value value) const {
  if (auto known = placed.find(value); known != placed.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  if (!isView(op))
    return getWhole(value);
  if (auto split = dyn_cast<nn::SplitOp>(op))
    return *getPart(split, cast<OpResult>(value).getResultNumber());
  return get(op->getOperand(0));
}

Place Placement::get(Value value) const {
  return copied.contains(value) ? getWhole(value) : getSource(value);
}

//===----------------------------------------------------------------------===//
// Operands of nn.concat
//===----------------------------------------------------------------------===//

/// The use by which `value` becomes the operand of another operation, through
/// views with one reader each; null if there are more readers.
static OpOperand *getOnlyUse(Value value) {
  while (value.hasOneUse()) {
    OpOperand &use = *value.use_begin();
    if (!isView(use.getOwner()) || use.getOwner()->getNumResults() != 1)
      return &use;
    value = use.getOwner()->getResult(0);
  }
  return nullptr;
}

/// The value that `value` shows all of.
static Value stripViews(Value value) {
  Operation *op = value.getDefiningOp();
  while (isView(op) && op->getNumResults() == 1) {
    value = op->getOperand(0);
    op = value.getDefiningOp();
  }
  return value;
}

/// Whether the user of `use`, which is the only reader of `value` through
/// views, allows `value` to be computed at `place`.
bool Placement::mayLieIn(OpResult value, const Place &place,
                         OpOperand &use) const {
  Type element = getElementType(value);
  uint64_t begin = place.offset * element.getIntOrFloatBitWidth() / 8;
  // Dense memory begins where kernels and libraries expect it.
  if (getOnlyUse(value) != &use ||
      (place.isDense() && begin % kMemoryAlignment != 0))
    return false;
  for (Value shown = value; shown != use.get();
       shown = (*shown.user_begin())->getResult(0))
    if (!getRowsType(getShape(shown), element, place.layout))
      return false;
  if (!getRowsType(getShape(use.get()), element, place.layout))
    return false;
  if (isa<nn::ConcatOp>(value.getOwner()))
    return !place.isDense() && place.layout.width == getShape(value).back();
  auto launch = dyn_cast<tile::LaunchOp>(value.getOwner());
  if (!launch)
    return false;
  tile::KernelOp kernel = getKernel(launch);
  return layouts.mayTake(
      kernel, kernel.getNumInputs() + value.getResultNumber(), place.layout);
}

Place Placement::getTarget(nn::ConcatOp concat, unsigned index) const {
  Place whole = get(concat);
  int64_t begin = 0;
  for (Value part : concat.getParts().take_front(index))
    begin += getDim(part, concat.getAxis());
  Value part = concat.getParts()[index];
  if (!concat.getRows() || getShape(part).size() == 1)
    return *getColumns(whole, concat.getOutput(), getShape(part).back(), begin);
  int64_t row = ShapedType::getNumElements(getShape(part).drop_front());
  return {whole.root, whole.offset + begin * row,
          RowLayout::dense(countElements(part))};
}

void Placement::placeParts(nn::ConcatOp concat) {
  for (OpOperand &operand : concat->getOpOperands()) {
    Place place = getTarget(concat, operand.getOperandNumber());
    auto value = dyn_cast<OpResult>(stripViews(operand.get()));
    if (value && mayLieIn(value, place, operand)) {
      placed[value] = place;
      continue;
    }
    remark::missed(operand.get().getLoc(),
                   remark::RemarkOpts::name("Concat").category(DEBUG_TYPE))
        << remark::reason("operand {0} is copied to its columns",
                          operand.getOperandNumber());
  }
}

//===----------------------------------------------------------------------===//
// Updates of parts
//===----------------------------------------------------------------------===//

void Placement::addMember(Value value) {
  members[get(value).root].push_back(value);
}

void Placement::collectMembers() {
  for (BlockArgument argument : function.getArguments())
    addMember(argument);
  for (Operation &op : function.front()) {
    numbers[&op] = numbers.size();
    for (Value result : op.getResults())
      addMember(result);
  }
}

/// Whether all readers of `value` can take it from where it would be.
bool Placement::fitsReaders(Value value, const Place &place) const {
  if (!getRowsType(getShape(value), getElementType(value), place.layout))
    return false;
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto launch = dyn_cast<tile::LaunchOp>(user))
      return layouts.mayTake(getKernel(launch), use.getOperandNumber(),
                             place.layout);
    if (!isView(user))
      return isa<nn::ConcatOp>(user);
    auto split = dyn_cast<nn::SplitOp>(user);
    if (!split)
      return fitsReaders(user->getResult(0), place);
    return !split.getRows() && llvm::all_of(split.getParts(), [&](Value part) {
      std::optional<Place> columns =
          getColumns(place, value, getShape(part).back(), 0);
      return columns && fitsReaders(part, *columns);
    });
  });
}

bool Placement::mayUpdate(tile::LaunchOp launch, unsigned input,
                          unsigned output) const {
  Value part = launch.getInputs()[input], result = launch.getOutputs()[output];
  Place place = get(part);
  tile::KernelOp kernel = getKernel(launch);
  if (part.getType() != result.getType() || place.isDense() ||
      isa<BlockArgument>(place.root) || copied.contains(part) ||
      !inPlace.mayShare(kernel, input, output) ||
      !layouts.mayTake(kernel, input, place.layout) ||
      !layouts.mayTake(kernel, kernel.getNumInputs() + output, place.layout) ||
      !fitsReaders(result, place))
    return false;
  auto isReadHereOrLater = [&](Value other) {
    return get(other).overlaps(place) &&
           llvm::any_of(other.getUses(), [&](OpOperand &use) {
             Operation *user = use.getOwner();
             if (isView(user) || user->isBeforeInBlock(launch))
               return isView(user) && copied.contains(other);
             return user != launch || use.getOperandNumber() != input;
           });
  };
  auto known = members.find(place.root);
  return known != members.end() &&
         llvm::none_of(known->second, isReadHereOrLater);
}

/// Whether the rest of the memory is needed for at least half as long as
/// `result`. Otherwise the result would keep it from other uses.
bool Placement::keepsLongEnough(tile::LaunchOp launch, Value result,
                                const Place &place) const {
  unsigned begin = numbers.lookup(launch), own = begin, rest = begin;
  auto note = [&](Value value, unsigned &last) {
    for (Operation *user : value.getUsers())
      if (!isView(user))
        last = std::max(last, numbers.lookup(user));
  };
  for (Value value : members.lookup(result))
    note(value, own);
  for (Value value : members.lookup(place.root))
    if (!get(value).overlaps(place))
      note(value, rest);
  return 2 * (rest - begin) >= own - begin;
}

void Placement::updateParts(tile::LaunchOp launch) {
  auto isReturned = [](Value value) {
    OpOperand *use = getOnlyUse(value);
    return use && use->getOwner()->hasTrait<OpTrait::IsTerminator>();
  };
  for (auto [output, result] : llvm::enumerate(launch.getOutputs())) {
    if (placed.contains(result) || isReturned(result))
      continue;
    for (unsigned input = 0; input < launch.getInputs().size(); ++input)
      if (mayUpdate(launch, input, output) &&
          keepsLongEnough(launch, result, get(launch.getInputs()[input]))) {
        SmallVector<Value> moved = std::move(members[result]);
        members.erase(result);
        placed[result] = get(launch.getInputs()[input]);
        llvm::append_range(members[placed[result].root], moved);
        break;
      }
  }
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

/// Parts of parts that no layout describes are cut from copies.
void Placement::copyOddParts() {
  for (auto split : function.getOps<nn::SplitOp>())
    for (unsigned i = 0; i < split.getParts().size(); ++i)
      if (!getPart(split, i))
        copied.insert(split.getInput());
}

Placement::Placement(func::FuncOp function, SymbolTable &symbols,
                     KernelLayouts &layouts, InPlaceAnalysis &inPlace)
    : function(function), symbols(symbols), layouts(layouts), inPlace(inPlace) {
  copyOddParts();
  SmallVector<nn::ConcatOp> concats(function.getOps<nn::ConcatOp>());
  // An operand that is an `nn.concat` itself is placed before its own operands
  // are.
  for (nn::ConcatOp concat : llvm::reverse(concats))
    placeParts(concat);
  collectMembers();
  for (auto launch : function.getOps<tile::LaunchOp>())
    updateParts(launch);
}
