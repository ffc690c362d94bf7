//===- SmallModel.cpp - the text of a small model -------------------------===//

#include "test/unit/Compiler/SmallModel.h"
#include "dialects/NN/NNDialect.h"
#include "dialects/NSA/NSADialect.h"
#include "lib/Frontend/ModelBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

using namespace nsa;

uint64_t nsa::test::testSeed() {
  static const uint64_t seed = [] {
    const char *text = std::getenv("NSA_TEST_SEED");
    uint64_t value =
        text ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::printf("NSA_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

std::string nsa::test::modelText(const std::vector<std::string> &overrides) {
  mlir::MLIRContext context;
  context.loadDialect<mlir::func::FuncDialect, NSADialect, nn::NNDialect>();
  Result<RunConfig> config =
      parseConfig("model: {dim: 32, n_layers: 2, n_heads: 4, "
                  "n_kv_groups: 2, d_k: 8, d_v: 8, init_std: 0.2}\n"
                  "nsa: {l: 8, d: 4, l_sel: 16, n_sel: 3, w: 12}\n"
                  "train: {seq_len: 70, batch_size: 2, micro_batch: 2}\n",
                  "test.yaml", overrides);
  EXPECT_TRUE(config.ok()) << config.message();
  std::string text;
  llvm::raw_string_ostream stream(text);
  buildModel(&context, config.ok() ? *config : RunConfig())->print(stream);
  return text;
}
