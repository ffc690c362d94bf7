//===- FakeCUDA.h - a GPU in host memory ------------------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_FAKECUDA_FAKECUDA_H
#define NSA_TEST_UNIT_FAKECUDA_FAKECUDA_H

#include <cstdint>
#include <string>

/// What the GPU does in a second: bytes that a copy reads and writes, and
/// operations of matmuls.
constexpr double kFakeCopySpeed = 3e12, kFakeFloatSpeed = 5e13,
                 kFakeHalfSpeed = 8e14;

/// What a tensor map holds there: the arguments of cuTensorMapEncodeTiled.
struct FakeTensorMap {
  uint64_t address, extents[5], strides[4];
  uint32_t box[5], steps[5];
  uint8_t rank, type, interleave, swizzle, promotion, fill;
};

extern "C" {
/// The calls since the last reset that do something, one per line: the name,
/// then bytes or the kernel.
const char *fakeCUDALog();
/// Forgets calls and wishes.
void fakeCUDAReset();
/// Makes the nth call from now of this name fail.
void fakeCUDAFail(const char *name, int nth);
/// Gives each thread of a kernel so many bytes of local memory.
void fakeCUDASpill(const char *symbol, int bytes);
/// Puts work on the stream: it returns whether it is done, and is tried again
/// if not.
void fakeCUDAEnqueue(bool (*work)(void *), void *argument);
/// Lets streams say that they record a graph, or not.
void fakeCUDARecord(bool isRecording);
/// Takes memory of the GPU that no allocation shows.
void fakeCUDAUse(uint64_t bytes);
}

#endif // NSA_TEST_UNIT_FAKECUDA_FAKECUDA_H
