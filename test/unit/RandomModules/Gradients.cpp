//===- Gradients.cpp - gradients against differences ----------------------===//

#include "test/unit/RandomModules/Gradients.h"
#include "dialects/NN/NNAttributes.h"
#include "nsa/Artifact/TrainingContract.h"
#include "test/unit/RandomModules/Inputs.h"
#include "test/unit/RandomModules/Oracle.h"

#include <cmath>
#include <sstream>

using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;
using mlir::func::FuncOp;

std::optional<unsigned> nsa::test::findObjective(FuncOp model) {
  for (unsigned i = 0; i < model.getNumResults(); ++i)
    if (nn::isObjective(model, i) ||
        (nn::isTrainable(model) && nn::getResultName(model, i) == "loss"))
      return i;
  return std::nullopt;
}

/// The arguments that the objective is differentiated with respect to.
static std::vector<unsigned> findTargets(FuncOp model) {
  std::vector<unsigned> marked, parameters;
  for (unsigned i = 0; i < model.getNumArguments(); ++i) {
    if (model.getArgAttr(i, nn::kDifferentiateAttr))
      marked.push_back(i);
    if (nn::getArgumentRole(model, i) == nn::ArgumentRole::Parameter)
      parameters.push_back(i);
  }
  return marked.empty() ? parameters : marked;
}

/// Adds the products of the elements, and their magnitudes.
static void addProducts(const Tensor &x, const Tensor &y, double &sum,
                        double &magnitude) {
  for (size_t i = 0; i < x.data.size(); ++i) {
    sum += x.data[i] * y.data[i];
    magnitude += std::fabs(x.data[i] * y.data[i]);
  }
}

namespace {
class GradientCheck {
public:
  GradientCheck(FuncOp model, FuncOp function, const GraphModule &module,
                uint64_t seed)
      : model(model), function(function), primal(model), joint(function),
        arguments(makeArguments(module, function, seed)), random(seed),
        objective(*findObjective(model)) {}

  std::string run();

private:
  std::vector<Tensor> makePrimalInputs();
  /// What the entry adds to a persistent tensor.
  Tensor getAdded(const std::string &name);
  /// The gradient of the target at this position in the list of targets.
  Tensor getGradient(unsigned target, unsigned position);
  double evaluateAt(const std::vector<Tensor> &inputs,
                    const std::vector<Tensor> &direction, double step,
                    double &magnitude);

  FuncOp model, function;
  Oracle primal, joint;
  std::vector<Tensor> arguments;
  std::mt19937_64 random;
  unsigned objective;
};
} // namespace

/// The entry of a model knows its arguments by name; where it has none of this
/// name, nothing reads the argument.
std::vector<Tensor> GradientCheck::makePrimalInputs() {
  std::vector<Tensor> inputs;
  for (unsigned i = 0; i < model.getNumArguments(); ++i) {
    std::optional<unsigned> index = i;
    if (nn::isTrainable(model))
      index = nn::findArgument(function, nn::getArgumentName(model, i));
    inputs.push_back(index ? arguments[*index]
                           : Tensor(shapeOf(model.getArgument(i))));
  }
  return inputs;
}

Tensor GradientCheck::getAdded(const std::string &name) {
  Tensor added = arguments[*nn::findArgument(function, name)];
  for (double &x : added.data)
    x = -x;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (nn::getResultAlias(function, i) == name)
      for (size_t e = 0; e < added.data.size(); ++e)
        added.data[e] += joint.getResults()[i].data[e];
  return added;
}

Tensor GradientCheck::getGradient(unsigned target, unsigned position) {
  if (!nn::isTrainable(model))
    return joint.getResults()[model.getNumResults() + position];
  Tensor gradient = getAdded("grad." + argumentName(model, target));
  // The model's loss is a mean over its targets.
  double fraction = getAdded(training::targetFractionSumState).data[0];
  for (double &x : gradient.data)
    x /= fraction > 0 ? fraction : 1;
  return gradient;
}

double GradientCheck::evaluateAt(const std::vector<Tensor> &inputs,
                                 const std::vector<Tensor> &direction,
                                 double step, double &magnitude) {
  std::vector<Tensor> moved = inputs;
  for (size_t i = 0; i < moved.size(); ++i)
    for (size_t e = 0; e < moved[i].data.size(); ++e)
      moved[i].data[e] += step * direction[i].data[e];
  Tensor value = primal.evaluateNear(moved)[objective];
  // The gradient of an objective that is no scalar is the last argument.
  Tensor seed =
      value.shape.empty() ? Tensor(value.shape, 1.0) : arguments.back();
  double sum = 0.0;
  addProducts(value, seed, sum, magnitude);
  return sum;
}

std::string GradientCheck::run() {
  std::vector<Tensor> inputs = makePrimalInputs();
  if (failed(joint.evaluate(arguments)) || failed(primal.evaluate(inputs)))
    return "the reference cannot evaluate the gradient";
  std::vector<Tensor> direction;
  direction.reserve(inputs.size());
  for (const Tensor &input : inputs)
    direction.emplace_back(input.shape);
  std::normal_distribution<double> normal(0.0, 1.0);
  double slope = 0.0, size = 0.0;
  std::vector<unsigned> targets = findTargets(model);
  for (unsigned i = 0; i < targets.size(); ++i) {
    Tensor &part = direction[targets[i]];
    for (double &x : part.data)
      x = normal(random);
    addProducts(part, getGradient(targets[i], i), slope, size);
  }
  double magnitude = 0.0;
  auto differenceOver = [&](double step) {
    return (evaluateAt(inputs, direction, step, magnitude) -
            evaluateAt(inputs, direction, -step, magnitude)) /
           (2 * step);
  };
  // Two steps cancel what the third derivative does: norms of few elements that
  // are all but zero bend sharply.
  const double step = 1e-5;
  double difference = (4 * differenceOver(step / 2) - differenceOver(step)) / 3;
  // Errors of the difference and of rounding in it.
  double allowed = 1e-4 * size + 1e-9 * magnitude;
  if (std::fabs(slope - difference) <= allowed)
    return {};
  std::ostringstream message;
  message << "@" << function.getName().str() << " has the slope " << slope
          << ", but differences of the objective say " << difference
          << ", further away than " << allowed;
  return message.str();
}

std::string nsa::test::findWrongGradient(FuncOp model, FuncOp function,
                                         const GraphModule &module,
                                         uint64_t seed) {
  return GradientCheck(model, function, module, seed).run();
}
