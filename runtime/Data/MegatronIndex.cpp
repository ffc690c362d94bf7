//===- MegatronIndex.cpp - the .idx beside a Megatron .bin ----------------===//

#include "runtime/Data/MegatronIndex.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"

#include <cstring>

namespace nsa {

static constexpr char magic[] = "MMIDIDX\0";
static constexpr size_t headerBytes = 34;

/// The types that Megatron numbers from 1 on.
static constexpr const char *typeNames[] = {"",        "uint8",   "int8",
                                            "int16",   "int32",   "int64",
                                            "float64", "float32", "uint16"};

namespace {

/// What the header says.
struct Header {
  TokenWidth width = TokenWidth::U16;
  uint64_t sequences = 0, documents = 0;
};

/// The three lists.
struct Lists {
  std::vector<int32_t> lengths;
  std::vector<int64_t> places, firstSequences;
};

} // namespace

template <typename T>
static T valueAt(const char *bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

static Result<Header> readHeader(const InputFile &file, StreamHash &hash) {
  std::string name = "'" + file.path() + "'";
  if (file.size() < headerBytes)
    return Error{name +
                 " is no index of Megatron: " + std::to_string(file.size()) +
                 " bytes, the header alone has " + std::to_string(headerBytes)};
  char bytes[headerBytes];
  NSA_RETURN_IF_ERROR(file.readAt(0, bytes, sizeof bytes));
  hash.update(bytes, sizeof bytes);
  if (std::memcmp(bytes, magic, sizeof magic) != 0)
    return Error{name + " is no index of Megatron: it begins with " +
                 quote(std::string(bytes, 7)) + ", expected 'MMIDIDX'"};
  if (auto version = valueAt<uint64_t>(bytes + 9); version != 1)
    return Error{name + " has version " + std::to_string(version) +
                 " of Megatron's index, expected 1"};
  Header header;
  unsigned type = static_cast<unsigned char>(bytes[17]);
  std::string typeName =
      type < std::size(typeNames) ? typeNames[type] : std::to_string(type);
  if (typeName != "uint16" && typeName != "int32")
    return Error{name + " has tokens of type " + typeName +
                 ", expected uint16 or int32"};
  header.width = typeName == "uint16" ? TokenWidth::U16 : TokenWidth::U32;
  header.sequences = valueAt<uint64_t>(bytes + 18);
  header.documents = valueAt<uint64_t>(bytes + 26);
  // No product overflows.
  uint64_t most = file.size();
  uint64_t expected =
      header.sequences <= most && header.documents <= most
          ? headerBytes + header.sequences * 12 + header.documents * 8
          : UINT64_MAX;
  if (expected != file.size())
    return Error{name + " is truncated or corrupted: it says " +
                 std::to_string(header.sequences) + " sequences and " +
                 std::to_string(header.documents) +
                 " entries of documents, the file holds " +
                 std::to_string(file.size()) + " bytes"};
  return header;
}

static Result<Lists> readLists(const InputFile &file, const Header &header,
                               StreamHash &hash) {
  Lists lists;
  lists.lengths.resize(size_t(header.sequences));
  lists.places.resize(size_t(header.sequences));
  lists.firstSequences.resize(size_t(header.documents));
  uint64_t at = headerBytes;
  auto read = [&](auto &list) {
    size_t size = list.size() * sizeof(list[0]);
    Status status = file.readAt(at, list.data(), size);
    hash.update(list.data(), size);
    at += size;
    return status;
  };
  NSA_RETURN_IF_ERROR(read(lists.lengths));
  NSA_RETURN_IF_ERROR(read(lists.places));
  NSA_RETURN_IF_ERROR(read(lists.firstSequences));
  return lists;
}

Result<MegatronIndex> MegatronIndex::read(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  StreamHash hash;
  NSA_ASSIGN_OR_RETURN(Header header, readHeader(file, hash));
  NSA_ASSIGN_OR_RETURN(Lists lists, readLists(file, header, hash));
  MegatronIndex index;
  index.width = header.width;
  index.hash = hash.digest();
  std::vector<uint64_t> starts;
  for (size_t i = 0; i < lists.lengths.size(); ++i) {
    starts.push_back(index.tokens);
    uint64_t expected = index.tokens * uint64_t(index.width);
    if (lists.lengths[i] < 0 || uint64_t(lists.places[i]) != expected)
      return Error{"'" + path + "' has sequence " + std::to_string(i) + " of " +
                   std::to_string(lists.lengths[i]) + " tokens at byte " +
                   std::to_string(lists.places[i]) +
                   ", expected it after the one before, at byte " +
                   std::to_string(expected)};
    index.tokens += uint64_t(lists.lengths[i]);
  }
  starts.push_back(index.tokens);
  for (int64_t first : lists.firstSequences) {
    if (first < 0 || uint64_t(first) > header.sequences)
      return Error{"'" + path + "' has a document at sequence " +
                   std::to_string(first) + " of " +
                   std::to_string(header.sequences)};
    uint64_t start = starts[size_t(first)];
    if (start < index.tokens &&
        (index.documents.empty() || start > index.documents.back()))
      index.documents.push_back(start);
  }
  return index;
}

} // namespace nsa
