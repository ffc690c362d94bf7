//===- TranslateOps.cpp - operations of the LLVM dialect ------------------===//

#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "test/unit/Emulator/Translator.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::emulator;

static ScalarType scalarOf(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    type = vector.getElementType();
  if (isa<LLVM::LLVMPointerType>(type))
    return {64, false};
  return {type.getIntOrFloatBitWidth(), isa<FloatType>(type)};
}

LogicalResult Translator::translateOp() {
  if (op->hasTrait<OpTrait::IsTerminator>())
    return translateTerminator();
  for (Value result : op->getResults()) {
    SmallVector<ScalarType> scalars;
    if (failed(flatten(result.getType(), scalars, op)))
      return failure();
  }
  if (isa<NVVM::NVVMDialect>(op->getDialect()))
    return translateNVVM();
  bool known = true;
  if (failed(translateStructure(known)))
    return failure();
  if (known)
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](LLVM::ConstantOp c) { return translateConstant(c.getValue()); })
      .Case([&](LLVM::ICmpOp compare) { return translateCompare(compare); })
      .Case([&](LLVM::FCmpOp compare) { return translateCompare(compare); })
      .Case([&](LLVM::SelectOp) { return translateSelect(), success(); })
      .Case([&](LLVM::GEPOp gep) { return translateAddress(gep); })
      .Case([&](LLVM::LoadOp load) { return translateLoad(load); })
      .Case([&](LLVM::StoreOp store) { return translateStore(store); })
      .Case(
          [&](LLVM::CallIntrinsicOp call) { return translateIntrinsic(call); })
      .Case([&](LLVM::InlineAsmOp text) { return translateAsm(text); })
      .Case([&](LLVM::BitcastOp) { return translateBitcast(); })
      .Case<LLVM::TruncOp, LLVM::ZExtOp, LLVM::SExtOp, LLVM::FPExtOp,
            LLVM::FPTruncOp, LLVM::SIToFPOp, LLVM::UIToFPOp, LLVM::FPToSIOp,
            LLVM::PtrToIntOp>([&](auto) { return translateCast(); })
      .Default([&](Operation *) -> LogicalResult {
        StringRef name = op->getName().getStringRef();
        const AluOperation *alu = findAlu({name.data(), name.size()});
        return alu ? translateAlu(*alu, op->getOperands()) : unknown();
      });
}

//===----------------------------------------------------------------------===//
// What only renames
//===----------------------------------------------------------------------===//

/// The first register of a member, and how many registers it has.
static std::pair<unsigned, unsigned> memberOf(Type type,
                                              ArrayRef<int64_t> position) {
  auto count = [](auto &self, Type type) -> unsigned {
    if (auto structure = dyn_cast<LLVM::LLVMStructType>(type)) {
      unsigned sum = 0;
      for (Type member : structure.getBody())
        sum += self(self, member);
      return sum;
    }
    if (auto vector = dyn_cast<VectorType>(type))
      return unsigned(vector.getNumElements());
    return 1;
  };
  unsigned first = 0;
  for (int64_t index : position) {
    auto structure = cast<LLVM::LLVMStructType>(type);
    for (Type member : structure.getBody().take_front(index))
      first += count(count, member);
    type = structure.getBody()[index];
  }
  return {first, count(count, type)};
}

LogicalResult Translator::translateStructure(bool &known) {
  auto constantIndex = [&](Value value) -> FailureOr<unsigned> {
    APInt index;
    if (!matchPattern(value, m_ConstantInt(&index)))
      return unknown(" with an index that is no constant");
    return unsigned(index.getZExtValue());
  };
  if (auto extract = dyn_cast<LLVM::ExtractValueOp>(op)) {
    auto [first, count] =
        memberOf(extract.getContainer().getType(), extract.getPosition());
    alias(extract, Regs(regs(extract.getContainer()).slice(first, count)));
  } else if (auto extract = dyn_cast<LLVM::ExtractElementOp>(op)) {
    FailureOr<unsigned> index = constantIndex(extract.getPosition());
    if (failed(index))
      return failure();
    alias(extract, Regs({regs(extract.getVector())[*index]}));
  } else if (auto insert = dyn_cast<LLVM::InsertElementOp>(op)) {
    FailureOr<unsigned> index = constantIndex(insert.getPosition());
    if (failed(index))
      return failure();
    Regs all(regs(insert.getVector()));
    all[*index] = reg(insert.getValue());
    alias(insert, all);
  } else if (isa<LLVM::AddrSpaceCastOp>(op)) {
    alias(op->getResult(0), Regs(regs(op->getOperand(0))));
  } else if (isa<LLVM::PoisonOp>(op)) {
    for (uint32_t reg : Regs(define(op->getResult(0))))
      emit(getUndefined(), reg, {});
  } else if (auto address = dyn_cast<LLVM::AddressOfOp>(op)) {
    auto global = SymbolTable::lookupNearestSymbolFrom<LLVM::GlobalOp>(
        op, address.getGlobalNameAttr());
    auto array = global ? dyn_cast<LLVM::LLVMArrayType>(global.getType())
                        : LLVM::LLVMArrayType();
    if (!array || array.getNumElements() != 0 || global.getAddrSpace() != 3)
      return unknown(" of anything but dynamic shared memory");
    alias(address, Regs({constant(kSharedBase, true)}));
  } else {
    known = false;
  }
  return success();
}

static uint64_t bitsOf(Attribute value) {
  if (auto number = dyn_cast<FloatAttr>(value))
    return number.getValue().bitcastToAPInt().getZExtValue();
  return cast<IntegerAttr>(value).getValue().getZExtValue();
}

LogicalResult Translator::translateConstant(Attribute value) {
  bool wide = scalarOf(op->getResult(0).getType()).isGPU();
  Regs result;
  if (auto elements = dyn_cast<DenseElementsAttr>(value)) {
    for (Attribute element : elements.getValues<Attribute>())
      result.push_back(constant(bitsOf(element), wide));
  } else if (isa<FloatAttr, IntegerAttr>(value)) {
    result.push_back(constant(bitsOf(value), wide));
  } else {
    return unknown(" of this kind");
  }
  alias(op->getResult(0), result);
  return success();
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

LogicalResult Translator::translateAlu(const AluOperation &alu,
                                       ValueRange operands) {
  ScalarType type = scalarOf(operands[0].getType());
  Handler handler = type.isFloat   ? alu.single
                    : type.isGPU() ? alu.wide
                                   : alu.narrow;
  bool isLogic = type.bits == 1 && isa<LLVM::AndOp, LLVM::OrOp>(op);
  if (isLogic)
    handler = isa<LLVM::AndOp>(op) ? getLogicAnd() : getLogicOr();
  if (!handler || (type.isFloat && type.bits != 32))
    return unknown(" on this type");
  bool isShort = !type.isFloat && type.bits < 32;
  Regs results(define(op->getResult(0)));
  for (auto [element, result] : llvm::enumerate(results)) {
    Regs in;
    for (Value operand : operands.take_front(alu.operands)) {
      uint32_t from = regs(operand)[element];
      if (isShort && alu.isSigned)
        from = emitNew(false, getSignExtend(), from, type.bits);
      in.push_back(from);
    }
    if (!isShort || isLogic) {
      emit(handler, result, in);
      continue;
    }
    emit(getMask(), result, emitNew(false, handler, in)).immediate = type.bits;
  }
  return success();
}

LogicalResult Translator::translateCompare(LLVM::ICmpOp compare) {
  ScalarType type = scalarOf(compare.getLhs().getType());
  StringRef name = stringifyEnum(compare.getPredicate());
  Handler handler =
      findIntegerCompare({name.data(), name.size()}, type.isGPU());
  Regs results(define(compare));
  for (auto [element, result] : llvm::enumerate(results)) {
    Regs in = {regs(compare.getLhs())[element],
               regs(compare.getRhs())[element]};
    if (name.front() == 's' && type.bits < 32)
      for (uint32_t &from : in)
        from = emitNew(false, getSignExtend(), from, type.bits);
    emit(handler, result, in);
  }
  return success();
}

LogicalResult Translator::translateCompare(LLVM::FCmpOp compare) {
  StringRef name = stringifyEnum(compare.getPredicate());
  Handler handler = findFloatCompare({name.data(), name.size()});
  if (!handler || scalarOf(compare.getLhs().getType()).bits != 32)
    return unknown(" with this predicate or type");
  Regs results(define(compare));
  for (auto [element, result] : llvm::enumerate(results))
    emit(handler, result,
         {regs(compare.getLhs())[element], regs(compare.getRhs())[element]});
  return success();
}

void Translator::translateSelect() {
  auto select = cast<LLVM::SelectOp>(op);
  Regs conditions(regs(select.getCondition()));
  Regs results(define(select));
  for (auto [element, result] : llvm::enumerate(results)) {
    uint32_t yes = regs(select.getTrueValue())[element];
    uint32_t no = regs(select.getFalseValue())[element];
    uint32_t condition = conditions[conditions.size() == 1 ? 0 : element];
    emit(getSelect(wideRegs[result]), result, {condition, yes, no});
  }
}

LogicalResult Translator::translateIntegerCast(ScalarType from, ScalarType to,
                                               uint32_t in, uint32_t out) {
  if (isa<LLVM::SExtOp>(op)) {
    if (from.bits < 32)
      in = emitNew(false, getSignExtend(), in, from.bits);
    if (to.isGPU())
      emit(getWiden(true), out, in);
    else
      emit(getMask(), out, in).immediate = to.bits;
    return success();
  }
  if (from.isGPU() && to.isGPU())
    emit(getMove(true), out, in);
  else if (to.isGPU())
    emit(getWiden(false), out, in);
  else if (from.isGPU())
    emit(getMask(), out, emitNew(false, getNarrow(), in)).immediate = to.bits;
  else
    emit(getMask(), out, in).immediate = to.bits;
  return success();
}

LogicalResult Translator::translateCast() {
  ScalarType from = scalarOf(op->getOperand(0).getType());
  ScalarType to = scalarOf(op->getResult(0).getType());
  bool isBF16 = getElementTypeOrSelf(op->getOperand(0)).isBF16() ||
                getElementTypeOrSelf(op->getResult(0)).isBF16();
  Cast toHalf = isBF16 ? Cast::FloatToBF16 : Cast::FloatToHalf;
  // Small integers are the same by way of 32 bits.
  bool isNarrow = isa<LLVM::SIToFPOp>(op) && to.bits == 16;
  if ((from.isFloat && from.bits != 32 && !isa<LLVM::FPExtOp>(op)) ||
      (to.isFloat && to.bits != 32 && !isNarrow && !isa<LLVM::FPTruncOp>(op)))
    return unknown(" on this type");
  Regs ins(regs(op->getOperand(0))), outs(define(op->getResult(0)));
  for (auto [in, out] : llvm::zip_equal(ins, outs)) {
    if (!from.isFloat && !to.isFloat) {
      if (failed(translateIntegerCast(from, to, in, out)))
        return failure();
      continue;
    }
    if ((isa<LLVM::FPToSIOp>(op) && to.bits != 32) ||
        (isa<LLVM::SIToFPOp>(op) && from.bits != 32) ||
        (isa<LLVM::UIToFPOp>(op) && from.isGPU()))
      return unknown(" on this type");
    Cast cast = llvm::TypeSwitch<Operation *, Cast>(op)
                    .Case([&](LLVM::FPExtOp) {
                      return isBF16 ? Cast::BF16ToFloat : Cast::HalfToFloat;
                    })
                    .Case([&](LLVM::FPTruncOp) { return toHalf; })
                    .Case([&](LLVM::SIToFPOp) { return Cast::SignedToFloat; })
                    .Case([&](LLVM::UIToFPOp) { return Cast::UnsignedToFloat; })
                    .Default([&](Operation *) { return Cast::FloatToSigned; });
    if (isNarrow)
      emit(getCast(toHalf), out, emitNew(false, getCast(cast), in));
    else
      emit(getCast(cast), out, in);
  }
  return success();
}

/// Between vectors of other element sizes words are taken apart or put
/// together.
LogicalResult Translator::translateBitcast() {
  Value in = op->getOperand(0), out = op->getResult(0);
  unsigned from = scalarOf(in.getType()).bits,
           to = scalarOf(out.getType()).bits;
  Regs ins(regs(in));
  if (from == to) {
    alias(out, ins);
    return success();
  }
  Regs outs(define(out));
  if (from == 16 && to == 32) {
    for (auto [k, result] : llvm::enumerate(outs))
      emit(getPackHalves(), result, {ins[2 * k], ins[2 * k + 1]});
    return success();
  }
  if (from == 32 && to == 16) {
    for (auto [k, result] : llvm::enumerate(outs))
      emit(getTakeHalf(), result, ins[k / 2]).immediate = k % 2 * 16;
    return success();
  }
  return unknown(" between these types");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Bytes of an element in an array; 0 if that is not known here.
static uint64_t bytesOf(Type type) {
  if (auto array = dyn_cast<LLVM::LLVMArrayType>(type))
    return array.getNumElements() * bytesOf(array.getElementType());
  if (auto vector = dyn_cast<VectorType>(type))
    return uint64_t(vector.getNumElements()) * bytesOf(vector.getElementType());
  if (isa<LLVM::LLVMPointerType>(type))
    return 8;
  return type.isIntOrFloat() ? (type.getIntOrFloatBitWidth() + 7) / 8 : 0;
}

LogicalResult Translator::translateAddress(LLVM::GEPOp gep) {
  uint32_t address = reg(gep.getBase());
  Type type = gep.getElemType();
  bool first = true;
  for (auto index : gep.getIndices()) {
    if (!first) {
      if (auto array = dyn_cast<LLVM::LLVMArrayType>(type))
        type = array.getElementType();
      else if (auto vector = dyn_cast<VectorType>(type))
        type = vector.getElementType();
      else
        return unknown(" into this type");
    }
    first = false;
    uint64_t size = bytesOf(type);
    if (size == 0)
      return unknown(" over elements of this type");
    if (auto number = dyn_cast<IntegerAttr>(index)) {
      if (int64_t offset = number.getInt() * int64_t(size))
        address = emitNew(true, getScaledAdd(false), address, offset);
      continue;
    }
    Value value = cast<Value>(index);
    uint32_t by = reg(value);
    unsigned bits = scalarOf(value.getType()).bits;
    if (bits < 32)
      by = emitNew(false, getSignExtend(), by, bits);
    if (bits <= 32)
      by = emitNew(true, getWiden(true), by);
    address = emitNew(true, getScaledAdd(true), {address, by}, int64_t(size));
  }
  alias(gep, Regs({address}));
  return success();
}

FailureOr<bool> Translator::isShared(Value pointer) {
  unsigned space =
      cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace();
  if (space != 1 && space != 3)
    return unknown(" in address space " + Twine(space));
  return space == 3;
}

void Translator::noteGranule(bool shared, unsigned bytes) {
  unsigned &granule = shared ? code.sharedGranule : code.globalGranule;
  granule = std::min(granule, bytes);
}

/// The condition if a load's value is used only where it is true.
static Value conditionOf(Value loaded) {
  while (
      loaded.hasOneUse() &&
      isa<LLVM::TruncOp, LLVM::FPExtOp, LLVM::BitcastOp>(*loaded.user_begin()))
    loaded = loaded.user_begin()->getResult(0);
  Value condition;
  for (OpOperand &use : loaded.getUses()) {
    auto select = dyn_cast<LLVM::SelectOp>(use.getOwner());
    if (!select || use.getOperandNumber() != 1 ||
        (condition && select.getCondition() != condition))
      return {};
    condition = select.getCondition();
  }
  return condition;
}

LogicalResult Translator::translateLoad(LLVM::LoadOp load) {
  FailureOr<bool> shared = isShared(load.getAddr());
  if (failed(shared))
    return failure();
  ScalarType type = scalarOf(load.getType());
  unsigned bytes = (type.bits + 7) / 8;
  Regs results(define(load)), operands = {reg(load.getAddr())};
  // Known before the load: then the loaded element may be a dummy.
  Value condition = conditionOf(load);
  bool guarded =
      condition && values.count(condition) && regs(condition).size() == 1;
  if (guarded)
    operands.push_back(reg(condition));
  Instruction &instruction = emit(getLoad(*shared, bytes), results, operands);
  instruction.bytes = uint8_t(bytes);
  instruction.count = uint16_t(results.size());
  uint64_t align = load.getAlignment().value_or(bytes * results.size());
  instruction.immediate = int64_t(align * 2 + guarded);
  noteGranule(*shared, bytes);
  return success();
}

LogicalResult Translator::translateStore(LLVM::StoreOp store) {
  FailureOr<bool> shared = isShared(store.getAddr());
  if (failed(shared))
    return failure();
  unsigned bytes = (scalarOf(store.getValue().getType()).bits + 7) / 8;
  Regs operands(regs(store.getValue()));
  unsigned count = operands.size();
  operands.push_back(reg(store.getAddr()));
  Instruction &instruction = emit(getStore(*shared), {}, operands);
  instruction.bytes = uint8_t(bytes);
  instruction.count = uint16_t(count);
  instruction.immediate =
      int64_t(store.getAlignment().value_or(bytes * count) * 2);
  noteGranule(*shared, bytes);
  return success();
}
