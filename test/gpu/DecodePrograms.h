//===- DecodePrograms.h - programs that decode on a GPU ---------*- C++ -*-===//

#ifndef NSA_TEST_GPU_DECODEPROGRAMS_H
#define NSA_TEST_GPU_DECODEPROGRAMS_H

#include "nsa/Artifact/TrainingContract.h"
#include "nsa/Runtime/Runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace nsa::test {

[[noreturn]] inline void fail(const std::string &message) {
  std::fprintf(stderr, "decode-on-gpu: error: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
T take(Result<T> result) {
  if (!result)
    fail(result.message());
  return std::move(*result);
}

inline void run(Program &program, const char *entry) {
  if (Status status = program.run(entry); !status)
    fail(status.message());
}

/// The parameters are the initial ones.
inline Program open(const char *path, bool profile = false) {
  RuntimeOptions options;
  options.profile = profile;
  if (const char *blas = std::getenv("NSA_BLAS"))
    options.blasLibrary = blas;
  Program program = take(Program::create(take(Artifact::open(path)), options));
  for (const char *entry : {training::initEntry, training::prepareEntry})
    if (program.findEntry(entry))
      run(program, entry);
  return program;
}

inline TensorView view(const Program &program, const char *name) {
  return take(program.tensor(name));
}

/// Of a tensor in f32.
inline const float *numbers(const TensorView &tensor) {
  if (tensor.type != DataType::F32)
    fail(tensor.name + " is not f32");
  return tensor.as<float>();
}

inline void setPositions(Program &program, int64_t position) {
  TensorView positions = view(program, training::positionsInput);
  std::fill_n(positions.as<int32_t>(), positions.elements(), int32_t(position));
}

/// DecodeCheck.cpp: what DecodeMain.cpp calls `check` and `blocks`; the exit
/// code.
int checkLogits(int count, const char *const *arguments);
int checkBlocks(const char *const *paths);

} // namespace nsa::test

#endif // NSA_TEST_GPU_DECODEPROGRAMS_H
