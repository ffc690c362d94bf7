//===- Safetensors.cpp - named tensors in a file --------------------------===//

#include "lib/Support/Safetensors.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace nsa {

// The limit of the reference implementation.
static constexpr uint64_t maxHeaderBytes = 100000000;
/// Tensors of a file, with room to spare for models of many layers.
static constexpr size_t maxTensors = 1 << 18;
static constexpr const char *metadataKey = "__metadata__";

uint64_t safetensorsElementBytes(std::string_view dtype) {
  static const std::map<std::string_view, uint64_t> sizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// findNonFinite for elements whose exponent is all ones where they are not
/// finite. Whole blocks are looked at without a branch.
template <typename Bits>
static std::string findNonFinite(const SafeTensor &tensor, Bits exponent,
                                 Bits fraction) {
  const char *data = static_cast<const char *>(tensor.data);
  auto load = [&](uint64_t index) {
    Bits bits;
    std::memcpy(&bits, data + index * sizeof bits, sizeof bits);
    return bits;
  };
  constexpr uint64_t block = 4096;
  uint64_t count = tensor.bytes / sizeof(Bits);
  for (uint64_t begin = 0; begin < count; begin += block) {
    uint64_t end = std::min(begin + block, count);
    bool found = false;
    for (uint64_t i = begin; i < end; ++i)
      found |= (load(i) & exponent) == exponent;
    for (uint64_t i = begin; found && i < end; ++i) {
      Bits bits = load(i);
      if ((bits & exponent) != exponent)
        continue;
      bool negative = (bits & Bits(~(exponent | fraction))) != 0;
      const char *value = bits & fraction ? "nan" : negative ? "-inf" : "inf";
      return "[" + std::to_string(i) + "] is " + value;
    }
  }
  return "";
}

std::string findNonFinite(const SafeTensor &tensor) {
  if (tensor.dtype == "F32")
    return findNonFinite<uint32_t>(tensor, 0x7F800000, 0x007FFFFF);
  if (tensor.dtype == "BF16")
    return findNonFinite<uint16_t>(tensor, 0x7F80, 0x007F);
  if (tensor.dtype == "F16")
    return findNonFinite<uint16_t>(tensor, 0x7C00, 0x03FF);
  if (tensor.dtype == "F64")
    return findNonFinite<uint64_t>(tensor, 0x7FF0000000000000,
                                   0x000FFFFFFFFFFFFF);
  return "";
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

Status writeSafetensors(const std::string &path,
                        const std::vector<SafeTensor> &tensors,
                        const std::map<std::string, std::string> &metadata) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header[metadataKey] = metadata;
  uint64_t offset = 0;
  for (const SafeTensor &tensor : tensors) {
    assert(safetensorsElementBytes(tensor.dtype) && "unknown dtype");
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  text.append((64 - (sizeof(uint64_t) + text.size()) % 64) % 64, ' ');
  NSA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  uint64_t length = text.size();
  NSA_RETURN_IF_ERROR(file.write(&length, sizeof length));
  NSA_RETURN_IF_ERROR(file.write(text));
  for (const SafeTensor &tensor : tensors)
    NSA_RETURN_IF_ERROR(file.write(tensor.data, tensor.bytes));
  return file.finish();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Bytes of a dense tensor; throws when they do not fit into 64 bits.
static uint64_t denseBytes(const std::vector<uint64_t> &shape,
                           uint64_t elementBytes) {
  uint64_t bytes = elementBytes;
  for (uint64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      throw std::runtime_error("a shape with more than 2^64 bytes");
  return bytes;
}

// Not the ordered one, which looks names up one by one.
using Json = nlohmann::json;

static SafeTensor readTensor(const std::string &name, const Json &entry,
                             uint64_t dataBytes) {
  SafeTensor tensor;
  tensor.name = name;
  tensor.dtype = entry.at("dtype").get<std::string>();
  uint64_t elementBytes = safetensorsElementBytes(tensor.dtype);
  if (elementBytes == 0)
    throw std::runtime_error("unknown dtype " + quote(tensor.dtype));
  if (!entry.at("shape").is_array())
    throw std::runtime_error("its shape is not a list");
  for (const Json &extent : entry.at("shape"))
    tensor.shape.push_back(readUnsigned(extent));
  const Json &offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2)
    throw std::runtime_error("data_offsets are not two numbers");
  uint64_t begin = readUnsigned(offsets[0]), end = readUnsigned(offsets[1]);
  if (begin > end || end > dataBytes)
    throw std::runtime_error("offsets " + std::to_string(begin) + ".." +
                             std::to_string(end) + " leave the " +
                             std::to_string(dataBytes) + " bytes of data");
  tensor.offset = begin;
  tensor.bytes = end - begin;
  uint64_t expected = denseBytes(tensor.shape, elementBytes);
  if (tensor.bytes != expected)
    throw std::runtime_error(std::to_string(tensor.bytes) +
                             " bytes, its shape needs " +
                             std::to_string(expected));
  return tensor;
}

/// The tensors of a header in the order of their offsets, which count from the
/// first byte of data.
static std::vector<SafeTensor> readTensors(const Json &header,
                                           uint64_t dataBytes) {
  std::vector<SafeTensor> list;
  for (const auto &[name, entry] : header.items()) {
    if (name == metadataKey)
      continue;
    try {
      list.push_back(readTensor(name, entry, dataBytes));
    } catch (const std::exception &error) {
      throw std::runtime_error("tensor " + quote(name) + ": " + error.what());
    }
  }
  std::sort(list.begin(), list.end(),
            [](const SafeTensor &a, const SafeTensor &b) {
              return std::tie(a.offset, a.bytes, a.name) <
                     std::tie(b.offset, b.bytes, b.name);
            });
  // The format allows neither gaps nor overlaps.
  uint64_t next = 0;
  for (const SafeTensor &tensor : list) {
    if (tensor.offset != next)
      throw std::runtime_error("tensor " + quote(tensor.name) +
                               " does not follow the one before it");
    next += tensor.bytes;
  }
  if (next != dataBytes)
    throw std::runtime_error(std::to_string(dataBytes - next) +
                             " bytes belong to no tensor");
  return list;
}

Status SafetensorsFile::readHeader(const char *text, uint64_t headerBytes,
                                   uint64_t dataBytes) {
  try {
    auto header = parseJson<Json>(text, text + headerBytes, maxTensors);
    if (!header.is_object())
      throw std::runtime_error("its header is no object");
    if (header.contains(metadataKey))
      extra = header[metadataKey].get<std::map<std::string, std::string>>();
    list = readTensors(header, dataBytes);
  } catch (const std::exception &error) {
    return Error{oneLine(error.what())};
  }
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].offset += sizeof headerBytes + headerBytes;
    places[list[i].name] = i;
  }
  return {};
}

static Error notSafetensors(const std::string &name,
                            const std::string &message) {
  return Error{"'" + name + "' is no safetensors file: " + message};
}

/// Checks the length of a header against the size of its file.
static Status checkHeaderBytes(uint64_t headerBytes, uint64_t size) {
  if (headerBytes > size - sizeof headerBytes || headerBytes > maxHeaderBytes)
    return Error{"a header of " + std::to_string(headerBytes) + " bytes in " +
                 std::to_string(size)};
  return {};
}

Result<SafetensorsFile> SafetensorsFile::parse(const uint8_t *data, size_t size,
                                               const std::string &name) {
  uint64_t headerBytes = 0;
  if (size < sizeof headerBytes)
    return notSafetensors(name, std::to_string(size) + " bytes");
  std::memcpy(&headerBytes, data, sizeof headerBytes);
  SafetensorsFile result;
  Status status = checkHeaderBytes(headerBytes, size);
  if (status)
    status = result.readHeader(
        reinterpret_cast<const char *>(data) + sizeof headerBytes, headerBytes,
        size - sizeof headerBytes - headerBytes);
  if (!status)
    return notSafetensors(name, status.message());
  for (SafeTensor &tensor : result.list)
    tensor.data = data + tensor.offset;
  return result;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(InputFile opened, InputFile::open(path));
  uint64_t headerBytes = 0, size = opened.size();
  if (size < sizeof headerBytes)
    return notSafetensors(path, std::to_string(size) + " bytes");
  NSA_RETURN_IF_ERROR(opened.readAt(0, &headerBytes, sizeof headerBytes));
  if (Status status = checkHeaderBytes(headerBytes, size); !status)
    return notSafetensors(path, status.message());
  std::string text(size_t(headerBytes), '\0');
  NSA_RETURN_IF_ERROR(
      opened.readAt(sizeof headerBytes, text.data(), text.size()));
  SafetensorsFile result;
  if (Status status = result.readHeader(
          text.data(), headerBytes, size - sizeof headerBytes - headerBytes);
      !status)
    return notSafetensors(path, status.message());
  result.file = std::move(opened);
  return result;
}

const SafeTensor *SafetensorsFile::find(const std::string &name) const {
  auto found = places.find(name);
  return found == places.end() ? nullptr : &list[found->second];
}

Result<std::string> SafetensorsFile::findNonFinite() const {
  std::vector<char> bytes;
  for (SafeTensor tensor : list) {
    bytes.resize(tensor.bytes);
    NSA_RETURN_IF_ERROR(read(tensor, bytes.data()));
    tensor.data = bytes.data();
    if (std::string found = nsa::findNonFinite(tensor); !found.empty())
      return "'" + tensor.name + "'" + found;
  }
  return std::string();
}

Status SafetensorsFile::read(const SafeTensor &tensor, uint64_t first,
                             uint64_t bytes, void *out) const {
  assert(first <= tensor.bytes && bytes <= tensor.bytes - first &&
         "bytes outside the tensor");
  if (file)
    return file->readAt(tensor.offset + first, out, size_t(bytes));
  if (bytes > 0)
    std::memcpy(out, static_cast<const char *>(tensor.data) + first,
                size_t(bytes));
  return {};
}

} // namespace nsa
