//===- TensorCopyTest.cpp - tensor copies on the emulator -----------------===//

#include "lib/Support/Float16.h"
#include "test/unit/Emulator/RingTest.h"
#include "test/unit/Expect.h"

#include <cstring>

using namespace nsa;
using namespace nsa::emulator;
using namespace nsa::emulator::test;

namespace {

class TensorCopyTest : public RingTest {};

/// One lane of each warp arrives, for 32.
std::string releaseByOne(const std::string &sync) {
  return sync +
         "  %lane = llvm.and %tid, %c31 : i32\n"
         "  %isOne = llvm.icmp \"eq\" %lane, %c0 : i32\n"
         "  llvm.cond_br %isOne, ^arrive, ^next\n^arrive:\n" +
         arrive("%empty", "%state") + "  llvm.br ^next\n";
}

const std::string syncWarp = "  nvvm.bar.warp.sync %all : i32\n";

/// Reads the first word of shared memory and writes it to the output.
const std::string readFirst =
    "  %word = llvm.load %shared : !llvm.ptr<3> -> i32\n"
    "  llvm.store %word, %out : i32, !llvm.ptr<1>\n";

} // namespace

//===----------------------------------------------------------------------===//
// What is right
//===----------------------------------------------------------------------===//

TEST_F(TensorCopyTest, PipelineOfTwoStages_GivesAllTiles) {
  Ring ring;
  for (unsigned swizzle : {0, 32, 64, 128})
    for (bool first : {false, true}) {
      SCOPED_TRACE(testing::Message() << swizzle << " " << first);
      tiles = {swizzle};
      in.clear();
      ring.producerFirst = first;
      ASSERT_TRUE(succeeds(run(ring)));
      ASSERT_NO_FATAL_FAILURE(expectTiles());
    }
}

TEST_F(TensorCopyTest, WaitAsAnOperation_IsUnderstood) {
  Ring ring;
  ring.full = "  nvvm.mbarrier.try_wait.parity %full, %phase, %c1 : "
              "!llvm.ptr<3>, i32, i32\n";
  ASSERT_TRUE(succeeds(run(ring)));
  expectTiles();
}

TEST_F(TensorCopyTest, Block_IsACluster) {
  Ring ring;
  ring.copied = copyBoxInCluster("%data", "%full", "%x, %y, %z");
  Status status = run(ring);
  ASSERT_TRUE(status.ok()) << status.message();
  expectTiles();
  ring.copied.insert(ring.copied.find(" : !llvm.ptr<7>, "),
                     " l2_cache_hint = %hint");
  std::string copied = ring.copied;
  auto hint = [](const std::string &policy) {
    return "  %hint = llvm.mlir.constant(" + policy + " : i64) : i64\n";
  };
  ring.copied = hint("1508705875169116160") + copied;
  status = run(ring);
  ASSERT_TRUE(status.ok()) << status.message();
  expectTiles();
  ring.copied = hint("0") + copied;
  expectFailure(run(ring), "the emulator does not know "
                           "'nvvm.cp.async.bulk.tensor.shared.cluster.global' "
                           "with this cache policy");
}

TEST_F(TensorCopyTest, OneLane_ArrivesForItsWarp) {
  Ring ring;
  ring.made = make("%full0", "%c1") + make("%full1", "%c1") +
              make("%empty0", "%c2") + make("%empty1", "%c2");
  ring.released = releaseByOne(syncWarp);
  ASSERT_TRUE(succeeds(run(ring)));
  expectTiles();
  ring.released = releaseByOne("");
  expectFailure(run(ring), "without a barrier behind what thread 1 has read");
}

TEST_F(TensorCopyTest, OneLane_WaitsForItsWarp) {
  auto waitOfOne = [](const std::string &sync) {
    return "  %low = llvm.and %tid, %c31 : i32\n"
           "  %waits = llvm.icmp \"eq\" %low, %c0 : i32\n"
           "  llvm.cond_br %waits, ^wait, ^waited\n^wait:\n" +
           wait("%full", "%phase") + "  llvm.br ^waited\n^waited:\n" + sync;
  };
  Ring ring;
  ring.producerFirst = true;
  ring.full = waitOfOne(syncWarp);
  ASSERT_TRUE(succeeds(run(ring)));
  expectTiles();
}

TEST_F(TensorCopyTest, Bytes_MayBeExpectedBehindTheCopy) {
  Ring ring;
  ring.copied += std::exchange(ring.expected, "");
  ASSERT_TRUE(succeeds(run(ring)));
  expectTiles();
}

namespace {

/// A product of four warps. Its a is 1 everywhere, in registers; its b are the
/// 8 rows of a tile in the first place. %w1 is the second of the sums.
std::string product() {
  uint64_t descriptor =
      1024 >> 4 | 1 << 16 | uint64_t(256 >> 4) << 32 | uint64_t(3) << 62;
  std::string sums = "!llvm.struct<(f32, f32, f32, f32)>";
  std::string text =
      "  %ones = llvm.mlir.constant(1065369472 : i32) : i32\n"
      "  %b = llvm.mlir.constant(" +
      std::to_string(int64_t(descriptor)) +
      " : i64) : i64\n  nvvm.wgmma.fence.aligned\n"
      "  %d = llvm.inline_asm has_side_effects \"{ .reg .pred p; setp.ne.b32 "
      "p, 0, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, "
      "$2, $3}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }\", "
      "\"=f,=f,=f,=f,r,r,r,r,l\" %ones, %ones, %ones, %ones, %b : (i32, i32, "
      "i32, i32, i64) -> " +
      sums + "\n  nvvm.wgmma.commit.group.sync.aligned\n";
  for (const char *n : {"0", "1", "2", "3"})
    text += "  %d" + std::string(n) + " = llvm.extractvalue %d[" + n +
            "] : " + sums + "\n";
  return text +
         "  %w = llvm.inline_asm has_side_effects "
         "\"wgmma.wait_group.sync.aligned 0;\", \"=f,=f,=f,=f,0,1,2,3\" %d0, "
         "%d1, %d2, %d3 : (f32, f32, f32, f32) -> " +
         sums + "\n  %w1 = llvm.extractvalue %w[1] : " + sums + "\n";
}

} // namespace

// No fence needs to stand between.
TEST_F(TensorCopyTest, Dots_ReadCopies) {
  tiles = {32};
  in = tiles.tensor();
  for (size_t k = 0; k < in.size(); ++k)
    in[k] = floatToBF16(float(k % 37));
  ASSERT_TRUE(succeeds(
      run(copyOnce(behindCopy) + wait("%full0", "%c0") + product() +
              "  %own = llvm.getelementptr %out[%tid] : (!llvm.ptr<1>, i32) -> "
              "!llvm.ptr<1>, f32\n  llvm.store %w1, %own : f32, "
              "!llvm.ptr<1>\n",
          128)));
  for (unsigned thread = 0; thread < 128; ++thread) {
    // Row n of a tile is row n % 2 of plane n / 2.
    unsigned n = thread % 4 * 2 + 1;
    auto start =
        size_t(tiles.extent(0)) * (n % 2 + unsigned(tiles.extent(1)) * (n / 2));
    float expected = 0, found;
    for (size_t k = 0; k < 16; ++k)
      expected += float((start + k) % 37);
    std::memcpy(&found, &out[2 * thread], 4);
    ASSERT_EQ(found, expected) << "thread " << thread;
  }
}

TEST_F(TensorCopyTest, Warp_MayBeAheadOfItsGroup) {
  tiles = {32};
  std::string made = "  llvm.cond_br %isFirst, ^room, ^roomy\n^room:\n" +
                     make("%empty0", "%c32") + "  llvm.br ^roomy\n^roomy:\n";
  std::string body = constant("%c96", 96) + copyOnce(behindCopy, made) +
                     wait("%full0", "%c0") +
                     "  %isLast = llvm.icmp \"uge\" %tid, %c96 : i32\n"
                     "  llvm.cond_br %isLast, ^multiply, ^wait\n^wait:\n" +
                     wait("%empty0", "%c0") +
                     "  llvm.br ^multiply\n^multiply:\n" + product() +
                     "  llvm.cond_br %isLast, ^arrive, ^end\n^arrive:\n" +
                     arrive("%empty0", "%state") + "  llvm.br ^end\n^end:\n";
  Status status = run(body, 128);
  EXPECT_TRUE(status.ok()) << status.message();
}

//===----------------------------------------------------------------------===//
// Readers and writers
//===----------------------------------------------------------------------===//

TEST_F(TensorCopyTest, ReaderDoesNotWait_IsFound) {
  Ring ring;
  ring.full = "";
  expectFailure(run(ring),
                "a copy to here has not been waited for, of thread 64");
  // They wait, but for the phase before.
  ring.full = wait("%full", "%parity");
  expectFailure(run(ring),
                "a copy to here has not been waited for, of thread 64");
  // Nor may the thread read that had it copied.
  std::string waits = wait("%full0", "%c0");
  expectFailure(run(copyOnce(readFirst + behindCopy) + waits, 32),
                "a copy to here has not been waited for, of thread 0");
  EXPECT_TRUE(run(copyOnce(waits + readFirst + behindCopy), 32).ok());
}

TEST_F(TensorCopyTest, CopyThatNobodyWaitsFor_IsFound) {
  expectFailure(run(copyOnce(behindCopy), 32),
                "nobody waits for this copy before the kernel ends");
}

TEST_F(TensorCopyTest, MisalignedTarget_IsFound) {
  std::string to = byte("%to", "%shared", "%c64");
  for (unsigned swizzle : {0, 32, 64, 128}) {
    tiles = {swizzle};
    expectFailure(run(copyOnce(behindCopy, to, "%to"), 32),
                  "thread 0: copies to byte 64 of shared memory, which is not "
                  "aligned to " +
                      std::to_string(std::max(128u, swizzle * 8)) + " bytes");
  }
}

TEST_F(TensorCopyTest, MisalignedColumn_IsFound) {
  Ring ring;
  ring.copied = copyBox("%data", "%full", "%c1, %y, %z");
  expectFailure(run(ring), "copies from column 1, which is at no multiple of "
                           "16 bytes");
}
