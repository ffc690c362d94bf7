//===- Initialize.h - initial values of tensors -----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_INITIALIZE_H
#define NSA_RUNTIME_CPU_INITIALIZE_H

#include "nsa/Artifact/DataType.h"

#include <array>

namespace nsa {

/// Four independent numbers of the standard normal distribution: number
/// 4*block + i of the stream (seed, stream), by Box-Muller from Philox.
std::array<double, 4> normals(uint64_t seed, uint64_t stream, uint64_t block);

/// Writes elements begin..end-1 of the tensor's initial value to `data`, the
/// address of its first element. `begin` is a multiple of 4. Pure: elements
/// depend on the tensor, the seed and their position alone.
///   constant: value
///   normal:   value * normals(seed, XXH3(name)), rounded to the type
///   rotary:   data[t, i, :] = cos, sin of t * value^(-2i/D), in double
///   frequencies: data[t, i, :] = value * (cos, sin of t * frequencies[i]), and
///             (1, 0) where a frequency is 0
void initializeTensor(const artifact::Tensor &tensor, uint64_t seed, void *data,
                      int64_t begin, int64_t end);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_INITIALIZE_H
