//===- PrebuildMain.cpp - compiles the modules of kernel tests ------------===//
//
//   nsa-prebuild FOLDER TARGET COUNT [SEED [MODULES [WORK]]]
//
// Writes what PrebuiltKernelsTest needs to try COUNT combinations of shapes on
// TARGET, cpu or one of nsa-compile's GPUs, some in which queries select few of
// many blocks, and some as wide and as long as models. With WORK, none of COUNT
// has an attention of more multiplications (2e8), none is as a model's, and at
// most COUNT select few of many blocks, unless NSA_TEST_SUITE=full.
// Besides, MODULES (24) modules of random operations with what the reference
// makes of them.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "nsa/Compiler/Compiler.h"
#include "test/gpu/Prebuilt.h"
#include "test/unit/KernelSweep/Checks.h"
#include "test/unit/RandomModules/Cases.h"
#include "test/unit/RandomModules/Writer.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

using namespace nsa;
using namespace nsa::test;

/// As wide and as long as models, where `sampleCombinations` makes what is long
/// narrow, and the lengths at which blocks and windows end. Few keys for each
/// query keep the reference's time in bounds.
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
    // Three warpgroups with a producer, as causal attention of long sequences
    // has them: with exponents that are rounded once, and twice.
    "B=2 S=1000 Hkv=1 G=3 dk=64 dv=64 n=4 w=1000 l=32 d=16 l'=64 bf16 mean "
    "logits=4 gating=sigmoid tile=forward-queries=192 seed=38",
    "B=1 S=500 Hkv=2 G=2 dk=64 dv=64 n=4 w=500 l=32 d=16 l'=64 f16 mean "
    "logits=10000 gating=softmax tile=forward-queries=192 seed=39",
};

/// Two of three in 16 bits, as GPUs compute.
static std::vector<Combination> choose(size_t count, uint64_t seed,
                                       std::optional<double> work) {
  static constexpr DataType elements[] = {DataType::BF16, DataType::F16,
                                          DataType::F32};
  std::vector<Combination> list =
      sampleCombinations(count, seed, work.value_or(2e8));
  for (size_t i = 0; i < list.size(); ++i) {
    list[i] = withGating(list[i], i);
    list[i].element = elements[i % 3];
  }
  std::vector<Combination> many = withManyBlocks();
  if (work)
    many = sampleOf(many, count, seed);
  list.insert(list.end(), many.begin(), many.end());
  if (work)
    return list;
  for (const char *text : kWideAndLong) {
    std::optional<Combination> c = parseCombination(text);
    assert(c && "an unknown word");
    list.push_back(*c);
  }
  return list;
}

/// As every module of a test is compiled.
static CompilerOptions optionsFor(const std::string &target,
                                  CompilerOptions options = {}) {
  options.target = target;
  // Kernels of a few elements are slow in one way or another.
  options.allowSlowPaths = {"all"};
  return options;
}

static Status prebuild(const std::string &folder, const std::string &target,
                       const std::vector<Combination> &list) {
  std::string lines, failures;
  for (const Combination &c : list) {
    for (const std::string &text : modulesOf(c)) {
      Result<CompiledArtifact> compiled =
          compile(text, "test.mlir", optionsFor(target));
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

/// The same for random modules, with what their entries must give.
static Status prebuildModules(const std::string &folder,
                              const std::string &target, uint64_t first,
                              uint64_t count) {
  std::string names;
  size_t entries = 0, results = 0, undecided = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    GraphModule module = generateModule(seed);
    std::string name = "module-" + std::to_string(seed);
    std::string text = print(module), path = folder + "/" + name;
    Result<std::vector<Case>> cases = makeCases(module, seed);
    if (!cases)
      return Error{name + ": " + cases.message() + "\n" + text};
    for (const char *form : kModuleForms) {
      CompilerOptions options = optionsFor(target, module.options);
      options.fuse = !*form;
      Result<CompiledArtifact> compiled = compile(text, "test.mlir", options);
      if (!compiled)
        return Error{name + form + " does not compile for " + target + ": " +
                     compiled.message() + "\n" + text};
      if (Status status =
              writeFileAtomically(path + form + ".nsax", compiled->bytes);
          !status)
        return status;
    }
    if (Status status =
            writeFileAtomically(path + ".cases", writeCases(*cases));
        !status)
      return status;
    for (const Case &c : *cases)
      for (const CaseResult &result : c.results)
        ++(result.tolerance < 0 ? undecided : results);
    entries += cases->size();
    names += name + "\n";
  }
  std::printf("%llu random modules: %zu entries, %zu results to compare, %zu "
              "undecided\n",
              static_cast<unsigned long long>(count), entries, results,
              undecided);
  return writeFileAtomically(folder + "/" + kModulesFile, names);
}

static Status prebuildAll(int argc, char **argv) {
  auto number = [&](int index, uint64_t otherwise) {
    return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
  };
  std::error_code error;
  std::string folder = argv[1], target = argv[2];
  std::filesystem::create_directories(folder, error);
  if (error)
    return Error{"cannot create '" + folder + "': " + error.message()};
  uint64_t seed = number(4, 1);
  std::optional<double> work;
  if (argc > 6)
    work = std::strtod(argv[6], nullptr);
  if (Status status = prebuildModules(folder, target, seed, number(5, 24));
      !status)
    return status;
  return prebuild(folder, target, choose(number(3, 0), seed, work));
}

int main(int argc, char **argv) {
  if (argc < 4 || argc > 7 || std::strtoull(argv[3], nullptr, 10) == 0) {
    std::fprintf(stderr,
                 "usage: nsa-prebuild FOLDER TARGET COUNT [SEED [MODULES "
                 "[WORK]]]\n");
    return 2;
  }
  Status status = prebuildAll(argc, argv);
  if (!status)
    std::fprintf(stderr, "nsa-prebuild: error: %s\n", status.message().c_str());
  return status ? 0 : 1;
}
