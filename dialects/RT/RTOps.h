//===- RTOps.h - tensors, entries and commands ------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_RT_RTOPS_H
#define NSA_DIALECTS_RT_RTOPS_H

#include "dialects/NN/NNAttributes.h"
#include "dialects/RT/RTDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

#include "dialects/RT/RTInterfaces.h.inc"

namespace nsa::rt {

/// Whether a dense tensor of static shape takes less than 2^48 bytes, so that
/// sums of sizes cannot overflow.
bool isAddressable(mlir::ShapedType type);

} // namespace nsa::rt

#define GET_OP_CLASSES
#include "dialects/RT/RTOps.h.inc"

namespace nsa::rt {

/// Bytes of which every tensor of a span begins at a multiple.
inline constexpr uint64_t kSpanAlignment = 64;

/// Bytes of a dense tensor. Legal memory has whole-byte elements.
uint64_t getByteSize(mlir::MemRefType type);

/// The `rt.get`, `rt.span` or `rt.buffer` result that `value` is a view of.
mlir::Value getMemoryRoot(mlir::Value value);

/// The commands of an entry, in order; a command's number is its position.
llvm::SmallVector<CommandOpInterface> getCommands(EntryOp entry);

/// The commands between which a buffer holds a value, both included.
struct Lifetime {
  BufferOp buffer;
  unsigned first = 0;
  unsigned last = 0;
};

/// The lifetimes of the buffers that a command touches, in the order of their
/// first command, then of their definition.
llvm::SmallVector<Lifetime> getLifetimes(EntryOp entry);

} // namespace nsa::rt

#endif // NSA_DIALECTS_RT_RTOPS_H
