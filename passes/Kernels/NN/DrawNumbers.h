//===- DrawNumbers.h - fixed-point probabilities in kernels -----*- C++ -*-===//
//
// Integers of three digits, of which sums are exact in any order, and the
// probabilities that they are. A host computes the same bits
// (runtime/Generate/Sampling.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NN_DRAWNUMBERS_H
#define NSA_PASSES_KERNELS_NN_DRAWNUMBERS_H

#include "dialects/Interfaces/Expr.h"
#include "dialects/NN/NNSampling.h"

namespace nsa {

inline constexpr int64_t kDigits = nn::DrawOp::kDigits,
                         kDigitBits = nn::DrawOp::kDigitBits;
inline constexpr double kBase = 1 << kDigitBits;

/// Digits, the highest first: that may have 31 bits.
using Number = llvm::SmallVector<Expr, kDigits>;

Expr bitcast(Expr value, mlir::Type type);
/// The bits of a float as an integer in the order of floats, and back.
Expr orderBits(Expr bits);
Expr lowDigit(Expr number);
Expr dropDigit(Expr number);
/// Leaves less than a digit in all but the first.
Number carry(Number digits);
/// Of numbers without a carry left.
Expr isLess(llvm::ArrayRef<Expr> x, llvm::ArrayRef<Expr> y);
/// The number times a fraction, rounded down.
Number multiply(Number number, llvm::ArrayRef<Expr> fraction);

/// exp((logit - largest) * inverse), 0 where that is less than the last digit.
Expr weigh(Expr logit, Expr largest, Expr inverse);
Number digitsOf(Expr weight);
/// The fewest of so many numbers `each` with which a sum reaches a limit.
Expr countUntil(llvm::ArrayRef<Expr> sum, llvm::ArrayRef<Expr> limit,
                llvm::ArrayRef<Expr> each);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NN_DRAWNUMBERS_H
