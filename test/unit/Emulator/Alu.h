//===- Alu.h - arithmetic of a warp -----------------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_ALU_H
#define NSA_TEST_UNIT_EMULATOR_ALU_H

#include "test/unit/Emulator/Code.h"

#include <string_view>

namespace nsa::emulator {

/// What one operation of the LLVM dialect does with each of its elements.
/// Integers are zero-extended to 32 or 64 bits in registers.
struct AluOperation {
  unsigned operands = 0;
  /// On integers of up to 32 bits, of 64 bits, on f32; null: not supported.
  Handler narrow = nullptr, wide = nullptr, single = nullptr;
  /// Reads integers as signed ones.
  bool isSigned = false;
};

/// Null if there is none of this name.
const AluOperation *findAlu(std::string_view name);

/// Comparisons by the names of their predicates, "slt" or "olt".
Handler findIntegerCompare(std::string_view predicate, bool wide);
Handler findFloatCompare(std::string_view predicate);

/// `and` and `or` of i1: a known operand may decide.
Handler getLogicAnd();
Handler getLogicOr();

/// The result is b where a is not 0, else c.
Handler getSelect(bool wide);
Handler getMove(bool wide);

/// Copies the sign bit of an integer of `immediate` bits to the bits above.
Handler getSignExtend();
/// Keeps the `immediate` lowest bits.
Handler getMask();
Handler getWiden(bool isSigned);
Handler getNarrow();
/// result = a + b * immediate, of pointers and wide numbers; b may be missing.
Handler getScaledAdd(bool hasIndex);

enum class Cast {
  BF16ToFloat,
  FloatToBF16,
  HalfToFloat,
  FloatToHalf,
  SignedToFloat,
  UnsignedToFloat,
  FloatToSigned,
};
Handler getCast(Cast cast);
/// Two halves to one word and back: a is the low one; `immediate` 0 or 16
/// picks.
Handler getPackHalves();
Handler getTakeHalf();
/// Two words to a wide register and back; `immediate` 0 or 32 picks.

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_ALU_H
