//===- ArtifactBuilder.h - artefacts made by hand ---------------*- C++ -*-===//

#ifndef NSA_TEST_UNIT_RUNTIME_ARTIFACTBUILDER_H
#define NSA_TEST_UNIT_RUNTIME_ARTIFACTBUILDER_H

#include "lib/Support/Hash.h"
#include "nsa/Artifact/Artifact.h"
#include "nsa/Artifact/GemmWorkspace.h"

#include <string>
#include <vector>

namespace nsa {

/// Collects the parts of an artefact and lays its slices out one after the
/// other, each segment numbered by its kind.
class ArtifactBuilder {
public:
  using Slice = artifact::Slice;
  using SegmentKind = artifact::SegmentKind;
  using InitKind = artifact::InitKind;
  using Command = flatbuffers::Offset<artifact::Command>;

  /// A new slice of `bytes` bytes.
  Slice place(SegmentKind kind, uint64_t bytes);
  Slice arena(uint64_t bytes) { return place(SegmentKind::Arena, bytes); }

  /// A new named tensor: inputs and outputs in the io segment, all others in
  /// the persistent one. Returns its index.
  unsigned tensor(const std::string &name, DataType type,
                  const std::vector<uint64_t> &shape, TensorRole role,
                  InitKind init = InitKind::None, double value = 0,
                  const std::vector<double> &frequencies = {});

  /// The slice of a tensor.
  Slice of(unsigned tensor) const { return tensorSlices[tensor]; }

  /// A tensor map of an argument of a kernel.
  struct Map {
    uint32_t argument;
    std::vector<uint64_t> extents, strides;
    std::vector<uint32_t> box;
    uint32_t swizzle;
  };

  /// A kernel of the test's library with one argument of `type` per element of
  /// `bytes`. Returns its index.
  unsigned kernel(const std::string &name, const std::string &symbol,
                  uint32_t programs, const std::vector<uint64_t> &bytes,
                  unsigned outputs,
                  const std::vector<artifact::Rows> &rows = {},
                  const std::vector<Map> &maps = {},
                  DataType type = DataType::F32,
                  const std::vector<artifact::Selection> &selections = {});

  Command launch(unsigned kernel, const std::vector<Slice> &operands);
  Command gemm(uint64_t m, uint64_t n, uint64_t k, Slice lhs, Slice rhs,
               Slice out, float beta = 0, DataType type = DataType::F32,
               bool transposeLhs = false, bool transposeRhs = false,
               float alpha = 1, const Slice *addend = nullptr,
               uint64_t batch = 1);
  Command fill(Slice out, double value, DataType type = DataType::F32);
  Command copy(Slice source, Slice out,
               artifact::CopyPart part = artifact::CopyPart::None,
               uint64_t sequences = 0, uint64_t halo = 0);
  Command startReduction(Slice memory, DataType type = DataType::F32,
                         CollectiveKind kind = CollectiveKind::AllReduce,
                         uint64_t sequences = 0, const Slice *rows = nullptr,
                         bool grouped = false);
  Command finishReduction(Slice memory);
  Command initialize(unsigned tensor);

  /// A live range for the memory map.
  void buffer(unsigned entry, Slice slice, unsigned first, unsigned last);
  void entry(const std::string &name, const std::vector<unsigned> &inputs,
             const std::vector<unsigned> &outputs,
             const std::vector<Command> &commands);

  /// What the build made of Kernels.c: objects for the processor, a shared
  /// object that the stand-in for a GPU takes for a cubin. Or another file.
  void binary(const std::string &path = "") { binaryPath = path; }

  /// The file that the commands' locations name.
  std::string source = "model.mlir";
  std::string target = "cpu";
  /// What the binaries of a program for a GPU are said to be.
  std::vector<const char *> gpuFormats = {artifact::cubinFormat};
  /// The entry whose launches may begin early; none if that is empty.
  std::string overlappedEntry;
  /// The number of ranks that run it; 0 for any.
  uint32_t ranks = 0;
  /// Those that share a sequence.
  uint32_t sequenceRanks = 1;
  std::vector<std::string> features;

  /// The contents of the file. Ends the builder's use.
  std::string finish();

  /// A header for any payload, with its hash.
  static std::string seal(const std::string &payload);

private:
  Command command(artifact::Action action, flatbuffers::Offset<void> table);

  flatbuffers::FlatBufferBuilder builder;
  uint64_t sizes[5] = {};
  uint64_t peak = 0;
  std::vector<Slice> tensorSlices;
  std::vector<uint32_t> kernelArguments;
  std::vector<std::string> locations = {"unknown"};
  std::optional<std::string> binaryPath;
  std::vector<flatbuffers::Offset<artifact::Tensor>> tensors;
  std::vector<flatbuffers::Offset<artifact::Kernel>> kernels;
  std::vector<flatbuffers::Offset<artifact::Entry>> entries;
  std::vector<flatbuffers::Offset<artifact::Buffer>> buffers;
};

/// A program that uses every kind of command. Its entries:
///   init:  w (8x16, normal 0.5), rope, bias (constant 3)
///   eval:  y (4x16) = x (4x8) * w + bias rows, through the arena; loss = y's
///          first element
///   ids:   ids[i] = i, one program each
///   poles: out = the logarithm of a filled value, not finite for 0 and -1
/// For a GPU its code is said to be there in each of `gpuFormats`.
std::string makeTestArtifact(const std::string &target = "cpu",
                             const std::vector<const char *> &gpuFormats = {
                                 artifact::cubinFormat});

/// An entry `main` that reads for each of 4 tokens, from the input `indices`
/// (i32), the number of one block of 2 tokens. Or one whose `selections` say
/// something else of it.
std::string
makeSelectionArtifact(const std::string &target = "cpu",
                      const std::vector<artifact::Selection> &selections = {
                          artifact::Selection(0, 4, 1, 2)});

} // namespace nsa

#endif // NSA_TEST_UNIT_RUNTIME_ARTIFACTBUILDER_H
