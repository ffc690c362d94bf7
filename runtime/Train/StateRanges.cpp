//===- StateRanges.cpp - whose states a rank keeps ------------------------===//

#include "runtime/Train/StateRanges.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace nsa {

namespace {

/// Weights that lie one after the other, of which each rank updates a part.
struct Piece {
  /// Bytes of the weights.
  artifact::Slice whole;
  /// The part of a rank, in a buffer for those of all pieces.
  artifact::Slice part;
};

/// The pieces of all weights with or without decay: alike for their states.
struct Group {
  std::vector<Piece> pieces;
  std::vector<const artifact::Tensor *> states;
};

class RangeFinder {
public:
  RangeFinder(const artifact::Artifact &root, uint64_t rank)
      : root(root), rank(rank) {}

  Result<std::vector<StateRange>> run();

private:
  Status collect();
  Status add(const artifact::Slice &whole, const artifact::Slice &part);
  Status checkGroup(const Group &group, bool decay) const;
  void addRanges(const Group &group);

  const artifact::Artifact &root;
  uint64_t rank;
  /// Without decay and with it.
  Group groups[2];
  /// What optimizers call the states that ranks share.
  std::set<std::string> names;
  /// Parameters whose states each rank has whole.
  std::set<std::string> whole;
  std::vector<StateRange> ranges;
};

} // namespace

static Error unclear(const std::string &why) {
  return Error{"the artefact does not say which states a rank keeps: " + why};
}

static bool liesIn(const artifact::Slice &inner, const artifact::Slice &outer) {
  return inner.segment() == outer.segment() &&
         inner.offset() >= outer.offset() &&
         inner.offset() + inner.size() <= outer.offset() + outer.size();
}

static bool isParameter(const artifact::Tensor &tensor) {
  return tensor.role() == TensorRole::Parameter;
}

/// Notes a command that puts updated weights of this rank among those of all,
/// or takes its part of them.
Status RangeFinder::add(const artifact::Slice &whole,
                        const artifact::Slice &part) {
  const artifact::Tensor *first = nullptr;
  for (const artifact::Tensor *tensor : *root.tensors()) {
    if (!isParameter(*tensor) || !liesIn(*tensor->slice(), whole))
      continue;
    if (!first)
      first = tensor;
    if (tensor->decay() != first->decay() || tensor->type() != DataType::F32)
      return unclear("parameters '" + first->name()->str() + "' and '" +
                     tensor->name()->str() + "' have one bucket");
  }
  if (first)
    groups[first->decay()].pieces.push_back({whole, part});
  return {};
}

Status RangeFinder::collect() {
  for (const artifact::Entry *entry : *root.entries()) {
    bool scatters = entry->name()->str() == training::scatterEntry;
    if (!scatters && entry->name()->str() != training::updateEntry)
      continue;
    for (const artifact::Command *command : *entry->commands()) {
      const auto *copy = command->action_as_Copy();
      if (copy && scatters)
        NSA_RETURN_IF_ERROR(add(*copy->source(), *copy->out()));
      else if (copy && copy->part() == artifact::CopyPart::Out)
        NSA_RETURN_IF_ERROR(add(*copy->out(), *copy->source()));
    }
  }
  for (const artifact::Tensor *tensor : *root.tensors()) {
    if (!tensor->state())
      continue;
    std::string state = tensor->state()->str(), name = tensor->name()->str();
    bool decayed = name == state + "." + training::sharedDecayed;
    if (decayed || name == state + "." + training::sharedOthers) {
      if (state != training::weightState)
        names.insert(state);
      groups[decayed].states.push_back(tensor);
      continue;
    }
    std::string parameter =
        name.substr(std::min(state.size() + 1, name.size()));
    whole.insert(parameter);
    ranges.push_back(
        {name, 0, parameter, 0, tensor->slice()->size() / sizeof(float)});
  }
  return {};
}

/// Every parameter whose states are shared is in a piece, and the parts are as
/// large as the states.
Status RangeFinder::checkGroup(const Group &group, bool decay) const {
  for (const artifact::Tensor *tensor : *root.tensors())
    if (isParameter(*tensor) && tensor->decay() == decay &&
        !whole.count(tensor->name()->str()) &&
        std::none_of(group.pieces.begin(), group.pieces.end(),
                     [&](const Piece &piece) {
                       return liesIn(*tensor->slice(), piece.whole);
                     }))
      return unclear("no part of '" + tensor->name()->str() + "' is updated");
  if (group.pieces.empty())
    return {};
  uint64_t begin = group.pieces.front().part.offset(), end = begin, bytes = 0;
  for (const Piece &piece : group.pieces) {
    begin = std::min(begin, piece.part.offset());
    end = std::max(end, piece.part.offset() + piece.part.size());
    bytes += piece.part.size();
  }
  auto count =
      size_t(std::count_if(group.states.begin(), group.states.end(),
                           [&](const artifact::Tensor *state) {
                             return names.count(state->state()->str()) != 0;
                           }));
  if (count != names.size())
    return unclear("it has " + std::to_string(count) + " of " +
                   std::to_string(names.size()) + " states for the weights " +
                   (decay ? "with" : "without") + " weight decay");
  for (const artifact::Tensor *state : group.states) {
    if (state->slice()->size() != bytes || end - begin != bytes)
      return unclear("'" + state->name()->str() + "' has " +
                     std::to_string(state->slice()->size()) +
                     " bytes, the updated weights of a rank " +
                     std::to_string(bytes));
  }
  return {};
}

void RangeFinder::addRanges(const Group &group) {
  uint64_t base = ~uint64_t(0);
  for (const Piece &piece : group.pieces)
    base = std::min(base, piece.part.offset());
  for (const Piece &piece : group.pieces) {
    uint64_t begin = piece.whole.offset() + rank * piece.part.size();
    uint64_t end = begin + piece.part.size();
    for (const artifact::Tensor *tensor : *root.tensors()) {
      const artifact::Slice &slice = *tensor->slice();
      if (!isParameter(*tensor) || !liesIn(slice, piece.whole))
        continue;
      uint64_t from = std::max(begin, slice.offset());
      uint64_t to = std::min(end, slice.offset() + slice.size());
      if (from >= to)
        continue;
      for (const artifact::Tensor *state : group.states)
        ranges.push_back({state->name()->str(),
                          (piece.part.offset() - base + from - begin) / 4,
                          tensor->name()->str(), (from - slice.offset()) / 4,
                          (to - from) / 4});
    }
  }
}

Result<std::vector<StateRange>> RangeFinder::run() {
  NSA_RETURN_IF_ERROR(collect());
  for (bool decay : {false, true}) {
    NSA_RETURN_IF_ERROR(checkGroup(groups[decay], decay));
    addRanges(groups[decay]);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const StateRange &a, const StateRange &b) {
              return std::tie(a.tensor, a.offset) <
                     std::tie(b.tensor, b.offset);
            });
  return std::move(ranges);
}

Result<std::vector<StateRange>>
findStateRanges(const artifact::Artifact &program, int rank) {
  if (program.ranks() == 0)
    return std::vector<StateRange>();
  return RangeFinder(program, uint64_t(rank)).run();
}

std::string printStateRanges(const std::vector<StateRange> &ranges) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const StateRange &range : ranges)
    json.push_back({range.tensor, range.offset, range.parameter, range.first,
                    range.count});
  return jsonText(json);
}

Result<std::vector<StateRange>> parseStateRanges(const std::string &text) {
  try {
    auto json = parseJson<nlohmann::ordered_json>(text.begin(), text.end());
    std::vector<StateRange> ranges;
    for (const auto &range : json)
      ranges.push_back({range.at(0).get<std::string>(),
                        readUnsigned(range.at(1)),
                        range.at(2).get<std::string>(),
                        readUnsigned(range.at(3)), readUnsigned(range.at(4))});
    return ranges;
  } catch (const std::exception &error) {
    return Error{oneLine(error.what())};
  }
}

} // namespace nsa
