//===- Shard.cpp - one file of tokens -------------------------------------===//

#include "runtime/Data/Shard.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cstring>

namespace nsa {

const char *widthName(TokenWidth width) {
  return width == TokenWidth::U16 ? "u16" : "u32";
}

const ShardFormat &shardFormat(TokenWidth width) {
  return shardFormats[width == TokenWidth::U16 ? 0 : 1];
}

/// The format that a header's magic stands for, or null.
static const ShardFormat *findFormat(int32_t magic) {
  for (const ShardFormat &format : shardFormats)
    if (format.magic == magic)
      return &format;
  return nullptr;
}

Result<Shard> Shard::open(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  if (file.size() < shardHeaderBytes)
    return Error{
        "'" + path + "' is no token shard: " + std::to_string(file.size()) +
        " bytes, the header alone has " + std::to_string(shardHeaderBytes)};
  int32_t header[3];
  NSA_RETURN_IF_ERROR(file.readAt(0, header, sizeof header));
  const ShardFormat *format = findFormat(header[0]);
  if (!format)
    return Error{"'" + path + "' is no token shard: magic " +
                 std::to_string(header[0]) + ", expected " +
                 std::to_string(shardFormats[0].magic) + " (u16) or " +
                 std::to_string(shardFormats[1].magic) + " (u32)"};
  if (header[1] != format->version)
    return Error{"'" + path + "' has shard version " +
                 std::to_string(header[1]) + ", expected " +
                 std::to_string(format->version)};
  uint64_t present = file.size() - shardHeaderBytes;
  if (header[2] < 0 || uint64_t(header[2]) * uint64_t(format->width) != present)
    return Error{"'" + path + "' is truncated or corrupted: its header says " +
                 std::to_string(header[2]) + " tokens, the file holds " +
                 std::to_string(present) + " bytes of tokens"};
  Shard shard(std::move(file));
  shard.count = uint64_t(header[2]);
  shard.tokenWidth = format->width;
  return shard;
}

Result<Shard> Shard::openRaw(const std::string &path, TokenWidth width,
                             uint64_t tokens) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  if (file.size() % uint64_t(width) != 0 ||
      file.size() / uint64_t(width) != tokens)
    return Error{"'" + path + "' is truncated or corrupted: its index says " +
                 std::to_string(tokens) + " tokens of " + widthName(width) +
                 ", the file holds " + std::to_string(file.size()) + " bytes"};
  Shard shard(std::move(file));
  shard.begin = 0;
  shard.count = tokens;
  shard.tokenWidth = width;
  return shard;
}

void Shard::narrow(uint64_t first, uint64_t number) {
  assert(first <= count && number <= count - first && "tokens it has not");
  begin += first * tokenBytes();
  count = number;
}

Status Shard::readBytes(uint64_t offset, uint64_t number, void *out) const {
  if (file.isOpen())
    return file.readAt(offset, out, size_t(number));
  NSA_ASSIGN_OR_RETURN(InputFile again, InputFile::open(path()));
  if (!again.isSame(file))
    return Error{"'" + path() +
                 "' has been replaced since it was opened: it "
                 "had " +
                 std::to_string(file.size()) + " bytes, it has " +
                 std::to_string(again.size())};
  return again.readAt(offset, out, size_t(number));
}

SplitWriter::SplitWriter(std::string directory, std::string split,
                         uint64_t tokensPerShard, TokenWidth width)
    : directory(std::move(directory)), split(std::move(split)),
      tokensPerShard(tokensPerShard), width(width) {
  assert(tokensPerShard >= 1 && tokensPerShard <= maxShardTokens);
}

Status SplitWriter::openNext() {
  done.push_back({split + formatted("_%06zu.bin", done.size()), 0, 0});
  NSA_ASSIGN_OR_RETURN(OutputFile created,
                       OutputFile::create(directory + "/" + done.back().file));
  file.emplace(std::move(created));
  inShard = 0;
  char header[shardHeaderBytes] = {};
  return file->write(header, sizeof header);
}

Status SplitWriter::flush() {
  Status status = file->write(buffer.data(), buffer.size());
  buffer.clear();
  return status;
}

Status SplitWriter::closeCurrent() {
  if (!file)
    return {};
  NSA_RETURN_IF_ERROR(flush());
  const ShardFormat &format = shardFormat(width);
  int32_t header[3] = {format.magic, format.version, int32_t(inShard)};
  NSA_RETURN_IF_ERROR(file->writeAt(0, header, sizeof header));
  NSA_RETURN_IF_ERROR(file->finish());
  file.reset();
  ShardInfo &info = done.back();
  info.tokens = inShard;
  NSA_ASSIGN_OR_RETURN(info.hash, hashFile(directory + "/" + info.file));
  return {};
}

Status SplitWriter::append(const uint16_t *tokens, uint64_t count) {
  assert(width == TokenWidth::U16 && "tokens of another width");
  return appendRaw(reinterpret_cast<const char *>(tokens), count);
}

Status SplitWriter::append(const uint32_t *tokens, uint64_t count) {
  assert(width == TokenWidth::U32 && "tokens of another width");
  return appendRaw(reinterpret_cast<const char *>(tokens), count);
}

Status SplitWriter::appendRaw(const char *tokens, uint64_t count) {
  const auto size = size_t(width);
  const size_t flushAt = size << 16;
  while (count > 0) {
    if (file && inShard == tokensPerShard)
      NSA_RETURN_IF_ERROR(closeCurrent());
    if (!file)
      NSA_RETURN_IF_ERROR(openNext());
    uint64_t take = std::min<uint64_t>(
        {count, tokensPerShard - inShard, (flushAt - buffer.size()) / size});
    buffer.insert(buffer.end(), tokens, tokens + take * size);
    tokens += take * size;
    count -= take;
    inShard += take;
    total += take;
    if (buffer.size() == flushAt)
      NSA_RETURN_IF_ERROR(flush());
  }
  return {};
}

Result<std::vector<ShardInfo>> SplitWriter::finish() {
  NSA_RETURN_IF_ERROR(closeCurrent());
  return std::move(done);
}

} // namespace nsa
