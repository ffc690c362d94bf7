//===- TensorCopyTest.cpp - tensor copies on the emulator -----------------===//

#include "test/unit/Emulator/RingTest.h"
#include "test/unit/Expect.h"

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

TEST_F(TensorCopyTest, OneLane_ArrivesForItsWarp) {
  Ring ring;
  ring.made = make("%full0", "%c1") + make("%full1", "%c1") +
              make("%empty0", "%c2") + make("%empty1", "%c2");
  ring.released = releaseByOne(syncWarp);
  ASSERT_TRUE(succeeds(run(ring)));
  expectTiles();
  ring.released = releaseByOne("");
  expectFailure(run(ring), "without a barrier after what thread 1 has read");
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
