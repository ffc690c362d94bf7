//===- Weights.cpp - the parameters of a checkpoint -----------------------===//

#include "nsa/Runtime/Weights.h"
#include "runtime/Train/Agreement.h"
#include "runtime/Train/CheckpointLayout.h"
#include "runtime/Train/NamedTensors.h"

using namespace nsa;
using namespace nsa::checkpoint;

namespace {

/// A program as what parameters are compared with and copied to.
class BorrowedProgram final : public TensorSet {
public:
  explicit BorrowedProgram(Program &program) : program(program) {}

  const std::vector<TensorView> &tensors() const override {
    return program.tensors();
  }
  Status toDevice(const TensorView &tensor) const override {
    return program.toDevice(tensor);
  }

private:
  Program &program;
};

/// Parameters without a program.
class NewTensors final : public TensorSet {
public:
  explicit NewTensors(const std::vector<NewWeight> &weights) {
    for (const NewWeight &weight : weights) {
      TensorView view;
      view.name = weight.name;
      view.shape = weight.shape;
      view.bytes = sizeof(float);
      for (uint64_t extent : weight.shape)
        view.bytes *= extent;
      // Nothing writes to it.
      view.data = const_cast<float *>(weight.data);
      view.role = TensorRole::Parameter;
      views.push_back(std::move(view));
    }
  }

  const std::vector<TensorView> &tensors() const override { return views; }

private:
  std::vector<TensorView> views;
};

} // namespace

struct Weights::File {
  SafetensorsFile tensors;
};

Weights::Weights() = default;
Weights::Weights(Weights &&) noexcept = default;
Weights::~Weights() = default;

static Result<DataType> typeOf(const SafeTensor &tensor) {
  for (DataType type : {DataType::F32, DataType::BF16, DataType::F16,
                        DataType::I32, DataType::I64, DataType::U8})
    if (tensor.dtype == safetensorsType(type))
      return type;
  return Error{"'" + tensor.name + "' is " + tensor.dtype +
               ", which no parameter is"};
}

/// The checkpoint that a path means, verified.
static Result<Checkpoint> openCheckpoint(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(FoundCheckpoint found, findCheckpoint(path));
  if (found.opened)
    return std::move(*found.opened);
  if (found.path.empty())
    return Error{"'" + path + "' has no checkpoint"};
  return Checkpoint::open(found.path);
}

Result<Weights> Weights::open(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(Checkpoint checkpoint, openCheckpoint(path));
  Weights weights;
  weights.folder = checkpoint.path;
  weights.steps = checkpoint.state.step;
  weights.end = checkpoint.state.endOfText;
  RunConfig &config = checkpoint.config;
  // The stage of the checkpoint is all of it.
  config.stages.clear();
  weights.yaml = printConfigYaml(config);
  weights.json = printModelJson(config);
  weights.compute = config.runtime.precision;
  std::string name = weights.folder + "/" + modelFile;
  NSA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(name));
  for (const SafeTensor &tensor : file.tensors()) {
    Result<DataType> type = typeOf(tensor);
    if (!type)
      return Error{"'" + name + "': " + type.message()};
    weights.list.push_back({tensor.name, *type, tensor.shape, tensor.bytes});
  }
  weights.file = std::make_unique<File>(File{std::move(file)});
  return weights;
}

Status Weights::read(const Tensor &tensor, void *data) const {
  return file->tensors.read(*file->tensors.find(tensor.name), data);
}

/// Parameters of the same shapes may be those of other blocks.
static Status checkConfig(const std::string &json, const Program &program) {
  const auto *carried = program.artifact()->model_config();
  if (!carried || carried->size() == 0)
    return {};
  NSA_ASSIGN_OR_RETURN(RunConfig config,
                       parseModelConfig(json, "the checkpoint's model"));
  return checkModelConfig(config, carried->str());
}

Status Weights::load(Program &program) const {
  if (Status status = checkConfig(json, program); !status)
    return Error{"'" + folder + "' does not fit " + program.artifact().name() +
                 ": " + status.message()};
  BorrowedProgram model(program);
  ParameterDifferences found = compareParameters(file->tensors, model);
  if (!found.none())
    return Error{"the weights of '" + folder + "' are not those of " +
                 program.artifact().name() + ": " + found.describe()};
  return copyParameters(file->tensors, model);
}

Result<std::string>
nsa::writeWeights(const std::string &runDirectory, const std::string &config,
                  const std::string &name, int64_t step,
                  const std::vector<NewWeight> &weights,
                  const std::string &tokenizer,
                  const std::vector<std::string> &overrides) {
  NSA_ASSIGN_OR_RETURN(RunConfig parsed, parseConfig(config, name, overrides));
  TrainState state;
  state.step = step;
  state.samples = uint64_t(step) * uint64_t(parsed.train.batchSize);
  state.seed = uint64_t(parsed.train.seed);
  state.history.setBatch(0, 0, parsed.train.batchSize);
  state.history.setData(0, state.dataDigest);
  return saveCheckpoint(runDirectory, NewTensors(weights), state, parsed,
                        /*keep=*/0, /*report=*/nullptr, tokenizer);
}

Result<std::string>
nsa::resolveModelConfig(const std::string &config, const std::string &name,
                        const std::vector<std::string> &overrides) {
  NSA_ASSIGN_OR_RETURN(RunConfig parsed, parseConfig(config, name, overrides));
  return printModelJson(parsed);
}
