//===- Safetensors.cpp - named tensors in a file --------------------------===//

#include "lib/Support/Safetensors.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cstring>

namespace nsa {

using Json = nlohmann::ordered_json;

// The limit of the reference implementation.
static constexpr uint64_t maxHeaderBytes = 100000000;
static constexpr const char *metadataKey = "__metadata__";

uint64_t safetensorsElementBytes(std::string_view dtype) {
  static const std::map<std::string_view, uint64_t> sizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

Status writeSafetensors(const std::string &path,
                        const std::vector<SafeTensor> &tensors,
                        const std::map<std::string, std::string> &metadata) {
  Json header = Json::object();
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
  Result<OutputFile> file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  uint64_t length = text.size();
  if (Status status = file->write(&length, sizeof length); !status)
    return status;
  if (Status status = file->write(text); !status)
    return status;
  for (const SafeTensor &tensor : tensors)
    if (Status status = file->write(tensor.data, tensor.bytes); !status)
      return status;
  return file->finish();
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

static SafeTensor readTensor(const std::string &name, const Json &entry,
                             const uint8_t *data, uint64_t dataBytes) {
  SafeTensor tensor;
  tensor.name = name;
  tensor.dtype = entry.at("dtype").get<std::string>();
  uint64_t elementBytes = safetensorsElementBytes(tensor.dtype);
  if (elementBytes == 0)
    throw std::runtime_error("unknown dtype '" + tensor.dtype + "'");
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
  tensor.data = data + begin;
  tensor.bytes = end - begin;
  uint64_t expected = denseBytes(tensor.shape, elementBytes);
  if (tensor.bytes != expected)
    throw std::runtime_error(std::to_string(tensor.bytes) +
                             " bytes, its shape needs " +
                             std::to_string(expected));
  return tensor;
}

static Json parseHeader(const char *begin, const char *end) {
  Json header = parseJson<Json>(begin, end);
  if (!header.is_object())
    throw std::runtime_error("its header is no object");
  return header;
}

static void readHeader(const Json &header, const uint8_t *data,
                       uint64_t dataBytes, std::vector<SafeTensor> &list,
                       std::map<std::string, std::string> &extra) {
  for (const auto &[name, entry] : header.items()) {
    if (name == metadataKey) {
      extra = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    try {
      list.push_back(readTensor(name, entry, data, dataBytes));
    } catch (const std::exception &error) {
      throw std::runtime_error("tensor '" + name + "': " + error.what());
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const SafeTensor &a, const SafeTensor &b) {
                     if (a.data != b.data)
                       return std::less<>()(a.data, b.data);
                     return a.bytes < b.bytes;
                   });
  // The format allows neither gaps nor overlaps.
  const uint8_t *next = data;
  for (const SafeTensor &tensor : list) {
    if (tensor.data != next)
      throw std::runtime_error("tensor '" + tensor.name +
                               "' does not follow the one before it");
    next += tensor.bytes;
  }
  if (next != data + dataBytes)
    throw std::runtime_error(std::to_string(data + dataBytes - next) +
                             " bytes belong to no tensor");
}

Result<SafetensorsFile> SafetensorsFile::parse(const uint8_t *data, size_t size,
                                               const std::string &name) {
  auto fail = [&](const std::string &message) {
    return Error{"'" + name + "' is no safetensors file: " + oneLine(message)};
  };
  uint64_t headerBytes = 0;
  if (size < sizeof headerBytes)
    return fail(std::to_string(size) + " bytes");
  std::memcpy(&headerBytes, data, sizeof headerBytes);
  uint64_t rest = size - sizeof headerBytes;
  if (headerBytes > rest || headerBytes > maxHeaderBytes)
    return fail("a header of " + std::to_string(headerBytes) + " bytes in " +
                std::to_string(size));
  const char *text = reinterpret_cast<const char *>(data) + sizeof headerBytes;
  SafetensorsFile result;
  try {
    Json header = parseHeader(text, text + headerBytes);
    readHeader(header, data + sizeof headerBytes + headerBytes,
               rest - headerBytes, result.list, result.extra);
  } catch (const std::exception &error) {
    return fail(error.what());
  }
  return result;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.takeError();
  Result<SafetensorsFile> result = parse(mapped->data(), mapped->size(), path);
  if (result)
    result->file = std::move(*mapped);
  return result;
}

const SafeTensor *SafetensorsFile::find(std::string_view name) const {
  for (const SafeTensor &tensor : list)
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

} // namespace nsa
