//===- ArtifactTest.cpp - the reader of .nsax files -----------------------===//

#include "runtime/Core/Dump.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"
#include "test/unit/TempDir.h"

#include <functional>
#include <gtest/gtest.h>

using namespace nsa;
using artifact::Slice;

namespace {

Result<Artifact> open(const std::string &bytes) {
  return Artifact::fromBytes(bytes.data(), bytes.size(), "test.nsax");
}

/// The error of opening these bytes.
std::string errorOf(const std::string &bytes) {
  Result<Artifact> artifact = open(bytes);
  EXPECT_FALSE(artifact.ok());
  return artifact ? "" : artifact.message();
}

void expectError(const std::string &bytes, const std::string &part) {
  std::string message = errorOf(bytes);
  EXPECT_TRUE(contains(message, part));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

/// A header field replaced.
std::string
withHeader(std::string bytes,
           const std::function<void(artifact::FileHeader &)> &change) {
  artifact::FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

} // namespace

TEST(Artifact, BuiltArtifact_Opens) {
  Artifact artifact = take(open(makeTestArtifact()));
  EXPECT_EQ(artifact.root().target()->str(), "cpu");
  EXPECT_EQ(artifact.root().entries()->size(), 4u);
  EXPECT_EQ(artifact.name(), "test.nsax");
  EXPECT_EQ(artifact.fileBytes(), makeTestArtifact().size());
}

TEST(Artifact, FileErrors_NameTheFile) {
  TempDir dir;
  dir.write("a.nsax", makeTestArtifact());
  Artifact artifact = take(Artifact::open(dir / "a.nsax"));
  EXPECT_EQ(artifact.hash(), open(makeTestArtifact())->hash());
  EXPECT_TRUE(failsWith(Artifact::open(dir / "b.nsax"), "b.nsax"));
  EXPECT_TRUE(failsWith(Artifact::open(dir.str()), "not a regular file"));
  dir.write("empty.nsax", "");
  EXPECT_TRUE(failsWith(Artifact::open(dir / "empty.nsax"), "0 bytes"));
}

TEST(Artifact, HeaderErrors_SayBothNumbers) {
  std::string bytes = makeTestArtifact();
  expectError("ELF", "3 bytes are fewer than the header's 32");
  expectError(withHeader(bytes, [](auto &h) { h.magic[0] = 'X'; }),
              "does not begin with NSAXFILE");
  expectError(withHeader(bytes, [](auto &h) { h.version = 7; }),
              "format version 7, but this runtime reads versions 3 to 6");
  expectError(withHeader(bytes, [](auto &h) { h.flags = 2; }), "flags 2");
  expectError(withHeader(bytes, [](auto &h) { h.payloadHash ^= 1; }),
              "is corrupted");
  expectError(bytes.substr(0, bytes.size() - 5), "found");
  expectError(bytes + "x", "is truncated or has extra bytes");
}

namespace {

/// With a right hash the verifier and the bounds checks are on their own. What
/// passes them must be safe to print.
void expectNoChangeCrashes(const std::string &bytes) {
  std::string payload = bytes.substr(sizeof(artifact::FileHeader));
  size_t accepted = 0, tried = 0;
  auto attempt = [&](const std::string &changed) {
    ++tried;
    Result<Artifact> artifact = open(ArtifactBuilder::seal(changed));
    if (!artifact.ok())
      return;
    ++accepted;
    DumpOptions everything;
    everything.memory = everything.kernels = everything.program = true;
    EXPECT_FALSE(dumpArtifact(*artifact, everything).empty());
  };
  // The tables lie in the first and the last kilobytes, around the binary.
  for (size_t i = 0; i < payload.size(); ++i) {
    if (i == 6000 && payload.size() > 12000)
      i = payload.size() - 6000;
    for (unsigned char mask : {0x01, 0x10, 0x80, 0xFF}) {
      std::string changed = payload;
      changed[i] = char(changed[i] ^ mask);
      attempt(changed);
    }
  }
  for (size_t size = 0; size < payload.size(); size += 61)
    attempt(payload.substr(0, size));
  EXPECT_GT(accepted, 0u);
  EXPECT_LT(accepted, tried);
}

} // namespace

TEST(Artifact, AnyChangeUnderARightHash_DoesNotCrash) {
  expectNoChangeCrashes(makeTestArtifact());
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

namespace {

/// An artefact of one entry whose one command `make` builds.
std::string withCommand(
    const std::function<ArtifactBuilder::Command(ArtifactBuilder &)> &make) {
  ArtifactBuilder b;
  ArtifactBuilder::Command command = make(b);
  b.entry("main", {}, {}, {command});
  return b.finish();
}

} // namespace

TEST(Artifact, Slices_LieInTheirSegments) {
  expectError(withCommand([](ArtifactBuilder &b) {
                b.arena(64);
                return b.fill(Slice(2, 0, 128), 0);
              }),
              "entry 'main', command 0: fill out has 128 bytes at offset 0 of "
              "segment 2, which has 64");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.arena(64);
                return b.fill(Slice(2, ~uint64_t(3), 64), 0);
              }),
              "fill out has 64 bytes at offset");
  expectError(
      withCommand([](ArtifactBuilder &b) { return b.fill(Slice(9, 0, 0), 0); }),
      "lies in segment 9, but there are 4");
}

TEST(Artifact, Fills_AreWholeElements) {
  expectError(withCommand([](ArtifactBuilder &b) {
                Slice slice = b.arena(64);
                return b.fill(Slice(slice.segment(), 0, 6), 0);
              }),
              "fill out has 6 bytes, which is not a multiple of 4");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.arena(64);
                return b.fill(Slice(2, 2, 4), 0);
              }),
              "offset 2, which is not a multiple of 4");
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.fill(b.arena(64), 1e10, DataType::I32);
              }),
              "does not fit");
}

TEST(Artifact, Launches_FitTheirKernel) {
  expectError(withCommand([](ArtifactBuilder &b) {
                unsigned kernel = b.kernel("k", "k", 1, {64, 64}, 1);
                return b.launch(kernel, {b.arena(64)});
              }),
              "passes 1 operands to kernel 'k', which takes 2");
  expectError(withCommand([](ArtifactBuilder &b) {
                unsigned kernel = b.kernel("k", "k", 1, {64}, 1);
                return b.launch(kernel, {b.arena(32)});
              }),
              "operand 0 has 32 bytes, expected 64");
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.launch(3, {b.arena(32)});
              }),
              "launches kernel 3, but there are 0");
  expectError(withCommand([](ArtifactBuilder &b) {
                unsigned kernel = b.kernel("k", "k", 1, {4}, 1);
                b.arena(64);
                return b.launch(kernel, {Slice(2, 4, 4)});
              }),
              "offset 4, which is not a multiple of 64");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.kernel("k", "k", 1, {4}, 2);
                return b.fill(b.arena(64), 0);
              }),
              "it has 2 outputs, but 1 arguments");
}

TEST(Artifact, Rows_FitTheirArguments) {
  using artifact::Rows;
  auto withRows = [](const std::vector<Rows> &rows) {
    return withCommand([&](ArtifactBuilder &b) {
      unsigned kernel = b.kernel("k", "k", 1, {56, 64}, 1, rows);
      b.arena(128);
      return b.launch(kernel, {Slice(2, 4, 56), Slice(2, 64, 64)});
    });
  };
  // Columns begin anywhere, dense arguments do not.
  EXPECT_TRUE(open(withRows({Rows(2, 4), Rows(16, 16)})).ok());
  expectError(withRows({Rows(14, 14), Rows(16, 16)}),
              "offset 4, which is not a multiple of 64");
  expectError(withRows({Rows(2, 4)}), "rows of 1 arguments for 2 arguments");
  for (Rows rows : {Rows(3, 4), Rows(4, 2), Rows(0, 4), Rows(0, 0),
                    Rows(16, 32), Rows(2, uint64_t(1) << 63)})
    expectError(withRows({rows, Rows(16, 16)}),
                "argument 0 of 14 elements cannot be rows of " +
                    std::to_string(rows.width()));
}

namespace {

using Map = ArtifactBuilder::Map;

/// An artefact for a GPU whose kernel has these tensor maps of a first argument
/// of 4096 bytes, and a second one of 64.
std::string withMaps(const std::vector<Map> &maps,
                     DataType type = DataType::BF16,
                     const std::string &target = "sm_90a") {
  return withCommand([&](ArtifactBuilder &b) {
    b.target = target;
    unsigned kernel = b.kernel("k", "k", 1, {4096, 64}, 1, {}, maps, type);
    return b.launch(kernel, {b.arena(4096), b.arena(64)});
  });
}

} // namespace

TEST(Artifact, TensorMaps_AreThoseOfTheHardware) {
  EXPECT_TRUE(open(withMaps({{0, {64, 8, 4}, {128, 1024}, {64, 8, 2}, 128},
                             {1, {32}, {}, {8}, 0}}))
                  .ok());
  const std::pair<Map, const char *> wrong[] = {
      {{0, {}, {}, {}, 0}, "a tensor map has 1 to 5 dimensions, not 0"},
      {{0, {1, 1, 1, 1, 1, 1}, {16, 16, 16, 16, 16}, {8, 1, 1, 1, 1, 1}, 0},
       "a tensor map has 1 to 5 dimensions, not 6"},
      {{0, {64, 8, 4}, {128}, {64, 8, 2}, 0},
       "a tensor map of 3 dimensions has 2 strides, not 1"},
      {{0, {64, 8, 4}, {128, 1024}, {64, 8}, 0},
       "a tensor map of 3 dimensions has a box of as many, not 2"},
      {{0, {64, 0}, {128}, {64, 1}, 0},
       "extent 0 of dimension 1 is not between 1 and 4294967296"},
      {{0, {(uint64_t(1) << 32) + 1, 1}, {128}, {64, 1}, 0},
       "extent 4294967297 of dimension 0 is not between 1 and 4294967296"},
      {{0, {64, 8}, {0}, {64, 1}, 0}, "stride 0 of dimension 1 is not a"},
      {{0, {64, 8, 4}, {128, 1032}, {64, 1, 1}, 0},
       "stride 1032 of dimension 2 is not a multiple of 16 between 1 and "
       "1099511627775"},
      {{0, {64, 8}, {uint64_t(1) << 40}, {64, 1}, 0},
       "stride 1099511627776 of dimension 1 is not a multiple of 16"},
      {{0, {64, 8}, {128}, {64, 0}, 0},
       "box 0 of dimension 1 is not between 1 and 256"},
      {{0, {64, 8}, {128}, {257, 1}, 0},
       "box 257 of dimension 0 is not between 1 and 256"},
      {{0, {64, 8}, {128}, {12, 1}, 0},
       "a row of the box has 24 bytes, which is not a multiple of 16"},
      {{0, {64, 8}, {128}, {64, 1}, 256},
       "a swizzle of 256 bytes is none of 0, 32, 64 and 128"},
      {{0, {64, 8}, {128}, {64, 1}, 64},
       "a row of the box has 128 bytes, but the swizzle 64"}};
  for (const auto &[map, message] : wrong)
    expectError(withMaps({map}),
                std::string("kernel 'k': tensor map 0: ") + message);
}

TEST(Artifact, TensorMaps_DescribeTheirArgument) {
  Map good = {0, {64, 8, 4}, {128, 1024}, {64, 8, 2}, 128};
  uint64_t most = uint64_t(1) << 32, furthest = (uint64_t(1) << 40) - 16;
  expectError(withMaps({good, {2, {64}, {}, {64}, 0}}),
              "tensor map 1: is of argument 2, but there are 2");
  expectError(withMaps({{1, {33}, {}, {8}, 0}}),
              "describes 66 bytes of argument 1, which has 64");
  expectError(withMaps({{0, {64, 8, 4}, {128, 1040}, {64, 8, 2}, 128}}),
              "describes 4144 bytes of argument 0, which has 4096");
  for (const Map &large :
       {Map{0, {8, most, most}, {furthest, 16}, {8, 1, 1}, 0},
        Map{0,
            {8, 16777217, 16777217, 16777217, 16777217},
            {furthest, furthest, furthest, furthest},
            {8, 1, 1, 1, 1},
            0}})
    expectError(withMaps({large}), "bytes of argument 0, which has 4096");
  expectError(
      withMaps({good}, DataType::I64),
      "argument 0 has elements of type i64, which is none of f32, bf16, "
      "f16 and i32");
  expectError(withMaps({good}, DataType::BF16, "cpu"),
              "it has 1 tensor maps, but is for the target 'cpu'");
}

/// Columns begin anywhere, but not where the TMA unit reads them.
TEST(Artifact, OperandsWithTensorMaps_AreAligned) {
  using artifact::Rows;
  auto at = [](uint64_t offset) {
    return withCommand([&](ArtifactBuilder &b) {
      b.target = "sm_90a";
      unsigned kernel =
          b.kernel("k", "k", 1, {96, 64}, 1, {Rows(8, 16), Rows(16, 16)},
                   {{0, {8, 2}, {64}, {8, 2}, 0}});
      b.arena(256);
      return b.launch(kernel, {Slice(2, offset, 96), Slice(2, 192, 64)});
    });
  };
  EXPECT_TRUE(open(at(16)).ok());
  expectError(at(8), "operand 0 begins at offset 8, which is not a multiple of "
                     "16");
}

TEST(Artifact, AnyChangeOfTensorMaps_DoesNotCrash) {
  expectNoChangeCrashes(withMaps(
      {{0, {64, 8, 4}, {128, 1024}, {64, 8, 2}, 128}, {1, {32}, {}, {8}, 0}}));
}

TEST(Artifact, Selections_InputCannotHoldThem_AreRefused) {
  using artifact::Selection;
  EXPECT_TRUE(open(makeSelectionArtifact()).ok());
  auto error = [](const Selection &selection, const std::string &message) {
    expectError(makeSelectionArtifact("cpu", {selection}), message);
  };
  error(Selection(1, 4, 1, 2),
        "input 1 holds numbers of blocks, but there are 1 inputs");
  for (const Selection &selection :
       {Selection(0, 3, 1, 2), Selection(0, 4, 3, 2), Selection(0, 0, 1, 2),
        Selection(0, 4, 0, 2), Selection(0, 4, 1, 0),
        Selection(0, uint64_t(1) << 63, 2, 2)})
    error(selection, "input 0 of 4 elements cannot hold");
}

TEST(Artifact, AnyChangeOfSelections_DoesNotCrash) {
  expectNoChangeCrashes(makeSelectionArtifact());
}

TEST(Artifact, Dumps_ShowTensorMaps) {
  Artifact artifact = take(open(withMaps(
      {{0, {64, 8, 4}, {128, 1024}, {64, 8, 2}, 128}, {1, {32}, {}, {8}, 0}})));
  DumpOptions options;
  options.kernels = true;
  std::string text = dumpArtifact(artifact, options);
  EXPECT_TRUE(
      contains(text, "\n    tensor map of argument 0: bf16[64x8x4], strides "
                     "[128, 1024], box 64x8x2, swizzle 128\n"
                     "    tensor map of argument 1: bf16[32], strides [], box "
                     "8, swizzle 0\n"));
}

TEST(Artifact, Gemms_FitTheirSlices) {
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.gemm(4, 4, 4, b.arena(64), b.arena(60), b.arena(64));
              }),
              "gemm rhs has 60 bytes, expected 64");
  expectError(withCommand([](ArtifactBuilder &b) {
                Slice out = b.arena(64);
                return b.gemm(4, 4, 4, b.arena(64), out, out);
              }),
              "gemm out overlaps an operand");
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.gemm(uint64_t(1) << 32, 0, 1, b.arena(64), b.arena(60),
                              b.arena(64));
              }),
              "a size is over");
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.gemm(4, 4, 4, b.arena(64), b.arena(64), b.arena(64), 0,
                              DataType::I32);
              }),
              "gemm lhs is not a float tensor");
  auto batch = [](uint64_t count, uint64_t addendBytes, bool isApart) {
    return withCommand([=](ArtifactBuilder &b) {
      Slice out = b.arena(128), apart = b.arena(addendBytes);
      return b.gemm(4, 4, 4, b.arena(128), b.arena(128), out, 1, DataType::F32,
                    false, false, 2, isApart ? &apart : &out, count);
    });
  };
  expectError(batch(0, 128, true), "a batch of 0, which is not from 1 to");
  expectError(batch(3, 128, true), "gemm addend has 128 bytes, expected 192");
  expectError(batch(2, 64, true), "gemm addend has 64 bytes, expected 128");
  expectError(batch(2, 128, false), "gemm out overlaps the addend");
}

TEST(Artifact, Copies_DoNotOverlap) {
  expectError(withCommand([](ArtifactBuilder &b) {
                b.arena(128);
                return b.copy(Slice(2, 0, 64), Slice(2, 32, 64));
              }),
              "copy out overlaps its source");
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.copy(b.arena(64), b.arena(32));
              }),
              "copy out has 32 bytes, expected 64");
}

TEST(Artifact, Parts_AreThoseOfItsRanks) {
  using artifact::CopyPart;
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.copy(b.arena(128), b.arena(64), CopyPart::Source);
              }),
              "copies a rank's part of a program for any number of ranks");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.ranks = 4;
                return b.copy(b.arena(128), b.arena(64), CopyPart::Source);
              }),
              "copy out has 64 bytes, expected 32");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.ranks = 3;
                return b.copy(b.arena(64), b.arena(128), CopyPart::Out);
              }),
              "copies a part of 128 bytes, which 3 ranks do not divide");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.ranks = 3;
                return b.startReduction(b.arena(64), DataType::F32,
                                        CollectiveKind::AllGather);
              }),
              "has parts of 64 bytes for 3 ranks");
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.startReduction(b.arena(64), DataType::F32,
                                        CollectiveKind(7));
              }),
              "unknown collective 7");
}

TEST(Artifact, MemoryOfTheHost_IsCopiedInPartsAlone) {
  using artifact::CopyPart, artifact::SegmentKind;
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.fill(b.place(SegmentKind::Host, 64), 0);
              }),
              "uses memory of the host");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.ranks = 2;
                return b.copy(b.arena(64), b.place(SegmentKind::Host, 128),
                              CopyPart::Out);
              }),
              "uses memory of the host");
  std::string file = withCommand([](ArtifactBuilder &b) {
    b.ranks = 2;
    return b.copy(b.place(SegmentKind::Host, 128), b.arena(64),
                  CopyPart::Source);
  });
  EXPECT_TRUE(open(file).ok());
}

TEST(Artifact, Chunks_AreThoseOfItsSequences) {
  using artifact::CopyPart;
  expectError(withCommand([](ArtifactBuilder &b) {
                return b.copy(b.arena(64), b.arena(32), CopyPart::Source, 1,
                              16);
              }),
              "has chunks of 32 bytes of 64, of 1 sequences for 1 ranks");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.sequenceRanks = 2;
                return b.copy(b.arena(64), b.arena(32), CopyPart::Source, 3,
                              16);
              }),
              "has chunks of 32 bytes of 64, of 3 sequences for 2 ranks");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.sequenceRanks = 2;
                return b.copy(b.arena(64), b.arena(64), CopyPart::Source, 1, 8);
              }),
              "has chunks of 64 bytes of 64, of 1 sequences for 2 ranks");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.sequenceRanks = 2;
                return b.startReduction(b.arena(64), DataType::F32,
                                        CollectiveKind::GatherSequence);
              }),
              "is of 0 sequences, a gather_sequence");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.sequenceRanks = 0;
                return b.fill(b.arena(64), 0);
              }),
              "sequences of 0 ranks, expected 1 to 1024");
}

TEST(Artifact, RowsOfCollectives_AreThisRanksChunks) {
  auto start = [](uint64_t bytes, CollectiveKind kind, uint64_t sequences,
                  bool grouped = false) {
    return withCommand([=](ArtifactBuilder &b) {
      b.sequenceRanks = 2;
      artifact::Slice rows = b.arena(bytes);
      return b.startReduction(b.arena(64), DataType::F32, kind, sequences,
                              &rows, grouped);
    });
  };
  expectError(start(16, CollectiveKind::GatherSequence, 1),
              "has 16 bytes of rows, expected 32 or more in two rows of each "
              "sequence");
  expectError(start(32, CollectiveKind::AllReduce, 0),
              "has rows, a all_reduce");
  expectError(withCommand([](ArtifactBuilder &b) {
                b.sequenceRanks = 2;
                artifact::Slice all = b.arena(64);
                artifact::Slice rows(all.segment(), all.offset(), 32);
                return b.startReduction(all, DataType::F32,
                                        CollectiveKind::GatherSequence, 1,
                                        &rows);
              }),
              "has rows that overlap the sequences");
  expectError(start(32, CollectiveKind::GatherSequence, 1, /*grouped=*/true),
              "has 1 reductions that do not end");
}

TEST(Artifact, InitializedTensors_HaveAValue) {
  expectError(withCommand([](ArtifactBuilder &b) {
                unsigned w =
                    b.tensor("w", DataType::F32, {2}, TensorRole::State);
                return b.initialize(w);
              }),
              "initialises tensor 'w', which has no initial value");
  expectError(withCommand([](ArtifactBuilder &b) {
                unsigned w =
                    b.tensor("w", DataType::F32, {2, 2}, TensorRole::Constant,
                             artifact::InitKind::Rotary, 10000);
                return b.initialize(w);
              }),
              "a rotary table is f32 of shape [L, D/2, 2]");
  expectError(withCommand([](ArtifactBuilder &b) {
                unsigned w = b.tensor(
                    "w", DataType::F32, {8, 2, 2}, TensorRole::Constant,
                    artifact::InitKind::Frequencies, 1, {1, 0.5, 0.25});
                return b.initialize(w);
              }),
              "a rotary table of 2 pairs has 3 frequencies");
}

TEST(Artifact, Names_AreUniqueAndPrintable) {
  ArtifactBuilder twice;
  twice.tensor("w", DataType::F32, {2}, TensorRole::State);
  twice.tensor("w", DataType::F32, {2}, TensorRole::State);
  expectError(twice.finish(), "two tensors are called 'w'");
  ArtifactBuilder control;
  control.tensor("w\n", DataType::F32, {2}, TensorRole::State);
  expectError(control.finish(), "byte 10, which is not a printable character");
  ArtifactBuilder empty;
  empty.entry("", {}, {}, {});
  expectError(empty.finish(), "empty name");
}

TEST(Artifact, ShapesWhoseProductOverflows_AreErrors) {
  ArtifactBuilder b;
  uint64_t large = uint64_t(1) << 63;
  b.tensor("w", DataType::F32, {large, large}, TensorRole::State);
  expectError(b.finish(), "tensor 'w': its slice has a size that does not fit");
  ArtifactBuilder zero;
  zero.tensor("w", DataType::F32, {large, large, 0}, TensorRole::State);
  EXPECT_TRUE(open(zero.finish()).ok());
}

TEST(Artifact, Entries_ListKnownTensors) {
  ArtifactBuilder b;
  b.entry("main", {5}, {}, {});
  expectError(b.finish(), "an input is tensor 5, but there are 0");
}

/// The payload's 8-byte elements lie at addresses that suit them, or the file
/// is refused before any is read.
TEST(Artifact, MisalignedElements_AreErrors) {
  std::string bytes = makeTestArtifact();
  Result<Artifact> artifact = open(bytes);
  ASSERT_TRUE(artifact.ok()) << artifact.message();
  // The reference to a tensor's shape, moved by half an element: its length is
  // then the size of the first dimension. The last tensor, so that as many
  // elements follow in the file.
  const auto &tensors = *artifact->root().tensors();
  const auto *tensor = reinterpret_cast<const flatbuffers::Table *>(
      tensors.Get(tensors.size() - 1));
  const uint8_t *field = tensor->GetAddressOf(artifact::Tensor::VT_SHAPE);
  ASSERT_NE(field, nullptr);
  const auto *root = reinterpret_cast<const uint8_t *>(&artifact->root());
  size_t rootOffset = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(
      bytes.data() + sizeof(artifact::FileHeader));
  std::string payload = bytes.substr(sizeof(artifact::FileHeader));
  size_t at = size_t(field - root) + rootOffset;
  auto reference =
      flatbuffers::ReadScalar<flatbuffers::uoffset_t>(payload.data() + at);
  flatbuffers::WriteScalar<flatbuffers::uoffset_t>(payload.data() + at,
                                                   reference + 4);
  expectError(ArtifactBuilder::seal(payload), "its shape is misaligned");
}
