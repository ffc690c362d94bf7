//===- Inputs.cpp - random arguments of a function ------------------------===//

#include "test/unit/RandomModules/Inputs.h"
#include "dialects/NN/NNAttributes.h"
#include "lib/Reference/Evaluator.h"
#include "lib/Reference/Kernels/NN.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;
using mlir::func::FuncOp;

std::string nsa::test::argumentName(FuncOp function, unsigned index) {
  llvm::StringRef name = nn::getArgumentName(function, index);
  return name.empty() ? "arg" + std::to_string(index) : name.str();
}

std::string nsa::test::resultName(FuncOp function, unsigned index) {
  llvm::StringRef name = nn::getResultName(function, index);
  return name.empty() ? "result" + std::to_string(index) : name.str();
}

static Fill findFill(const GraphModule &module, FuncOp function,
                     const std::string &name) {
  for (const GraphFunction &graph : module.functions)
    if (graph.name == function.getName())
      if (const GraphArgument *argument = graph.findArgument(name))
        return argument->fill;
  // An entry that was made from the model.
  for (const GraphFunction &graph : module.functions)
    if (const GraphArgument *argument = graph.findArgument(name))
      return argument->fill;
  if (name == "hyper")
    return {Fill::Hyper, 1.0, 0};
  if (name.rfind("v.", 0) == 0)
    return {Fill::Positive, 1.0, 0};
  return {Fill::Normal, name.rfind("m.", 0) == 0 ? 0.1 : 1.0, 0};
}

namespace {
class Filler {
public:
  explicit Filler(uint64_t seed) : random(seed) {}

  Tensor make(const Fill &fill, const std::vector<int64_t> &shape);

private:
  double below(int64_t limit) {
    return static_cast<double>(random() % static_cast<uint64_t>(limit));
  }
  Tensor makeIndices(const std::vector<int64_t> &shape, int64_t block);

  std::mt19937_64 random;
};
} // namespace

/// Lists of blocks, the query's own among them.
Tensor Filler::makeIndices(const std::vector<int64_t> &shape, int64_t block) {
  Tensor indices(shape, -1.0);
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t t = 0; t < shape[2]; ++t) {
        std::vector<int64_t> blocks(t / block);
        std::iota(blocks.begin(), blocks.end(), 0);
        std::shuffle(blocks.begin(), blocks.end(), random);
        blocks.resize(std::min<size_t>(blocks.size(), shape[3] - 1));
        blocks.push_back(t / block);
        std::sort(blocks.begin(), blocks.end());
        std::copy(blocks.begin(), blocks.end(), indices.row({b, h, t}));
      }
  return indices;
}

Tensor Filler::make(const Fill &fill, const std::vector<int64_t> &shape) {
  Tensor tensor(shape);
  std::normal_distribution<double> normal(0.0, 1.0);
  switch (fill.kind) {
  case Fill::Normal:
    for (double &x : tensor.data)
      x = fill.scale * normal(random);
    break;
  case Fill::Positive:
    for (double &x : tensor.data)
      x = 0.1 + fill.scale * std::fabs(normal(random));
    break;
  case Fill::Ids:
    for (double &x : tensor.data)
      x = below(fill.limit) +
          (fill.scale > 0 && below(5) == 0 ? (below(2) ? 1e6 : -1e6) : 0.0);
    break;
  case Fill::Targets: {
    // Sometimes all of them are ignored.
    double ignored = below(20) == 0 ? 100 : 20;
    for (double &x : tensor.data)
      x = below(100) < ignored ? -1.0 : below(fill.limit);
    break;
  }
  case Fill::Indices:
    return makeIndices(shape, fill.limit);
  case Fill::Rotary:
    return rotaryTable(shape[0], 2 * shape[1], 100.0);
  case Fill::Hyper: {
    double maxNorm = below(3) == 0 ? 0.0 : below(2) ? 1.0 : 1e3;
    double scale = below(2) ? 1.0 : 0.25;
    tensor.data = {0.05, 0.9, 0.95, 1e-3, 0.1, maxNorm, scale, 1.0 + below(4)};
    break;
  }
  }
  return tensor;
}

std::vector<Tensor> nsa::test::makeArguments(const GraphModule &module,
                                             FuncOp function, uint64_t seed) {
  Filler filler(seed);
  std::vector<Tensor> arguments;
  for (mlir::BlockArgument argument : function.getArguments()) {
    Fill fill = findFill(module, function,
                         argumentName(function, argument.getArgNumber()));
    Tensor tensor = filler.make(fill, shapeOf(argument));
    for (double &x : tensor.data)
      x = roundTo(getElementTypeOrSelf(argument), x);
    arguments.push_back(std::move(tensor));
  }
  return arguments;
}
