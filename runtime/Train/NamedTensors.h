//===- NamedTensors.h - tensors of other programs by name -------*- C++ -*-===//
//
// A checkpoint belongs to its parameters: their names and shapes decide which
// programs may take it up, not the kernels that computed it. What is here finds
// every parameter and every state of a checkpoint by name, in whatever
// files and parts it was saved. docs/parameter-names.md says how names are
// made.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_NAMEDTENSORS_H
#define NSA_RUNTIME_TRAIN_NAMEDTENSORS_H

#include "lib/Support/Safetensors.h"
#include "runtime/Train/Model.h"

#include <string>
#include <vector>

namespace nsa {

/// "F32[4x4], the artefact's is F32[5x5]" if type or shape differ, else empty.
std::string findDifference(const SafeTensor &saved, const TensorView &tensor);

/// How the parameters of a file differ from those of a model.
struct ParameterDifferences {
  /// Names that only the model has, and that only the file has.
  std::vector<std::string> missing, extra;
  /// One text for each parameter of another type or shape, with both.
  std::vector<std::string> different;

  bool none() const {
    return missing.empty() && extra.empty() && different.empty();
  }
  /// All of them in one sentence about the file, which is not named: the first
  /// few, and how many more there are.
  std::string describe() const;
};

ParameterDifferences compareParameters(const SafetensorsFile &saved,
                                       const TensorSet &model);

/// Copies the parameters that the file and the model have alike.
Status copyParameters(const SafetensorsFile &saved, const TensorSet &model);

/// Whether the checkpoint in `folder` is one of the model's parameters: names,
/// types and shapes.
Result<bool> hasParametersOf(const std::string &folder, const TensorSet &model);

/// Copies everything that the checkpoint in `folder` has into the `model` of a
/// rank, whatever program of the same parameters saved it, on however many
/// ranks that share the optimizer's states. Returns what could not be taken
/// over as it was: state that the checkpoint lacks keeps its initial value,
/// state that the model has no use for is dropped. Other parameters are an
/// error, and so are shares of older versions, which do not say whose states
/// they have, but of the same program.
Result<std::vector<std::string>> restoreByName(const std::string &folder,
                                               const TensorSet &model, int rank,
                                               bool isSameProgram = false);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_NAMEDTENSORS_H
