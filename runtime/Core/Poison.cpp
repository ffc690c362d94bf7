//===- Poison.cpp - memory that must be written before it is read ---------===//

#include "runtime/Core/Poison.h"

#include <set>

using namespace nsa;
using artifact::SegmentKind;
using artifact::Slice;

std::vector<Slice> nsa::slicesToPoison(const artifact::Artifact &root,
                                       const artifact::Entry &entry) {
  std::vector<Slice> slices;
  for (unsigned i = 0; i < root.segments()->size(); ++i) {
    const artifact::Segment &segment = *root.segments()->Get(i);
    if (segment.kind() == SegmentKind::Arena ||
        segment.kind() == SegmentKind::Workspace)
      slices.push_back(Slice(i, 0, segment.size()));
  }
  std::set<uint32_t> inputs(entry.inputs()->begin(), entry.inputs()->end());
  for (uint32_t output : *entry.outputs()) {
    const artifact::Tensor &tensor = *root.tensors()->Get(output);
    if (tensor.role() == artifact::TensorRole::Output && !inputs.count(output))
      slices.push_back(*tensor.slice());
  }
  return slices;
}
