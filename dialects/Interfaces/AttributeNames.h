//===- AttributeNames.h - what passes say of kernels ------------*- C++ -*-===//
//
// Names of the attributes of the nsa dialect. Passes hand them to each other on
// kernels and on the functions made from them; the dialect refuses others.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_INTERFACES_ATTRIBUTENAMES_H
#define NSA_DIALECTS_INTERFACES_ATTRIBUTENAMES_H

#include "llvm/ADT/StringRef.h"

namespace nsa {

/// Attribute of a function made from a kernel, an i64: bytes of dynamic shared
/// memory that a launch gives it.
inline constexpr llvm::StringLiteral kSharedBytesAttr = "nsa.shared_bytes";

/// Attribute of a function made from a kernel, an i64: registers of each
/// thread at launch, before setmaxnreg reallocates them.
inline constexpr llvm::StringLiteral kLaunchRegistersAttr =
    "nsa.launch_registers";

/// Attribute of a function made from a kernel, an array of #rt.tensor_map: what
/// the parameters after the pointers describe.
inline constexpr llvm::StringLiteral kTensorMapsAttr = "nsa.tensor_maps";

/// Attribute of a function made from a kernel, a unit: the kernel multiplies
/// tiles, so that spilling is a performance lint.
inline constexpr llvm::StringLiteral kMultipliesAttr = "nsa.multiplies";

/// Attribute of an argument of a kernel, an i64: the alignment of its address
/// in bytes. Without it, a tensor of its own has `kTensorAlignment`, columns of
/// a matrix the alignment of an element.
inline constexpr llvm::StringLiteral kAlignmentAttr = "nsa.alignment";
inline constexpr int64_t kTensorAlignment = 16;

/// Attribute of a kernel, an i64: minimum blocks per multiprocessor, which
/// limits registers (minctasm). Without it, as many as fit.
inline constexpr llvm::StringLiteral kMinBlocksAttr = "nsa.min_blocks";

/// Attribute of a kernel, a unit: use a producer warpgroup for its loops,
/// however few accumulator registers these have. Or an i64: one whose warp
/// gathers rows, with so many blocks per multiprocessor.
inline constexpr llvm::StringLiteral kProducerAttr = "nsa.producer";

/// Attribute of a kernel of attention and of its description, a dictionary: the
/// one of several schedules that it was cut by. `kernel` names the kernel and
/// its list, `number` is the schedule's index there, `sizes` the schedule, and
/// `spills`, if there is one, how many bytes a thread may spill.
inline constexpr llvm::StringLiteral kScheduleAttr = "nsa.schedule";

/// Attribute of the same, a unit: it is the last of the list.
inline constexpr llvm::StringLiteral kLastScheduleAttr = "nsa.last_schedule";

/// Attribute of the same, a unit: there is no such code, it spills, or its
/// wgmma are serialised. Another schedule is to be tried.
inline constexpr llvm::StringLiteral kRefusedAttr = "nsa.refused";

/// Attribute of a module, a dictionary: how many schedules of the lists of
/// kernels were refused, by what `nsa.schedule` names these kernels, or `any`.
inline constexpr llvm::StringLiteral kRefusedSchedulesAttr =
    "nsa.refused_schedules";

/// Attribute of a module, a #nsa.machine: what runs its kernels.
inline constexpr llvm::StringLiteral kMachineAttr = "nsa.machine";

/// Attribute of a graph operation or of a module, a dictionary: for kernels of
/// attention, a list of #nsa.schedule, of which the first one is taken that the
/// assembler does not refuse.
inline constexpr llvm::StringLiteral kSchedulesAttr = "nsa.schedules";

/// Attribute of a module, a dictionary: for kernels by what their names begin
/// with, the stages of the loops that copy ahead. Of a kernel, an i64.
inline constexpr llvm::StringLiteral kStagesAttr = "nsa.stages";

/// Attribute of an arith.select in the body of a map, a unit: the true value is
/// a fast path where the condition holds, the false value is right everywhere.
/// They differ in rounding only.
inline constexpr llvm::StringLiteral kShortcutAttr = "nsa.shortcut";

/// Attribute of a kernel, an array<i64> with a number for each argument: the
/// tokens of a block if the argument is i32 [B, heads, tokens, n] and holds the
/// numbers of selected blocks, else 0.
inline constexpr llvm::StringLiteral kSelectBlocksAttr = "nsa.select_blocks";

/// Attribute of a kernel, an array<i64> of pairs of an input and an output: the
/// output is the input with some elements changed, which is all that is written
/// of it: both are the same memory. What is read of the input stays.
inline constexpr llvm::StringLiteral kInPlaceAttr = "nsa.in_place";

/// Attribute of an operation, of the kernel that it becomes and of the function
/// that this becomes: the names of its performance lints so far.
inline constexpr llvm::StringLiteral kPerformanceLintsAttr =
    "nsa.performance_lints";

/// Attribute of a module, of a kernel and of the function made from it, an
/// array of [number, affine_map<()[batch, seq] -> (expression, ...)>]: what
/// extents of tensors stand for where they are no constants but depend on those
/// of a call (see Extents.h).
inline constexpr llvm::StringLiteral kExtentsAttr = "nsa.extents";

/// Attribute of a kernel, an array of three such maps: its grid, whose
/// constants stand for those of a call.
inline constexpr llvm::StringLiteral kGridExtentsAttr = "nsa.grid_extents";

} // namespace nsa

#endif // NSA_DIALECTS_INTERFACES_ATTRIBUTENAMES_H
