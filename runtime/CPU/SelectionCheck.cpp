//===- SelectionCheck.cpp - numbers of blocks in inputs -------------------===//

#include "runtime/CPU/SelectionCheck.h"
#include "lib/Support/Text.h"

#include <cstring>

using namespace nsa;

/// The name of the entry's input that lies in the slice, if it is one.
static std::string nameOf(const artifact::Artifact &root,
                          const artifact::Entry &entry,
                          const artifact::Slice &slice, unsigned argument) {
  for (uint32_t index : *entry.inputs()) {
    const artifact::Tensor &tensor = *root.tensors()->Get(index);
    if (tensor.slice()->segment() == slice.segment() &&
        tensor.slice()->offset() == slice.offset())
      return "input " + quote(tensor.name()->str());
  }
  return "argument " + std::to_string(argument);
}

std::vector<SelectionInput>
nsa::selectionInputs(const artifact::Artifact &root,
                     const artifact::Entry &entry,
                     const artifact::Command &command) {
  std::vector<SelectionInput> inputs;
  const artifact::Launch *launch = command.action_as_Launch();
  const auto *selections =
      launch ? root.kernels()->Get(launch->kernel())->selections() : nullptr;
  if (!selections)
    return inputs;
  for (const artifact::Selection *selection : *selections) {
    const artifact::Slice &slice =
        *launch->operands()->Get(selection->argument());
    inputs.push_back({slice, int64_t(selection->tokens()),
                      int64_t(selection->count()), int64_t(selection->block()),
                      nameOf(root, entry, slice, selection->argument())});
  }
  return inputs;
}

std::string nsa::findBadSelection(const SelectionInput &input,
                                  const void *data) {
  int64_t elements = int64_t(input.slice.size() / sizeof(int32_t));
  const char *bytes = static_cast<const char *>(data);
  for (int64_t i = 0; i < elements; ++i) {
    int32_t number;
    std::memcpy(&number, bytes + i * int64_t(sizeof number), sizeof number);
    int64_t token = i / input.count % input.tokens;
    int64_t own = token / input.block;
    if (number >= -1 && number <= own)
      continue;
    int64_t blocks = (input.tokens + input.block - 1) / input.block;
    return "element " + std::to_string(i) + " of " + input.name +
           " selects block " + std::to_string(number) + " for token " +
           std::to_string(token) + ", expected -1 to " + std::to_string(own) +
           ", the block of the token, of " + std::to_string(blocks) +
           " blocks of " + std::to_string(input.block) + " tokens";
  }
  return "";
}
