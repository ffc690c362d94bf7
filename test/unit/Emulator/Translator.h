//===- Translator.h - one function on its way to code -----------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_TRANSLATOR_H
#define NSA_TEST_UNIT_EMULATOR_TRANSLATOR_H

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "test/unit/Emulator/Alu.h"
#include "test/unit/Emulator/Handlers.h"
#include "test/unit/Emulator/Translate.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace nsa::emulator {

/// How a scalar lies in registers.
struct ScalarType {
  /// 1 to 64.
  unsigned bits = 32;
  bool isFloat = false;
  bool isGPU() const { return bits > 32; }
};

/// Builds the code of one function. Values are lists of registers, one for
/// each scalar of a vector or struct.
class Translator {
public:
  explicit Translator(mlir::LLVM::LLVMFuncOp function) : function(function) {}

  mlir::FailureOr<Code> run();

private:
  using Regs = llvm::SmallVector<uint32_t, 4>;

  // Registers.
  mlir::LogicalResult flatten(mlir::Type type,
                              llvm::SmallVectorImpl<ScalarType> &scalars,
                              mlir::Operation *user);
  uint32_t makeReg(bool wide);
  uint32_t constant(uint64_t bits, bool wide);
  llvm::ArrayRef<uint32_t> regs(mlir::Value value);
  uint32_t reg(mlir::Value value) { return regs(value)[0]; }
  /// New registers for a result.
  llvm::ArrayRef<uint32_t> define(mlir::Value value);
  void alias(mlir::Value value, llvm::ArrayRef<uint32_t> to) {
    values[value] = Regs(to.begin(), to.end());
  }

  // Instructions.
  Instruction &emit(Handler handler, llvm::ArrayRef<uint32_t> results,
                    llvm::ArrayRef<uint32_t> operands, Kind kind = Kind::Lane);
  uint32_t emitNew(bool wide, Handler handler,
                   llvm::ArrayRef<uint32_t> operands, int64_t immediate = 0);
  mlir::LogicalResult unknown(const llvm::Twine &why = "");

  /// Gives the number of parameters before the tensor maps.
  mlir::LogicalResult translateTensorMaps(unsigned &pointers);

  // Operations; each translates `op`.
  mlir::LogicalResult translateOp();
  mlir::LogicalResult translateStructure(bool &known);
  mlir::LogicalResult translateConstant(mlir::Attribute value);
  mlir::LogicalResult translateAlu(const AluOperation &alu,
                                   mlir::ValueRange operands);
  mlir::LogicalResult translateCompare(mlir::LLVM::ICmpOp compare);
  mlir::LogicalResult translateCompare(mlir::LLVM::FCmpOp compare);
  void translateSelect();
  mlir::LogicalResult translateCast();
  mlir::LogicalResult translateIntegerCast(ScalarType from, ScalarType to,
                                           uint32_t in, uint32_t out);
  mlir::LogicalResult translateBitcast();
  mlir::LogicalResult translateAddress(mlir::LLVM::GEPOp gep);
  mlir::LogicalResult translateLoad(mlir::LLVM::LoadOp load);
  mlir::LogicalResult translateStore(mlir::LLVM::StoreOp store);
  mlir::LogicalResult translateIntrinsic(mlir::LLVM::CallIntrinsicOp call);
  mlir::LogicalResult translateAsm(mlir::LLVM::InlineAsmOp text);
  mlir::LogicalResult translateNVVM();
  mlir::LogicalResult translateMultiply(mlir::NVVM::MmaOp multiply);
  mlir::LogicalResult translateWarpgroupAsm(mlir::LLVM::InlineAsmOp text);
  mlir::LogicalResult translateBarrier(mlir::NVVM::BarrierOp barrier);
  mlir::LogicalResult translateMbarrier();
  mlir::LogicalResult translateTensorCopy(
      mlir::NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp copy);
  mlir::LogicalResult translateTerminator();
  void emitEdge(mlir::Block *to, mlir::ValueRange arguments);
  void emitJump(mlir::Block *to);
  mlir::FailureOr<bool> isShared(mlir::Value pointer);

  // Assign.cpp: from virtual to real registers.
  void assignRegisters();
  void noteGranule(bool shared, unsigned bytes);

  mlir::LLVM::LLVMFuncOp function;
  mlir::Operation *op = nullptr;
  Code code;
  llvm::DenseMap<mlir::Value, Regs> values;
  llvm::MapVector<std::pair<uint64_t, unsigned>, uint32_t> constantRegs;
  llvm::SmallVector<bool> wideRegs;
  /// Results and operands of each instruction, in virtual registers.
  struct Uses {
    llvm::SmallVector<uint32_t, 4> results, operands;
    /// The straight piece of code that the instruction is in.
    unsigned piece;
  };
  std::vector<Uses> uses;
  unsigned piece = 0;
  llvm::DenseMap<mlir::Block *, uint32_t> starts;
  /// Where a jump's or branch's targets have to be filled in.
  struct Fixup {
    uint32_t at;
    bool second;
    mlir::Block *block;
  };
  llvm::SmallVector<Fixup> fixups;
};

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_TRANSLATOR_H
