//===- Convert.h - arrays of elements ---------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_CONVERT_H
#define NSA_RUNTIME_CPU_CONVERT_H

#include "nsa/Artifact/DataType.h"

namespace nsa {

/// out[i] = float(source[i]) for a float type.
void widen(DataType type, const void *source, float *out, int64_t begin,
           int64_t end);

/// out[i] = source[i] rounded to a float type.
void narrow(DataType type, const float *source, void *out, int64_t begin,
            int64_t end);

/// out[i] = value, rounded to `type`; integers truncate.
void fill(DataType type, double value, void *out, int64_t begin, int64_t end);

/// The first i in [0, count) where a float array is NaN, +inf, or, unless
/// `allowMinusInfinity`, -inf; -1 if there is none.
int64_t findNonFinite(DataType type, const void *values, int64_t count,
                      bool allowMinusInfinity);

/// values[i] as a double, for any type.
double elementAt(DataType type, const void *values, int64_t index);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_CONVERT_H
