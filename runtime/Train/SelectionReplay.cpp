//===- SelectionReplay.cpp - blocks that a rollout selected ---------------===//

#include "runtime/Train/SelectionReplay.h"

#include <algorithm>

using namespace nsa;

std::string SelectionReplay::keyOf(const int32_t *tokens) const {
  return {reinterpret_cast<const char *>(tokens),
          size_t(seqLen) * sizeof *tokens};
}

Status SelectionReplay::checkShape(const TrainBinding &binding) const {
  if (binding.selections.empty())
    return Error{"the program takes no selections: nsa-compile "
                 "--replay-selection makes one that does"};
  const TensorView &first = binding.selections[0];
  uint64_t layers = binding.selections.size();
  if (blocks.type != NpyType::I4 || blocks.shape.size() != 5)
    return Error{path + " is " + npyTypeName(blocks.type) + " " +
                 shapeText(blocks.shape) +
                 ", expected i32 of prompts, layers, heads, tokens and blocks"};
  const std::vector<uint64_t> &shape = blocks.shape;
  std::tuple<const char *, uint64_t, uint64_t> sizes[] = {
      {"sparse layers", shape[1], layers},
      {"key heads", shape[2], first.shape[1]},
      {"blocks of a token", shape[4], first.shape[3]}};
  for (auto [what, have, expected] : sizes)
    if (have != expected)
      return Error{path + " has " + std::to_string(have) + " " + what +
                   ", the model has " + std::to_string(expected)};
  if (shape[3] < uint64_t(seqLen))
    return Error{path + " has " + std::to_string(shape[3]) +
                 " tokens of a prompt, fewer than the " +
                 std::to_string(seqLen) + " of a sequence"};
  if (ids.type != NpyType::I4 ||
      ids.shape != std::vector<uint64_t>{shape[0], shape[3] + 1})
    return Error{path + " is beside ids " + npyTypeName(ids.type) + " " +
                 shapeText(ids.shape) + ", expected i32 " +
                 shapeText({shape[0], shape[3] + 1})};
  return {};
}

/// Blocks ascend up to that of the token, and -1 is past the last.
Status SelectionReplay::checkLists(uint64_t row, int64_t selectBlock) const {
  auto tokens = int64_t(blocks.shape[3]), count = int64_t(blocks.shape[4]);
  auto lists = int64_t(blocks.shape[1] * blocks.shape[2]);
  for (int64_t list = 0; list < lists; ++list)
    for (int64_t token = 0; token < seqLen; ++token) {
      const int32_t *own =
          blocks.as<int32_t>() +
          ((int64_t(row) * lists + list) * tokens + token) * count;
      int64_t last = token / selectBlock;
      for (int64_t i = 0; i < count; ++i) {
        bool follows = i == 0 ? own[i] >= 0 : own[i] > own[i - 1];
        bool isEnd = i > 0 && own[i] == -1;
        if (isEnd || (follows && own[i] <= last && (i == 0 || own[i - 1] >= 0)))
          continue;
        std::string before =
            i > 0 ? " after block " + std::to_string(own[i - 1]) : "";
        return Error{
            path + ": prompt " + std::to_string(row + 1) + ", layer " +
            std::to_string(list / int64_t(blocks.shape[2])) + ", head " +
            std::to_string(list % int64_t(blocks.shape[2])) + ", token " +
            std::to_string(token) + " has block " + std::to_string(own[i]) +
            before + ", expected ascending ones up to " + std::to_string(last)};
      }
    }
  return {};
}

Result<SelectionReplay> SelectionReplay::open(const std::string &path,
                                              const TrainBinding &binding,
                                              int64_t selectBlock) {
  SelectionReplay replay;
  replay.path = path;
  replay.seqLen = binding.seqLen;
  NSA_ASSIGN_OR_RETURN(replay.blocks, readNpy(path));
  NSA_ASSIGN_OR_RETURN(replay.ids, readNpy(idsPathOf(path)));
  NSA_RETURN_IF_ERROR(replay.checkShape(binding));
  uint64_t length = replay.ids.shape[1];
  for (uint64_t row = 0; row < replay.ids.shape[0]; ++row) {
    const int32_t *own = replay.ids.as<int32_t>() + row * length;
    // Of the last token there is no list.
    if (std::find(own, own + replay.seqLen + 1, -1) != own + replay.seqLen + 1)
      continue;
    NSA_RETURN_IF_ERROR(replay.checkLists(row, selectBlock));
    replay.rows.emplace(replay.keyOf(own), row);
  }
  if (replay.rows.empty())
    return Error{path + " has no prompt with more than the " +
                 std::to_string(replay.seqLen) + " tokens of a sequence"};
  return replay;
}

Result<uint64_t> SelectionReplay::find(const int32_t *tokens) const {
  auto found = rows.find(keyOf(tokens));
  if (found != rows.end())
    return found->second;
  std::string first;
  for (int64_t i = 0; i < std::min<int64_t>(seqLen, 8); ++i)
    first += (i ? "," : "") + std::to_string(tokens[i]);
  return Error{"none of the " + std::to_string(rows.size()) + " sequences of " +
               path + " begins with the " + std::to_string(seqLen) +
               " tokens " + first + ",..."};
}

void SelectionReplay::load(uint64_t row, int64_t sequence,
                           const TrainBinding &binding) const {
  auto heads = int64_t(blocks.shape[2]), tokens = int64_t(blocks.shape[3]),
       count = int64_t(blocks.shape[4]);
  for (size_t layer = 0; layer < binding.selections.size(); ++layer)
    for (int64_t head = 0; head < heads; ++head)
      std::copy_n(blocks.as<int32_t>() +
                      ((int64_t(row * blocks.shape[1] + layer) * heads + head) *
                       tokens) *
                          count,
                  seqLen * count,
                  binding.selections[layer].as<int32_t>() +
                      (sequence * heads + head) * seqLen * count);
}
