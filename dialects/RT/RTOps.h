//===- RTOps.h - tensors, entries and commands ------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_RT_RTOPS_H
#define NSA_DIALECTS_RT_RTOPS_H

#include "dialects/Interfaces/OpChecks.h"
#include "dialects/Interfaces/RowLayout.h"
#include "dialects/RT/RTDialect.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace nsa::rt {

/// Appends the operands that an operation is declared to read or to write.
template <typename Effect>
void appendAccessed(mlir::MemoryEffectOpInterface op,
                    llvm::SmallVectorImpl<mlir::Value> &values) {
  llvm::SmallVector<mlir::MemoryEffects::EffectInstance> effects;
  op.getEffects<Effect>(effects);
  for (const mlir::MemoryEffects::EffectInstance &effect : effects)
    values.push_back(effect.getValue());
}

} // namespace nsa::rt

#include "dialects/RT/RTInterfaces.h.inc"

namespace nsa::rt {

/// Whether a dense tensor of static shape takes less than 2^48 bytes, so that
/// sums of sizes cannot overflow.
bool isAddressable(mlir::ShapedType type);

} // namespace nsa::rt

#define GET_OP_CLASSES
#include "dialects/RT/RTOps.h.inc"

namespace nsa::rt {

/// Bytes of which every tensor of a flat view begins at a multiple.
inline constexpr uint64_t kFlatViewAlignment = 64;

/// Bytes from the first element to the last. Legal memory has whole-byte
/// elements.
uint64_t getByteSize(mlir::MemRefType type);

/// What a value shows of the memory that it is a view of: the elements
/// `begin` .. `end` - 1 of every `pitch`. All of it if these are all.
struct MemoryRegion {
  mlir::Value root;
  int64_t begin, end, pitch;

  /// Whether some element is in both; true where that is hard to tell.
  bool overlaps(const MemoryRegion &other) const;
};
MemoryRegion getMemoryRegion(mlir::Value value);

/// Whether the regions together have every element of `region`; false where
/// that is hard to tell.
bool cover(llvm::ArrayRef<MemoryRegion> regions, const MemoryRegion &region);

/// Bytes between the beginning of the root of `value` and its first element.
uint64_t getByteOffset(mlir::Value value);

/// The `rt.get`, `rt.flat_view` or `rt.buffer` result that `value` is a view
/// of.
mlir::Value getMemoryRoot(mlir::Value value);

/// The named tensors of which `value` shows something; none for a buffer.
llvm::SmallVector<mlir::FlatSymbolRefAttr> getTensorNames(mlir::Value value);

/// Whether both values show something of the same named tensor.
bool shareTensors(mlir::Value a, mlir::Value b);

/// Whether one command writes memory that the other one touches.
bool conflict(CommandOpInterface a, CommandOpInterface b);

/// Bytes of a tensor in a flat view, with those that follow it.
uint64_t getFlatViewBytes(TensorOp tensor);

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
