//===- FiniteCheck.cpp - NaNs and infinities in results -------------------===//

#include "runtime/CPU/FiniteCheck.h"
#include "runtime/CPU/Convert.h"

using namespace nsa;
using artifact::Slice;

Status nsa::canCheckResults(const artifact::Artifact &root) {
  for (const artifact::Kernel *kernel : *root.kernels())
    if (!kernel->argument_types() || !kernel->argument_bytes())
      return Error{"kernel '" + kernel->name()->str() +
                   "' does not say what its arguments are, so its results "
                   "cannot be checked"};
  return {};
}

static void add(std::vector<FloatOutput> &outputs, DataType type,
                const Slice &slice, bool allowMinusInfinity = false,
                const artifact::Rows *rows = nullptr) {
  if (!isFloat(type))
    return;
  auto span = int64_t(slice.size() / elementBytes(type));
  int64_t width = rows ? int64_t(rows->width()) : span;
  int64_t pitch = rows ? int64_t(rows->pitch()) : span;
  int64_t count = span ? ((span - width) / pitch + 1) * width : 0;
  outputs.push_back({type, slice, count, width, pitch, allowMinusInfinity});
}

std::vector<FloatOutput> nsa::floatOutputs(const artifact::Artifact &root,
                                           const artifact::Command &command) {
  std::vector<FloatOutput> outputs;
  if (const auto *launch = command.action_as_Launch()) {
    const artifact::Kernel &kernel = *root.kernels()->Get(launch->kernel());
    for (unsigned i = kernel.arguments() - kernel.outputs();
         i < kernel.arguments(); ++i)
      add(outputs, kernel.argument_types()->Get(i), *launch->operands()->Get(i),
          /*allowMinusInfinity=*/true,
          kernel.argument_rows() ? kernel.argument_rows()->Get(i) : nullptr);
  } else if (const auto *gemm = command.action_as_Gemm()) {
    add(outputs, gemm->out_type(), *gemm->out());
  } else if (const auto *fill = command.action_as_Fill()) {
    add(outputs, fill->type(), *fill->out());
  } else if (const auto *initialize = command.action_as_Initialize()) {
    const artifact::Tensor &tensor = *root.tensors()->Get(initialize->tensor());
    add(outputs, tensor.type(), *tensor.slice());
  }
  return outputs;
}

std::optional<NonFinite> nsa::findNonFinite(size_t command, size_t output,
                                            const FloatOutput &array,
                                            const void *data) {
  for (int64_t done = 0; done < array.count; done += array.width) {
    const char *row =
        static_cast<const char *>(data) +
        done / array.width * array.pitch * int64_t(elementBytes(array.type));
    int64_t at =
        findNonFinite(array.type, row, array.width, array.allowMinusInfinity);
    if (at >= 0)
      return NonFinite{command, output, done + at,
                       elementAt(array.type, row, at)};
  }
  return std::nullopt;
}
