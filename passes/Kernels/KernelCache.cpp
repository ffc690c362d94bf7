//===- KernelCache.cpp - kernels shared between operations ----------------===//

#include "passes/Kernels/KernelCache.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/Interfaces/PerformanceLints.h"
#include "dialects/Interfaces/RowLayout.h"
#include "dialects/NSA/NSAOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AsmState.h"
#include "passes/Support/Debug.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#define DEBUG_TYPE "nsa-convert-to-tile"

using namespace mlir;
using namespace nsa;

Extent nsa::getRowPitch(const Extent &length, bool isParallel) {
  constexpr int64_t multiple = kTensorAlignment / 4;
  if (!isParallel || length.isConstant() ||
      getKnownDivisor(length) % multiple == 0)
    return length;
  return ceilDiv(length, multiple) * multiple;
}

/// Writes the operations inside of `fused`, by whatever names outside.
static void printBody(FusedOp fused, llvm::raw_ostream &os) {
  OpPrintingFlags flags;
  flags.useLocalScope();
  AsmState state(fused, flags);
  for (Operation &inner : fused.getBody().front()) {
    inner.print(os, state);
    os << '\n';
  }
}

/// The properties of `op`. Optional operands that it does not have leave no
/// trace, so one more at the end of an operation renames no kernel's answers.
static void printProperties(Operation *op, llvm::raw_ostream &os) {
  Attribute properties = op->getPropertiesAsAttribute();
  if (!properties)
    return;
  StringRef name =
      OpTrait::AttrSizedOperandSegments<void>::getOperandSegmentSizeAttr();
  auto members = dyn_cast<DictionaryAttr>(properties);
  auto sizes =
      members ? members.getAs<DenseI32ArrayAttr>(name) : DenseI32ArrayAttr();
  if (!sizes)
    return properties.print(os);
  NamedAttrList present(members);
  ArrayRef<int32_t> groups = sizes;
  while (!groups.empty() && groups.back() == 0)
    groups = groups.drop_back();
  present.set(name, DenseI32ArrayAttr::get(op->getContext(), groups));
  present.getDictionary(op->getContext()).print(os);
}

/// What determines the kernels of `op`, and which of them is meant.
static std::string getKey(Operation *op, const KernelSpec &spec,
                          TypeRange inputs, TypeRange outputs) {
  std::string key;
  llvm::raw_string_ostream os(key);
  if (!spec.ownName.empty()) {
    os << spec.ownName << ' ' << spec.shape << ' ' << spec.key << ' ';
    llvm::interleaveComma(inputs, os);
    os << " -> ";
    llvm::interleaveComma(outputs, os);
    return key;
  }
  os << op->getName() << ' ' << spec.suffix << ' ' << spec.key << ' ';
  if (spec.schedule.sizes)
    os << spec.schedule.sizes << ' ';
  printProperties(op, os);
  os << " (" << op->getOperandTypes() << ") -> " << op->getResultTypes();
  if (auto fused = dyn_cast<FusedOp>(op))
    printBody(fused, os);
  return key;
}

/// The narrowest float type that the operation touches.
static Type getComputeType(Operation *op) {
  Type computeType;
  for (TypeRange types :
       {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types) {
      Type element = getElementTypeOrSelf(type);
      if (isa<FloatType>(element) &&
          (!computeType || element.getIntOrFloatBitWidth() <
                               computeType.getIntOrFloatBitWidth()))
        computeType = element;
    }
  return computeType;
}

/// The operation's name. That of attention says what it attends to:
/// "window_attention_backward".
static std::string getKind(Operation *op) {
  if (auto fused = dyn_cast<FusedOp>(op))
    return fused.isBackward() ? "gated_attention_backward" : "gated_attention";
  std::string kind = op->getName().stripDialect().str();
  auto visibility = dyn_cast_or_null<VisibilityAttrInterface>(
      op->getInherentAttr("visibility").value_or(Attribute()));
  if (visibility)
    kind.insert(kind.find("attention"), visibility.getKind().str() + "_");
  return kind;
}

static std::string getName(Operation *op, const KernelSpec &spec) {
  std::string name = spec.ownName;
  llvm::raw_string_ostream os(name);
  if (!spec.ownName.empty()) {
    os << '_' << spec.shape;
    return name;
  }
  os << getKind(op);
  for (StringRef part : {spec.suffix, spec.shape})
    if (!part.empty())
      os << '_' << part;
  if (Type computeType = getComputeType(op))
    os << '_' << computeType;
  return name;
}

static int64_t getNumBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() *
         llvm::divideCeil(tensor.getElementTypeBitWidth(), 8);
}

/// Kernels compute with 32 bits.
static LogicalResult checkNumbers(Operation *op, tile::KernelOp kernel) {
  WalkResult result = kernel.walk([&](arith::ConstantOp constant) {
    auto number = constant->getAttrOfType<IntegerAttr>(kTooLargeAttr);
    if (!number)
      return WalkResult::advance();
    op->emitOpError("counts to ")
        << number.getInt() << " in a kernel, more than " << INT32_MAX;
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

std::array<Extent, 3> nsa::getGridOfParts(const KernelSpec &spec) {
  auto [x, y, z] = spec.grid;
  return {x * spec.schedule.columnParts, y, z};
}

void nsa::buildParts(tile::TileBuilder &b, const KernelSpec &spec,
                     std::array<tile::Expr, 3> ids,
                     llvm::function_ref<void()> body) {
  int64_t parts = spec.schedule.columnParts;
  if (parts == 1)
    return b.asProgram(ids, body);
  auto count = static_cast<double>(parts);
  tile::Expr part = ids[0] % count;
  b.asProgram({ids[0] / count, ids[1], ids[2]}, body, part);
}

/// The key without sizes of batches and sequences: of [B, S, heads, width] the
/// last two are left, of [B, heads, S, indices] the last one.
static std::string dropExtents(StringRef key) {
  std::string result;
  constexpr StringRef begin = "tensor<";
  while (!key.empty()) {
    auto [before, rest] = key.split(begin);
    result += before;
    SmallVector<StringRef> sizes;
    StringRef digits;
    while (!(digits = rest.take_while(llvm::isDigit)).empty() &&
           rest.substr(digits.size()).starts_with("x")) {
      sizes.push_back(digits);
      rest = rest.drop_front(digits.size() + 1);
    }
    size_t kept = sizes.size() < 4 ? 0 : rest.starts_with("i32") ? 1 : 2;
    for (StringRef size : ArrayRef(sizes).take_back(kept))
      result += "x" + size.str();
    result += "x" + std::to_string(sizes.size()) + " ";
    key = rest;
  }
  return result;
}

/// The class of sequences of about this length: the forms of selected kernels
/// and register use depend on it.
static StringRef getLengthClass(const Extent &sequence) {
  if (!sequence.isConstant())
    return "?";
  auto tokens = int64_t(sequence);
  return tokens < 2048    ? "short"
         : tokens < 4096  ? "2k"
         : tokens < 16384 ? "8k"
                          : "32k";
}

LogicalResult KernelCache::checkSchedule(Operation *op, AttentionKernel kernel,
                                         ScheduleAttr sizes) const {
  auto fail = [&] {
    return op->emitOpError("has a schedule of ")
           << stringifyAttentionKernel(kernel) << " with ";
  };
  for (auto [name, size] : {std::pair("queries", sizes.getQueries()),
                            std::pair("keys", sizes.getKeys())})
    if (size % machine.getTileMultiple() != 0)
      return fail() << name << " = " << size
                    << ", no multiple of the machine's "
                    << machine.getTileMultiple();
  bool gathers = kernel == AttentionKernel::SelectedKeyValueGrad &&
                 sizes.getForm() == SelectionForm::Lists &&
                 machine.getWarpgroupRows() != 0;
  if (sizes.getProducer() != 0 && !gathers)
    return fail() << "producer = " << sizes.getProducer()
                  << ", expected 0 but for lists of selected_key_value_grad on "
                     "machines with warpgroups";
  // Programs that rotate or select have whole rows.
  bool hasParts = machine.isParallel() && kernel != AttentionKernel::Select &&
                  kernel != AttentionKernel::RotaryForward;
  if (sizes.getColumnParts() != 1 && !hasParts)
    return fail() << "column_parts = " << sizes.getColumnParts()
                  << ", expected 1"
                  << (machine.isParallel() ? "" : " on a CPU");
  return success();
}

ChosenSchedule KernelCache::choose(Operation *op, StringRef suffix,
                                   const Extent &sequence,
                                   AttentionKernel kernel) {
  ArrayAttr schedules = getSchedules(op, kernel);
  if (!schedules)
    return {};
  ChosenSchedule chosen;
  if (schedules.size() > 1) {
    std::string key = dropExtents(getKey(op, {suffix.str(), ""}, {}, {}));
    llvm::raw_string_ostream os(key);
    os << ' ' << getLengthClass(sequence) << ' ' << machine << ' ' << schedules;
    chosen.kernel = llvm::utohexstr(llvm::xxh3_64bits(key), /*LowerCase=*/true,
                                    /*Width=*/16);
    int64_t last = int64_t(schedules.size()) - 1;
    if (auto refused =
            module->getAttrOfType<DictionaryAttr>(kRefusedSchedulesAttr))
      for (StringRef name : {StringRef("any"), StringRef(chosen.kernel)})
        if (auto count = refused.getAs<IntegerAttr>(name))
          chosen.number = std::min(count.getInt(), last);
    chosen.isLast = chosen.number == last;
  }
  chosen.sizes = cast<ScheduleAttr>(schedules[chosen.number]);
  // One error is enough.
  failed = failed || mlir::failed(checkSchedule(op, kernel, chosen.sizes));
  if (failed)
    return {};
  chosen.columnParts = chosen.sizes.getColumnParts();
  return chosen;
}

static void noteSchedule(tile::KernelOp kernel,
                         const ChosenSchedule &schedule) {
  if (schedule.kernel.empty())
    return;
  Builder builder(kernel.getContext());
  SmallVector<NamedAttribute> notes = {
      builder.getNamedAttr("kernel", builder.getStringAttr(schedule.kernel)),
      builder.getNamedAttr("number",
                           builder.getI64IntegerAttr(schedule.number)),
      builder.getNamedAttr("sizes", schedule.sizes)};
  if (int64_t spills = schedule.sizes.getSpills())
    notes.push_back(
        builder.getNamedAttr("spills", builder.getI64IntegerAttr(spills)));
  kernel->setAttr(kScheduleAttr, builder.getDictionaryAttr(notes));
  if (schedule.isLast)
    kernel->setAttr(kLastScheduleAttr, builder.getUnitAttr());
}

/// What the model says of the kernel, by the longest name that its own begins
/// with.
static void noteStages(tile::KernelOp kernel, ModuleOp module) {
  auto stages = module->getAttrOfType<DictionaryAttr>(kStagesAttr);
  size_t longest = 0;
  for (NamedAttribute each :
       stages ? stages.getValue() : ArrayRef<NamedAttribute>()) {
    StringRef name = each.getName().getValue();
    if (name.size() <= longest || !kernel.getSymName().starts_with(name))
      continue;
    longest = name.size();
    kernel->setAttr(kStagesAttr, each.getValue());
  }
}

tile::KernelOp KernelCache::getOrCreate(Operation *op, const KernelSpec &spec,
                                        TypeRange inputs, TypeRange outputs,
                                        BodyFn body) {
  tile::KernelOp &kernel = kernels[getKey(op, spec, inputs, outputs)];
  llvm::scope_exit notePerformanceLints([&] {
    op->walk([&](Operation *part) {
      addPerformanceLints(kernel, getPerformanceLints(part));
    });
  });
  if (kernel) {
    NSA_DEBUG() << op << " shares kernel @" << kernel.getSymName();
    return kernel;
  }

  bool isRotated = spec.longestFirst && machine.isParallel();
  bool isByRow = spec.lastRowsFirst && machine.isParallel();
  // The axes of the grid along which tiles, heads and rows are.
  std::array<int, 3> axes = {0, 1, 2};
  if (isRotated)
    axes = isByRow ? std::array{1, 0, 2} : std::array{2, 0, 1};
  auto build = [&](tile::TileBuilder &b, ArrayRef<Value> args) {
    if (!isRotated && !isByRow && spec.schedule.columnParts == 1)
      return body(b, args);
    std::array<tile::Expr, 3> ids;
    for (auto [id, axis] : llvm::zip_equal(ids, axes))
      id = b.programId(axis);
    if (isByRow)
      ids[2] = spec.grid[2] - 1 - ids[2];
    buildParts(b, spec, ids, [&] { body(b, args); });
  };
  std::array<Extent, 3> extents;
  for (auto [axis, extent] : llvm::zip_equal(axes, getGridOfParts(spec)))
    extents[axis] = extent;
  SmallVector<int32_t> grid;
  for (const Extent &axis : extents) {
    auto extent = static_cast<int64_t>(axis);
    if (!llvm::isInt<32>(extent)) {
      op->emitOpError("needs ") << extent << " programs along an axis of the "
                                << "grid, more than " << INT32_MAX;
      failed = true;
    }
    grid.push_back(int32_t(std::min<int64_t>(extent, INT32_MAX)));
  }
  kernel = tile::createKernel(module, op->getLoc(), getName(op, spec),
                              llvm::to_vector(inputs), llvm::to_vector(outputs),
                              grid, build);
  failed = failed || mlir::failed(checkNumbers(op, kernel)) ||
           mlir::failed(noteExtents(op, spec, extents, kernel));
  symbols.insert(kernel);
  NSA_DEBUG() << op << " makes kernel @" << kernel.getSymName() << " of "
              << kernel.getNumPrograms() << " programs";

  int64_t bytes = 0;
  for (TypeRange types : {inputs, outputs})
    for (Type type : types)
      bytes += getNumBytes(type);
  Builder builder(module.getContext());
  if (spec.flops && !kernel->hasAttr(kExtentsAttr))
    kernel->setAttr("flops", builder.getI64IntegerAttr(spec.flops));
  SmallVector<int64_t> inPlace;
  for (auto [input, output] : spec.inPlace)
    inPlace.append({input, output});
  if (!inPlace.empty())
    kernel->setAttr(kInPlaceAttr, builder.getDenseI64ArrayAttr(inPlace));
  noteSchedule(kernel, spec.schedule);
  noteStages(kernel, module);
  ScheduleAttr sizes = spec.schedule.sizes;
  if (int64_t own = sizes ? sizes.getProducer() : 0)
    kernel->setAttr(kProducerAttr, builder.getI64IntegerAttr(own));
  else if (int64_t own = sizes && sizes.getMinBlocks() != 0
                             ? sizes.getMinBlocks()
                             : spec.minBlocks)
    kernel->setAttr(kMinBlocksAttr, builder.getI64IntegerAttr(own));
  if (spec.hasProducer)
    kernel->setAttr(kProducerAttr, builder.getUnitAttr());
  kernel->setAttr("bytes", builder.getI64IntegerAttr(bytes));
  return kernel;
}

LogicalResult KernelCache::noteExtents(Operation *op, const KernelSpec &spec,
                                       ArrayRef<Extent> grid,
                                       tile::KernelOp kernel) {
  ExtentTable table = ExtentTable::of(kernel);
  bool isNeeded =
      llvm::any_of(kernel.getArgumentTypes(),
                   [&](Type type) {
                     return table.isNeededBy(cast<MemRefType>(type));
                   }) ||
      llvm::any_of(grid, [](const Extent &axis) { return !axis.isConstant(); });
  if (!isNeeded) {
    ExtentTable().writeTo(kernel);
    return success();
  }
  if (!spec.takesExtents)
    return op->emitOpError("has no kernel whose batch and sequence length are "
                           "arguments; write numbers in place of `?`");
  table.writeTo(kernel);
  setGridExtents(kernel, grid);
  return success();
}

/// A tensor one of whose dimensions has this number.
static Value findDimension(ModuleOp module, int64_t number) {
  Value found;
  auto look = [&](ValueRange values) {
    for (Value value : values)
      if (auto type = dyn_cast<RankedTensorType>(value.getType());
          type && llvm::is_contained(type.getShape(), number))
        found = value;
  };
  module.walk([&](Operation *op) {
    look(op->getResults());
    if (auto function = dyn_cast<func::FuncOp>(op))
      look(function.getArguments());
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

LogicalResult KernelCache::addExtent(ExtentTable &table, const Extent &extent) {
  auto number = static_cast<int64_t>(extent);
  bool isKnown = !table.find(number).isConstant();
  Value other;
  if (extent.isConstant()) {
    constants.insert(number);
    if (!isKnown)
      return success();
  } else {
    if (!table.add(extent))
      return module.emitError("has two extents for which ")
             << number << " stands";
    if (isKnown)
      return success();
    other = findDimension(module, number);
    if (!other && !constants.contains(number))
      return success();
  }
  return emitError(other ? other.getLoc() : module.getLoc(),
                   "a tensor has the size ")
         << number << ", which stands for a size that follows from the batch "
         << "and the sequence length; write numbers in place of `?`";
}

RankedTensorType KernelCache::getTensorType(ArrayRef<Extent> shape,
                                            Type element) {
  ExtentTable table = ExtentTable::of(module);
  for (const Extent &extent : shape)
    failed = mlir::failed(addExtent(table, extent)) || failed;
  table.writeTo(module);
  return RankedTensorType::get(getNumbers(shape), element);
}

RankedTensorType KernelCache::getRowsType(ArrayRef<Extent> shape, Type element,
                                          const Extent &pitch) {
  RankedTensorType type = getTensorType(shape, element);
  if (int64_t(pitch) == int64_t(shape.back()))
    return type;
  // Notes what the pitch stands for.
  getTensorType(pitch, element);
  return getPaddedType(type.getShape(), element, int64_t(pitch));
}

/// Says on the kernel which of its inputs are numbers of blocks, so that a run
/// can check them.
static void noteIndices(tile::KernelOp kernel, const KernelSpec &spec,
                        ValueRange inputs) {
  SmallVector<int64_t> blocks(kernel.getNumArguments());
  for (auto [block, input] : llvm::zip(blocks, inputs))
    if (spec.indices && input == spec.indices)
      block = spec.selectBlock;
  if (spec.indices)
    kernel->setAttr(kSelectBlocksAttr,
                    Builder(kernel).getDenseI64ArrayAttr(blocks));
}

ResultRange KernelCache::launch(OpBuilder &builder, Operation *op,
                                const KernelSpec &spec, ValueRange inputs,
                                TypeRange outputs, BodyFn body) {
  tile::KernelOp kernel =
      getOrCreate(op, spec, inputs.getTypes(), outputs, body);
  noteIndices(kernel, spec, inputs);
  return create(builder, op->getLoc(), kernel, inputs, outputs).getResults();
}

/// The last value to be defined; arguments of a function come first.
static Value findLast(ValueRange values) {
  Value last = values.front();
  for (Value value : values.drop_front()) {
    Operation *def = value.getDefiningOp();
    if (def &&
        (!last.getDefiningOp() || last.getDefiningOp()->isBeforeInBlock(def)))
      last = value;
  }
  return last;
}

LogicalResult KernelCache::replace(PatternRewriter &rewriter, Operation *op,
                                   const KernelSpec &spec, ValueRange operands,
                                   BodyFn body) {
  rewriter.replaceOp(
      op, launch(rewriter, op, spec, operands, op->getResultTypes(), body));
  return success();
}

ResultRange KernelCache::launchOnce(OpBuilder &builder, Operation *op,
                                    const KernelSpec &spec, ValueRange inputs,
                                    TypeRange outputs, BodyFn body) {
  tile::KernelOp kernel =
      getOrCreate(op, spec, inputs.getTypes(), outputs, body);
  noteIndices(kernel, spec, inputs);
  for (Operation *user : inputs.front().getUsers())
    if (auto launch = dyn_cast<tile::LaunchOp>(user);
        launch && launch.getKernel() == kernel.getSymName() &&
        llvm::equal(launch->getOperands(), inputs))
      return launch.getResults();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfterValue(findLast(inputs));
  return create(builder, op->getLoc(), kernel, inputs, outputs).getResults();
}

tile::LaunchOp KernelCache::create(OpBuilder &builder, Location loc,
                                   tile::KernelOp kernel, ValueRange inputs,
                                   TypeRange outputs) {
  ++numLaunches;
  return tile::LaunchOp::create(builder, loc, outputs,
                                FlatSymbolRefAttr::get(kernel.getSymNameAttr()),
                                inputs);
}
