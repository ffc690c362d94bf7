//===- FiniteCheck.cpp - NaNs and infinities in results -------------------===//

#include "runtime/CPU/FiniteCheck.h"
#include "lib/Support/Text.h"
#include "runtime/CPU/Convert.h"

using namespace nsa;

Status nsa::canCheckResults(const artifact::Artifact &root) {
  for (const artifact::Kernel *kernel : *root.kernels())
    if (!kernel->argument_types() || !kernel->argument_bytes())
      return Error{"kernel " + quote(kernel->name()->str()) +
                   " does not say what its arguments are, so its results "
                   "cannot be checked"};
  return {};
}

std::vector<FloatOutput> nsa::floatOutputs(const artifact::Artifact &root,
                                           const artifact::Command &command) {
  std::vector<FloatOutput> outputs;
  bool isLaunch = command.action_as_Launch();
  for (const WrittenArray &array : writtenArrays(root, command))
    if (isFloat(array.type))
      outputs.push_back({array, /*allowMinusInfinity=*/isLaunch});
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
