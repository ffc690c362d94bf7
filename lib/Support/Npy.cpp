//===- Npy.cpp - NumPy array files ----------------------------------------===//

#include "lib/Support/Npy.h"
#include "lib/Support/Files.h"
#include "lib/Support/Json.h"

#include <algorithm>
#include <optional>

using namespace nsa;
using Json = nlohmann::json;

/// NumPy itself reads headers of up to 10,000 bytes.
static constexpr uint64_t mostHeaderBytes = 1 << 17;

namespace {
struct TypeRow {
  NpyType type;
  const char *descriptor;
  const char *name;
};
} // namespace

static constexpr TypeRow typeTable[] = {
    {NpyType::F2, "<f2", "f16"}, {NpyType::F4, "<f4", "f32"},
    {NpyType::F8, "<f8", "f64"}, {NpyType::I4, "<i4", "i32"},
    {NpyType::I8, "<i8", "i64"}, {NpyType::U2, "<u2", "u16"},
};

static const TypeRow &rowOf(NpyType type) {
  for (const TypeRow &row : typeTable)
    if (row.type == type)
      return row;
  return typeTable[0];
}

const char *nsa::npyTypeName(NpyType type) { return rowOf(type).name; }

std::string nsa::idsPathOf(const std::string &path) {
  constexpr std::string_view suffix = ".npy";
  size_t length =
      path.size() - (path.size() >= suffix.size() &&
                             path.compare(path.size() - 4, 4, suffix) == 0
                         ? suffix.size()
                         : 0);
  return path.substr(0, length) + ".ids.npy";
}

std::string nsa::shapeText(const std::vector<uint64_t> &shape) {
  std::string text;
  for (uint64_t size : shape)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

/// A Python literal of texts, numbers, Booleans, tuples and dictionaries as
/// JSON.
static std::string toJson(std::string_view literal) {
  std::string text;
  char quoted = 0;
  for (char c : literal) {
    if (c == quoted)
      quoted = 0, c = '"';
    else if (quoted)
      text += c == '"' ? "\\" : "";
    else if (c == '\'' || c == '"')
      quoted = c, c = '"';
    else if (c == 'T' || c == 'F')
      c = char(c - 'A' + 'a');
    else if (c == '(' || c == ')')
      c = c == '(' ? '[' : ']';
    if (!quoted && (c == ']' || c == '}'))
      if (size_t last = text.find_last_not_of(" \n");
          last != std::string::npos && text[last] == ',')
        text.erase(last);
    text += c;
  }
  return text;
}

static Status readHeader(const Json &header, NpyArray &array) {
  constexpr size_t mostDimensions = 32;
  if (!header.is_object())
    return Error{"the header is not a dictionary"};
  for (const auto &[key, value] : header.items())
    if (key != "descr" && key != "fortran_order" && key != "shape")
      return Error{"the header's key " + quote(key) + " is unknown"};
  if (header.size() != 3)
    return Error{"the header lacks one of descr, fortran_order, shape"};
  const Json &descriptor = header["descr"], &shape = header["shape"];
  if (!descriptor.is_string())
    return Error{"the header's descr is not a plain type"};
  const auto *row = std::find_if(
      std::begin(typeTable), std::end(typeTable),
      [&](const TypeRow &row) { return descriptor == row.descriptor; });
  if (row == std::end(typeTable))
    return Error{"element type " + quote(descriptor.get<std::string>()) +
                 " is not one of <f2, <f4, <f8, <i4, <i8, <u2"};
  array.type = row->type;
  if (header["fortran_order"] != false)
    return Error{"the array is in Fortran order; save "
                 "numpy.ascontiguousarray(x) instead"};
  if (!shape.is_array() || shape.size() > mostDimensions)
    return Error{"the header's shape is not a tuple of at most " +
                 std::to_string(mostDimensions) + " numbers"};
  array.shape.clear();
  for (const Json &size : shape)
    array.shape.push_back(readUnsigned(size));
  return {};
}

/// Sets the type and shape of `array` from the header's Python dictionary.
static Status parseHeader(std::string_view text, NpyArray &array) {
  std::string json = toJson(text);
  try {
    return readHeader(parseJson<Json>(json.begin(), json.end()), array);
  } catch (const std::exception &error) {
    return Error{std::string("the header is not a dictionary of type, order "
                             "and shape: ") +
                 error.what()};
  }
}

/// Bytes of an array, or nothing when they do not fit.
static std::optional<uint64_t> arrayBytes(const NpyArray &array) {
  uint64_t bytes = npyElementBytes(array.type);
  bool overflow = false;
  for (uint64_t size : array.shape)
    if (size == 0)
      return 0;
  for (uint64_t size : array.shape)
    overflow |= __builtin_mul_overflow(bytes, size, &bytes);
  return overflow ? std::nullopt : std::optional<uint64_t>(bytes);
}

/// Reads what precedes the elements into `array`, and returns its bytes.
/// `contents` is the beginning of a file of `size` bytes.
static Result<uint64_t> parsePreamble(std::string_view contents, uint64_t size,
                                      NpyArray &array) {
  constexpr std::string_view magic("\x93NUMPY", 6);
  if (contents.size() < 10 || contents.substr(0, 6) != magic)
    return Error{"not an .npy file"};
  auto byte = [&](size_t i) { return uint32_t(uint8_t(contents[i])); };
  unsigned major = byte(6);
  if (major < 1 || major > 3)
    return Error{".npy version " + std::to_string(major) + "." +
                 std::to_string(byte(7)) + " is not one of 1.0, 2.0, 3.0"};
  size_t prefix = major == 1 ? 10 : 12;
  if (contents.size() < prefix)
    return Error{"truncated in its header"};
  uint64_t length = byte(8) | byte(9) << 8;
  if (major > 1)
    length |= byte(10) << 16 | uint64_t(byte(11)) << 24;
  if (length > size - prefix)
    return Error{"truncated: the header has " + std::to_string(length) +
                 " bytes, found " + std::to_string(size - prefix)};
  if (length > mostHeaderBytes - prefix)
    return Error{"a header of " + std::to_string(length) + " bytes, " +
                 std::to_string(mostHeaderBytes - prefix) + " are allowed"};
  NSA_RETURN_IF_ERROR(parseHeader(contents.substr(prefix, length), array));
  std::optional<uint64_t> bytes = arrayBytes(array);
  uint64_t present = size - prefix - length;
  if (!bytes || *bytes != present)
    return Error{"an array " + std::string(npyTypeName(array.type)) + "[" +
                 shapeText(array.shape) + "] has " +
                 (bytes ? std::to_string(*bytes) : "over 2^64") +
                 " bytes, found " + std::to_string(present)};
  return prefix + length;
}

Result<NpyArray> nsa::parseNpy(std::string_view contents) {
  NpyArray array;
  NSA_ASSIGN_OR_RETURN(uint64_t begin,
                       parsePreamble(contents, contents.size(), array));
  array.data = std::string(contents.substr(begin));
  return array;
}

/// Reads an array whose header says how large it is, before there is memory for
/// it.
static Result<NpyArray> readArray(const InputFile &file) {
  std::string head(size_t(std::min(file.size(), mostHeaderBytes)), '\0');
  NSA_RETURN_IF_ERROR(file.readAt(0, head.data(), head.size()));
  NpyArray array;
  Result<uint64_t> begin = parsePreamble(head, file.size(), array);
  if (!begin)
    return Error{file.path() + ": " + begin.message()};
  if (file.size() > mostDataBytes)
    return Error{file.path() + ": an array of " + std::to_string(file.size()) +
                 " bytes, " + std::to_string(mostDataBytes) + " are allowed"};
  array.data.resize(size_t(file.size() - *begin));
  Status status = file.readAt(*begin, array.data.data(), array.data.size());
  return status ? Result<NpyArray>(std::move(array)) : Error{status.message()};
}

Result<NpyArray> nsa::readNpy(const std::string &path) {
  if (Result<InputFile> file = InputFile::open(path))
    return readArray(*file);
  // A pipe, or what cannot be opened.
  NSA_ASSIGN_OR_RETURN(std::string contents, readFile(path, mostPipedBytes));
  Result<NpyArray> array = parseNpy(contents);
  if (!array)
    return Error{path + ": " + array.message()};
  return array;
}

/// Everything before the elements.
static std::string formatHeader(NpyType type,
                                const std::vector<uint64_t> &shape) {
  std::string dictionary = std::string("{'descr': '") + rowOf(type).descriptor +
                           "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i)
    dictionary += (i ? ", " : "") + std::to_string(shape[i]);
  dictionary += shape.size() == 1 ? ",), }" : "), }";
  while ((10 + dictionary.size() + 1) % 64 != 0)
    dictionary += ' ';
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += char(dictionary.size() & 255);
  header += char(dictionary.size() >> 8);
  return header + dictionary;
}

std::string nsa::formatNpy(NpyType type, const std::vector<uint64_t> &shape,
                           const void *data) {
  std::string contents = formatHeader(type, shape);
  uint64_t bytes = npyElementBytes(type);
  for (uint64_t size : shape)
    bytes *= size;
  if (bytes > 0)
    contents.append(static_cast<const char *>(data), bytes);
  return contents;
}
