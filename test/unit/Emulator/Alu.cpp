//===- Alu.cpp - arithmetic of a warp -------------------------------------===//

#include "test/unit/Emulator/Alu.h"
#include "lib/Support/Float16.h"
#include "test/unit/Emulator/Machine.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace nsa::emulator;

namespace {

/// Registers seen as elements of type T.
template <typename T>
T *lanes(Warp &warp, uint32_t reg) {
  if constexpr (sizeof(T) == 8)
    return reinterpret_cast<T *>(warp.wide(reg));
  else
    return reinterpret_cast<T *>(warp.narrow(reg));
}

/// Calls `body(lane)` for the lanes of the mask, vectorised if that is all.
template <typename Body>
inline void each(LaneMask mask, const Body &body) {
  if (mask == kAllLanes) {
#pragma clang loop vectorize(assume_safety)
    for (unsigned lane = 0; lane < kLanes; ++lane)
      body(lane);
    return;
  }
  forLanes(mask, body);
}

/// Lanes that are undefined in a result because they are in an operand.
template <unsigned operands>
inline void propagateUndefined(Warp &warp, const Instruction &i,
                               LaneMask mask) {
  LaneMask a = warp.undefined(i.a);
  LaneMask b = operands > 1 ? warp.undefined(i.b) : 0;
  LaneMask c = operands > 2 ? warp.undefined(i.c) : 0;
  uint32_t from = 0;
  if ((a | b | c) & mask)
    from = warp.origin(a & mask ? i.a : b & mask ? i.b : i.c);
  warp.define(i.result, mask, a | b | c, from);
}

template <typename Out, typename In, auto Function>
void unary(Warp &warp, const Instruction &i, LaneMask mask) {
  const In *a = lanes<In>(warp, i.a);
  Out *result = lanes<Out>(warp, i.result);
  each(mask, [&](unsigned lane) { result[lane] = Function(a[lane]); });
  propagateUndefined<1>(warp, i, mask);
}

template <typename Out, typename In, auto Function>
void binary(Warp &warp, const Instruction &i, LaneMask mask) {
  const In *a = lanes<In>(warp, i.a), *b = lanes<In>(warp, i.b);
  Out *result = lanes<Out>(warp, i.result);
  each(mask, [&](unsigned lane) { result[lane] = Function(a[lane], b[lane]); });
  propagateUndefined<2>(warp, i, mask);
}

template <typename T, auto Function>
void ternary(Warp &warp, const Instruction &i, LaneMask mask) {
  const T *a = lanes<T>(warp, i.a), *b = lanes<T>(warp, i.b),
          *c = lanes<T>(warp, i.c);
  T *result = lanes<T>(warp, i.result);
  each(mask, [&](unsigned lane) {
    result[lane] = Function(a[lane], b[lane], c[lane]);
  });
  propagateUndefined<3>(warp, i, mask);
}

/// Division fails where the divisor is 0.
template <typename T, auto Function>
void divide(Warp &warp, const Instruction &i, LaneMask mask) {
  const T *a = lanes<T>(warp, i.a), *b = lanes<T>(warp, i.b);
  T *result = lanes<T>(warp, i.result);
  forLanes(mask, [&](unsigned lane) {
    if (b[lane] == 0)
      warp.block.fail(warp, i, int(lane), "divides by 0");
    else
      result[lane] = Function(a[lane], b[lane]);
  });
  propagateUndefined<2>(warp, i, mask);
}

template <typename T>
void select(Warp &warp, const Instruction &i, LaneMask mask) {
  const uint32_t *a = warp.narrow(i.a);
  const T *b = lanes<T>(warp, i.b), *c = lanes<T>(warp, i.c);
  T *result = lanes<T>(warp, i.result);
  LaneMask bad =
      warp.undefined(i.a) | warp.undefined(i.b) | warp.undefined(i.c);
  if (bad & mask) {
    LaneMask chosen = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane)
      chosen |= LaneMask(a[lane] != 0) << lane;
    LaneMask fromCondition = warp.undefined(i.a);
    LaneMask fromB = warp.undefined(i.b) & chosen;
    LaneMask fromC = warp.undefined(i.c) & ~chosen;
    uint32_t from = warp.origin(fromCondition & mask ? i.a
                                : fromB & mask       ? i.b
                                                     : i.c);
    warp.define(i.result, mask, fromCondition | fromB | fromC, from);
  } else {
    warp.define(i.result, mask, 0, 0);
  }
  each(mask,
       [&](unsigned lane) { result[lane] = a[lane] ? b[lane] : c[lane]; });
}

/// `Decides` is the value of one operand that makes the other irrelevant.
template <uint32_t Decides>
void logic(Warp &warp, const Instruction &i, LaneMask mask) {
  const uint32_t *a = warp.narrow(i.a), *b = warp.narrow(i.b);
  uint32_t *result = warp.narrow(i.result);
  LaneMask badA = warp.undefined(i.a) & mask, badB = warp.undefined(i.b) & mask;
  LaneMask bad = badA | badB;
  uint32_t from = bad ? warp.origin(badA ? i.a : i.b) : 0;
  forLanes(bad, [&](unsigned lane) {
    LaneMask bit = LaneMask(1) << lane;
    if ((!(badA & bit) && a[lane] == Decides) ||
        (!(badB & bit) && b[lane] == Decides))
      bad &= ~bit;
  });
  each(mask, [&](unsigned lane) {
    result[lane] = Decides ? a[lane] | b[lane] : a[lane] & b[lane];
  });
  // A decided lane has the value that decides, whatever the other one was.
  forLanes((badA | badB) & ~bad,
           [&](unsigned lane) { result[lane] = Decides; });
  warp.define(i.result, mask, bad, from);
}

void signExtend(Warp &warp, const Instruction &i, LaneMask mask) {
  unsigned shift = 32 - unsigned(i.immediate);
  const uint32_t *a = warp.narrow(i.a);
  uint32_t *result = warp.narrow(i.result);
  each(mask, [&](unsigned lane) {
    result[lane] = uint32_t(int32_t(a[lane] << shift) >> shift);
  });
  propagateUndefined<1>(warp, i, mask);
}

void keepBits(Warp &warp, const Instruction &i, LaneMask mask) {
  uint32_t bits = i.immediate >= 32 ? ~0u : (1u << i.immediate) - 1;
  const uint32_t *a = warp.narrow(i.a);
  uint32_t *result = warp.narrow(i.result);
  each(mask, [&](unsigned lane) { result[lane] = a[lane] & bits; });
  propagateUndefined<1>(warp, i, mask);
}

template <bool HasIndex>
void scaledAdd(Warp &warp, const Instruction &i, LaneMask mask) {
  const uint64_t *a = warp.wide(i.a), *b = warp.wide(HasIndex ? i.b : i.a);
  uint64_t *result = warp.wide(i.result);
  auto factor = uint64_t(i.immediate);
  each(mask, [&](unsigned lane) {
    result[lane] = a[lane] + (HasIndex ? b[lane] * factor : factor);
  });
  propagateUndefined<HasIndex ? 2 : 1>(warp, i, mask);
}

void packHalves(Warp &warp, const Instruction &i, LaneMask mask) {
  const uint32_t *a = warp.narrow(i.a), *b = warp.narrow(i.b);
  uint32_t *result = warp.narrow(i.result);
  each(mask, [&](unsigned lane) {
    result[lane] = (a[lane] & 0xffff) | b[lane] << 16;
  });
  propagateUndefined<2>(warp, i, mask);
}

void takeHalf(Warp &warp, const Instruction &i, LaneMask mask) {
  const uint32_t *a = warp.narrow(i.a);
  uint32_t *result = warp.narrow(i.result);
  each(mask,
       [&](unsigned lane) { result[lane] = a[lane] >> i.immediate & 0xffff; });
  propagateUndefined<1>(warp, i, mask);
}

/// Registers of other widths do not overlap unless they are the same.
template <typename Out, typename In, auto Function>
void convert(Warp &warp, const Instruction &i, LaneMask mask) {
  In a[kLanes];
  std::memcpy(a, lanes<In>(warp, i.a), sizeof a);
  Out *result = lanes<Out>(warp, i.result);
  forLanes(mask, [&](unsigned lane) { result[lane] = Function(a[lane]); });
  propagateUndefined<1>(warp, i, mask);
}

/// As the GPU converts: towards zero, the nearest number if there is none.
int32_t saturate(float x) {
  if (std::isnan(x))
    return 0;
  if (x <= -0x1p31f)
    return std::numeric_limits<int32_t>::min();
  return x >= 0x1p31f ? std::numeric_limits<int32_t>::max() : int32_t(x);
}

uint32_t toHalf(float x) { return nsa::floatToF16(x); }
float fromHalf(uint32_t bits) { return nsa::f16ToFloat(uint16_t(bits)); }
uint32_t toBF16(float x) { return nsa::floatToBF16(x); }
float fromBF16(uint32_t bits) { return nsa::bf16ToFloat(uint16_t(bits)); }

float flush(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min()
             ? std::copysign(0.f, x)
             : x;
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

struct Entry {
  std::string_view name;
  AluOperation operation;
};

using U = uint32_t;
using W = uint64_t;
using S = int32_t;
using D = int64_t;

#define INTEGER(name, expression)                                              \
  {                                                                            \
    name, {                                                                    \
      2, binary<U, U, [](U a, U b) -> U { return expression; }>,               \
          binary<W, W, [](W a, W b) -> W { return expression; }>, nullptr,     \
          false                                                                \
    }                                                                          \
  }
#define SIGNED(name, expression)                                               \
  {                                                                            \
    name, {                                                                    \
      2, binary<S, S, [](S a, S b) -> S { return expression; }>,               \
          binary<D, D, [](D a, D b) -> D { return expression; }>, nullptr,     \
          true                                                                 \
    }                                                                          \
  }
#define FLOAT1(name, expression)                                               \
  {                                                                            \
    name, {                                                                    \
      1, nullptr, nullptr,                                                     \
          unary<float, float, [](float a) -> float { return expression; }>,    \
          false                                                                \
    }                                                                          \
  }
#define FLOAT2(name, expression)                                               \
  {                                                                            \
    name, {                                                                    \
      2, nullptr, nullptr,                                                     \
          binary<float, float,                                                 \
                 [](float a, float b) -> float { return expression; }>,        \
          false                                                                \
    }                                                                          \
  }
#define FUSED(name)                                                            \
  {                                                                            \
    name, {                                                                    \
      3, nullptr, nullptr,                                                     \
          ternary<float, [](float a, float b,                                  \
                            float c) { return __builtin_fmaf(a, b, c); }>,     \
          false                                                                \
    }                                                                          \
  }

const Entry entries[] = {
    INTEGER("llvm.add", a + b),
    INTEGER("llvm.sub", a - b),
    INTEGER("llvm.mul", a *b),
    INTEGER("llvm.and", a &b),
    INTEGER("llvm.or", a | b),
    INTEGER("llvm.xor", a ^ b),
    INTEGER("llvm.shl", b < sizeof(a) * 8 ? a << (b % (sizeof(a) * 8)) : 0),
    INTEGER("llvm.lshr", b < sizeof(a) * 8 ? a >> (b % (sizeof(a) * 8)) : 0),
    SIGNED("llvm.ashr",
           a >> (uint64_t(b) < sizeof(a) * 8 ? b : sizeof(a) * 8 - 1)),
    {"llvm.udiv",
     {2, divide<U, [](U a, U b) { return a / b; }>,
      divide<W, [](W a, W b) { return a / b; }>, nullptr, false}},
    {"llvm.urem",
     {2, divide<U, [](U a, U b) { return a % b; }>,
      divide<W, [](W a, W b) { return a % b; }>, nullptr, false}},
    {"llvm.sdiv",
     {2, divide<S, [](S a, S b) { return S(D(a) / b); }>,
      divide<D, [](D a, D b) { return b == -1 ? D(-W(a)) : a / b; }>, nullptr,
      true}},
    {"llvm.srem",
     {2, divide<S, [](S a, S b) { return S(D(a) % b); }>,
      divide<D, [](D a, D b) { return b == -1 ? D(0) : a % b; }>, nullptr,
      true}},
    {"llvm.intr.ctpop",
     {1, unary<U, U, [](U a) { return U(__builtin_popcount(a)); }>, nullptr,
      nullptr, false}},
    {"llvm.intr.cttz",
     {1, unary<U, U, [](U a) { return a ? U(__builtin_ctz(a)) : U(32); }>,
      nullptr, nullptr, false}},
    FLOAT2("llvm.fadd", a + b),
    FLOAT2("llvm.fsub", a - b),
    FLOAT2("llvm.fmul", a *b),
    FLOAT2("llvm.fdiv", a / b),
    FLOAT1("llvm.fneg", -a),
    FLOAT1("llvm.intr.fabs", std::fabs(a)),
    FLOAT1("llvm.intr.sqrt", std::sqrt(a)),
    FLOAT1("llvm.intr.floor", std::floor(a)),
    FLOAT2("llvm.intr.maxnum", std::fmax(a, b)),
    FUSED("llvm.intr.fma"),
    FUSED("llvm.intr.fmuladd"),
    // Its error is a few units in the last place.
    FLOAT1("llvm.nvvm.ex2.approx.ftz.f", flush(std::exp2(flush(a)))),
};

struct Compare {
  std::string_view name;
  Handler narrow, wide;
};

#define COMPARE(name, T, V, operator)                                          \
  {name, binary<U, T, [](T a, T b) -> U { return a operator b; }>,             \
   compareWide<V, [](V a, V b) -> U { return a operator b; }>}

template <typename T, auto Function>
void compareWide(Warp &warp, const Instruction &i, LaneMask mask) {
  const T *a = lanes<T>(warp, i.a), *b = lanes<T>(warp, i.b);
  U found[kLanes];
  forLanes(mask,
           [&](unsigned lane) { found[lane] = Function(a[lane], b[lane]); });
  U *result = warp.narrow(i.result);
  forLanes(mask, [&](unsigned lane) { result[lane] = found[lane]; });
  propagateUndefined<2>(warp, i, mask);
}

const Compare compares[] = {
    COMPARE("eq", U, W, ==), COMPARE("ne", U, W, !=),
    COMPARE("ult", U, W, <), COMPARE("ule", U, W, <=),
    COMPARE("ugt", U, W, >), COMPARE("uge", U, W, >=),
    COMPARE("slt", S, D, <), COMPARE("sle", S, D, <=),
    COMPARE("sgt", S, D, >), COMPARE("sge", S, D, >=),
};

#define FCOMPARE(name, expression)                                             \
  {name, binary<U, float, [](float a, float b) -> U { return expression; }>,   \
   nullptr}

const Compare floatCompares[] = {
    FCOMPARE("oeq", a == b),           FCOMPARE("ogt", a > b),
    FCOMPARE("oge", a >= b),           FCOMPARE("olt", a < b),
    FCOMPARE("ole", a <= b),           FCOMPARE("one", a<b || a> b),
    FCOMPARE("ord", a == a && b == b), FCOMPARE("ueq", !(a < b || a > b)),
    FCOMPARE("ugt", !(a <= b)),        FCOMPARE("uge", !(a < b)),
    FCOMPARE("ult", !(a >= b)),        FCOMPARE("ule", !(a > b)),
    FCOMPARE("une", !(a == b)),        FCOMPARE("uno", !(a == a && b == b)),
};

} // namespace

const AluOperation *nsa::emulator::findAlu(std::string_view name) {
  for (const Entry &entry : entries)
    if (entry.name == name)
      return &entry.operation;
  return nullptr;
}

Handler nsa::emulator::findIntegerCompare(std::string_view predicate,
                                          bool wide) {
  for (const Compare &compare : compares)
    if (compare.name == predicate)
      return wide ? compare.wide : compare.narrow;
  return nullptr;
}

Handler nsa::emulator::findFloatCompare(std::string_view predicate) {
  for (const Compare &compare : floatCompares)
    if (compare.name == predicate)
      return compare.narrow;
  return nullptr;
}

Handler nsa::emulator::getLogicAnd() { return logic<0>; }
Handler nsa::emulator::getLogicOr() { return logic<1>; }

Handler nsa::emulator::getSelect(bool wide) {
  return wide ? select<W> : select<U>;
}

Handler nsa::emulator::getMove(bool wide) {
  return wide ? unary<W, W, [](W a) { return a; }>
              : unary<U, U, [](U a) { return a; }>;
}

Handler nsa::emulator::getSignExtend() { return signExtend; }
Handler nsa::emulator::getMask() { return keepBits; }

Handler nsa::emulator::getWiden(bool isSigned) {
  return isSigned ? convert<D, S, [](S a) { return D(a); }>
                  : convert<W, U, [](U a) { return W(a); }>;
}

Handler nsa::emulator::getNarrow() {
  return convert<U, W, [](W a) { return U(a); }>;
}

Handler nsa::emulator::getScaledAdd(bool hasIndex) {
  return hasIndex ? scaledAdd<true> : scaledAdd<false>;
}

Handler nsa::emulator::getCast(Cast cast) {
  switch (cast) {
  case Cast::BF16ToFloat:
    return unary<float, U, fromBF16>;
  case Cast::FloatToBF16:
    return unary<U, float, toBF16>;
  case Cast::HalfToFloat:
    return unary<float, U, fromHalf>;
  case Cast::FloatToHalf:
    return unary<U, float, toHalf>;
  case Cast::SignedToFloat:
    return unary<float, S, [](S a) { return float(a); }>;
  case Cast::UnsignedToFloat:
    return unary<float, U, [](U a) { return float(a); }>;
  case Cast::FloatToSigned:
    return unary<S, float, saturate>;
  }
  return nullptr;
}

Handler nsa::emulator::getPackHalves() { return packHalves; }
Handler nsa::emulator::getTakeHalf() { return takeHalf; }
