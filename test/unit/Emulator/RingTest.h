//===- RingTest.h - kernels with tensor copies and mbarriers ----*- C++ -*-===//

#ifndef NSA_TEST_UNIT_EMULATOR_RINGTEST_H
#define NSA_TEST_UNIT_EMULATOR_RINGTEST_H

#include "test/unit/Emulator/Emulator.h"

#include <cctype>
#include <gtest/gtest.h>
#include <numeric>

namespace nsa::emulator::test {

inline std::string constant(const std::string &name, int64_t value) {
  return "  " + name + " = llvm.mlir.constant(" + std::to_string(value) +
         " : i32) : i32\n";
}

/// `%p = the address of byte %offset from %base on`.
inline std::string byte(const std::string &p, const std::string &base,
                        const std::string &offset) {
  std::string type = base == "%out" ? "!llvm.ptr<1>" : "!llvm.ptr<3>";
  return "  " + p + " = llvm.getelementptr " + base + "[" + offset + "] : (" +
         type + ", i32) -> " + type + ", i8\n";
}

/// What nvvm.mbarrier.try_wait.parity becomes.
inline std::string wait(const std::string &barrier, const std::string &parity) {
  return "  llvm.inline_asm has_side_effects asm_dialect = att "
         "\"{\\0A\\09.reg .pred       P1; \\0A\\09LAB_WAIT: "
         "\\0A\\09mbarrier.try_wait.parity.shared.b64 P1, [$0], $1, $2; "
         "\\0A\\09@P1 bra.uni DONE; \\0A\\09bra.uni     LAB_WAIT; "
         "\\0A\\09DONE: \\0A\\09}\", \"r,r,r\" " +
         barrier + ", " + parity + ", %c1 : (!llvm.ptr<3>, i32, i32) -> ()\n";
}

inline std::string copyBox(const std::string &to, const std::string &barrier,
                           const std::string &coordinates) {
  return "  nvvm.cp.async.bulk.tensor.shared.cluster.global " + to +
         ", %map, " + barrier + ", box[" + coordinates +
         "] {isCTAOnly = true} : !llvm.ptr<3>, !llvm.ptr\n";
}

inline std::string make(const std::string &barrier,
                        const std::string &threads) {
  return "  nvvm.mbarrier.init " + barrier + ", " + threads +
         " : !llvm.ptr<3>, i32\n";
}

inline std::string expect(const std::string &barrier,
                          const std::string &bytes) {
  return "  nvvm.mbarrier.arrive.expect_tx " + barrier + ", " + bytes +
         " : !llvm.ptr<3>, i32\n";
}

inline std::string arrive(const std::string &barrier,
                          const std::string &state) {
  return "  " + state + " = nvvm.mbarrier.arrive " + barrier +
         " : !llvm.ptr<3> -> i64\n";
}

inline const std::string barrier = "  nvvm.barrier\n";
inline const std::string fence = "  nvvm.fence.mbarrier.init\n";

/// Tiles of three dimensions of bf16: 8 rows as long as the swizzle, or 64
/// bytes without. The tensor has other extents than boxes fit in.
struct Tiles {
  unsigned swizzle;
  unsigned count = 6;

  int rowElements() const { return int(swizzle ? swizzle : 64) / 2; }
  unsigned bytes() const { return unsigned(rowElements()) * 2 * 8; }
  int extent(unsigned d) const {
    return d == 0 ? rowElements() * 2 + 8 : d == 1 ? 5 : 11;
  }
  int box(unsigned d) const { return d == 0 ? rowElements() : d == 1 ? 2 : 4; }
  /// Elements from tile to tile, and the offset of the first.
  static constexpr int kStep[3] = {24, 1, 3}, kFirst[3] = {-16, -1, -2};

  uint16_t value(int x, int y, int z) const {
    if (x < 0 || y < 0 || z < 0 || x >= extent(0) || y >= extent(1) ||
        z >= extent(2))
      return 0;
    return uint16_t(1 + x + extent(0) * (y + extent(1) * z));
  }
  std::vector<uint16_t> tensor() const {
    std::vector<uint16_t> all(size_t(extent(0) * extent(1) * extent(2)));
    std::iota(all.begin(), all.end(), uint16_t(1));
    return all;
  }
  /// A tile as the ISA draws it: pieces of 16 bytes are permuted.
  std::vector<uint16_t> tile(unsigned number) const {
    std::vector<uint16_t> all(bytes() / 2);
    for (int z = 0; z < box(2); ++z)
      for (int y = 0; y < box(1); ++y)
        for (int x = 0; x < box(0); ++x) {
          auto at = unsigned((z * box(1) + y) * box(0) + x) * 2;
          if (swizzle)
            at ^= at / 128 % (swizzle / 16) * 16;
          auto n = int(number);
          all[at / 2] =
              value(x + n * kStep[0] + kFirst[0], y + n * kStep[1] + kFirst[1],
                    z + n * kStep[2] + kFirst[2]);
        }
    return all;
  }
  std::string map() const {
    auto text = [](auto... numbers) {
      std::string list;
      ((list +=
        (list.empty() ? "array<i64: " : ", ") + std::to_string(numbers)),
       ...);
      return list + ">";
    };
    return "#rt.tensor_map<argument = 0, element = bf16, extents = " +
           text(extent(0), extent(1), extent(2)) +
           ", strides = " + text(extent(0) * 2, extent(0) * extent(1) * 2) +
           ", box = " + text(box(0), box(1), box(2)) +
           ", swizzle = " + std::to_string(swizzle) + ">";
  }
};

/// Two warps read what one thread of a third, the last or the first one, has
/// copied to two stages in turn. Those of a stage are called %data, %full,
/// %empty and %phase; %parity is that of the phase before.
struct Ring {
  std::string made = make("%full0", "%c1") + make("%full1", "%c1") +
                     make("%empty0", "%c64") + make("%empty1", "%c64");
  std::string shown = fence, met = barrier;
  std::string empty = wait("%empty", "%parity");
  std::string expected = expect("%full", "%bytes");
  std::string copied = copyBox("%data", "%full", "%x, %y, %z");
  std::string full = wait("%full", "%phase");
  /// Ends with a jump to ^next.
  std::string released = arrive("%empty", "%state") + "  llvm.br ^next\n";
  int64_t bytes = 0;
  bool producerFirst = false;
};

class RingTest : public testing::Test {
protected:
  /// Runs a body with the argument of the tiles, the output, and shared memory
  /// of two tiles, then four mbarriers.
  Status run(const std::string &body, unsigned threads) {
    std::string text =
        "llvm.mlir.global external @shared() {addr_space = 3 : i32, "
        "alignment = 1024 : i64} : !llvm.array<0 x i8>\n"
        "llvm.func @k(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %map: !llvm.ptr "
        "{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, "
        "nvvm.grid_constant}) attributes {nvvm.kernel, nvvm.reqntid = "
        "array<i32: " +
        std::to_string(threads) + ", 1, 1>, nsa.shared_bytes = " +
        std::to_string(2 * tiles.bytes() + 32) + " : i64, nsa.tensor_maps = [" +
        tiles.map() +
        "]} {\n  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>\n"
        "  %tid = nvvm.read.ptx.sreg.tid.x : i32\n" +
        constant("%all", -1);
    for (int number : {0, 1, 2, 8, 16, 31, 32, 64})
      text += constant("%c" + std::to_string(number), number);
    int at = int(2 * tiles.bytes());
    for (const char *name : {"full0", "full1", "empty0", "empty1"}) {
      std::string n(name);
      text += constant("%at_" + n, at) + byte("%" + n, "%shared", "%at_" + n);
      at += 8;
    }
    text += constant("%size", tiles.bytes()) + body + "  llvm.return\n}\n";
    Result<std::unique_ptr<Emulator>> emulator = Emulator::parse(text);
    if (!emulator)
      return emulator.takeError();
    if (in.empty())
      in = tiles.tensor();
    out.assign(std::max<size_t>(tiles.bytes() / 2 * tiles.count, 256), 0xABCD);
    auto data = [](auto &list) {
      return reinterpret_cast<char *>(list.data());
    };
    return (*emulator)->launch(
        "k", {},
        {{data(in), in.size() * 2, false}, {data(out), out.size() * 2, true}});
  }

  /// Defines the names of the stage of tile `t`.
  static std::string place(const std::string &t) {
    return "  %s = llvm.and " + t + ", %c1 : i32\n  %turn = llvm.lshr " + t +
           ", %c1 : i32\n  %phase = llvm.and %turn, %c1 : i32\n"
           "  %parity = llvm.xor %phase, %c1 : i32\n"
           "  %start = llvm.mul %s, %size : i32\n"
           "  %s8 = llvm.mul %s, %c8 : i32\n" +
           byte("%data", "%shared", "%start") + byte("%full", "%full0", "%s8") +
           byte("%empty", "%empty0", "%s8");
  }
  /// The producer's names are others than the consumers'.
  static std::string withSuffix(std::string text, const std::string &suffix) {
    for (const char *name : {"%turn", "%phase", "%parity", "%start", "%s8",
                             "%data", "%full", "%empty", "%s"}) {
      std::string n(name);
      for (size_t at = 0; (at = text.find(n, at)) != std::string::npos;) {
        at += n.size();
        if (!std::isalnum(text[at]) && text[at] != '_') {
          text.insert(at, suffix);
          at += suffix.size();
        }
      }
    }
    return text;
  }

  Status run(const Ring &ring) {
    std::string body =
        constant("%tiles", tiles.count) +
        constant("%bytes", ring.bytes ? ring.bytes : tiles.bytes()) +
        "  %isFirst = llvm.icmp \"eq\" %tid, %c0 : i32\n"
        "  llvm.cond_br %isFirst, ^make, ^made\n^make:\n" +
        ring.made + ring.shown + "  llvm.br ^made\n^made:\n" + ring.met +
        (ring.producerFirst
             ? "  %reads = llvm.icmp \"uge\" %tid, %c32 : i32\n"
               "  %own = llvm.sub %tid, %c32 : i32\n"
               "  %copies = llvm.icmp \"eq\" %tid, %c0 : i32\n"
             : "  %reads = llvm.icmp \"ult\" %tid, %c64 : i32\n"
               "  %own = llvm.add %tid, %c0 : i32\n"
               "  %copies = llvm.icmp \"eq\" %tid, %c64 : i32\n") +
        "  llvm.cond_br %reads, ^consume(%c0 : i32), ^elect\n^elect:\n"
        "  llvm.cond_br %copies, ^produce(%c0 : i32), ^end\n"
        "^produce(%t: i32):\n" +
        withSuffix(place("%t") + ring.empty + ring.expected, "_p");
    for (unsigned d = 0; d < 3; ++d) {
      std::string n(1, char('x' + d));
      body += constant("%step" + n, Tiles::kStep[d]) +
              constant("%first" + n, Tiles::kFirst[d]) + "  %off" + n +
              " = llvm.mul %t, %step" + n + " : i32\n  %" + n +
              " = llvm.add %off" + n + ", %first" + n + " : i32\n";
    }
    body += withSuffix(ring.copied, "_p") +
            "  %tn = llvm.add %t, %c1 : i32\n"
            "  %more = llvm.icmp \"ult\" %tn, %tiles : i32\n"
            "  llvm.cond_br %more, ^produce(%tn : i32), ^end\n"
            "^consume(%u: i32):\n" +
            withSuffix(place("%u") + ring.full, "_c");
    for (unsigned word = 0; word < tiles.bytes() / 4; word += 64) {
      std::string n = std::to_string(word / 64);
      body += constant("%w" + n, word) + "  %v" + n + " = llvm.add %own, %w" +
              n + " : i32\n  %i" + n + " = llvm.shl %v" + n + ", %c2 : i32\n" +
              byte("%p" + n, "%data_c", "%i" + n) + "  %value" + n +
              " = llvm.load %p" + n + " : !llvm.ptr<3> -> i32\n  %o" + n +
              " = llvm.mul %u, %size : i32\n  %j" + n + " = llvm.add %o" + n +
              ", %i" + n + " : i32\n" + byte("%q" + n, "%out", "%j" + n) +
              "  llvm.store %value" + n + ", %q" + n + " : i32, !llvm.ptr<1>\n";
    }
    body += withSuffix(ring.released, "_c") +
            "^next:\n  %un = llvm.add %u, %c1 : i32\n"
            "  %again = llvm.icmp \"ult\" %un, %tiles : i32\n"
            "  llvm.cond_br %again, ^consume(%un : i32), ^end\n^end:\n";
    return run(body, 96);
  }

  void expectTiles() {
    for (unsigned n = 0; n < tiles.count; ++n) {
      std::vector<uint16_t> expected = tiles.tile(n);
      size_t start = n * expected.size();
      for (size_t k = 0; k < expected.size(); ++k)
        ASSERT_EQ(out[start + k], expected[k])
            << "tile " << n << ", element " << k;
    }
  }

  void expectFailure(const Status &status, const std::string &what) {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(what), std::string::npos)
        << status.message();
  }

  Tiles tiles = {128};
  std::vector<uint16_t> in, out;
};

inline const std::string behindCopy = "  llvm.br ^copied\n^copied:\n";

/// One thread's copy to the first stage; all know of its mbarrier.
inline std::string copyOnce(const std::string &copied,
                            const std::string &before = "",
                            const std::string &to = "%shared") {
  return "  %isFirst = llvm.icmp \"eq\" %tid, %c0 : i32\n" + before +
         "  llvm.cond_br %isFirst, ^make, ^made\n^make:\n" +
         make("%full0", "%c1") + fence + "  llvm.br ^made\n^made:\n" + barrier +
         "  llvm.cond_br %isFirst, ^copy, ^copied\n^copy:\n" +
         expect("%full0", "%size") + copyBox(to, "%full0", "%c0, %c0, %c0") +
         copied;
}

} // namespace nsa::emulator::test

#endif // NSA_TEST_UNIT_EMULATOR_RINGTEST_H
