//===- TranslateNVVM.cpp - operations of the GPU --------------------------===//

#include "test/unit/Emulator/Translator.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::emulator;

LogicalResult Translator::translateIntrinsic(LLVM::CallIntrinsicOp call) {
  StringRef name = call.getIntrin();
  if (const AluOperation *alu = findAlu({name.data(), name.size()}))
    return translateAlu(*alu, call.getArgs());
  return unknown(" of @" + name);
}

LogicalResult Translator::translateAsm(LLVM::InlineAsmOp text) {
  StringRef asmText = text.getAsmString();
  ValueRange operands = text.getOperands();
  // What nvvm.mbarrier.try_wait.parity becomes.
  if (asmText.contains("LAB_WAIT: \n\tmbarrier.try_wait.parity.shared.b64 P1, "
                       "[$0], $1, $2; ") &&
      operands.size() == 3) {
    emit(nullptr, {}, {reg(operands[0]), reg(operands[1])}, Kind::Wait);
    return success();
  }
  if (asmText.contains("wgmma."))
    return translateWarpgroupAsm(text);
  // Launches run one after the other here.
  if (asmText.starts_with("griddepcontrol."))
    return success();
  // Prefetches change nothing.
  if (asmText.contains("cp.async.bulk.prefetch.L2.global ") &&
      operands.size() == 2)
    return success();
  return unknown(" with the text '" + asmText + "'");
}

/// The number after `prefix` in an instruction.
static std::optional<int64_t> numberBehind(StringRef text, StringRef prefix) {
  size_t at = text.find(prefix);
  int64_t number;
  if (at == StringRef::npos ||
      text.drop_front(at + prefix.size()).consumeInteger(10, number))
    return std::nullopt;
  return number;
}

/// "setp.ne.b32 p, ADDS, 0; wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T
/// {sums}, a, b, p, 1, 1[, TRANSA], TRANSB;". Operands are a, b and, if the
/// sums go on, these.
LogicalResult Translator::translateWarpgroupAsm(LLVM::InlineAsmOp text) {
  StringRef asmText = text.getAsmString();
  Regs operands;
  for (Value operand : text.getOperands())
    operands.push_back(reg(operand));
  Regs results;
  if (text.getRes())
    results = Regs(define(text.getRes()));
  if (asmText == "wgmma.fence.sync.aligned;" ||
      numberBehind(asmText, "wgmma.wait_group.sync.aligned ")) {
    if (results.size() != operands.size())
      return unknown(" with other operands than results");
    emit(getPassThrough(), results, operands, Kind::Warp).count =
        uint16_t(results.size());
    return success();
  }
  auto columns = numberBehind(asmText, "wgmma.mma_async.sync.aligned.m64n");
  auto adds = numberBehind(asmText, "setp.ne.b32 p, ");
  if (!columns || !adds || *columns % 8 != 0 || *columns > 256)
    return unknown(" with the text '" + asmText + "'");
  std::string type = "k16.f32.";
  bool isBF16 = asmText.contains(type + "bf16.bf16 ");
  SmallVector<StringRef> scales;
  asmText.split(" p, ")
      .second.split(" p, ")
      .second.take_until([](char c) { return c == ';'; })
      .split(scales, ", ");
  ProductShape shape{unsigned(*columns),
                     isBF16,
                     *adds != 0,
                     text.getOperands().front().getType().isInteger(32),
                     false,
                     false};
  size_t given =
      (shape.aInRegisters ? 5 : 2) + (shape.adds ? shape.results() : 0);
  if ((!isBF16 && !asmText.contains(type + "f16.f16 ")) ||
      scales.size() != (shape.aInRegisters ? 3 : 4) || scales[0] != "1" ||
      scales[1] != "1" || operands.size() != given ||
      results.size() != shape.results())
    return unknown(" with the text '" + asmText + "'");
  shape.bAcross = scales.back() == "1";
  shape.aAcross = !shape.aInRegisters && scales[2] == "1";
  emit(getWarpgroupMultiply(), results, operands, Kind::Warp).immediate =
      encodeProduct(shape);
  noteGranule(true, 2);
  return success();
}

LogicalResult Translator::translateBarrier(NVVM::BarrierOp barrier) {
  uint32_t id =
      barrier.getBarrierId() ? reg(barrier.getBarrierId()) : constant(0, false);
  Value count = barrier.getNumberOfThreads();
  uint32_t threads = count ? reg(count) : constant(code.threads, false);
  Regs operands = {id, threads}, results;
  int64_t what = count ? Barrier::Counted : 0;
  if (auto reduction = barrier.getReductionOp()) {
    if (*reduction != NVVM::BarrierReduction::OR)
      return unknown(" with this reduction");
    operands.push_back(reg(barrier.getReductionPredicate()));
    results = Regs(define(barrier.getRes()));
    what |= Barrier::Or;
  }
  emit(nullptr, results, operands, Kind::Barrier).immediate = what;
  return success();
}

LogicalResult Translator::translateMultiply(NVVM::MmaOp multiply) {
  auto shape = multiply.getShape();
  std::optional<NVVM::MMATypes> type = multiply.getMultiplicandAPtxType();
  bool isBF16 = type == NVVM::MMATypes::bf16;
  bool isKnown = shape.getM() == 16 && shape.getN() == 8 &&
                 (shape.getK() == 8 || shape.getK() == 16) &&
                 (isBF16 || type == NVVM::MMATypes::f16) &&
                 multiply.getMultiplicandBPtxType() == type &&
                 multiply.getLayoutA() == NVVM::MMALayout::row &&
                 multiply.getLayoutB() == NVVM::MMALayout::col &&
                 multiply.getOperandC().size() == 4;
  if (!isKnown)
    return unknown(" of this shape or type");
  Regs operands;
  for (ValueRange list : {multiply.getOperandA(), multiply.getOperandB()})
    for (Value operand : list) {
      Regs parts(regs(operand));
      operands.push_back(parts.size() == 2
                             ? emitNew(false, getPackHalves(), parts)
                             : parts[0]);
    }
  for (Value operand : multiply.getOperandC())
    operands.push_back(reg(operand));
  Instruction &instruction =
      emit(getMultiply(), define(multiply), operands, Kind::Warp);
  instruction.immediate = shape.getK();
  instruction.bytes = isBF16;
  return success();
}

static std::optional<VoteKind> kindOf(NVVM::VoteSyncKind kind) {
  switch (kind) {
  case NVVM::VoteSyncKind::any:
    return Any;
  case NVVM::VoteSyncKind::all:
    return All;
  case NVVM::VoteSyncKind::ballot:
    return Ballot;
  case NVVM::VoteSyncKind::uni:
    return std::nullopt;
  }
  llvm_unreachable("unknown vote");
}

LogicalResult Translator::translateNVVM() {
  auto number = [&](Handler handler, int64_t axis) {
    emit(handler, define(op->getResult(0)), {}).immediate = axis;
    return success();
  };
  // Of two f32; the first operand is the upper half.
  auto toPair = [&](auto convert, Cast cast) -> LogicalResult {
    Regs results(define(convert->getResult(0)));
    if (results.size() != 2 || convert.getRelu())
      return unknown(" of this kind");
    emit(getCast(cast), results[1], reg(convert.getSrcHi()));
    emit(getCast(cast), results[0], reg(convert.getSrcLo()));
    return success();
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](NVVM::ThreadIdXOp) { return number(getThreadId(), 0); })
      .Case([&](NVVM::BlockIdXOp) { return number(getBlockId(), 0); })
      .Case([&](NVVM::BlockIdYOp) { return number(getBlockId(), 1); })
      .Case([&](NVVM::BlockIdZOp) { return number(getBlockId(), 2); })
      .Case([&](NVVM::BarrierOp barrier) { return translateBarrier(barrier); })
      .Case<NVVM::MBarrierInitOp, NVVM::MBarrierArriveOp,
            NVVM::MBarrierArriveExpectTxOp, NVVM::CpAsyncMBarrierArriveOp>(
          [&](auto) { return translateMbarrier(); })
      // What they order, and when, tile-gpu-verify-synchronization proves.
      .Case<NVVM::FenceMbarrierInitOp, NVVM::WgmmaFenceAlignedOp,
            NVVM::WgmmaGroupSyncAlignedOp>([](auto) { return success(); })
      .Case([&](NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp copy) {
        return translateTensorCopy(copy);
      })
      .Case([&](NVVM::SetMaxRegisterOp set) {
        // Its verifier knows which numbers there are.
        Instruction &instruction = emit(getSetRegisters(), {}, {}, Kind::Warp);
        instruction.immediate = set.getRegCount();
        instruction.count =
            set.getAction() == NVVM::SetMaxRegisterAction::increase;
        return success();
      })
      .Case([&](NVVM::SyncWarpOp sync) {
        emit(getWarpSync(), {}, reg(sync.getMask()), Kind::Mask);
        return success();
      })
      .Case([&](NVVM::ShflOp shuffle) -> LogicalResult {
        bool isIndex = shuffle.getKind() == NVVM::ShflKind::idx;
        if (shuffle.getReturnValueAndIsValid() ||
            (!isIndex && shuffle.getKind() != NVVM::ShflKind::bfly))
          return unknown(" of this kind");
        // The handler finds the clamp after one result and three operands.
        emit(getShuffle(), define(shuffle),
             {reg(shuffle.getThreadMask()), reg(shuffle.getVal()),
              reg(shuffle.getOffset()), reg(shuffle.getMaskAndClamp())},
             Kind::Mask)
            .immediate = isIndex ? Index : Butterfly;
        return success();
      })
      .Case([&](NVVM::VoteSyncOp vote) -> LogicalResult {
        std::optional<VoteKind> kind = kindOf(vote.getKind());
        if (!kind)
          return unknown(" of this kind");
        emit(getVote(), define(vote),
             {reg(vote.getMask()), reg(vote.getPred())}, Kind::Mask)
            .immediate = *kind;
        return success();
      })
      .Case([&](NVVM::LdMatrixOp load) -> LogicalResult {
        if (load.getShape().getM() != 8 || load.getShape().getN() != 8)
          return unknown(" of this shape");
        Instruction &instruction = emit(getLoadMatrix(), define(load.getRes()),
                                        reg(load.getPtr()), Kind::Warp);
        instruction.count = uint16_t(load.getNum());
        instruction.immediate = load.getLayout() == NVVM::MMALayout::col;
        noteGranule(true, 2);
        return success();
      })
      .Case([&](NVVM::MmaOp multiply) { return translateMultiply(multiply); })
      .Case([&](NVVM::FenceProxyOp fence) -> LogicalResult {
        return fence.getKind() == NVVM::ProxyKind::async_shared
                   ? success()
                   : unknown(" of this kind");
      })
      .Case([&](NVVM::CpAsyncOp copy) {
        Regs operands = {reg(copy.getDst()), reg(copy.getSrc())};
        if (copy.getCpSize())
          operands.push_back(reg(copy.getCpSize()));
        Instruction &instruction = emit(getCopyAsync(), {}, operands);
        instruction.bytes = uint8_t(copy.getSize());
        instruction.count = copy.getCpSize() != nullptr;
        return success();
      })
      .Case([&](NVVM::CpAsyncCommitGroupOp) {
        emit(getCommitGroup(), {}, {});
        return success();
      })
      .Case([&](NVVM::CpAsyncWaitGroupOp wait) {
        emit(getWaitGroup(), {}, {}).immediate = wait.getN();
        return success();
      })
      .Case([&](NVVM::ConvertF32x2ToBF16x2Op convert) {
        return toPair(convert, Cast::FloatToBF16);
      })
      .Case([&](NVVM::ConvertF32x2ToF16x2Op convert) {
        return toPair(convert, Cast::FloatToHalf);
      })
      .Default([&](Operation *) -> LogicalResult {
        StringRef name = op->getName().getStringRef();
        const AluOperation *alu = findAlu({name.data(), name.size()});
        return alu ? translateAlu(*alu, op->getOperands()) : unknown();
      });
}
