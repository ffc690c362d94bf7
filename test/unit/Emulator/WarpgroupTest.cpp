//===- WarpgroupTest.cpp - asynchronous products on the emulator ----------===//

#include "lib/Support/Float16.h"
#include "test/unit/Emulator/Emulator.h"
#include "test/unit/Expect.h"

#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::emulator;

namespace {

/// A matrix of bf16 in shared memory, with rows (of b: columns) of `depth`
/// elements of sums.
struct Matrix {
  unsigned rows, depth, rowBytes;
  /// Whether neighbours in memory belong to neighbouring rows.
  bool across;
  unsigned start = 0;

  unsigned bytes() const { return rows * depth * 2; }
  /// As the ISA draws it: swizzle atom columns of `rowBytes`, one behind
  /// another, in which pieces of 16 bytes change places.
  unsigned place(unsigned row, unsigned k) const {
    unsigned line = across ? k : row, column = across ? row : k;
    unsigned lines = across ? depth : rows, perLine = rowBytes / 2;
    unsigned byte = column / perLine * lines * rowBytes + line * rowBytes +
                    column % perLine * 2;
    unsigned pieces = rowBytes / 16;
    return start + (byte ^ (byte / 128 % pieces * 16));
  }
  float value(unsigned row, unsigned k) const {
    return float(int(row * 7 + k * 3 + start) % 11 - 5);
  }
  void write(std::vector<uint32_t> &words) const {
    for (unsigned row = 0; row < rows; ++row)
      for (unsigned k = 0; k < depth; ++k)
        reinterpret_cast<uint16_t *>(words.data())[place(row, k) / 2] =
            floatToBF16(value(row, k));
  }
  uint64_t descriptor(unsigned step) const {
    uint64_t at = 1024 + start + (across ? step * 16 * rowBytes : step * 32);
    uint64_t leading = across ? depth * rowBytes : 16, stride = 8 * rowBytes;
    uint64_t swizzle = rowBytes == 128 ? 1 : rowBytes == 64 ? 2 : 3;
    return at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62;
  }
};

struct Order {
  std::string copied =
      "  nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = "
      "#nvvm.shared_space<cta>}\n  nvvm.barrier\n";
  std::string fenced = "  nvvm.wgmma.fence.aligned\n";
  std::string waits = "0";
  std::string issued, waited;
};

constexpr unsigned kColumns = 16, kResults = 8;

class WarpgroupTest : public testing::Test {
protected:
  /// 1 + A B for 16 elements of each sum, `step` of them further on. With
  /// registers, a lies in `in` behind the matrices, four words for each thread.
  Status run(const Matrix &a, const Matrix &b, bool registers, unsigned step,
             const Order &order = {}) {
    unsigned sharedWords = (b.start + b.bytes()) / 4;
    in.assign(sharedWords + 512, 0);
    if (!registers)
      a.write(in);
    b.write(in);
    for (unsigned thread = 0; thread < 128; ++thread)
      for (unsigned r = 0; r < 4; ++r) {
        unsigned row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r % 2);
        unsigned k = 16 * step + thread % 4 * 2 + 8 * (r / 2);
        in[sharedWords + 4 * thread + r] =
            floatToBF16(a.value(row, k)) |
            uint32_t(floatToBF16(a.value(row, k + 1))) << 16;
      }
    std::string text =
        "llvm.mlir.global external @shared() {addr_space = 3 : i32, "
        "alignment = 1024 : i64} : !llvm.array<0 x i8>\n"
        "llvm.func @k(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes "
        "{nvvm.kernel, nvvm.reqntid = array<i32: 128, 1, 1>, "
        "nsa.shared_bytes = " +
        std::to_string(4 * sharedWords) +
        " : i64} {\n  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>\n"
        "  %tid = nvvm.read.ptx.sreg.tid.x : i32\n"
        "  %one = llvm.mlir.constant(1.0 : f32) : f32\n";
    for (unsigned word = 0; word < sharedWords; word += 128) {
      std::string n = std::to_string(word);
      text += constant("%b" + n, word) + "  %i" + n + " = llvm.add %tid, %b" +
              n + " : i32\n" + address("%p" + n, "%in", "%i" + n, "1") +
              "  %v" + n + " = llvm.load %p" + n + " : !llvm.ptr<1> -> i32\n" +
              address("%q" + n, "%shared", "%i" + n, "3") + "  llvm.store %v" +
              n + ", %q" + n + " : i32, !llvm.ptr<3>\n";
    }
    text += constant("%four", 4) + constant("%regs", sharedWords) +
            "  %t4 = llvm.mul %tid, %four : i32\n"
            "  %areg = llvm.add %t4, %regs : i32\n";
    std::string operands, types, inputs;
    for (unsigned r = 0; registers && r < 4; ++r) {
      std::string n = std::to_string(r);
      text += constant("%r" + n, r) + "  %ai" + n + " = llvm.add %areg, %r" +
              n + " : i32\n" + address("%ap" + n, "%in", "%ai" + n, "1") +
              "  %a" + n + " = llvm.load %ap" + n + " : !llvm.ptr<1> -> i32\n";
      operands += "%a" + n + ", ";
      types += "i32, ";
      inputs += "r,";
    }
    text += "  %da = llvm.mlir.constant(" +
            std::to_string(int64_t(a.descriptor(step))) +
            " : i64) : i64\n  %db = llvm.mlir.constant(" +
            std::to_string(int64_t(b.descriptor(step))) + " : i64) : i64\n";
    if (!registers) {
      operands += "%da, ";
      types += "i64, ";
      inputs += "l,";
    }
    operands += "%db";
    types += "i64";
    inputs += "l";
    std::string outputs, ties, sums, results;
    for (unsigned r = 0; r < kResults; ++r) {
      std::string n = std::to_string(r);
      outputs += "=f,";
      ties += "," + n;
      operands += ", %one";
      types += ", f32";
      sums += (r ? ", $" : "$") + n;
      results += r ? ", f32" : "f32";
    }
    results = "!llvm.struct<(" + results + ")>";
    text += order.copied + order.fenced;
    text += "  %d = llvm.inline_asm has_side_effects \"{ .reg .pred p; "
            "setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32."
            "bf16.bf16 {" +
            sums + "}, " +
            (registers ? "{$8, $9, $10, $11}, $12, p, 1, 1"
                       : "$8, $9, p, 1, 1, " + std::to_string(a.across)) +
            ", " + std::to_string(b.across) + "; }\", \"" + outputs + inputs +
            ties + "\" " + operands + " : (" + types + ") -> " + results +
            "\n  nvvm.wgmma.commit.group.sync.aligned\n" + order.issued;
    std::string values, f32s, constraints;
    for (unsigned r = 0; r < kResults; ++r) {
      std::string n = std::to_string(r);
      text +=
          "  %x" + n + " = llvm.extractvalue %d[" + n + "] : " + results + "\n";
      values += (r ? ", %x" : "%x") + n;
      f32s += r ? ", f32" : "f32";
      constraints += "," + n;
    }
    text += "  %w = llvm.inline_asm has_side_effects "
            "\"wgmma.wait_group.sync.aligned " +
            order.waits + ";\", \"" + outputs.substr(0, outputs.size() - 1) +
            constraints + "\" " + values + " : (" + f32s + ") -> " + results +
            "\n" + order.waited + constant("%eight", kResults) +
            "  %o = llvm.mul %tid, %eight : i32\n";
    for (unsigned r = 0; r < kResults; ++r) {
      std::string n = std::to_string(r);
      text += "  %y" + n + " = llvm.extractvalue %w[" + n + "] : " + results +
              "\n" + constant("%k" + n, r) + "  %oi" + n +
              " = llvm.add %o, %k" + n + " : i32\n" +
              address("%op" + n, "%out", "%oi" + n, "1") + "  llvm.store %y" +
              n + ", %op" + n + " : f32, !llvm.ptr<1>\n";
    }
    text += "  llvm.return\n}\n";
    Result<std::unique_ptr<Emulator>> emulator = Emulator::parse(text);
    if (!emulator)
      return emulator.takeError();
    auto data = [](auto &list) {
      return reinterpret_cast<char *>(list.data());
    };
    out.assign(128 * kResults, 0);
    return (*emulator)->launch(
        "k", {},
        {{data(in), in.size() * 4, false}, {data(out), out.size() * 4, true}});
  }

  static std::string constant(const std::string &name, unsigned value) {
    return "  " + name + " = llvm.mlir.constant(" + std::to_string(value) +
           " : i32) : i32\n";
  }
  static std::string address(const std::string &name, const std::string &base,
                             const std::string &index,
                             const std::string &space) {
    return "  " + name + " = llvm.getelementptr " + base + "[" + index +
           "] : (!llvm.ptr<" + space + ">, i32) -> !llvm.ptr<" + space +
           ">, i32\n";
  }

  void expectProduct(const Matrix &a, const Matrix &b, unsigned step) {
    for (unsigned thread = 0; thread < 128; ++thread)
      for (unsigned r = 0; r < kResults; ++r) {
        unsigned row = thread / 32 * 16 + thread % 32 / 4 + r % 4 / 2 * 8;
        unsigned column = r / 4 * 8 + thread % 4 * 2 + r % 2;
        float expected = 1;
        for (unsigned k = 16 * step; k < 16 * step + 16; ++k)
          expected += a.value(row, k) * b.value(column, k);
        ASSERT_EQ(out[thread * kResults + r], expected)
            << "row " << row << ", column " << column;
      }
  }

  void expectFailure(const Status &status, const std::string &what) {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(what), std::string::npos)
        << status.message();
  }

  std::vector<uint32_t> in;
  std::vector<float> out;
  Matrix a = {64, 64, 128, false}, b = {kColumns, 64, 128, false, 8192};
};

} // namespace

TEST_F(WarpgroupTest, AllSwizzles_AreMultiplied) {
  for (unsigned aBytes : {32, 64, 128})
    for (unsigned bBytes : {32, 64, 128})
      for (bool aAcross : {false, true})
        for (bool bAcross : {false, true}) {
          // 16 elements further on: in a swizzle atom column of 64 bytes or
          // more, or in any rows.
          unsigned step = (aAcross || aBytes > 32) && (bAcross || bBytes > 32);
          a = {64, aAcross ? 32 : aBytes / 2, aBytes, aAcross};
          b = {kColumns, bAcross ? 32 : bBytes / 2, bBytes, bAcross, 8192};
          if (bAcross && bBytes > 32)
            continue; // 16 columns are a swizzle atom column of 32 bytes.
          ASSERT_TRUE(succeeds(run(a, b, false, step)));
          SCOPED_TRACE(testing::Message()
                       << aBytes << aAcross << bBytes << bAcross);
          ASSERT_NO_FATAL_FAILURE(expectProduct(a, b, step));
        }
}

TEST_F(WarpgroupTest, MatricesInRegisters_AreMultiplied) {
  ASSERT_TRUE(succeeds(run(a, b, true, 2)));
  expectProduct(a, b, 2);
}

TEST_F(WarpgroupTest, MissingFence_IsFound) {
  Order order;
  order.fenced = "";
  expectFailure(run(a, b, false, 0, order), "no wgmma.fence stands before");
}

TEST_F(WarpgroupTest, ResultNotAwaited_IsFound) {
  Order order;
  order.waits = "1";
  expectFailure(run(a, b, false, 0, order), "has not been waited for");
}

TEST_F(WarpgroupTest, WriteToWhatWgmmaReads_IsFound) {
  Order order;
  order.issued = "  nvvm.barrier\n  %first = llvm.getelementptr %shared[%tid] "
                 ": (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32\n"
                 "  llvm.store %tid, %first : i32, !llvm.ptr<3>\n";
  expectFailure(run(a, b, false, 0, order), "changes while a product reads it");
}

TEST_F(WarpgroupTest, WaitWithManyValues_KeepsThem) {
  // What two heads of 256 columns sum at once: 256 values a thread.
  constexpr unsigned values = 256;
  std::string outputs, ties, operands, types;
  for (unsigned r = 0; r < values; ++r) {
    outputs += r ? ",=f" : "=f";
    ties += "," + std::to_string(r);
    operands += r ? ", %x" : "%x";
    types += r ? ", f32" : "f32";
  }
  std::string results = "!llvm.struct<(" + types + ")>";
  std::string text =
      "llvm.func @k(%out: !llvm.ptr<1>) attributes {nvvm.kernel, nvvm.reqntid "
      "= array<i32: 128, 1, 1>, nsa.shared_bytes = 0 : i64} {\n"
      "  %tid = nvvm.read.ptx.sreg.tid.x : i32\n"
      "  %x = llvm.mlir.constant(3.0 : f32) : f32\n"
      "  %w = llvm.inline_asm has_side_effects "
      "\"wgmma.wait_group.sync.aligned 0;\", \"" +
      outputs + ties + "\" " + operands + " : (" + types + ") -> " + results +
      "\n  %y = llvm.extractvalue %w[255] : " + results + "\n" +
      address("%p", "%out", "%tid", "1") +
      "  llvm.store %y, %p : f32, !llvm.ptr<1>\n  llvm.return\n}\n";
  Result<std::unique_ptr<Emulator>> emulator = Emulator::parse(text);
  ASSERT_TRUE(bool(emulator)) << emulator.takeError().message;
  out.assign(128, 0);
  ASSERT_TRUE(succeeds((*emulator)->launch(
      "k", {}, {{reinterpret_cast<char *>(out.data()), 512, true}})));
  EXPECT_EQ(out, std::vector<float>(128, 3));
}
