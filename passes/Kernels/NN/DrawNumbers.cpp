//===- DrawNumbers.cpp - fixed-point probabilities in kernels -------------===//

#include "passes/Kernels/NN/DrawNumbers.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace mlir;
using namespace nsa;

Expr nsa::bitcast(Expr value, Type type) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  return Expr(b, arith::BitcastOp::create(b, type, value));
}

Expr nsa::orderBits(Expr bits) {
  return select(bits < 0, std::numeric_limits<int32_t>::max() - bits, bits);
}

Expr nsa::lowDigit(Expr number) { return number & number.constant(kBase - 1); }
Expr nsa::dropDigit(Expr number) {
  return number >> number.constant(kDigitBits);
}

Number nsa::carry(Number digits) {
  for (size_t i = digits.size() - 1; i > 0; --i) {
    digits[i - 1] = digits[i - 1] + dropDigit(digits[i]);
    digits[i] = lowDigit(digits[i]);
  }
  return digits;
}

Expr nsa::isLess(ArrayRef<Expr> x, ArrayRef<Expr> y) {
  Expr less = x.back() < y.back();
  for (auto [a, b] : llvm::reverse(llvm::zip(x.drop_back(), y.drop_back())))
    less = (a < b) | ((a == b) & less);
  return less;
}

Number nsa::multiply(Number number, ArrayRef<Expr> fraction) {
  number = carry(std::move(number));
  Expr high = dropDigit(number[0]);
  SmallVector<Expr> digits = {number[2], number[1], lowDigit(number[0]),
                              lowDigit(high), dropDigit(high)};
  Expr zero = high.constant(0);
  SmallVector<Expr> rest(digits.size(), zero);
  for (Expr factor : llvm::reverse(fraction)) {
    Expr over = zero;
    for (auto [i, digit] : llvm::enumerate(digits)) {
      Expr sum = rest[i] + digit * factor + over;
      over = dropDigit(sum);
      if (i > 0)
        rest[i - 1] = lowDigit(sum);
    }
    rest.back() = over;
  }
  return {rest[2] + rest[3] * kBase + rest[4] * (kBase * kBase), rest[1],
          rest[0]};
}

/// Every step is one operation of f32: a product that is added is no operand of
/// a contraction.
Expr nsa::weigh(Expr logit, Expr largest, Expr inverse) {
  Expr zero = logit.constant(0);
  auto multiplied = [&](Expr x, Expr y) { return fma(x, y, zero); };
  Expr power = multiplied(logit - largest, inverse);
  Expr counts = power > -25;
  power = select(counts, power, 0);
  Type i32 = logit.getBuilder().getI32Type();
  constexpr double log2e = 1.44269504088896341, ln2 = 0.69314718055994531,
                   part = 11357.0 / 16384;
  Expr n = convert(0.5 - multiplied(power, zero.constant(log2e)), i32);
  Expr count = convert(n, logit.getType());
  Expr r = power + multiplied(count, zero.constant(part));
  r = r + multiplied(count, zero.constant(ln2 - part));
  constexpr int terms = 7;
  double factor = 1.0 / 5040;
  Expr y = zero.constant(factor);
  for (int i = terms; i > 0; --i) {
    factor *= i;
    y = multiplied(y, r) + factor;
  }
  Expr scale = bitcast((127 - n) << n.constant(23), logit.getType());
  return select(counts, multiplied(y, scale), 0);
}

Number nsa::digitsOf(Expr weight) {
  Type i32 = weight.getBuilder().getI32Type();
  Number digits;
  for (int64_t i = 0; i < kDigits; ++i) {
    weight = weight * kBase;
    digits.push_back(convert(weight, i32));
    weight = weight - convert(digits.back(), weight.getType());
  }
  return digits;
}

/// Nearly the quotient, which f32 has to less than one.
Expr nsa::countUntil(ArrayRef<Expr> sum, ArrayRef<Expr> limit,
                     ArrayRef<Expr> each) {
  Type f32 = sum[0].getBuilder().getF32Type();
  auto toFloat = [&](ArrayRef<Expr> digits) {
    Expr number = convert(digits[0], f32);
    for (Expr digit : digits.drop_front())
      number = number * kBase + convert(digit, f32);
    return number;
  };
  Number have = carry(Number(sum)), left;
  for (auto [most, own] : llvm::zip_equal(limit, have))
    left.push_back(most - own);
  Expr quotient = toFloat(left) / max(toFloat(each), 1);
  Expr first = max(convert(quotient, have[0].getType()) - 1, 0), count = first;
  for (int more = 0; more < 4; ++more) {
    Number all;
    for (auto [own, one] : llvm::zip_equal(have, each))
      all.push_back(own + (first + more) * one);
    count = count + convert(isLess(carry(all), limit), count.getType());
  }
  return count;
}
