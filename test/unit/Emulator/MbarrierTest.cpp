//===- MbarrierTest.cpp - mbarriers and registers on the emulator ---------===//

#include "test/unit/Emulator/RingTest.h"

using namespace nsa;
using namespace nsa::emulator;
using namespace nsa::emulator::test;

namespace {
class MbarrierTest : public RingTest {};
} // namespace

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

TEST_F(MbarrierTest, WrongNumberOfBytes_IsFound) {
  Ring ring;
  ring.bytes = tiles.bytes() - 16;
  expectFailure(run(ring), "expects 1008 bytes in this phase, and 1024 are "
                           "copied");
  ring.bytes = tiles.bytes() + 16;
  expectFailure(run(ring), "0 threads are missing and 1024 of 1040 bytes");
  // Nothing is expected, so the phase is over before the copy.
  ring = Ring();
  ring.producerFirst = true;
  ring.expected = arrive("%full", "%none");
  expectFailure(run(ring), "has not been waited for");
  // The second copy may end before the first one.
  ring = Ring();
  ring.copied += ring.copied;
  expectFailure(run(ring), "expects 1024 bytes in this phase, and 2048 are "
                           "copied");
}

TEST_F(MbarrierTest, TooManyArrivals_AreFound) {
  Ring ring;
  ring.made = make("%full0", "%c1") + make("%full1", "%c1") +
              make("%empty0", "%c16") + make("%empty1", "%c16");
  expectFailure(run(ring), "32 threads arrive at the mbarrier at byte 2064 of "
                           "shared memory, which waits for 16 in this phase");
  ring = Ring();
  ring.expected += ring.expected;
  expectFailure(run(ring), "1 threads arrive at the mbarrier at byte 2048 of "
                           "shared memory, which waits for 0 in this phase");
}

TEST_F(MbarrierTest, Deadlock_IsFound) {
  Ring ring;
  ring.released = "  llvm.br ^next\n";
  Status status = run(ring);
  expectFailure(status,
                "thread 0: waits for ever; warp 0 waits with 32 lanes for "
                "parity 1 of the mbarrier at byte 2048 of shared memory, where "
                "1 threads are missing and 0 of 0 bytes are copied;");
  expectFailure(
      status, "warp 2 waits with 1 lanes for parity 0 of the mbarrier at byte "
              "2064 of shared memory, where 64 threads are missing and 0 of "
              "0 bytes are copied;");
  // Others have left the kernel.
  tiles.count = 2;
  ring.copied = "";
  expectFailure(run(ring), "where 0 threads are missing and 0 of 1024 bytes "
                           "are copied; warp 2 has left the kernel;");
}

//===----------------------------------------------------------------------===//
// Mbarriers
//===----------------------------------------------------------------------===//

TEST_F(MbarrierTest, MbarrierNotInitialized_IsFound) {
  Ring ring;
  ring.made =
      make("%full1", "%c1") + make("%empty0", "%c64") + make("%empty1", "%c64");
  expectFailure(run(ring),
                "there is no mbarrier at byte 2048 of shared memory");
  ring = Ring();
  ring.shown = "";
  expectFailure(run(ring), "after which no fence.mbarrier.init stands");
  // The fence does not count if only the others come after it.
  ring.met = barrier + "  llvm.cond_br %isFirst, ^show, ^shown\n^show:\n" +
             fence + "  llvm.br ^shown\n^shown:\n";
  expectFailure(run(ring), "after which no fence.mbarrier.init stands");
}

TEST_F(MbarrierTest, MbarrierInitializedTwice_IsFound) {
  Ring ring;
  ring.made += make("%full0", "%c1");
  expectFailure(run(ring), "makes an mbarrier at byte 2048 of shared memory, "
                           "where there is one");
  ring = Ring();
  ring.made = make("%full0", "%c0");
  expectFailure(run(ring), "makes an mbarrier for 0 threads");
}

TEST_F(MbarrierTest, OtherAccessToAnMbarrier_IsFound) {
  Ring ring;
  ring.shown += "  %peek = llvm.load %full1 : !llvm.ptr<3> -> i32\n";
  expectFailure(run(ring),
                "reads byte 2056 of shared memory, where an mbarrier is");
  ring = Ring();
  ring.shown += "  llvm.store %c1, %empty1 : i32, !llvm.ptr<3>\n";
  expectFailure(run(ring),
                "writes byte 2072 of shared memory, where an mbarrier is");
  ring = Ring();
  ring.made += byte("%inside", "%shared", "%c16") + make("%inside", "%c1");
  expectFailure(run(ring),
                "writes byte 16 of shared memory, where an mbarrier is");
}

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

static std::string setRegisters(const std::string &producer,
                                const std::string &consumer) {
  return constant("%c256", 256) +
         "  %reads = llvm.icmp \"ult\" %tid, %c256 : i32\n"
         "  llvm.cond_br %reads, ^consume, ^produce\n^consume:\n" +
         consumer + "  llvm.br ^end\n^produce:\n" + producer +
         "  llvm.br ^end\n^end:\n";
}

TEST_F(MbarrierTest, Setmaxnreg_MovesRegistersBetweenWarpgroups) {
  std::string more = "  nvvm.setmaxregister increase 240\n";
  Status status =
      run(setRegisters("  nvvm.setmaxregister decrease 24\n", more), 384);
  EXPECT_TRUE(status.ok()) << status.message();
  expectFailure(
      run(setRegisters("  nvvm.setmaxregister decrease 40\n", more), 384),
      "the threads of all warps have 66560 registers together, and had 64512");
  expectFailure(
      run(setRegisters("  nvvm.setmaxregister decrease 176\n", more), 384),
      "threads have 168 registers before");
  expectFailure(run("  %isOne = llvm.icmp \"ult\" %tid, %c32 : i32\n"
                    "  llvm.cond_br %isOne, ^one, ^end\n^one:\n"
                    "  nvvm.setmaxregister decrease 24\n  llvm.br "
                    "^end\n^end:\n",
                    128),
                "has issued other wgmmas or register counts than warp 0");
}
