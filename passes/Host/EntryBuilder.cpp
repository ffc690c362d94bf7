//===- EntryBuilder.cpp - a function on tensors as an entry ---------------===//

#include "passes/Host/EntryBuilder.h"
#include "passes/Support/Debug.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-buffer"

using namespace mlir;
using namespace nsa;

/// Whether the operation names the elements of its operand in another shape.
static bool isView(Operation *op) {
  return op && op->hasTrait<ViewOfOperand>();
}

/// Whether `value` shows elements of `root`, alone or among others.
bool EntryBuilder::shows(Value value, Value root) {
  value = getRoot(value);
  auto group = value.getDefiningOp<nn::FlattenOp>();
  return group ? getPartRoots(group).contains(root) : value == root;
}

/// The values that the parts of a flat group show. Every tensor that a flat
/// group is updated in asks for them.
const llvm::DenseSet<Value> &EntryBuilder::getPartRoots(nn::FlattenOp group) {
  llvm::DenseSet<Value> &roots = partRoots[group];
  if (roots.empty())
    for (Value part : group.getParts())
      roots.insert(getRoot(part));
  return roots;
}

static bool isEmpty(Value value) {
  return cast<ShapedType>(value.getType()).getNumElements() == 0;
}

//===----------------------------------------------------------------------===//
// Readers of values, and destinations of results
//===----------------------------------------------------------------------===//

void EntryBuilder::collectReaders() {
  for (auto [number, op] :
       llvm::enumerate(function.getBody().front().without_terminator())) {
    numbers[&op] = number;
    for (Value operand : op.getOperands())
      if (isa<nn::SplitOp>(op) && placement.isCopied(operand))
        noteReader(placement.getSource(operand).root, number);
      else if (!isView(&op) && !isa<nn::FlattenOp>(op))
        noteReader(getRoot(operand), number);
  }
}

void EntryBuilder::noteReader(Value root, unsigned number) {
  auto group = root.getDefiningOp<nn::FlattenOp>();
  if (!group) {
    lastReaders[root] = number;
    return;
  }
  for (Value part : group.getParts())
    noteReader(getRoot(part), number);
}

LogicalResult EntryBuilder::collectFlatGroups() {
  auto find = [&](Operation *op, Attribute name, Value part) {
    StringRef tensor = cast<StringAttr>(name).getValue();
    std::optional<unsigned> argument = findArgument(tensor);
    if (!argument)
      op->emitOpError("names '") << tensor << "', which is not an argument";
    else if (function.getArgument(*argument).getType() != part.getType())
      op->emitOpError("has a part of type ")
          << part.getType() << ", but '" << tensor << "' has type "
          << function.getArgument(*argument).getType();
    else
      return argument;
    return std::optional<unsigned>();
  };
  for (Operation &op : function.getBody().front())
    if (auto group = dyn_cast<nn::FlattenOp>(op)) {
      for (auto [part, name] :
           llvm::zip_equal(group.getParts(), group.getTensors())) {
        std::optional<unsigned> argument = find(&op, name, part);
        if (!argument)
          return failure();
        flattened[part] = *argument;
        // A reduction happens in place.
        if (auto mean = part.getDefiningOp<nn::AllReduceOp>();
            mean && mean.getInput().hasOneUse())
          flattened[mean.getInput()] = *argument;
      }
    } else if (auto unflatten = dyn_cast<nn::UnflattenOp>(op)) {
      for (auto [part, name] :
           llvm::zip_equal(unflatten.getParts(), unflatten.getTensors()))
        if (!find(&op, name, part))
          return failure();
      unflattened[unflatten.getInput()] = unflatten;
    }
  return success();
}

std::optional<unsigned> EntryBuilder::findArgument(StringRef name) {
  if (argumentNumbers.empty())
    for (unsigned index = 0; index < function.getNumArguments(); ++index)
      argumentNumbers.try_emplace(nn::getArgumentName(function, index), index);
  auto found = argumentNumbers.find(name);
  return found == argumentNumbers.end() ? std::nullopt
                                        : std::optional(found->second);
}

std::optional<unsigned> EntryBuilder::getUpdatedArgument(unsigned result) {
  StringRef name = nn::getResultAlias(function, result);
  return name.empty() ? std::nullopt : findArgument(name);
}

LogicalResult EntryBuilder::collectResults() {
  auto results = function.getBody().front().getTerminator()->getOperands();
  for (unsigned result = 0; result < results.size(); ++result)
    if (std::optional<unsigned> argument = getUpdatedArgument(result))
      if (!updated.insert(*argument).second)
        return function.emitOpError("updates argument '")
               << nn::getArgumentName(function, *argument)
               << "' with two results";
  for (auto [result, value] : llvm::enumerate(results)) {
    if (isPart(value) && isa<BlockArgument>(getRoot(value)) &&
        getUpdatedArgument(result))
      return function.emitOpError("updates argument '")
             << nn::getResultAlias(function, result)
             << "' with a part of an argument";
    routeResult(result, value);
  }
  // A reduction happens where its result belongs.
  for (auto mean : function.getOps<nn::AllReduceOp>()) {
    auto input = dyn_cast<OpResult>(mean.getInput());
    auto found = destinations.find(mean.getOutput());
    if (!input || !input.hasOneUse() || getRoot(input) != input ||
        found == destinations.end())
      continue;
    unsigned result = found->second;
    destinations.try_emplace(input, result);
  }
  return success();
}

void EntryBuilder::routeResult(unsigned result, Value value) {
  Value root = getRoot(value);
  std::optional<unsigned> target = getUpdatedArgument(result);
  if (isPart(value) && !isa<BlockArgument>(root)) {
    lastReaders[root] = kEnd;
    return tail.push_back(result);
  }
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    if (!target)
      return head.push_back(result);
    if (*target == argument.getArgNumber()) {
      // The argument stays as it is.
      lastReaders[root] = kEnd;
      return;
    }
    if (updated.contains(argument.getArgNumber()))
      saved.push_back(argument);
    return tail.push_back(result);
  }
  if (root.getDefiningOp<nn::FillOp>())
    return tail.push_back(result);
  lastReaders[root] = kEnd;
  if (!destinations.try_emplace(root, result).second)
    tail.push_back(result);
}

//===----------------------------------------------------------------------===//
// Where a value lives
//===----------------------------------------------------------------------===//

Value EntryBuilder::getTensorMemory(rt::TensorOp tensor) {
  OpBuilder::InsertionGuard guard(builder);
  if (lastGet)
    builder.setInsertionPointAfter(lastGet);
  else
    builder.setInsertionPointToStart(&entry.getBody().front());
  auto get = rt::GetOp::create(builder, tensor.getLoc(), tensor.getMemoryType(),
                               tensor.getSymName());
  lastGet = get;
  return get;
}

Value EntryBuilder::getArgumentMemory(unsigned index) {
  Value argument = function.getArgument(index);
  Value &memory = memories[argument];
  if (!memory) {
    memory = getTensorMemory(tensors.getArgument(function, index));
    occupants[memory] = argument;
    if (updated.contains(index))
      updatedMemories.insert(memory);
  }
  return memory;
}

Value EntryBuilder::getResultMemory(unsigned result) {
  if (std::optional<unsigned> argument = getUpdatedArgument(result))
    return getArgumentMemory(*argument);
  return getTensorMemory(tensors.getResult(function, result));
}

Value EntryBuilder::viewAs(Value memory, Type tensorType, Location loc) {
  MemRefType type = getMemoryType(tensorType);
  if (memory.getType() == type)
    return memory;
  memory = rt::getMemoryRoot(memory);
  if (memory.getType() == type)
    return memory;
  IntegerAttr offset;
  if (!type.getLayout().isIdentity())
    offset = builder.getI64IntegerAttr(0);
  return rt::ViewOp::create(builder, loc, type, memory, offset);
}

Value EntryBuilder::viewAt(const Place &place, Type tensorType, Location loc) {
  Value memory = getMemory(place.root);
  auto type = cast<RankedTensorType>(tensorType);
  if (place.isWhole() || type.getNumElements() == 0)
    return viewAs(memory, tensorType, loc);
  MemRefType rows =
      getRowsType(type.getShape(), type.getElementType(), place.layout);
  assert(rows && "value that does not fit its place");
  return rt::ViewOp::create(builder, loc, rows, rt::getMemoryRoot(memory),
                            builder.getI64IntegerAttr(place.offset));
}

Value EntryBuilder::getMemory(Value value) {
  if (Value memory = memories.lookup(value))
    return memory;
  if (auto argument = dyn_cast<BlockArgument>(value))
    return getArgumentMemory(argument.getArgNumber());
  if (placement.isCopied(value))
    return copyOddPart(value);
  Place place = placement.get(value);
  assert(place.root != value && "value without memory");
  Value memory = viewAt(place, value.getType(), value.getLoc());
  memories[value] = memory;
  return memory;
}

/// Dense memory that begins where kernels and libraries expect it.
Value EntryBuilder::getDenseMemory(Value value) {
  Value memory = getMemory(value);
  auto type = cast<MemRefType>(memory.getType());
  if (type.getLayout().isIdentity() &&
      rt::getByteOffset(memory) % kMemoryAlignment == 0)
    return memory;
  Value &copy = denseCopies[value];
  if (!copy) {
    copy = rt::BufferOp::create(builder, value.getLoc(),
                                getMemoryType(value.getType()));
    emitCopy(memory, copy, value.getLoc());
  }
  return copy;
}

/// Whether the operation that computes `value` may write it to `memory`: what
/// is there has no later reader, and the operation itself reads each element
/// before it is overwritten.
bool EntryBuilder::mayOverwrite(Value memory, OpResult value) {
  Operation *op = value.getOwner();
  Value occupant = occupants.lookup(memory);
  auto reader = lastReaders.find(occupant);
  if (reader == lastReaders.end() || reader->second < numbers[op])
    return true;
  if (reader->second > numbers[op])
    return false;
  if (auto matmul = dyn_cast<nn::MatmulOp>(op))
    return getRoot(matmul.getLhs()) != occupant &&
           getRoot(matmul.getRhs()) != occupant;
  if (isa<nn::AllReduceOp>(op))
    return true;
  auto launch = dyn_cast<tile::LaunchOp>(op);
  if (!launch)
    return false;
  auto kernel = tensors.getSymbols().lookup<tile::KernelOp>(launch.getKernel());
  for (auto [index, input] : llvm::enumerate(launch.getInputs())) {
    if (!shows(input, occupant))
      continue;
    // Inside flat groups, the same tensors are at the same offset in both.
    auto group = getRoot(input).getDefiningOp<nn::FlattenOp>();
    nn::UnflattenOp target = unflattened.lookup(value);
    if (bool(group) != bool(target) ||
        (group && group.getTensors() != target.getTensors()) ||
        !inPlace.mayShare(kernel, index, value.getResultNumber()))
      return false;
  }
  return true;
}

Value EntryBuilder::createFlatView(ArrayAttr names, Type tensorType,
                                   Location loc) {
  for (Attribute name : names)
    getArgumentMemory(*findArgument(cast<StringAttr>(name).getValue()));
  SmallVector<Attribute> symbols;
  for (Attribute name : names) {
    unsigned argument = *findArgument(cast<StringAttr>(name).getValue());
    symbols.push_back(
        FlatSymbolRefAttr::get(tensors.getArgument(function, argument)));
  }
  return rt::FlatViewOp::create(builder, loc, getMemoryType(tensorType),
                                builder.getArrayAttr(symbols));
}

/// The memory of the tensors that `value` is unflattened into, or null where
/// one of them holds what is still needed.
Value EntryBuilder::findFlatView(OpResult value) {
  nn::UnflattenOp unflatten = unflattened.lookup(value);
  if (!unflatten)
    return {};
  for (Attribute name : unflatten.getTensors()) {
    unsigned argument = *findArgument(cast<StringAttr>(name).getValue());
    if (!mayOverwrite(getArgumentMemory(argument), value))
      return {};
  }
  return createFlatView(unflatten.getTensors(), value.getType(),
                        unflatten.getLoc());
}

LogicalResult EntryBuilder::emitFlatten(nn::FlattenOp group) {
  for (auto [part, name] :
       llvm::zip_equal(group.getParts(), group.getTensors())) {
    Value memory = rt::getMemoryRoot(getMemory(part));
    if (memory != getArgumentMemory(flattened.lookup(part)))
      return group.emitOpError("has a part that is not in the memory of ")
             << name;
  }
  memories[group] =
      createFlatView(group.getTensors(), group.getType(), group.getLoc());
  return success();
}

LogicalResult EntryBuilder::emitUnflatten(nn::UnflattenOp unflatten) {
  Value memory = memories.lookup(unflatten.getInput());
  auto view =
      memory ? memory.getDefiningOp<rt::FlatViewOp>() : rt::FlatViewOp();
  if (!view || view.getTensors().size() != unflatten.getTensors().size())
    return unflatten.emitOpError("has an operand that is not computed into the "
                                 "memory of ")
           << unflatten.getTensors();
  for (auto [part, name] :
       llvm::zip_equal(unflatten.getParts(), unflatten.getTensors())) {
    StringRef tensor = cast<StringAttr>(name).getValue();
    Value target = getArgumentMemory(*findArgument(tensor));
    memories[part] = target;
    occupants[target] = part;
    auto destination = destinations.find(part);
    if (destination == destinations.end())
      continue;
    if (nn::getResultAlias(function, destination->second) != tensor)
      tail.push_back(destination->second);
    else
      ++counts.inPlace;
  }
  return success();
}

/// The memory of the result that `value` is, or null if the value needs memory
/// of its own.
Value EntryBuilder::findDestination(OpResult value) {
  if (unflattened.contains(value))
    return findFlatView(value);
  if (auto part = flattened.find(value); part != flattened.end()) {
    Value memory = getArgumentMemory(part->second);
    if (mayOverwrite(memory, value))
      return memory;
  }
  auto destination = destinations.find(value);
  if (destination == destinations.end())
    return {};
  unsigned result = destination->second;
  Value memory = getResultMemory(result);
  if (std::optional<unsigned> argument = getUpdatedArgument(result)) {
    if (!mayOverwrite(memory, value)) {
      remark::missed(value.getLoc(),
                     remark::RemarkOpts::name("InPlace").category(DEBUG_TYPE))
          << remark::reason(
                 "'{0}' is updated by a copy: its old value is still needed",
                 nn::getArgumentName(function, *argument));
      tail.push_back(result);
      return {};
    }
    ++counts.inPlace;
  }
  return memory;
}

/// The memory of an operand that has no later reader, or null.
Value EntryBuilder::findReusable(OpResult value) {
  SmallVector<Value> inputs;
  if (auto launch = dyn_cast<tile::LaunchOp>(value.getOwner()))
    inputs.assign(launch.getInputs().begin(), launch.getInputs().end());
  else if (auto matmul = dyn_cast<nn::MatmulOp>(value.getOwner());
           matmul && matmul.getAccumulator())
    inputs.push_back(matmul.getAccumulator());
  else if (auto mean = dyn_cast<nn::AllReduceOp>(value.getOwner()))
    inputs.push_back(mean.getInput());
  if (isEmpty(value))
    return {};
  for (Value input : inputs) {
    Value memory = rt::getMemoryRoot(getMemory(input));
    auto occupant = occupants.find(memory);
    if (input.getType() != value.getType() || isPart(input) ||
        occupant == occupants.end() || occupant->second != getRoot(input) ||
        !mayOverwrite(memory, value))
      continue;
    if (memory.getDefiningOp<rt::BufferOp>())
      return memory;
    // At the end, arguments are written while results are still copied.
    if (updatedMemories.contains(memory) && lastReaders.lookup(value) != kEnd)
      return memory;
  }
  return {};
}

LogicalResult EntryBuilder::place(OpResult value) {
  MemRefType type = getMemoryType(value.getType());
  if (!type)
    return value.getOwner()->emitOpError("has a result of type ")
           << value.getType() << ", which the runtime cannot hold";
  if (Value root = getRoot(value); root != value) {
    // A part of what is not complete yet, or an update of a part.
    if (!memories.contains(root)) {
      Value memory = rt::BufferOp::create(builder, root.getLoc(),
                                          getMemoryType(root.getType()));
      occupants[memory] = root;
      memories[root] = memory;
      if (auto result = destinations.find(root); result != destinations.end())
        tail.push_back(result->second);
    }
    memories[value] =
        viewAt(placement.get(value), value.getType(), value.getLoc());
    return success();
  }
  StringRef choice = "the memory of a named tensor";
  Value memory = findDestination(value);
  if (!memory) {
    choice = "the memory of an operand";
    memory = findReusable(value);
  }
  if (!memory) {
    choice = "a buffer";
    memory = rt::BufferOp::create(builder, value.getLoc(), getBufferType(type));
  }
  NSA_DEBUG() << "@" << function.getName() << ": " << value.getOwner()
              << " puts result " << value.getResultNumber() << " into "
              << choice << " of type " << memory.getType();
  occupants[memory] = value;
  memories[value] = viewAs(memory, value.getType(), value.getLoc());
  return success();
}
