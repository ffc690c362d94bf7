//===- EmulatorTest.cpp - what the emulator does and finds ----------------===//

#include "test/unit/Emulator/Emulator.h"
#include "test/unit/Expect.h"

#include <bit>
#include <gtest/gtest.h>
#include <numeric>
#include <tuple>

using namespace nsa;
using namespace nsa::emulator;

namespace {

/// A kernel of one block with the arguments %in and %out, and a map of %in as
/// one row of bf16.
class EmulatorTest : public testing::Test {
protected:
  /// Runs the body; `thread` and the constants 0 to 4, 8, 16, 31 and 32 have
  /// the names %tid, %c0, ... there.
  Status run(const std::string &body, unsigned threads = 32,
             uint64_t sharedBytes = 4096, Dim3 grid = {}) {
    std::string text =
        "llvm.mlir.global external @shared() {addr_space = 3 : i32, "
        "alignment = 1024 : i64} : !llvm.array<0 x i8>\n"
        "llvm.func @k(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %map: !llvm.ptr "
        "{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, "
        "nvvm.grid_constant}) attributes {nvvm.kernel, nsa.tensor_maps = "
        "[#rt.tensor_map<argument = 0, element = bf16, extents = array<i64: "
        "128>, strides = array<i64>, box = array<i64: 32>, swizzle = 64>], "
        "nvvm.reqntid = array<i32: " +
        std::to_string(threads) +
        ", 1, 1>, nsa.shared_bytes = " + std::to_string(sharedBytes) +
        " : i64} {\n  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>\n"
        "  %tid = nvvm.read.ptx.sreg.tid.x : i32\n"
        "  %all = llvm.mlir.constant(-1 : i32) : i32\n";
    for (int number : {0, 1, 2, 3, 4, 8, 16, 31, 32})
      text += "  %c" + std::to_string(number) + " = llvm.mlir.constant(" +
              std::to_string(number) + " : i32) : i32\n";
    text += body + "  llvm.return\n}\n";
    Result<std::unique_ptr<Emulator>> emulator = Emulator::parse(text);
    if (!emulator)
      return emulator.takeError();
    return (*emulator)->launch(
        "k", grid,
        {{data(in), in.size() * 4, false}, {data(out), out.size() * 4, true}});
  }

  /// Expects a failure that says so, in this operation.
  void expectFailure(const Status &status, const std::string &what,
                     const std::string &op) {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(what), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(op), std::string::npos) << status.message();
  }

  static char *data(std::vector<uint32_t> &words) {
    return reinterpret_cast<char *>(words.data());
  }

  std::vector<uint32_t> in = std::vector<uint32_t>(64),
                        out = std::vector<uint32_t>(512);
};

/// `%p = the address of word %index from %base on`.
std::string word(const std::string &p, const std::string &base,
                 const std::string &index) {
  std::string space = base == "%shared" ? "3" : "1";
  return "  " + p + " = llvm.getelementptr " + base + "[" + index +
         "] : (!llvm.ptr<" + space + ">, i32) -> !llvm.ptr<" + space +
         ">, i32\n";
}

std::string load(const std::string &value, const std::string &p,
                 const std::string &space = "1") {
  return "  " + value + " = llvm.load " + p +
         " {alignment = 4 : i64} : " + "!llvm.ptr<" + space + "> -> i32\n";
}

std::string store(const std::string &value, const std::string &p,
                  const std::string &space = "1") {
  return "  llvm.store " + value + ", " + p + " {alignment = 4 : i64} : i32, " +
         "!llvm.ptr<" + space + ">\n";
}

/// Writes `value` of each thread to its word of the output.
std::string give(const std::string &value) {
  return word("%own", "%out", "%tid") + store(value, "%own");
}

const std::string barrier = "  nvvm.barrier\n";

} // namespace

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST_F(EmulatorTest, ReadBeyondAnArgument_IsFound) {
  std::string far = "  %at = llvm.add %tid, %c32 : i32\n" +
                    word("%p", "%in", "%at") + load("%value", "%p");
  in.resize(64);
  ASSERT_TRUE(run(far + give("%value")).ok());
  in.resize(63);
  expectFailure(run(far + give("%value")),
                "thread 31: reads 4 bytes at byte 252 of argument 0, which "
                "has 252",
                "llvm.load");
}

TEST_F(EmulatorTest, WriteInFrontOfAnArgument_IsFound) {
  expectFailure(run("  %at = llvm.sub %tid, %c1 : i32\n" +
                    word("%p", "%out", "%at") + store("%tid", "%p")),
                "thread 0: writes 4 bytes at byte -4 of argument 1",
                "llvm.store");
}

TEST_F(EmulatorTest, WriteToAnInput_IsFound) {
  expectFailure(run(word("%p", "%in", "%tid") + store("%tid", "%p")),
                "writes argument 0, which is not an output", "llvm.store");
}

TEST_F(EmulatorTest, AccessBeyondSharedMemory_IsFound) {
  expectFailure(
      run(word("%p", "%shared", "%tid") + store("%tid", "%p", "3"), 32, 64),
      "thread 16: writes 4 bytes at byte 64 of shared memory, which "
      "has 64",
      "llvm.store");
}

TEST_F(EmulatorTest, MisalignedVector_IsFound) {
  expectFailure(
      run(word("%p", "%in", "%c1") +
          "  %v = llvm.load %p {alignment = 16 : i64} : !llvm.ptr<1> -> "
          "vector<4xi32>\n"),
      "not aligned to the 16 bytes", "llvm.load");
}

TEST_F(EmulatorTest, ReadOfUnwrittenSharedMemory_IsFound) {
  std::string body = word("%p", "%shared", "%tid") + load("%v", "%p", "3");
  // Reading is no harm.
  EXPECT_TRUE(run(body + give("%tid")).ok());
  expectFailure(run(body + give("%v")), "nobody has written this",
                "llvm.store");
}

TEST_F(EmulatorTest, ReadOfAnUnwrittenOutput_IsFound) {
  expectFailure(run(word("%p", "%out", "%tid") + load("%v", "%p") +
                    word("%q", "%out", "%c32") +
                    "  %first = llvm.icmp \"eq\" %v, %c0 : i32\n"
                    "  llvm.cond_br %first, ^bb1, ^bb1\n^bb1:\n"),
                "branches on an undefined value; thread 0 of block 0 read "
                "byte 0 of argument 1",
                "llvm.cond_br");
}

TEST_F(EmulatorTest, UndefinedOperand_MayBeIrrelevant) {
  // As loads do whose lane is masked: select(valid, load, 0).
  ASSERT_TRUE(
      succeeds(run(word("%p", "%shared", "%tid") + load("%v", "%p", "3") +
                   "  %no = llvm.icmp \"slt\" %tid, %c0 : i32\n"
                   "  %x = llvm.select %no, %v, %c3 : i1, i32\n" +
                   give("%x"))));
  EXPECT_EQ(out[5], 3u);
}

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

// (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24, or 0 if the product is rounded.
TEST_F(EmulatorTest, ProductsAndSums_AreRoundedOnceWhereTheyMayBe) {
  std::string number = "  %x = llvm.mlir.constant(1.000244140625 : f32) : f32\n"
                       "  %y = llvm.mlir.constant(1.00048828125 : f32) : f32\n";
  auto difference = [&](const std::string &ofProduct, const std::string &own) {
    return number + "  %p = llvm.fmul %x, %x" + ofProduct +
           " : f32\n  %d = llvm.fsub %p, %y" + own +
           " : f32\n  %bits = llvm.bitcast %d : f32 to i32\n" + give("%bits");
  };
  const std::string may = " {fastmathFlags = #llvm.fastmath<contract>}";
  for (const auto &[ofProduct, own, expected] :
       {std::tuple(may, may, 0x1p-24f), std::tuple(may, std::string(), 0.0f),
        std::tuple(std::string(), may, 0.0f)}) {
    ASSERT_TRUE(succeeds(run(difference(ofProduct, own))));
    EXPECT_EQ(std::bit_cast<float>(out[5]), expected);
  }
}

//===----------------------------------------------------------------------===//
// Races
//===----------------------------------------------------------------------===//

TEST_F(EmulatorTest, AccessesOfTwoThreads_NeedABarrierBetween) {
  std::string write =
      word("%mine", "%shared", "%tid") + store("%tid", "%mine", "3");
  std::string read = "  %other = llvm.xor %tid, %c1 : i32\n" +
                     word("%theirs", "%shared", "%other") +
                     load("%value", "%theirs", "3");
  std::string again = store("%value", "%mine", "3");
  expectFailure(run(write + read + give("%value")),
                "another thread wrote this without a barrier between: thread 1",
                "llvm.store");
  expectFailure(run(write + barrier + read + again, 64),
                "another thread read this without a barrier between: thread",
                "llvm.store");
  EXPECT_TRUE(run(write + barrier + read + barrier + again, 64).ok());
  expectFailure(run(word("%p", "%shared", "%c0") + store("%tid", "%p", "3")),
                "another thread wrote this", "llvm.store");
}

TEST_F(EmulatorTest, TwoBlocksWriteOneWord_IsFound) {
  expectFailure(run(give("%tid"), 32, 0, {2, 1, 1}),
                "block (1, 0, 0), thread 0: writes byte 0 of argument 1; "
                "another block wrote this: block 0",
                "llvm.store");
}

//===----------------------------------------------------------------------===//
// Meeting
//===----------------------------------------------------------------------===//

TEST_F(EmulatorTest, BarrierThatSomeThreadsSkip_IsFound) {
  expectFailure(run("  %some = llvm.icmp \"slt\" %tid, %c32 : i32\n"
                    "  llvm.cond_br %some, ^bb1, ^bb2\n^bb1:\n" +
                        barrier + "  llvm.br ^bb2\n^bb2:\n",
                    64),
                "waits for ever; warp 0 is at 'nvvm.barrier' with 32 lanes; "
                "warp 1 has left the kernel",
                "nvvm.barrier");
}

TEST_F(EmulatorTest, LanesAtDifferentCollectives_AreFound) {
  std::string vote = "nvvm.vote.sync ballot %all, %low -> i32\n";
  expectFailure(run("  %low = llvm.icmp \"slt\" %tid, %c16 : i32\n"
                    "  llvm.cond_br %low, ^bb1, ^bb2\n^bb1:\n  %a = " +
                    vote + "  llvm.br ^bb3\n^bb2:\n  %b = " + vote +
                    "  llvm.br ^bb3\n^bb3:\n"),
                "lanes of a warp wait for each other: lane 0 and 15 others at",
                "nvvm.vote.sync");
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static std::string copy(const std::string &size, const std::string &wait) {
  return "  %w = llvm.mul %tid, %c4 : i32\n" + word("%to", "%shared", "%w") +
         word("%from", "%in", "%w") +
         "  nvvm.cp.async.shared.global %to, %from, 16, cache = cg" + size +
         "\n  nvvm.cp.async.commit.group\n" + wait +
         word("%q", "%shared", "%w") + load("%v", "%q", "3") + give("%v");
}

TEST_F(EmulatorTest, Copies_ArriveAtTheWait) {
  in.resize(128);
  std::iota(in.begin(), in.end(), 100);
  std::string types = " : !llvm.ptr<3>, !llvm.ptr<1>";
  std::string wait = "  nvvm.cp.async.wait.group 0\n";
  ASSERT_TRUE(succeeds(run(copy(types, wait))));
  EXPECT_EQ(out[3], 112u);
  expectFailure(run(copy(types, "")), "a copy to here has not been waited for",
                "llvm.store");
  expectFailure(run(copy(types, "  nvvm.cp.async.wait.group 1\n")),
                "a copy to here has not been waited for", "llvm.store");
}

//===----------------------------------------------------------------------===//
// Mbarriers, tensor copies and registers
//===----------------------------------------------------------------------===//

/// Thread 0 runs this, the others meet it after that.
static std::string once(const std::string &body) {
  return "  %isFirst = llvm.icmp \"eq\" %tid, %c0 : i32\n"
         "  llvm.cond_br %isFirst, ^bb1, ^bb2\n^bb1:\n" +
         body + "  llvm.br ^bb2\n^bb2:\n" + barrier;
}

static const std::string makeMbarrier =
    "  %bar = llvm.getelementptr %shared[2048] : (!llvm.ptr<3>) -> "
    "!llvm.ptr<3>, i8\n  nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32\n";
static const std::string arrive =
    "  %s = nvvm.mbarrier.arrive %bar : !llvm.ptr<3> -> i64\n";
/// What nvvm.mbarrier.try_wait.parity becomes.
static const std::string waitForMbarrier =
    "  %same = llvm.getelementptr %shared[2048] : (!llvm.ptr<3>) -> "
    "!llvm.ptr<3>, i8\n  llvm.inline_asm has_side_effects asm_dialect = att "
    "\"{\\0A\\09.reg .pred       P1; \\0A\\09LAB_WAIT: "
    "\\0A\\09mbarrier.try_wait.parity.shared.b64 P1, [$0], $1, $2; "
    "\\0A\\09@P1 bra.uni DONE; \\0A\\09bra.uni     LAB_WAIT; "
    "\\0A\\09DONE: \\0A\\09}\", \"r,r,r\" %same, %c0, %c1 : (!llvm.ptr<3>, "
    "i32, i32) -> ()\n";

static std::string copyTensor(const std::string &to,
                              const std::string &column) {
  return "  %target = llvm.getelementptr %shared[" + to +
         "] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8\n"
         "  nvvm.cp.async.bulk.tensor.shared.cluster.global %target, %map, "
         "%bar, box[" +
         column + "] {isCTAOnly = true} : !llvm.ptr<3>, !llvm.ptr\n";
}

TEST_F(EmulatorTest, MisuseOfAnMbarrier_IsFound) {
  for (const auto &[body, what] :
       {std::pair(makeMbarrier + load("%peek", "%bar", "3"),
                  "reads byte 2048 of shared memory, where an mbarrier is"),
        std::pair(makeMbarrier + store("%c1", "%bar", "3"),
                  "writes byte 2048 of shared memory, where an mbarrier is"),
        std::pair(makeMbarrier + "  nvvm.mbarrier.init %bar, %c1 : "
                                 "!llvm.ptr<3>, i32\n",
                  "of shared memory, where there is one"),
        std::pair(word("%bar", "%shared", "%c0") + arrive,
                  "there is no mbarrier at byte 0"),
        std::pair(makeMbarrier +
                      "  nvvm.mbarrier.arrive.expect_tx %bar, %c16 "
                      ": !llvm.ptr<3>, i32\n" +
                      arrive,
                  "1 threads arrive at the mbarrier at byte 2048 of shared "
                  "memory, which waits for 0 in this phase"),
        std::pair(makeMbarrier, "waits for ever; warp 0 waits with 32 lanes")})
    expectFailure(run(once(body) + waitForMbarrier), what, "");
}

TEST_F(EmulatorTest, TensorCopy_ArrivesAtTheWait) {
  std::iota(in.begin(), in.end(), 100);
  std::string copied = once(makeMbarrier +
                            "  %bytes = llvm.shl %c32, %c1 : i32\n"
                            "  nvvm.mbarrier.arrive.expect_tx %bar, %bytes : "
                            "!llvm.ptr<3>, i32\n" +
                            copyTensor("%c0", "%c16")) +
                       waitForMbarrier;
  std::string read = "  %w = llvm.lshr %tid, %c1 : i32\n" +
                     word("%q", "%shared", "%w") + load("%v", "%q", "3") +
                     give("%v");
  ASSERT_TRUE(succeeds(run(copied + read)));
  EXPECT_EQ(out[8], 112u);
  copied.erase(copied.find(waitForMbarrier));
  expectFailure(run(copied + read), "a copy to here has not been waited for",
                "llvm.store");
}

TEST_F(EmulatorTest, MisalignedTensorCopy_IsFound) {
  expectFailure(run(once(makeMbarrier + copyTensor("%c16", "%c0"))),
                "copies to byte 16 of shared memory, which is not aligned to "
                "128 bytes",
                "nvvm.cp.async.bulk.tensor");
  expectFailure(run(once(makeMbarrier + copyTensor("%c0", "%c1"))),
                "copies from column 1, which is at no multiple of 16 bytes",
                "nvvm.cp.async.bulk.tensor");
}

TEST_F(EmulatorTest, Setmaxnreg_MovesRegistersBetweenWarpgroups) {
  auto move = [&](const std::string &producer) {
    return run("  %c256 = llvm.mlir.constant(256 : i32) : i32\n"
               "  %reads = llvm.icmp \"ult\" %tid, %c256 : i32\n"
               "  llvm.cond_br %reads, ^bb1, ^bb2\n^bb1:\n"
               "  nvvm.setmaxregister increase 240\n  llvm.br ^bb3\n^bb2:\n"
               "  nvvm.setmaxregister decrease " +
                   producer + "\n  llvm.br ^bb3\n^bb3:\n",
               384);
  };
  EXPECT_TRUE(succeeds(move("24")));
  expectFailure(
      move("40"),
      "the threads of all warps have 66560 registers together, and had 64512",
      "nvvm.setmaxregister");
  expectFailure(move("176"), "threads have 168 registers before",
                "nvvm.setmaxregister");
  expectFailure(run("  %isOne = llvm.icmp \"ult\" %tid, %c32 : i32\n"
                    "  llvm.cond_br %isOne, ^bb1, ^bb2\n^bb1:\n"
                    "  nvvm.setmaxregister decrease 24\n  llvm.br ^bb2\n"
                    "^bb2:\n",
                    128),
                "has issued other wgmmas or register counts than warp 0", "");
}

TEST_F(EmulatorTest, UnknownOperations_AreErrors) {
  expectFailure(run("  nvvm.fence.sc.cluster\n"),
                "the emulator does not know 'nvvm.fence.sc.cluster'",
                "nvvm.fence.sc.cluster");
  expectFailure(run("  llvm.inline_asm has_side_effects \"trap;\", \"\" : () "
                    "-> ()\n"),
                "with the text 'trap;'", "llvm.inline_asm");
}

TEST_F(EmulatorTest, DivisionByZero_IsAnError) {
  expectFailure(run("  %q = llvm.udiv %c8, %tid : i32\n" + give("%q")),
                "thread 0: divides by 0", "llvm.udiv");
}
