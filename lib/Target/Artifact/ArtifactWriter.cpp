//===- ArtifactWriter.cpp - a planned program as a .nsax file -------------===//

#include "lib/Target/Artifact/ArtifactWriter.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/NN/NNAttributes.h"
#include "lib/Support/Hash.h"
#include "lib/Support/ModelConfig.h"
#include "lib/Target/Artifact/ExtentWriter.h"
#include "lib/Target/Artifact/ProgramWriter.h"
#include "nsa/Artifact/Format.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace nsa;

namespace fb = flatbuffers;

std::string nsa::formatLocation(Location location) {
  if (auto file = dyn_cast<FileLineColLoc>(location))
    return (llvm::sys::path::filename(file.getFilename().getValue()) + ":" +
            Twine(file.getLine()) + ":" + Twine(file.getColumn()))
        .str();
  if (auto name = dyn_cast<NameLoc>(location)) {
    std::string label = name.getName().str();
    if (isa<UnknownLoc>(name.getChildLoc()))
      return label;
    return formatLocation(name.getChildLoc()) + " (" + label + ")";
  }
  if (auto call = dyn_cast<CallSiteLoc>(location))
    return formatLocation(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(location))
    if (!fused.getLocations().empty())
      return formatLocation(fused.getLocations().front());
  return "unknown";
}

DataType nsa::getDataType(Type type) {
  return llvm::TypeSwitch<Type, DataType>(type)
      .Case<Float32Type>([](auto) { return DataType::F32; })
      .Case<BFloat16Type>([](auto) { return DataType::BF16; })
      .Case<Float16Type>([](auto) { return DataType::F16; })
      .Case<IntegerType>([](IntegerType integer) {
        if (integer.getWidth() == 8)
          return DataType::U8;
        return integer.getWidth() == 32 ? DataType::I32 : DataType::I64;
      });
}

static artifact::InitKind getInitKind(nn::InitKind kind) {
  switch (kind) {
  case nn::InitKind::Normal:
    return artifact::InitKind::Normal;
  case nn::InitKind::Constant:
    return artifact::InitKind::Constant;
  case nn::InitKind::Rotary:
    return artifact::InitKind::Rotary;
  }
  llvm_unreachable("unknown kind of initial value");
}

//===----------------------------------------------------------------------===//
// Segments, tensors, kernels
//===----------------------------------------------------------------------===//

/// Names appear in messages, files and command lines.
void ProgramWriter::checkName(Operation *op, StringRef name) {
  hasFailed |= name.empty();
  for (unsigned char byte : name.bytes())
    if ((byte <= ' ' || byte > '~') && !std::exchange(hasFailed, true))
      op->emitError("the name '") << name << "' has the byte " << unsigned(byte)
                                  << ", which is not a printable character";
}

artifact::Slice ProgramWriter::writeSlice(Operation *user,
                                          std::optional<rt::SliceAttr> slice) {
  if (!slice) {
    fail(user, "has memory without an address");
    return {};
  }
  auto segment = segmentNumbers.find(slice->getSegment().getAttr());
  if (segment == segmentNumbers.end()) {
    fail(user, "has memory in ")
        << slice->getSegment() << ", which is not a segment";
    return {};
  }
  return artifact::Slice(segment->second, slice->getOffset(), slice->getSize());
}

/// Of a view, what lies between its first and its last element.
artifact::Slice ProgramWriter::writeMemory(Operation *user, Value value) {
  artifact::Slice slice = writeRoot(user, rt::getMemoryRoot(value));
  return artifact::Slice(slice.segment(),
                         slice.offset() + rt::getByteOffset(value),
                         rt::getByteSize(cast<MemRefType>(value.getType())));
}

artifact::Slice ProgramWriter::writeRoot(Operation *user, Value root) {
  if (auto buffer = root.getDefiningOp<rt::BufferOp>())
    return writeSlice(buffer, buffer.getSlice());
  if (auto get = root.getDefiningOp<rt::GetOp>()) {
    rt::TensorOp tensor = tensorOps.lookup(get.getTensorAttr().getAttr());
    return writeSlice(tensor ? tensor.getOperation() : user,
                      tensor ? tensor.getSlice() : std::nullopt);
  }
  if (auto view = root.getDefiningOp<rt::FlatViewOp>()) {
    auto first = cast<FlatSymbolRefAttr>(view.getTensors()[0]);
    rt::TensorOp tensor = tensorOps.lookup(first.getAttr());
    std::optional<rt::SliceAttr> slice;
    if (tensor && tensor.getSlice())
      slice = rt::SliceAttr::get(
          view.getContext(), tensor.getSlice()->getSegment(),
          tensor.getSlice()->getOffset(), rt::getByteSize(view.getType()));
    return writeSlice(user, slice);
  }
  fail(user, "has an operand that is neither a tensor nor a buffer");
  return {};
}

void ProgramWriter::writeSegment(rt::SegmentOp op) {
  segmentNumbers[op.getSymNameAttr()] = segments.size();
  segments.push_back(artifact::CreateSegment(
      builder, static_cast<artifact::SegmentKind>(op.getKind()), op.getSize(),
      op.getAlignment()));
}

void ProgramWriter::writeTensor(rt::TensorOp op) {
  tensorNumbers[op.getSymNameAttr()] = tensors.size();
  tensorOps[op.getSymNameAttr()] = op;
  artifact::Slice slice = writeSlice(op, op.getSlice());
  checkName(op, op.getSymName());
  MemRefType type = op.getMemoryType();
  auto name = builder.CreateString(op.getSymName().str());
  auto shape = builder.CreateVector(
      std::vector<uint64_t>(type.getShape().begin(), type.getShape().end()));
  auto init = artifact::InitKind::None;
  double value = 0.0;
  fb::Offset<fb::Vector<double>> frequencies;
  if (auto attribute = dyn_cast_or_null<nn::InitAttr>(op.getInitAttr())) {
    init = getInitKind(attribute.getKind());
    value = attribute.getValue();
    if (nn::RotaryAttr rotary = attribute.getRotary()) {
      SmallVector<double> list =
          rotary.getFrequencies(value, type.getDimSize(1));
      frequencies = builder.CreateVector(list.data(), list.size());
      init = artifact::InitKind::Frequencies;
      value = rotary.getAmplitude();
    }
  }
  fb::Offset<fb::String> state;
  if (std::optional<StringRef> kept = op.getState())
    state = builder.CreateString(kept->str());
  tensors.push_back(artifact::CreateTensor(
      builder, name, getDataType(type.getElementType()), shape, &slice,
      static_cast<artifact::TensorRole>(op.getRole()), init, value,
      op.getDecay(), state, frequencies));
}

/// Nothing for a kernel that has none.
ProgramWriter::TensorMapList ProgramWriter::writeTensorMaps(ArrayAttr maps) {
  if (!maps || maps.empty())
    return {};
  std::vector<fb::Offset<artifact::TensorMap>> list;
  for (auto map : maps.getAsRange<rt::TensorMapAttr>()) {
    ArrayRef<int64_t> extents = map.getExtents(), strides = map.getStrides(),
                      box = map.getBox();
    auto extentList = builder.CreateVector(
        std::vector<uint64_t>(extents.begin(), extents.end()));
    auto strideList = builder.CreateVector(
        std::vector<uint64_t>(strides.begin(), strides.end()));
    auto boxList =
        builder.CreateVector(std::vector<uint32_t>(box.begin(), box.end()));
    list.push_back(artifact::CreateTensorMap(builder, map.getArgument(),
                                             extentList, strideList, boxList,
                                             map.getSwizzle()));
  }
  return builder.CreateVector(list);
}

/// The inputs of a kernel that hold numbers of blocks.
std::vector<artifact::Selection> ProgramWriter::getSelections(rt::KernelOp op) {
  std::vector<artifact::Selection> selections;
  auto blocks = op->getAttrOfType<DenseI64ArrayAttr>(kSelectBlocksAttr);
  if (!blocks)
    return selections;
  ArrayRef<Type> types = op.getFunctionType().getInputs();
  if (blocks.size() != static_cast<int64_t>(types.size())) {
    fail(op, "has `") << kSelectBlocksAttr << "` of " << blocks.size()
                      << " arguments for " << types.size() << " arguments";
    return selections;
  }
  for (auto [index, block] : llvm::enumerate(blocks.asArrayRef())) {
    if (block == 0)
      continue;
    auto memory = cast<MemRefType>(types[index]);
    if (!memory.getElementType().isInteger(32) || memory.getRank() != 4 ||
        !memory.getLayout().isIdentity()) {
      fail(op, "has numbers of blocks in argument ")
          << index << " of type " << memory
          << ", expected i32 [batch, heads, tokens, count]";
      break;
    }
    selections.emplace_back(index, memory.getDimSize(2), memory.getDimSize(3),
                            block);
  }
  return selections;
}

void ProgramWriter::writeKernel(rt::KernelOp op) {
  checkName(op, op.getSymName());
  kernelNumbers[op.getSymNameAttr()] = kernels.size();
  std::vector<uint8_t> types;
  std::vector<uint64_t> bytes;
  std::vector<artifact::Rows> rows;
  for (Type type : op.getFunctionType().getInputs()) {
    auto memory = cast<MemRefType>(type);
    types.push_back(static_cast<uint8_t>(getDataType(memory.getElementType())));
    bytes.push_back(rt::getByteSize(memory));
    RowLayout layout = *getRowLayout(memory);
    rows.push_back(artifact::Rows(layout.width, layout.pitch));
  }
  bool isDense = llvm::all_of(rows, [](const artifact::Rows &layout) {
    return layout.width() == layout.pitch();
  });
  auto name = builder.CreateString(op.getSymName().str());
  auto argumentTypes = builder.CreateVector(types);
  auto argumentBytes = builder.CreateVector(bytes);
  fb::Offset<fb::Vector<const artifact::Rows *>> argumentRows;
  if (!isDense)
    argumentRows = builder.CreateVectorOfStructs(rows);
  TensorMapList tensorMaps = writeTensorMaps(op.getTensorMapsAttr());
  fb::Offset<fb::Vector<const artifact::Selection *>> selections;
  if (std::vector<artifact::Selection> selected = getSelections(op);
      !selected.empty())
    selections = builder.CreateVectorOfStructs(selected);
  ArrayRef<int32_t> grid = op.getGrid();
  kernels.push_back(artifact::CreateKernel(
      builder, name, name, grid[0], grid[1], grid[2], types.size(),
      op.getNumOutputs(), op.getStackBytes(), op.getFlops().value_or(0),
      op.getBytes().value_or(0),
      fb::Offset<fb::Vector<artifact::DataType>>(argumentTypes.o),
      argumentBytes, op.getThreads().value_or(0),
      op.getSharedBytes().value_or(0), op.getRegisters().value_or(0),
      op.getSpillBytes().value_or(0), argumentRows, tensorMaps, selections,
      op->hasAttr(kExtentsAttr)));
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

uint32_t ProgramWriter::getLocation(Location location) {
  if (!identity)
    return 0;
  std::string text = formatLocation(location);
  auto [entry, isNew] = locationNumbers.try_emplace(text, locations.size());
  if (isNew)
    locations.push_back(text);
  return entry->second;
}

fb::Offset<fb::Vector<uint32_t>>
ProgramWriter::writeTensorList(ArrayAttr names) {
  std::vector<uint32_t> numbers;
  for (auto name : names.getAsRange<FlatSymbolRefAttr>())
    numbers.push_back(tensorNumbers.lookup(name.getAttr()));
  return builder.CreateVector(numbers);
}

void ProgramWriter::writeEntry(rt::EntryOp op) {
  checkName(op, op.getSymName());
  std::vector<fb::Offset<artifact::Command>> commands;
  for (rt::CommandOpInterface command : rt::getCommands(op))
    commands.push_back(writeCommand(command));
  if (identity)
    writeBuffers(op);
  auto name = builder.CreateString(op.getSymName().str());
  auto inputs = writeTensorList(op.getInputs());
  auto outputs = writeTensorList(op.getOutputs());
  auto list = builder.CreateVector(commands);
  entries.push_back(artifact::CreateEntry(builder, name, inputs, outputs, list,
                                          op.getArenaPeak().value_or(0)));
}

void ProgramWriter::writeBuffers(rt::EntryOp op) {
  for (const rt::Lifetime &lifetime : rt::getLifetimes(op)) {
    rt::BufferOp buffer = lifetime.buffer;
    artifact::Slice slice = writeSlice(buffer, buffer.getSlice());
    buffers.push_back(artifact::CreateBuffer(builder, entries.size(), &slice,
                                             lifetime.first, lifetime.last,
                                             getLocation(buffer.getLoc())));
  }
}

//===----------------------------------------------------------------------===//
// The file
//===----------------------------------------------------------------------===//

/// The configuration of a model as JSON.
static llvm::json::Value toJson(Attribute attribute) {
  return TypeSwitch<Attribute, llvm::json::Value>(attribute)
      .Case([](DictionaryAttr dictionary) {
        llvm::json::Object object;
        for (NamedAttribute entry : dictionary)
          object[entry.getName().getValue()] = toJson(entry.getValue());
        return object;
      })
      .Case([](StringAttr text) { return text.getValue(); })
      .Case([](BoolAttr flag) { return flag.getValue(); })
      .Case([](IntegerAttr number) { return number.getInt(); })
      .Case([](FloatAttr number) { return number.getValueAsDouble(); })
      .Default([](Attribute) { return nullptr; });
}

/// The configuration that the module carries; text is JSON already.
static std::string getConfig(ModuleOp module) {
  Attribute attribute = module->getAttr("nn.config");
  if (auto dictionary = dyn_cast_or_null<DictionaryAttr>(attribute))
    return formatModelConfig(llvm::formatv("{0}", toJson(dictionary)));
  auto text = dyn_cast_or_null<StringAttr>(attribute);
  return text ? text.str() : "";
}

LogicalResult ProgramWriter::finish() {
  auto strings = [&](const std::vector<std::string> &list) {
    return builder.CreateVectorOfStrings(list);
  };
  const ArtifactMetadata says = identity ? metadata : ArtifactMetadata();
  std::vector<fb::Offset<artifact::Option>> options;
  options.reserve(says.options.size());
  for (const auto &[key, value] : says.options)
    options.push_back(
        artifact::CreateOptionDirect(builder, key.c_str(), value.c_str()));
  std::vector<fb::Offset<artifact::Binary>> binaries;
  for (auto [described, image] :
       llvm::zip(module.getOps<rt::BinaryOp>(), images)) {
    auto format = builder.CreateString(described.getFormat().str());
    auto data = builder.CreateVector(
        reinterpret_cast<const uint8_t *>(image.data()), image.size());
    binaries.push_back(artifact::CreateBinary(builder, format, data));
  }
  fb::Offset<fb::String> config;
  std::string text = getConfig(module);
  if (!text.empty() && identity)
    config = builder.CreateString(text);

  fb::Offset<artifact::Extents> extents;
  if (hasExtents(module)) {
    FailureOr<fb::Offset<artifact::Extents>> written =
        writeExtents(builder, module, /*hasBuffers=*/identity.has_value());
    if (failed(written))
      return failure();
    extents = *written;
  }

  auto producer = builder.CreateString(says.producer);
  auto target = builder.CreateString(metadata.target);
  auto cpu = builder.CreateString(says.cpu);
  auto features = strings(says.cpuFeatures);
  auto segmentList = builder.CreateVector(segments);
  auto tensorList = builder.CreateVector(tensors);
  auto kernelList = builder.CreateVector(kernels);
  auto entryList = builder.CreateVector(entries);
  auto binaryList = builder.CreateVector(binaries);
  auto bufferList = builder.CreateVector(buffers);
  auto locationList = strings(locations);
  auto optionList = builder.CreateVector(options);
  artifact::FinishArtifactBuffer(
      builder, artifact::CreateArtifact(
                   builder, producer, target, cpu, features, segmentList,
                   tensorList, kernelList, entryList, binaryList, bufferList,
                   locationList, optionList, config, ranks,
                   identity.value_or(0), extents, sequenceRanks));
  return success();
}

FailureOr<StringRef> ProgramWriter::run() {
  // A call changes fields: all must be there.
  builder.ForceDefaults(hasExtents(module));
  // Slices name segments, commands name tensors and kernels: definitions first.
  for (auto op : module.getOps<rt::SegmentOp>())
    writeSegment(op);
  for (auto op : module.getOps<rt::TensorOp>())
    writeTensor(op);
  for (auto op : module.getOps<rt::KernelOp>())
    writeKernel(op);
  for (auto op : module.getOps<rt::EntryOp>())
    writeEntry(op);
  if (hasFailed || failed(finish()))
    return failure();
  return StringRef(reinterpret_cast<const char *>(builder.GetBufferPointer()),
                   builder.GetSize());
}

/// The oldest version whose readers understand the program.
static uint32_t getFileVersion(ModuleOp module) {
  uint32_t version =
      hasExtents(module) ? artifact::extentsFileVersion : artifact::fileVersion;
  module.walk([&](rt::GemmOp op) {
    if (op.isExtended())
      version = std::max(version, artifact::batchFileVersion);
  });
  module.walk([&](rt::CollectiveStartOp op) {
    if (op.getRows())
      version = artifact::rowsFileVersion;
  });
  return version;
}

FailureOr<std::string> nsa::writeArtifact(ModuleOp module,
                                          ArrayRef<ArrayRef<char>> images,
                                          const ArtifactMetadata &metadata) {
  ProgramWriter core(module, images, metadata, /*identity=*/std::nullopt);
  FailureOr<StringRef> program = core.run();
  if (failed(program))
    return failure();
  uint64_t identity = hashBytes(program->data(), program->size());
  ProgramWriter writer(module, images, metadata, identity);
  FailureOr<StringRef> payload = writer.run();
  if (failed(payload))
    return failure();
  artifact::FileHeader header = artifact::makeFileHeader(
      payload->size(), hashBytes(payload->data(), payload->size()),
      getFileVersion(module));
  std::string file(reinterpret_cast<const char *>(&header), sizeof header);
  file.append(payload->data(), payload->size());
  return file;
}
