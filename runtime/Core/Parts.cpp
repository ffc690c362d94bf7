//===- Parts.cpp - what ranks share of a program --------------------------===//

#include "runtime/Core/Parts.h"

#include <algorithm>

using namespace nsa;
using artifact::CopyPart;

CopyBytes nsa::bytesOf(const artifact::Copy &copy, int rank) {
  CopyBytes bytes;
  bytes.count = std::min(copy.source()->size(), copy.out()->size());
  if (copy.part() == CopyPart::Source)
    bytes.sourceOffset = uint64_t(rank) * bytes.count;
  if (copy.part() == CopyPart::Out)
    bytes.outOffset = uint64_t(rank) * bytes.count;
  return bytes;
}

Status nsa::checkRanks(const artifact::Artifact &root, int size) {
  if (root.ranks() == 0 || root.ranks() == uint64_t(size))
    return {};
  return Error{"is compiled for " + std::to_string(root.ranks()) +
               " ranks, which share the optimizer's state; this is a run of " +
               std::to_string(size)};
}
