//===- Weights.h - the parameters of a checkpoint ---------------*- C++ -*-===//

#ifndef NSA_RUNTIME_WEIGHTS_H
#define NSA_RUNTIME_WEIGHTS_H

#include "nsa/Runtime/Runtime.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nsa {

/// The parameters that nsa-train saved, and the configuration of their model.
/// Elements are read when they are asked for.
class Weights {
public:
  struct Tensor {
    std::string name;
    DataType type = DataType::F32;
    std::vector<uint64_t> shape;
    uint64_t bytes = 0;
  };

  /// Opens a checkpoint, whatever it holds, or the newest good one of a run
  /// directory. Every file is read once: one that does not have the hash that
  /// the checkpoint says, or a value that is not finite, is an error.
  static Result<Weights> open(const std::string &path);

  Weights(Weights &&) noexcept;
  ~Weights();

  /// The folder, as an absolute path where `open` was given one.
  const std::string &path() const { return folder; }
  /// Optimizer steps done.
  int64_t step() const { return steps; }
  /// The configuration, as YAML; of a run in stages, that of the stage that the
  /// checkpoint was saved in.
  const std::string &config() const { return yaml; }
  /// Its sections `model` and `nsa`, as JSON.
  const std::string &modelConfig() const { return json; }
  /// The compute type that the model was trained in: "fp32", "bf16" or "fp16".
  const std::string &precision() const { return compute; }
  /// The token that ended documents of the training; -1 where the checkpoint
  /// does not say it.
  int64_t endOfText() const { return end; }
  /// In the order of the file.
  const std::vector<Tensor> &tensors() const { return list; }

  /// Copies a tensor to `data`, which has its bytes.
  Status read(const Tensor &tensor, void *data) const;

  /// Copies all of them into the parameters of a program, whose constants have
  /// their values already (entry `init`). An error names a key of the model
  /// that differs, with both values, a parameter that only one of both has, or
  /// one that has another type or shape.
  Status load(Program &program) const;

private:
  struct File;
  Weights();

  std::string folder, yaml, json, compute;
  int64_t steps = 0, end = -1;
  std::vector<Tensor> list;
  std::unique_ptr<File> file;
};

/// A parameter that came from elsewhere. `data` is borrowed.
struct NewWeight {
  std::string name;
  std::vector<uint64_t> shape;
  const float *data = nullptr;
};

/// Writes a checkpoint of these parameters, whose optimizer has no state yet,
/// below `runDirectory` and returns its folder. `config` is the configuration
/// as YAML, called `name` in messages, with `overrides` of the form
/// `section.key=value`; `tokenizer` the text of the
/// tokenizer.json, empty if there is none. The tensors are not
/// compared with the configuration until a program loads them. Values that
/// are not finite are an error.
Result<std::string> writeWeights(const std::string &runDirectory,
                                 const std::string &config,
                                 const std::string &name, int64_t step,
                                 const std::vector<NewWeight> &weights,
                                 const std::string &tokenizer,
                                 const std::vector<std::string> &overrides);

/// The sections `model` and `nsa` of such a configuration, as JSON.
Result<std::string>
resolveModelConfig(const std::string &config, const std::string &name,
                   const std::vector<std::string> &overrides);

} // namespace nsa

#endif // NSA_RUNTIME_WEIGHTS_H
