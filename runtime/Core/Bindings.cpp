//===- Bindings.cpp - memory of callers in the place of tensors -----------===//

#include "runtime/Core/Bindings.h"
#include "runtime/Core/Describe.h"

#include <algorithm>

using namespace nsa;
using artifact::Slice;

static bool isSame(const Slice &a, const Slice &b) {
  return a.segment() == b.segment() && a.offset() == b.offset() &&
         a.size() == b.size();
}

bool Bindings::Range::operator==(const Range &other) const {
  return isSame(slice, other.slice) && address == other.address;
}

bool Bindings::coversSame(const Bindings &other) const {
  return std::equal(
      ranges.begin(), ranges.end(), other.ranges.begin(), other.ranges.end(),
      [](const Range &a, const Range &b) { return isSame(a.slice, b.slice); });
}

std::vector<const Slice *> nsa::slicesOf(const artifact::Artifact &root,
                                         const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return {launch->operands()->begin(), launch->operands()->end()};
  if (const auto *gemm = command.action_as_Gemm()) {
    std::vector<const Slice *> slices = {gemm->lhs(), gemm->rhs(), gemm->out()};
    for (const Slice *slice : {gemm->addend(), gemm->workspace()})
      if (slice)
        slices.push_back(slice);
    return slices;
  }
  if (const auto *fill = command.action_as_Fill())
    return {fill->out()};
  if (const auto *copy = command.action_as_Copy())
    return {copy->source(), copy->out()};
  if (const auto *start = command.action_as_CollectiveStart()) {
    if (start->rows())
      return {start->memory(), start->rows()};
    return {start->memory()};
  }
  if (const auto *done = command.action_as_CollectiveDone())
    return {done->memory()};
  const auto *initialize = command.action_as_Initialize();
  return {root.tensors()->Get(initialize->tensor())->slice()};
}

static bool overlap(const Slice &a, const Slice &b) {
  return a.segment() == b.segment() && a.offset() < b.offset() + b.size() &&
         b.offset() < a.offset() + a.size();
}

Status Bindings::check(const artifact::Artifact &root,
                       const artifact::Entry &entry, bool isAllMemory) const {
  for (unsigned i = 0; i < entry.commands()->size(); ++i) {
    const artifact::Command &command = *entry.commands()->Get(i);
    if (command.action_as_Initialize())
      for (const Range &range : ranges)
        if (overlap(range.slice, *slicesOf(root, command).front()))
          return Error{describeCommand(
              root, i, command,
              "gives a tensor its initial value in the program's own memory")};
    for (const Slice *used : slicesOf(root, command)) {
      const Slice &slice = *used;
      if (isAllMemory && slice.size() != 0 && !find(slice))
        return Error{describeCommand(root, i, command,
                                     "uses " + std::to_string(slice.size()) +
                                         " bytes of a program without memory "
                                         "for which none was given")};
      for (const Range &range : ranges)
        if (overlap(range.slice, slice) && !find(slice))
          return Error{
              describeCommand(root, i, command,
                              "uses " + std::to_string(slice.size()) +
                                  " bytes that are more than the tensor of " +
                                  std::to_string(range.slice.size()) +
                                  " bytes that an array was given for")};
    }
  }
  return {};
}
