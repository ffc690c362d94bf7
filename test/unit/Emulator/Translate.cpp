//===- Translate.cpp - frame, control flow and registers ------------------===//

#include "passes/TileGPU/Passes.h"
#include "test/unit/Emulator/Translator.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace nsa::emulator;

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

LogicalResult Translator::unknown(const Twine &why) {
  return op->emitError("the emulator does not know '")
         << op->getName() << "'" << why.str();
}

LogicalResult Translator::flatten(Type type,
                                  SmallVectorImpl<ScalarType> &scalars,
                                  Operation *user) {
  if (auto integer = dyn_cast<IntegerType>(type);
      integer && integer.getWidth() <= 64) {
    scalars.push_back({integer.getWidth(), false});
    return success();
  }
  if (type.isF32() || type.isF16() || type.isBF16()) {
    scalars.push_back({type.getIntOrFloatBitWidth(), true});
    return success();
  }
  if (isa<LLVM::LLVMPointerType>(type)) {
    scalars.push_back({64, false});
    return success();
  }
  if (auto vector = dyn_cast<VectorType>(type)) {
    for (int64_t i = 0; i < vector.getNumElements(); ++i)
      if (failed(flatten(vector.getElementType(), scalars, user)))
        return failure();
    return success();
  }
  if (auto structure = dyn_cast<LLVM::LLVMStructType>(type)) {
    for (Type member : structure.getBody())
      if (failed(flatten(member, scalars, user)))
        return failure();
    return success();
  }
  return user->emitError("the emulator has no registers for ") << type;
}

uint32_t Translator::makeReg(bool wide) {
  wideRegs.push_back(wide);
  return uint32_t(wideRegs.size() - 1);
}

uint32_t Translator::constant(uint64_t bits, bool wide) {
  auto [entry, isNew] = constantRegs.try_emplace({bits, unsigned(wide)}, 0);
  if (isNew)
    entry->second = makeReg(wide);
  return entry->second;
}

ArrayRef<uint32_t> Translator::regs(Value value) {
  auto found = values.find(value);
  assert(found != values.end() && "a value without registers");
  return found->second;
}

ArrayRef<uint32_t> Translator::define(Value value) {
  SmallVector<ScalarType> scalars;
  (void)flatten(value.getType(), scalars, op);
  Regs result;
  for (ScalarType scalar : scalars)
    result.push_back(makeReg(scalar.isGPU()));
  return values[value] = std::move(result);
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

Instruction &Translator::emit(Handler handler, ArrayRef<uint32_t> results,
                              ArrayRef<uint32_t> operands, Kind kind) {
  code.sources.push_back(op);
  uses.push_back({Regs(results), Regs(operands), piece});
  Instruction &instruction = code.instructions.emplace_back();
  instruction.run = handler;
  instruction.kind = kind;
  return instruction;
}

uint32_t Translator::emitNew(bool wide, Handler handler,
                             ArrayRef<uint32_t> operands, int64_t immediate) {
  uint32_t result = makeReg(wide);
  emit(handler, result, operands).immediate = immediate;
  return result;
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

void Translator::emitJump(Block *to) {
  fixups.push_back({uint32_t(code.instructions.size()), false, to});
  emit(nullptr, {}, {}, Kind::Jump);
  ++piece;
}

/// Moves the arguments of a block and jumps there. A move must not overwrite
/// what a later one reads.
void Translator::emitEdge(Block *to, ValueRange arguments) {
  Regs from, into;
  for (auto [argument, parameter] :
       llvm::zip_equal(arguments, to->getArguments())) {
    llvm::append_range(from, regs(argument));
    llvm::append_range(into, regs(parameter));
  }
  for (size_t i = 0; i < from.size(); ++i)
    if (llvm::is_contained(ArrayRef(into).take_front(i), from[i])) {
      uint32_t copy = makeReg(wideRegs[from[i]]);
      // Before all moves: nothing has been overwritten yet.
      emit(getMove(wideRegs[from[i]]), copy, from[i]);
      from[i] = copy;
    }
  // The copies above were emitted before any of these.
  for (auto [source, target] : llvm::zip_equal(from, into))
    if (source != target)
      emit(getMove(wideRegs[source]), target, source);
  emitJump(to);
}

LogicalResult Translator::translateTerminator() {
  if (isa<LLVM::ReturnOp>(op)) {
    emit(nullptr, {}, {}, Kind::Return);
    ++piece;
    return success();
  }
  if (auto jump = dyn_cast<LLVM::BrOp>(op)) {
    emitEdge(jump.getDest(), jump.getDestOperands());
    return success();
  }
  auto branch = dyn_cast<LLVM::CondBrOp>(op);
  if (!branch)
    return unknown();
  auto at = uint32_t(code.instructions.size());
  emit(nullptr, {}, reg(branch.getCondition()), Kind::Branch);
  ++piece;
  auto target = [&](bool second, Block *block, ValueRange arguments) {
    if (arguments.empty()) {
      fixups.push_back({at, second, block});
      return;
    }
    auto edge = uint32_t(code.instructions.size());
    if (second)
      code.instructions[at].target = edge;
    else
      code.instructions[at].immediate = edge;
    emitEdge(block, arguments);
  };
  target(false, branch.getTrueDest(), branch.getTrueDestOperands());
  target(true, branch.getFalseDest(), branch.getFalseDestOperands());
  return success();
}

//===----------------------------------------------------------------------===//
// From virtual to real registers
//===----------------------------------------------------------------------===//

/// What is written and read in one straight piece of code shares registers
/// with others; the rest has its own.
void Translator::assignRegisters() {
  constexpr uint32_t none = ~0u;
  size_t count = wideRegs.size();
  std::vector<uint32_t> last(count, none), pieceOf(count, none), real(count);
  std::vector<bool> isLocal(count, true);
  for (auto [at, instruction] : llvm::enumerate(uses)) {
    // Operands first: what is read before it is written comes from elsewhere.
    for (uint32_t reg : instruction.operands) {
      isLocal[reg] = isLocal[reg] && pieceOf[reg] == instruction.piece;
      last[reg] = uint32_t(at);
    }
    for (uint32_t reg : instruction.results) {
      if (pieceOf[reg] == none)
        pieceOf[reg] = instruction.piece;
      else if (pieceOf[reg] != instruction.piece)
        isLocal[reg] = false;
      last[reg] = uint32_t(at);
    }
  }
  for (auto &entry : constantRegs)
    isLocal[entry.second] = false;
  for (uint32_t reg : llvm::concat<uint32_t>(code.arguments, code.extents))
    isLocal[reg] = false;

  uint32_t next = 0;
  SmallVector<uint32_t> free[2];
  auto allocate = [&](bool wide) {
    if (!free[wide].empty())
      return free[wide].pop_back_val();
    uint32_t reg = next;
    next += wide ? 2 : 1;
    return reg;
  };
  for (size_t reg = 0; reg < count; ++reg)
    if (!isLocal[reg])
      real[reg] = allocate(wideRegs[reg]);
  std::vector<bool> live(count, false);
  for (auto [at, instruction] : llvm::enumerate(uses)) {
    auto release = [&](uint32_t reg) {
      if (isLocal[reg] && live[reg] && last[reg] == at) {
        free[wideRegs[reg]].push_back(real[reg]);
        live[reg] = false;
      }
    };
    llvm::for_each(instruction.operands, release);
    for (uint32_t reg : instruction.results)
      if (isLocal[reg] && !live[reg]) {
        real[reg] = allocate(wideRegs[reg]);
        live[reg] = true;
      }
    llvm::for_each(instruction.results, release);
  }
  code.registers = next;

  size_t total = 0;
  for (const Uses &instruction : uses)
    total += instruction.results.size() + instruction.operands.size();
  code.operandPool.reserve(total);
  for (auto [instruction, used] : llvm::zip_equal(code.instructions, uses)) {
    instruction.all = code.operandPool.data() + code.operandPool.size();
    for (uint32_t reg : used.results)
      code.operandPool.push_back(real[reg]);
    for (uint32_t reg : used.operands)
      code.operandPool.push_back(real[reg]);
    if (!used.results.empty())
      instruction.result = real[used.results[0]];
    uint32_t *places[] = {&instruction.a, &instruction.b, &instruction.c};
    for (auto [place, reg] : llvm::zip(places, used.operands))
      *place = real[reg];
  }
  for (auto &[key, reg] : constantRegs)
    code.constants.push_back({real[reg], key.second != 0, key.first});
  for (uint32_t &reg : llvm::concat<uint32_t>(code.arguments, code.extents))
    reg = real[reg];
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Registers of a thread: as many as the kernel may have, in units of 8.
static unsigned countRegisters(LLVM::LLVMFuncOp function, int64_t threads) {
  constexpr int64_t all = 65536, most = 255;
  auto given = [&](StringRef name, int64_t otherwise) {
    auto number = function->getAttrOfType<IntegerAttr>(name);
    return number ? number.getInt() : otherwise;
  };
  int64_t blocks =
      std::max<int64_t>(given(NVVM::NVVMDialect::getMinctasmAttrName(), 1), 1);
  int64_t fit = std::min(all / (blocks * threads), most);
  return unsigned(given(NVVM::NVVMDialect::getMaxnregAttrName(), fit) / 8 * 8);
}

FailureOr<Code> Translator::run() {
  op = function;
  code.name = function.getSymName().str();
  auto threads = function->getAttrOfType<DenseI32ArrayAttr>(
      NVVM::NVVMDialect::getReqntidAttrName());
  auto shared = function->getAttrOfType<IntegerAttr>(kSharedBytesAttr);
  if (!threads || !shared || threads[0] % kLanes != 0 || threads[0] == 0)
    return function.emitError("is no kernel: it needs nvvm.reqntid, a multiple "
                              "of 32, and ")
           << kSharedBytesAttr;
  code.threads = unsigned(threads[0]);
  code.sharedBytes = uint64_t(shared.getInt());
  code.registersAtLaunch = countRegisters(function, threads[0]);
  unsigned pointers;
  if (failed(translateTensorMaps(pointers)))
    return failure();
  for (Block &block : function.getBody())
    for (BlockArgument argument : block.getArguments()) {
      bool isExtent = argument.getType().isInteger(64);
      if (block.isEntryBlock() && argument.getArgNumber() >= pointers &&
          !isExtent)
        continue;
      SmallVector<ScalarType> scalars;
      if (failed(flatten(argument.getType(), scalars, function)))
        return failure();
      (void)define(argument);
      if (block.isEntryBlock())
        (isExtent ? code.extents : code.arguments).push_back(reg(argument));
    }
  for (Block &block : function.getBody()) {
    starts[&block] = uint32_t(code.instructions.size());
    ++piece;
    for (Operation &operation : block) {
      op = &operation;
      if (failed(translateOp()))
        return failure();
    }
  }
  for (const Fixup &fixup : fixups) {
    Instruction &instruction = code.instructions[fixup.at];
    if (fixup.second)
      instruction.target = starts[fixup.block];
    else
      instruction.immediate = starts[fixup.block];
  }
  assignRegisters();
  return std::move(code);
}

FailureOr<Code> nsa::emulator::translate(LLVM::LLVMFuncOp function) {
  return Translator(function).run();
}
