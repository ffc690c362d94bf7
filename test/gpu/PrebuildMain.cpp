//===- PrebuildMain.cpp - compiles the modules of kernel tests ------------===//
//
//   nsa-prebuild FOLDER TARGET COUNT [SEED [WORK]]
//
// Writes what PrebuiltKernelsTest needs to try COUNT combinations of shapes on
// TARGET, cpu or one of nsa-compile's GPUs, some in which queries select few of
// many blocks, and some as wide and as long as models. None of COUNT has an
// attention of more than WORK multiplications (2e8).
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "nsa/Compiler/Compiler.h"
#include "test/gpu/Prebuilt.h"
#include "test/unit/KernelSweep/Checks.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace nsa;
using namespace nsa::test;

/// As wide and as long as models, where `spread` makes what is long narrow, and
/// the lengths at which blocks and windows end. Few keys for each query keep
/// the reference's time in bounds.
static constexpr const char *kWideAndLong[] = {
    "B=2 S=1 Hkv=2 G=4 dk=64 dv=64 n=16 w=512 l=32 d=16 l'=64 bf16 mlp "
    "logits=1 gating=sigmoid with bias seed=31",
    "B=1 S=300 Hkv=1 G=16 dk=128 dv=128 n=2 w=64 l=32 d=16 l'=64 bf16 mean "
    "logits=1 gating=sigmoid with bias seed=16",
    "B=1 S=512 Hkv=2 G=4 dk=128 dv=128 n=4 w=64 l=32 d=16 l'=64 bf16 linear "
    "with positions logits=1 gating=sigmoid with bias seed=32",
    "B=1 S=513 Hkv=1 G=8 dk=64 dv=128 n=3 w=512 l=32 d=16 l'=64 f16 mean "
    "logits=1 gating=softmax seed=33",
    "B=1 S=1024 Hkv=1 G=8 dk=192 dv=128 n=3 w=64 l=32 d=32 l'=64 bf16 mean "
    "logits=4 gating=sigmoid seed=34",
    "B=1 S=1025 Hkv=1 G=4 dk=128 dv=128 n=4 w=64 l=32 d=16 l'=64 f32 mean "
    "logits=1 gating=sigmoid with bias seed=35",
    "B=1 S=2048 Hkv=1 G=16 dk=128 dv=128 n=4 w=64 l=32 d=16 l'=64 bf16 mean "
    "logits=1 gating=sigmoid with bias seed=36",
    "B=1 S=4097 Hkv=1 G=6 dk=64 dv=64 n=4 w=64 l=64 d=32 l'=64 bf16 mean "
    "logits=1 gating=given seed=37",
};

/// Two of three in 16 bits, as GPUs compute.
static std::vector<Combination> choose(size_t count, uint64_t seed,
                                       double work) {
  static constexpr DataType elements[] = {DataType::BF16, DataType::F16,
                                          DataType::F32};
  std::vector<Combination> list = spread(count, seed, work);
  for (size_t i = 0; i < list.size(); ++i) {
    list[i] = withGating(list[i], i);
    list[i].element = elements[i % 3];
  }
  for (const Combination &c : withManyBlocks())
    list.push_back(c);
  for (const char *text : kWideAndLong) {
    std::optional<Combination> c = parseCombination(text);
    assert(c && "an unknown word");
    list.push_back(*c);
  }
  return list;
}

static Status prebuild(const std::string &folder, const std::string &target,
                       const std::vector<Combination> &list) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return Error{"cannot create '" + folder + "': " + error.message()};
  CompilerOptions options;
  options.target = target;
  // Kernels of a few elements are slow in one way or another.
  options.allowSlowPaths = {"all"};
  std::string lines, failures;
  for (const Combination &c : list) {
    for (const std::string &text : modulesOf(c)) {
      Result<CompiledArtifact> compiled = compile(text, "test.mlir", options);
      if (!compiled) {
        failures += c.describe() + ":\n" + compiled.message() + "\n";
        continue;
      }
      if (Status status = writeFileAtomically(folder + "/" + prebuiltName(text),
                                              compiled->bytes);
          !status)
        return status;
    }
    lines += c.describe() + "\n";
  }
  if (!failures.empty())
    return Error{"these do not compile for " + target + ":\n" + failures};
  return writeFileAtomically(folder + "/" + kCombinationsFile, lines);
}

int main(int argc, char **argv) {
  size_t count = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (count == 0 || argc > 6) {
    std::fprintf(stderr,
                 "usage: nsa-prebuild FOLDER TARGET COUNT [SEED [WORK]]\n");
    return 2;
  }
  uint64_t seed = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1;
  double work = argc > 5 ? std::strtod(argv[5], nullptr) : 2e8;
  Status status = prebuild(argv[1], argv[2], choose(count, seed, work));
  if (!status)
    std::fprintf(stderr, "nsa-prebuild: error: %s\n", status.message().c_str());
  return status ? 0 : 1;
}
