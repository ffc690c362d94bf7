//===- Npy.cpp - NumPy array files ----------------------------------------===//

#include "lib/Support/Npy.h"
#include "lib/Support/Files.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <optional>

using namespace nsa;

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

std::string nsa::shapeText(const std::vector<uint64_t> &shape) {
  std::string text;
  for (uint64_t size : shape)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

namespace {

/// Reads the header's Python dictionary, which may hold its three keys in any
/// order.
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : rest(text) {}

  /// Sets `array`'s type and shape.
  Status parse(NpyArray &array);

private:
  bool accept(char c) {
    skipSpace();
    if (rest.empty() || rest[0] != c)
      return false;
    rest.remove_prefix(1);
    return true;
  }
  bool acceptWord(std::string_view word) {
    skipSpace();
    if (rest.substr(0, word.size()) != word)
      return false;
    rest.remove_prefix(word.size());
    return true;
  }
  void skipSpace() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n'))
      rest.remove_prefix(1);
  }
  std::optional<std::string> parseString();
  std::optional<uint64_t> parseNumber();
  Status parseValue(const std::string &key, NpyArray &array);
  Status parseDescriptor(NpyArray &array);
  Status parseOrder();
  Status parseShape(NpyArray &array);

  std::string_view rest;
  bool hasType = false, hasOrder = false, hasShape = false;
};

} // namespace

std::optional<std::string> HeaderParser::parseString() {
  skipSpace();
  if (rest.empty() || (rest[0] != '\'' && rest[0] != '"'))
    return std::nullopt;
  size_t end = rest.find(rest[0], 1);
  if (end == std::string_view::npos)
    return std::nullopt;
  std::string text(rest.substr(1, end - 1));
  rest.remove_prefix(end + 1);
  for (char &c : text)
    if (c < ' ' || c > '~')
      c = '?';
  return text;
}

std::optional<uint64_t> HeaderParser::parseNumber() {
  skipSpace();
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9';
       ++digits)
    if (__builtin_mul_overflow(value, uint64_t(10), &value) ||
        __builtin_add_overflow(value, uint64_t(rest[digits] - '0'), &value))
      return std::nullopt;
  if (digits == 0)
    return std::nullopt;
  rest.remove_prefix(digits);
  return value;
}

Status HeaderParser::parseDescriptor(NpyArray &array) {
  std::optional<std::string> descriptor = parseString();
  if (!descriptor)
    return Error{"the header's descr is not a plain type"};
  for (const TypeRow &row : typeTable)
    if (*descriptor == row.descriptor) {
      array.type = row.type;
      hasType = true;
      return {};
    }
  return Error{"element type " + quote(*descriptor) +
               " is not one of <f2, <f4, <f8, <i4, <i8, <u2"};
}

Status HeaderParser::parseOrder() {
  if (acceptWord("True"))
    return Error{"the array is in Fortran order; save "
                 "numpy.ascontiguousarray(x) instead"};
  if (!acceptWord("False"))
    return Error{"the header's fortran_order is neither True nor False"};
  hasOrder = true;
  return {};
}

Status HeaderParser::parseShape(NpyArray &array) {
  constexpr size_t mostDimensions = 32;
  array.shape.clear();
  if (!accept('('))
    return Error{"the header's shape is not a tuple"};
  while (!accept(')')) {
    std::optional<uint64_t> size = parseNumber();
    if (!size)
      return Error{"the header's shape is not a tuple of 64-bit numbers"};
    array.shape.push_back(*size);
    if (array.shape.size() > mostDimensions)
      return Error{"the array has more than " + std::to_string(mostDimensions) +
                   " dimensions"};
    if (!accept(',') && (rest.empty() || rest[0] != ')'))
      return Error{"the header's shape does not end"};
  }
  hasShape = true;
  return {};
}

Status HeaderParser::parseValue(const std::string &key, NpyArray &array) {
  if (key == "descr" && !hasType)
    return parseDescriptor(array);
  if (key == "fortran_order" && !hasOrder)
    return parseOrder();
  if (key == "shape" && !hasShape)
    return parseShape(array);
  return Error{"the header's key " + quote(key) + " is unknown or repeated"};
}

Status HeaderParser::parse(NpyArray &array) {
  if (!accept('{'))
    return Error{"the header is not a dictionary"};
  while (!accept('}')) {
    std::optional<std::string> key = parseString();
    if (!key || !accept(':'))
      return Error{"the header is not a dictionary of strings"};
    NSA_RETURN_IF_ERROR(parseValue(*key, array));
    if (!accept(',') && (rest.empty() || rest[0] != '}'))
      return Error{"the header's dictionary does not end"};
  }
  skipSpace();
  if (!rest.empty())
    return Error{"the header has text after its dictionary"};
  if (!hasType || !hasOrder || !hasShape)
    return Error{"the header lacks one of descr, fortran_order, shape"};
  return {};
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
  HeaderParser parser(contents.substr(prefix, length));
  NSA_RETURN_IF_ERROR(parser.parse(array));
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
