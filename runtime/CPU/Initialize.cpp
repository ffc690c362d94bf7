//===- Initialize.cpp - initial values of tensors -------------------------===//

#include "runtime/CPU/Initialize.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Philox.h"
#include "runtime/CPU/Convert.h"

#include <algorithm>
#include <cmath>

using namespace nsa;
using artifact::InitKind;

std::array<double, 4> nsa::normals(uint64_t seed, uint64_t stream,
                                   uint64_t block) {
  constexpr double twoPi = 6.283185307179586476925286766559;
  std::array<uint32_t, 4> bits = philox(seed, block, stream);
  std::array<double, 4> values;
  for (int pair = 0; pair < 4; pair += 2) {
    // In (0, 1), so the logarithm is finite.
    double uniform = (double(bits[pair]) + 0.5) * 0x1p-32;
    double angle = twoPi * (double(bits[pair + 1]) * 0x1p-32);
    double radius = std::sqrt(-2 * std::log(uniform));
    values[pair] = radius * std::cos(angle);
    values[pair + 1] = radius * std::sin(angle);
  }
  return values;
}

static void initializeNormal(const artifact::Tensor &tensor, uint64_t seed,
                             void *data, int64_t begin, int64_t end) {
  uint64_t stream = hashBytes(tensor.name()->string_view());
  for (int64_t i = begin; i < end; i += 4) {
    std::array<double, 4> values = normals(seed, stream, uint64_t(i) / 4);
    float rounded[4];
    for (int j = 0; j < 4; ++j)
      rounded[j] = float(tensor.value() * values[j]);
    auto *out = static_cast<char *>(data) + i * elementBytes(tensor.type());
    narrow(tensor.type(), rounded, out, 0, std::min<int64_t>(4, end - i));
  }
}

static void initializeRotary(const artifact::Tensor &tensor, float *data,
                             int64_t begin, int64_t end) {
  int64_t half = int64_t(tensor.shape()->Get(1));
  for (int64_t element = begin; element < end; ++element) {
    int64_t position = element / 2 / half, i = element / 2 % half;
    double frequency =
        std::pow(tensor.value(), -2.0 * double(i) / double(2 * half));
    double angle = double(position) * frequency;
    data[element] = float(element % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
}

static void initializeFrequencies(const artifact::Tensor &tensor, float *data,
                                  int64_t begin, int64_t end) {
  const auto &frequencies = *tensor.frequencies();
  for (int64_t element = begin; element < end; ++element) {
    int64_t pair = element / 2, pairs = frequencies.size();
    double frequency = frequencies.Get(pair % pairs);
    double angle = double(pair / pairs) * frequency;
    data[element] =
        float((frequency == 0 ? 1.0 : tensor.value()) *
              (element % 2 == 0 ? std::cos(angle) : std::sin(angle)));
  }
}

void nsa::initializeTensor(const artifact::Tensor &tensor, uint64_t seed,
                           void *data, int64_t begin, int64_t end) {
  switch (tensor.init()) {
  case InitKind::None:
    return;
  case InitKind::Constant:
    return fill(tensor.type(), tensor.value(), data, begin, end);
  case InitKind::Normal:
    return initializeNormal(tensor, seed, data, begin, end);
  case InitKind::Rotary:
    return initializeRotary(tensor, static_cast<float *>(data), begin, end);
  case InitKind::Frequencies:
    return initializeFrequencies(tensor, static_cast<float *>(data), begin,
                                 end);
  }
}
