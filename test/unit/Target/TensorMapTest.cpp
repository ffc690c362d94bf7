//===- TensorMapTest.cpp - tensor maps on their way to an artefact --------===//

#include "dialects/RT/RTOps.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Target/Artifact/ArtifactWriter.h"
#include "lib/Target/CUDA/CUDABinary.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "nsa/Artifact/Artifact.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace nsa;

namespace {

constexpr StringLiteral kKernel = R"(
tile.kernel private @k(%x: memref<512x4x128xbf16>, %y: memref<64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  tile.return
})";

/// The kernel as it is lowered, with tensor maps of both arguments.
constexpr StringLiteral kFunction = R"(
llvm.func @k(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>) attributes {
    nvvm.kernel, nvvm.reqntid = array<i32: 384, 1, 1>, nsa.shared_bytes = 1024 : i64,
    nsa.tensor_maps = [
      #rt.tensor_map<argument = 0, element = bf16, extents = array<i64: 128, 4, 512>,
        strides = array<i64: 256, 1024>, box = array<i64: 64, 1, 32>, swizzle = 128>,
      #rt.tensor_map<argument = 1, element = f32, extents = array<i64: 64>,
        strides = array<i64>, box = array<i64: 4>, swizzle = 0>]} {
  llvm.return
})";

template <typename Range>
std::vector<uint64_t> listOf(const Range &values) {
  return {values.begin(), values.end()};
}

} // namespace

TEST(TensorMap, TensorMapOfAFunction_IsInTheArtefact) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect, rt::RTDialect, LLVM::LLVMDialect,
                      NVVM::NVVMDialect>();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kKernel, &context);
  OwningOpRef<ModuleOp> code = parseSourceString<ModuleOp>(kFunction, &context);
  ASSERT_TRUE(module && code);
  {
    OutlinedKernels detached(*module);
    Block &body = detached.getSources()->getRegion(0).front();
    body.clear();
    body.getOperations().splice(body.begin(), code->getBody()->getOperations());
    ASSERT_TRUE(succeeded(describeLaunches(detached)));
  }
  ArtifactMetadata metadata;
  metadata.producer = "test";
  metadata.target = metadata.cpu = "sm_90a";
  FailureOr<std::string> written = writeArtifact(*module, {}, metadata);
  ASSERT_TRUE(succeeded(written));
  Result<Artifact> artifact =
      Artifact::fromBytes(written->data(), written->size());
  ASSERT_TRUE(artifact.ok()) << artifact.message();

  const auto *maps = artifact->root().kernels()->Get(0)->tensor_maps();
  ASSERT_TRUE(maps);
  ASSERT_EQ(maps->size(), 2u);
  using Numbers = std::vector<uint64_t>;
  EXPECT_EQ(maps->Get(0)->argument(), 0u);
  EXPECT_EQ(listOf(*maps->Get(0)->extents()), (Numbers{128, 4, 512}));
  EXPECT_EQ(listOf(*maps->Get(0)->strides()), (Numbers{256, 1024}));
  EXPECT_EQ(listOf(*maps->Get(0)->box()), (Numbers{64, 1, 32}));
  EXPECT_EQ(maps->Get(0)->swizzle(), 128u);
  EXPECT_EQ(maps->Get(1)->argument(), 1u);
  EXPECT_EQ(listOf(*maps->Get(1)->extents()), (Numbers{64}));
  EXPECT_EQ(listOf(*maps->Get(1)->strides()), (Numbers{}));
  EXPECT_EQ(listOf(*maps->Get(1)->box()), (Numbers{4}));
  EXPECT_EQ(maps->Get(1)->swizzle(), 0u);
}
