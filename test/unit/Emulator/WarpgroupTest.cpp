//===- WarpgroupTest.cpp - wgmma on the emulator --------------------------===//

#include "test/unit/Emulator/RingTest.h"

using namespace nsa;
using namespace nsa::emulator;
using namespace nsa::emulator::test;

namespace {

struct Order {
  std::string fenced = "  nvvm.wgmma.fence.aligned\n", issued, waits = "0";
};

class WarpgroupTest : public RingTest {
protected:
  /// A wgmma of four warps. Its a is 1 everywhere, in registers; its b are
  /// the 8 rows of a tile that was copied to the first stage.
  Status multiply(const Order &order) {
    tiles = {32};
    uint64_t descriptor =
        1024 >> 4 | 1 << 16 | uint64_t(256 >> 4) << 32 | uint64_t(3) << 62;
    std::string sums = "!llvm.struct<(f32, f32, f32, f32)>";
    std::string text =
        copyOnce(behindCopy) + wait("%full0", "%c0") +
        "  %ones = llvm.mlir.constant(1065369472 : i32) : i32\n"
        "  %b = llvm.mlir.constant(" +
        std::to_string(int64_t(descriptor)) + " : i64) : i64\n" + order.fenced +
        "  %d = llvm.inline_asm has_side_effects \"{ .reg .pred p; setp.ne.b32 "
        "p, 0, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, "
        "$2, $3}, {$4, $5, $6, $7}, $8, p, 1, 1, 0; }\", "
        "\"=f,=f,=f,=f,r,r,r,r,l\" %ones, %ones, %ones, %ones, %b : (i32, i32, "
        "i32, i32, i64) -> " +
        sums + "\n  nvvm.wgmma.commit.group.sync.aligned\n" + order.issued;
    for (const char *n : {"0", "1", "2", "3"})
      text += "  %d" + std::string(n) + " = llvm.extractvalue %d[" + n +
              "] : " + sums + "\n";
    return run(text +
                   "  %w = llvm.inline_asm has_side_effects "
                   "\"wgmma.wait_group.sync.aligned " +
                   order.waits +
                   ";\", \"=f,=f,=f,=f,0,1,2,3\" %d0, %d1, %d2, %d3 : (f32, "
                   "f32, f32, f32) -> " +
                   sums + "\n  %w1 = llvm.extractvalue %w[1] : " + sums +
                   "\n  %own = llvm.getelementptr %out[%tid] : "
                   "(!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32\n"
                   "  llvm.store %w1, %own : f32, !llvm.ptr<1>\n",
               128);
  }
};

} // namespace

TEST_F(WarpgroupTest, MissingFence_IsFound) {
  EXPECT_TRUE(multiply({}).ok());
  Order order;
  order.fenced = "";
  expectFailure(multiply(order), "no wgmma.fence stands before");
}

TEST_F(WarpgroupTest, ResultNotAwaited_IsFound) {
  Order order;
  order.waits = "1";
  expectFailure(multiply(order), "has not been waited for");
}

TEST_F(WarpgroupTest, WriteToWhatWgmmaReads_IsFound) {
  Order order;
  order.issued = "  nvvm.barrier\n  %first = llvm.getelementptr %shared[%tid] "
                 ": (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i16\n"
                 "  %half = llvm.trunc %tid : i32 to i16\n"
                 "  llvm.store %half, %first : i16, !llvm.ptr<3>\n";
  expectFailure(multiply(order), "changes while a wgmma reads it");
}
