//===- Describe.cpp - commands in words -----------------------------------===//

#include "runtime/Core/Describe.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/DataType.h"
#include "runtime/Core/Bindings.h"

#include <algorithm>

using namespace nsa;
using artifact::Action;

std::string nsa::commandTitle(const artifact::Artifact &root,
                              const artifact::Command &command) {
  switch (command.action_type()) {
  case Action::Launch:
    return "launch @" + root.kernels()
                            ->Get(command.action_as_Launch()->kernel())
                            ->name()
                            ->str();
  case Action::Gemm: {
    const auto &gemm = *command.action_as_Gemm();
    return "gemm " + std::to_string(gemm.m()) + "x" + std::to_string(gemm.n()) +
           "x" + std::to_string(gemm.k()) +
           (gemm.batch() > 1 ? " x " + std::to_string(gemm.batch()) : "");
  }
  case Action::Fill:
    return "fill";
  case Action::Copy: {
    const char *what =
        command.action_as_Copy()->sequences() ? "sequence" : "shard";
    switch (command.action_as_Copy()->part()) {
    case artifact::CopyPart::Source:
      return std::string("slice_") + what;
    case artifact::CopyPart::Out:
      return std::string("write_") + what;
    case artifact::CopyPart::None:
      break;
    }
    return "copy";
  }
  case Action::Initialize:
    return "initialize @" + root.tensors()
                                ->Get(command.action_as_Initialize()->tensor())
                                ->name()
                                ->str();
  case Action::CollectiveStart:
    return std::string(
               collectiveName(command.action_as_CollectiveStart()->kind())) +
           "_start";
  case Action::CollectiveDone:
    return "collective_done";
  case Action::NONE:
    break;
  }
  return "unknown";
}

std::string nsa::commandLocation(const artifact::Artifact &root,
                                 const artifact::Command &command) {
  std::string location =
      oneLine(root.locations()->Get(command.location())->str());
  return location.empty() ? "unknown" : location;
}

std::string nsa::describeCommand(const artifact::Artifact &root, size_t index,
                                 const artifact::Command &command,
                                 const std::string &what) {
  return "command " + std::to_string(index) + " (" +
         commandTitle(root, command) + "): " + what + ", from " +
         commandLocation(root, command);
}

uint64_t nsa::commandFlops(const artifact::Artifact &root,
                           const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return root.kernels()->Get(launch->kernel())->flops();
  if (const auto *gemm = command.action_as_Gemm())
    return 2 * gemm->m() * gemm->n() * gemm->k() * gemm->batch();
  return 0;
}

static WrittenArray describeArray(DataType type, const artifact::Slice &slice,
                                  const artifact::Rows *rows = nullptr) {
  auto span = int64_t(slice.size() / elementBytes(type));
  int64_t width = rows ? int64_t(rows->width()) : span;
  int64_t pitch = rows ? int64_t(rows->pitch()) : span;
  int64_t count = span ? ((span - width) / pitch + 1) * width : 0;
  return {type, slice, count, width, pitch};
}

std::vector<WrittenArray> nsa::writtenArrays(const artifact::Artifact &root,
                                             const artifact::Command &command) {
  if (const auto *gemm = command.action_as_Gemm())
    return {describeArray(gemm->out_type(), *gemm->out())};
  if (const auto *fill = command.action_as_Fill())
    return {describeArray(fill->type(), *fill->out())};
  if (const auto *initialize = command.action_as_Initialize()) {
    const artifact::Tensor &tensor = *root.tensors()->Get(initialize->tensor());
    return {describeArray(tensor.type(), *tensor.slice())};
  }
  std::vector<WrittenArray> arrays;
  const auto *launch = command.action_as_Launch();
  const artifact::Kernel *kernel =
      launch ? root.kernels()->Get(launch->kernel()) : nullptr;
  if (!kernel || !kernel->argument_types())
    return arrays;
  for (unsigned i = kernel->arguments() - kernel->outputs();
       i < kernel->arguments(); ++i)
    arrays.push_back(describeArray(
        kernel->argument_types()->Get(i), *launch->operands()->Get(i),
        kernel->argument_rows() ? kernel->argument_rows()->Get(i) : nullptr));
  return arrays;
}

bool nsa::commandHasHalf(const artifact::Artifact &root,
                         const artifact::Command &command) {
  auto isHalf = [](DataType type) {
    return type == DataType::BF16 || type == DataType::F16;
  };
  if (const auto *gemm = command.action_as_Gemm())
    return isHalf(gemm->lhs_type()) || isHalf(gemm->rhs_type());
  const auto *launch = command.action_as_Launch();
  const auto *types =
      launch ? root.kernels()->Get(launch->kernel())->argument_types()
             : nullptr;
  for (unsigned i = 0; types && i < types->size(); ++i)
    if (isHalf(types->Get(i)))
      return true;
  return false;
}

const char *nsa::segmentName(artifact::SegmentKind kind) {
  constexpr const char *names[] = {"persistent", "io", "arena", "workspace",
                                   "host"};
  static_assert(std::size(names) == size_t(artifact::SegmentKind::MAX) + 1);
  return kind <= artifact::SegmentKind::MAX ? names[size_t(kind)] : "unknown";
}

uint64_t nsa::commandBytes(const artifact::Artifact &root,
                           const artifact::Command &command) {
  if (const auto *gemm = command.action_as_Gemm())
    return gemm->lhs()->size() + gemm->rhs()->size() +
           (gemm->beta() == 0 ? 1 : 2) * gemm->out()->size();
  if (const auto *copy = command.action_as_Copy())
    return 2 * std::min(copy->source()->size(), copy->out()->size());
  uint64_t bytes = 0;
  for (const artifact::Slice *slice : slicesOf(root, command))
    bytes += slice->size();
  return bytes;
}
