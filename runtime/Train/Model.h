//===- Model.h - a trainable program ----------------------------*- C++ -*-===//
//
// What the training loop needs of a program: entries that run and tensors that
// the host sees. Artefacts are adapted to it by ProgramModel; tests bring
// their own.
//
// nsa/Artifact/TrainingContract.h says which entries and tensors a trainable
// program has.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_TRAIN_MODEL_H
#define NSA_RUNTIME_TRAIN_MODEL_H

#include "nsa/Runtime/Runtime.h"
#include "runtime/Train/StateRanges.h"
#include "runtime/Train/StepProfile.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nsa {

/// Activations of a step: those of one operation of the model in all of its
/// layers, of one type and one size.
struct ActivationClass {
  /// Such as "layers.*.attention.query", or a line of the source.
  std::string name;
  DataType type = DataType::F32;
  int64_t elements = 0;
  /// Whether it belongs to the backward graph.
  bool backward = false;
  /// How many there are.
  int64_t arrays = 0;
};

/// Named tensors that the host sees: what a checkpoint is saved of.
class TensorSet {
public:
  virtual ~TensorSet() = default;

  /// The views stay valid as long as the object.
  virtual const std::vector<TensorView> &tensors() const = 0;

  /// Bring a tensor's elements on the device up to date with what the host
  /// wrote to its `data`, or the other way round; see Program::toDevice.
  virtual Status toDevice(const TensorView &) const { return {}; }
  virtual Status toHost(const TensorView &) const { return {}; }

  /// Ranks that each keep a part of the optimizer's states; 0 if each keeps
  /// all.
  virtual int sharingRanks() const { return 0; }

  /// Whose states a rank keeps where ranks share them; see findStateRanges.
  virtual Result<std::vector<StateRange>> stateRanges(int) const {
    return std::vector<StateRange>();
  }
};

class Model : public TensorSet {
public:
  virtual Status run(std::string_view entry) = 0;

  /// `run` in two parts: hands an entry to the device, and waits for all that
  /// was started and brings its outputs back; see Program::start.
  virtual Status start(std::string_view entry) { return run(entry); }
  virtual Status finish(std::string_view) { return {}; }

  virtual bool hasEntry(std::string_view entry) const = 0;

  /// Before evaluations and samples, on all ranks: gathers weights of which
  /// ranks keep parts, if they were updated since.
  virtual Status gatherWeights() { return {}; }

  /// An input or output of an entry by name, or null.
  virtual const TensorView *input(std::string_view entry,
                                  std::string_view name) const = 0;
  virtual const TensorView *output(std::string_view entry,
                                   std::string_view name) const = 0;

  /// Floating-point operations that the commands of an entry execute; 0 where
  /// nothing is counted.
  virtual uint64_t flops(std::string_view) const { return 0; }

  /// Whether the `data` of parameters and states is a copy that entries leave
  /// as it is until the next toHost.
  virtual bool hostIsCopy() const { return false; }

  /// Makes toHost of parameters and states faster, at the price of memory that
  /// cannot be swapped out; see Program::pinHost.
  virtual Status pinHost() { return {}; }

  /// The activations of a pass, in the order of its commands.
  virtual std::vector<ActivationClass> activations() const { return {}; }

  /// What was planned, allocated, and is in use; see Program::memory. Empty
  /// where there is no program.
  virtual MemoryUse memory() const { return {}; }

  /// Seconds that the device has waited for other ranks; see
  /// Program::waitedSeconds.
  virtual double waitedSeconds() const { return 0; }

  /// Tokens that the entry `decode` takes in a sequence; 0 without one.
  virtual int64_t sampleContext() const { return 0; }

  /// Tokens that the model has, as its configuration says; 0 if it has none.
  virtual int64_t vocabSize() const { return 0; }

  /// Ranks that share each sequence; see chunkOf.
  virtual int64_t sequenceRanks() const { return 1; }

  /// Identifies the program: equal programs have equal hashes, whatever their
  /// files say besides; see Artifact::identity.
  virtual uint64_t hash() const = 0;

  /// Where in the model's source an entry computes what a tensor holds after
  /// it, such as "model.mlir:12:8 (backward)"; empty where that is not known.
  virtual std::string origin(std::string_view, const TensorView &) const {
    return "";
  }

  /// The number of the first command of an entry that writes into a tensor, by
  /// which tensors are in the order in which they were computed.
  virtual size_t firstWriter(std::string_view, const TensorView &) const {
    return 0;
  }

  /// Whether the last run stopped because a command wrote a NaN or an infinity;
  /// see RuntimeOptions::checkFinite. Its error names the command.
  virtual bool foundNonFinite() const { return false; }
};

/// A loaded artefact. Owns the program.
class ProgramModel final : public Model {
public:
  /// With a profile, which must outlive the model, runs are recorded in it.
  explicit ProgramModel(Program program, StepProfile *profile = nullptr)
      : program(std::move(program)), profile(profile) {}

  Status run(std::string_view entry) override;
  Status start(std::string_view entry) override;
  Status finish(std::string_view entry) override;
  bool hasEntry(std::string_view entry) const override {
    return program.findEntry(entry) != nullptr;
  }
  Status gatherWeights() override;
  int sharingRanks() const override { return int(program.artifact()->ranks()); }
  Result<std::vector<StateRange>> stateRanges(int rank) const override {
    return findStateRanges(program.artifact().root(), rank);
  }
  const std::vector<TensorView> &tensors() const override {
    return program.tensors();
  }
  const TensorView *input(std::string_view entry,
                          std::string_view name) const override;
  const TensorView *output(std::string_view entry,
                           std::string_view name) const override;
  Status toDevice(const TensorView &tensor) const override {
    return program.toDevice(tensor);
  }
  Status toHost(const TensorView &tensor) const override {
    return program.toHost(tensor);
  }
  uint64_t flops(std::string_view entry) const override;
  bool hostIsCopy() const override { return !program.gpu().empty(); }
  Status pinHost() override { return program.pinHost(); }
  std::vector<ActivationClass> activations() const override;
  MemoryUse memory() const override { return program.memory(); }
  double waitedSeconds() const override { return program.waitedSeconds(); }
  int64_t sampleContext() const override;
  int64_t vocabSize() const override;
  int64_t sequenceRanks() const override {
    return program.artifact()->sequence_ranks();
  }
  uint64_t hash() const override { return program.artifact().identity(); }
  std::string origin(std::string_view entry,
                     const TensorView &tensor) const override;
  size_t firstWriter(std::string_view entry,
                     const TensorView &tensor) const override;
  bool foundNonFinite() const override { return program.foundNonFinite(); }

  const Program &get() const { return program; }

private:
  Program program;
  StepProfile *profile;
  /// Whether weights are gathered, and were not updated since.
  bool hasGathered = false;
};

/// The tensors through which the host drives a trainable program.
struct TrainBinding {
  /// Entries tokens and targets of accumulate, eval and step go through the
  /// same tensors.
  int32_t *tokens = nullptr;
  int32_t *targets = nullptr;
  /// Where each token's document begins; null where documents see each other.
  int32_t *starts = nullptr;
  /// What layers attend to, [microBatch, heads, seqLen, blocks] each; empty
  /// where they select.
  std::vector<TensorView> selections;
  /// The sequence and the first position of each row of tokens and targets;
  /// null where these are whole sequences.
  int32_t *at = nullptr;
  /// The same for windows, by the tokens before a chunk.
  std::vector<std::pair<int64_t, int32_t *>> windowAt;
  float *hyper = nullptr;
  const float *gradNorm = nullptr;
  const float *lossSum = nullptr;
  /// The micro-batches of a step, each as the fraction of its targets that
  /// count; of several ranks their mean, as the other sums.
  const float *fractionSum = nullptr;
  const float *evalLoss = nullptr;
  /// The scale of the loss for the next step and the steps that updated nothing
  /// so far; null where gradients are not scaled.
  const float *lossScale = nullptr;
  const float *skippedUpdates = nullptr;
  /// Of decode, which continues samples; null where forward does.
  int32_t *sampleToken = nullptr;
  int32_t *samplePosition = nullptr;
  int64_t sampleContext = 0;
  int32_t *forwardTokens = nullptr;
  /// The same as `starts` of forward.
  int32_t *forwardStarts = nullptr;
  /// f32, bf16 or f16 [1, 1, vocab] of decode, or [forwardBatch, seqLen, vocab]
  /// of forward.
  TensorView logits;

  /// Fills the inputs of a pass from its sequences, [microBatch, seqLen] each:
  /// with the rank's chunks of them where ranks share them.
  void load(const int32_t *ofTokens, const int32_t *ofTargets,
            const int32_t *ofStarts, int rank) const;
  /// Tokens of a rank in a pass.
  int64_t ownTokens() const { return microBatch * seqLen / sequenceRanks; }

  bool decodes() const { return sampleToken != nullptr; }
  bool samples() const { return decodes() || forwardTokens; }

  /// Whole sequences, and the tokens of each.
  int64_t microBatch = 0;
  int64_t seqLen = 0;
  int64_t sequenceRanks = 1;
  int64_t vocab = 0;
  int64_t forwardBatch = 0;
  bool hasStep = false;

  /// Finds and checks all of them. The message names the entry and the tensor
  /// that is missing or has another type or shape.
  static Result<TrainBinding> create(const Model &model);
};

/// The tensors of a role, in the program's order.
std::vector<TensorView> tensorsOfRole(const TensorSet &set, TensorRole role);

/// The tensors that weights of a checkpoint are for: parameters, and weights
/// that are frozen.
std::vector<TensorView> weightsOf(const TensorSet &set);

/// Gives back the memory of whole weights of which ranks keep parts: what they
/// hold is lost.
void discardSharded(const TensorSet &set);

/// Elements of all parameters.
uint64_t parameterCount(const TensorSet &set);

/// The name of the gradient that holds a NaN or an infinity and was computed
/// before all others that do: the nearest to the source. With the number of the
/// element and the source location that it comes from; empty if all are
/// finite. Brings the gradients to the host. Where ranks keep parts of
/// gradients, this one's is looked at.
Result<std::string> firstNonFiniteGradient(const Model &model, int rank = 0);

/// The name of the gradient with the largest finite element. Brings the
/// gradients to the host.
Result<std::string> largestGradient(const Model &model);

/// Element `index` of a float tensor as f32.
float elementAt(const TensorView &tensor, uint64_t index);

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_MODEL_H
