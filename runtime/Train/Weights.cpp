//===- Weights.cpp - the parameters of a checkpoint -----------------------===//

#include "nsa/Runtime/Weights.h"
#include "runtime/Train/CheckpointLayout.h"
#include "runtime/Train/NamedTensors.h"

using namespace nsa;
using namespace nsa::checkpoint;

namespace {

/// A program as what parameters are compared with and copied to.
class BorrowedProgram final : public Model {
public:
  explicit BorrowedProgram(Program &program) : program(program) {}

  Status run(std::string_view entry) override { return program.run(entry); }
  bool hasEntry(std::string_view entry) const override {
    return program.findEntry(entry) != nullptr;
  }
  const std::vector<TensorView> &tensors() const override {
    return program.tensors();
  }
  const TensorView *input(std::string_view, std::string_view) const override {
    return nullptr;
  }
  const TensorView *output(std::string_view, std::string_view) const override {
    return nullptr;
  }
  Status toDevice(const TensorView &tensor) const override {
    return program.toDevice(tensor);
  }
  uint64_t hash() const override { return program.artifact().identity(); }

private:
  Program &program;
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
  Result<FoundCheckpoint> found = findCheckpoint(path);
  if (!found)
    return found.takeError();
  if (found->opened)
    return std::move(*found->opened);
  if (found->path.empty())
    return Error{"'" + path + "' has no checkpoint"};
  return Checkpoint::open(found->path);
}

Result<Weights> Weights::open(const std::string &path) {
  Result<Checkpoint> checkpoint = openCheckpoint(path);
  if (!checkpoint)
    return checkpoint.takeError();
  Weights weights;
  weights.folder = checkpoint->path;
  weights.steps = checkpoint->state.step;
  RunConfig &config = checkpoint->config;
  // The stage of the checkpoint is all of it.
  config.stages.clear();
  weights.yaml = printConfigYaml(config);
  weights.json = printModelJson(config);
  weights.compute = config.runtime.precision;
  std::string name = weights.folder + "/" + modelFile;
  Result<SafetensorsFile> file = SafetensorsFile::open(name);
  if (!file)
    return file.takeError();
  for (const SafeTensor &tensor : file->tensors()) {
    Result<DataType> type = typeOf(tensor);
    if (!type)
      return Error{"'" + name + "': " + type.message()};
    weights.list.push_back({tensor.name, *type, tensor.shape, tensor.bytes});
  }
  weights.file = std::make_unique<File>(File{std::move(*file)});
  return weights;
}

Status Weights::read(const Tensor &tensor, void *data) const {
  return file->tensors.read(*file->tensors.find(tensor.name), data);
}

Status Weights::load(Program &program) const {
  BorrowedProgram model(program);
  ParameterDifferences found = compareParameters(file->tensors, model);
  if (!found.none())
    return Error{"the weights of '" + folder + "' are not those of " +
                 program.artifact().name() + ": " + found.describe()};
  return copyParameters(file->tensors, model);
}
