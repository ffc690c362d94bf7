//===- RegisterDialects.cpp - the dialects of the compiler tools ----------===//

#include "lib/Compiler/Registration.h"
#ifdef NSA_HAVE_NSADialect
#include "dialects/NSA/NSADialect.h"
#endif
#ifdef NSA_HAVE_NSANNDialect
#include "dialects/NN/NNDialect.h"
#endif
#ifdef NSA_HAVE_NSATileDialect
#include "dialects/Tile/TileDialect.h"
#endif
#ifdef NSA_HAVE_NSARTDialect
#include "dialects/RT/RTDialect.h"
#endif
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

void nsa::registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::cf::ControlFlowDialect,
                  mlir::func::FuncDialect, mlir::LLVM::LLVMDialect,
                  mlir::math::MathDialect, mlir::memref::MemRefDialect,
                  mlir::scf::SCFDialect, mlir::tensor::TensorDialect,
                  mlir::vector::VectorDialect>();
#ifdef NSA_HAVE_NSADialect
  registry.insert<NSADialect>();
#endif
#ifdef NSA_HAVE_NSANNDialect
  registry.insert<nn::NNDialect>();
#endif
#ifdef NSA_HAVE_NSATileDialect
  registry.insert<tile::TileDialect>();
#endif
#ifdef NSA_HAVE_NSARTDialect
  registry.insert<rt::RTDialect>();
#endif
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
}
