//===- ArtifactBuilder.cpp - artefacts made by hand -----------------------===//

#include "test/unit/Runtime/ArtifactBuilder.h"
#include "lib/Support/Files.h"
#include "nsa/Artifact/LaunchOverlap.h"

using namespace nsa;
using artifact::Action;

ArtifactBuilder::Slice ArtifactBuilder::place(SegmentKind kind,
                                              uint64_t bytes) {
  uint64_t &size = sizes[unsigned(kind)];
  Slice slice(unsigned(kind), size, bytes);
  size += (bytes + 63) / 64 * 64;
  return slice;
}

unsigned ArtifactBuilder::tensor(const std::string &name, DataType type,
                                 const std::vector<uint64_t> &shape,
                                 TensorRole role, InitKind init, double value,
                                 const std::vector<double> &frequencies) {
  uint64_t bytes = elementBytes(type);
  for (uint64_t size : shape)
    bytes *= size;
  bool io = role == TensorRole::Input || role == TensorRole::Output;
  Slice slice = place(io ? SegmentKind::IO : SegmentKind::Persistent, bytes);
  tensorSlices.push_back(slice);
  tensors.push_back(artifact::CreateTensorDirect(
      builder, name.c_str(), type, &shape, &slice, role, init, value,
      /*decay=*/false, /*state=*/nullptr,
      frequencies.empty() ? nullptr : &frequencies));
  return unsigned(tensors.size() - 1);
}

unsigned ArtifactBuilder::kernel(
    const std::string &name, const std::string &symbol, uint32_t programs,
    const std::vector<uint64_t> &bytes, unsigned outputs,
    const std::vector<artifact::Rows> &rows, const std::vector<Map> &maps,
    DataType type, const std::vector<artifact::Selection> &selections) {
  auto types =
      builder.CreateVector(std::vector<uint8_t>(bytes.size(), uint8_t(type)));
  auto sizes = builder.CreateVector(bytes);
  auto layouts = builder.CreateVectorOfStructs(rows);
  std::vector<flatbuffers::Offset<artifact::TensorMap>> list;
  list.reserve(maps.size());
  for (const Map &map : maps)
    list.push_back(artifact::CreateTensorMapDirect(builder, map.argument,
                                                   &map.extents, &map.strides,
                                                   &map.box, map.swizzle));
  auto tensorMaps = builder.CreateVector(list);
  auto selectionList = builder.CreateVectorOfStructs(selections);
  auto nameOffset = builder.CreateString(name);
  auto symbolOffset = builder.CreateString(symbol);
  artifact::KernelBuilder kernel(builder);
  kernel.add_name(nameOffset);
  kernel.add_symbol(symbolOffset);
  kernel.add_grid_x(programs);
  kernel.add_arguments(unsigned(bytes.size()));
  kernel.add_outputs(outputs);
  kernel.add_stack_bytes(1024);
  kernel.add_flops(2 * programs);
  kernel.add_bytes(4 * programs);
  if (target != artifact::cpuTarget)
    kernel.add_threads(128);
  kernel.add_argument_types(types.o);
  kernel.add_argument_bytes(sizes);
  if (!rows.empty())
    kernel.add_argument_rows(layouts);
  if (!maps.empty())
    kernel.add_tensor_maps(tensorMaps);
  if (!selections.empty())
    kernel.add_selections(selectionList);
  kernels.push_back(kernel.Finish());
  return unsigned(kernels.size() - 1);
}

ArtifactBuilder::Command
ArtifactBuilder::command(Action action, flatbuffers::Offset<void> table) {
  locations.push_back(source + ":" + std::to_string(locations.size()) + ":3");
  return artifact::CreateCommand(builder, action, table,
                                 unsigned(locations.size() - 1));
}

ArtifactBuilder::Command
ArtifactBuilder::launch(unsigned kernel, const std::vector<Slice> &operands) {
  return command(
      Action::Launch,
      artifact::CreateLaunchDirect(builder, kernel, &operands).Union());
}

ArtifactBuilder::Command
ArtifactBuilder::gemm(uint64_t m, uint64_t n, uint64_t k, Slice lhs, Slice rhs,
                      Slice out, float beta, DataType type, bool transposeLhs,
                      bool transposeRhs, float alpha, const Slice *addend,
                      uint64_t batch) {
  Slice workspace =
      place(SegmentKind::Workspace,
            gemmWorkspace(m, n, k, type, type, type, batch).bytes);
  return command(Action::Gemm, artifact::CreateGemm(
                                   builder, m, n, k, transposeLhs, transposeRhs,
                                   type, type, type, beta, &lhs, &rhs, &out,
                                   &workspace, alpha, addend, batch)
                                   .Union());
}

ArtifactBuilder::Command ArtifactBuilder::fill(Slice out, double value,
                                               DataType type) {
  return command(Action::Fill,
                 artifact::CreateFill(builder, type, value, &out).Union());
}

ArtifactBuilder::Command ArtifactBuilder::copy(Slice source, Slice out,
                                               artifact::CopyPart part,
                                               uint64_t sequences,
                                               uint64_t halo) {
  return command(Action::Copy,
                 artifact::CreateCopy(builder, &source, &out, part, sequences,
                                      artifact::ChunkPattern::Halo, halo)
                     .Union());
}

ArtifactBuilder::Command
ArtifactBuilder::startReduction(Slice memory, DataType type,
                                CollectiveKind kind, uint64_t sequences,
                                const Slice *rows, bool grouped) {
  return command(Action::CollectiveStart,
                 artifact::CreateCollectiveStart(builder, &memory, type, kind,
                                                 sequences, rows, grouped)
                     .Union());
}

ArtifactBuilder::Command ArtifactBuilder::finishReduction(Slice memory) {
  return command(Action::CollectiveDone,
                 artifact::CreateCollectiveDone(builder, &memory).Union());
}

ArtifactBuilder::Command ArtifactBuilder::initialize(unsigned tensor) {
  return command(Action::Initialize,
                 artifact::CreateInitialize(builder, tensor).Union());
}

void ArtifactBuilder::buffer(unsigned entry, Slice slice, unsigned first,
                             unsigned last) {
  peak = std::max(peak, slice.offset() + slice.size());
  buffers.push_back(artifact::CreateBuffer(builder, entry, &slice, first, last,
                                           /*location=*/first + 1));
}

void ArtifactBuilder::entry(const std::string &name,
                            const std::vector<unsigned> &inputs,
                            const std::vector<unsigned> &outputs,
                            const std::vector<Command> &commands) {
  entries.push_back(
      artifact::CreateEntryDirect(builder, name.c_str(), &inputs, &outputs,
                                  &commands, std::exchange(peak, uint64_t(0))));
}

std::string ArtifactBuilder::finish() {
  std::vector<flatbuffers::Offset<artifact::Segment>> segments;
  // That of the host where something lies there.
  unsigned count = sizes[4] ? 5 : 4;
  segments.reserve(count);
  for (unsigned kind = 0; kind < count; ++kind)
    segments.push_back(
        artifact::CreateSegment(builder, SegmentKind(kind), sizes[kind]));
  std::vector<flatbuffers::Offset<artifact::Binary>> binaries;
  bool isCPU = target == artifact::cpuTarget;
  if (isCPU)
    gpuFormats = {artifact::objectsFormat};
  if (binaryPath && binaryPath->empty())
    binaryPath = isCPU ? NSA_TEST_OBJECTS : NSA_TEST_KERNELS;
  Result<std::string> file = readFile(binaryPath.value_or("/dev/null"));
  std::vector<uint8_t> bytes(file->begin(), file->end());
  if (binaryPath)
    for (const char *format : gpuFormats)
      binaries.push_back(artifact::CreateBinaryDirect(builder, format, &bytes));
  std::vector<flatbuffers::Offset<flatbuffers::String>> featureOffsets,
      locationOffsets;
  for (const std::string &feature : features)
    featureOffsets.push_back(builder.CreateString(feature));
  for (const std::string &location : locations)
    locationOffsets.push_back(builder.CreateString(location));
  std::vector<flatbuffers::Offset<artifact::Option>> options = {
      artifact::CreateOptionDirect(builder, "precision", "fp32")};
  if (!overlappedEntry.empty())
    options.push_back(artifact::CreateOptionDirect(
        builder, artifact::overlappedEntryOption, overlappedEntry.c_str()));
  builder.Finish(artifact::CreateArtifactDirect(
                     builder, "test 1.0", target.c_str(), "x86-64-v3",
                     &featureOffsets, &segments, &tensors, &kernels, &entries,
                     &binaries, &buffers, &locationOffsets, &options, nullptr,
                     ranks, /*identity=*/0, /*extents=*/0, sequenceRanks),
                 artifact::ArtifactIdentifier());
  return seal(
      std::string(reinterpret_cast<const char *>(builder.GetBufferPointer()),
                  builder.GetSize()));
}

std::string ArtifactBuilder::seal(const std::string &payload) {
  artifact::FileHeader header =
      artifact::makeFileHeader(payload.size(), hashBytes(payload));
  return std::string(reinterpret_cast<const char *>(&header), sizeof header) +
         payload;
}

std::string nsa::makeTestArtifact(const std::string &target,
                                  const std::vector<const char *> &gpuFormats) {
  using InitKind = artifact::InitKind;
  ArtifactBuilder b;
  b.target = target;
  b.gpuFormats = gpuFormats;
  b.binary();
  unsigned w = b.tensor("w", DataType::F32, {8, 16}, TensorRole::Parameter,
                        InitKind::Normal, 0.5);
  unsigned rope = b.tensor("rope", DataType::F32, {32, 4, 2},
                           TensorRole::Constant, InitKind::Rotary, 10000);
  unsigned bias = b.tensor("bias", DataType::F32, {4, 16},
                           TensorRole::Parameter, InitKind::Constant, 3);
  unsigned x = b.tensor("x", DataType::F32, {4, 8}, TensorRole::Input);
  unsigned y = b.tensor("y", DataType::F32, {4, 16}, TensorRole::Output);
  unsigned loss = b.tensor("loss", DataType::F32, {}, TensorRole::Output);
  unsigned ids = b.tensor("ids", DataType::F32, {1000}, TensorRole::Output);
  unsigned pole = b.tensor("pole", DataType::F32, {1}, TensorRole::Output);
  unsigned add = b.kernel("add_rows", "test_add", 4, {256, 256, 256}, 1);
  unsigned number = b.kernel("number", "test_number", 1000, {4000}, 1);
  unsigned log = b.kernel("pole", "test_pole", 1, {4, 4}, 1);

  b.entry("init", {}, {w, rope, bias},
          {b.initialize(w), b.initialize(rope), b.initialize(bias)});
  ArtifactBuilder::Slice product = b.arena(256), value = b.arena(4);
  b.buffer(1, product, 1, 2);
  b.entry("eval", {x, w, bias}, {y, loss},
          {b.fill(product, 7), b.gemm(4, 16, 8, b.of(x), b.of(w), product),
           b.launch(add, {product, b.of(bias), b.of(y)}),
           b.copy({1, b.of(y).offset(), 4}, b.of(loss))});
  b.entry("ids", {}, {ids}, {b.launch(number, {b.of(ids)})});
  b.buffer(3, value, 0, 1);
  b.entry("poles", {}, {pole},
          {b.fill(value, 0), b.launch(log, {value, b.of(pole)}),
           b.fill(value, -1), b.launch(log, {value, b.of(pole)})});
  return b.finish();
}

std::string
nsa::makeSelectionArtifact(const std::string &target,
                           const std::vector<artifact::Selection> &selections) {
  ArtifactBuilder b;
  b.target = target;
  b.binary();
  unsigned in =
      b.tensor("indices", DataType::I32, {1, 1, 4, 1}, TensorRole::Input);
  unsigned kernel = b.kernel("column", "test_column", 4, {16, 52}, 1, {}, {},
                             DataType::I32, selections);
  b.entry("main", {in}, {}, {b.launch(kernel, {b.of(in), b.arena(52)})});
  return b.finish();
}
