//===- NNDialect.cpp - the rest of a decoder ------------------------------===//

#include "dialects/NN/NNDialect.h"
#include "dialects/NN/NNModuleOps.h"
#include "dialects/NN/NNOps.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

#include "dialects/NN/NNDialect.cpp.inc"
#include "dialects/NN/NNEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/NN/NNAttributes.cpp.inc"

void NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/NN/NNAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/NN/NNOps.cpp.inc"
      >();
  registerActivations();
  registerModuleOps();
  registerOptimizers();
  registerSampling();
}

//===----------------------------------------------------------------------===//
// #nn.init
//===----------------------------------------------------------------------===//

Attribute InitAttr::parse(AsmParser &parser, Type) {
  double value = 0;
  if (parser.parseLess())
    return {};
  FailureOr<InitKind> kind = FieldParser<InitKind>::parse(parser);
  RotaryAttr rotary;
  if (failed(kind) || parser.parseComma() || parser.parseFloat(value) ||
      (succeeded(parser.parseOptionalComma()) &&
       parser.parseAttribute(rotary)) ||
      parser.parseGreater())
    return {};
  return parser.getChecked<InitAttr>(parser.getContext(), *kind, value, rotary);
}

void InitAttr::print(AsmPrinter &printer) const {
  printer << "<" << stringifyInitKind(getKind()) << ", ";
  printer.printFloat(APFloat(getValue()));
  if (getRotary())
    printer << ", " << getRotary();
  printer << ">";
}

LogicalResult InitAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               InitKind kind, FloatAttr number,
                               RotaryAttr rotary) {
  double value = number.getValueAsDouble();
  if (!std::isfinite(value))
    return emitError() << "initial value (" << value << ") must be finite";
  if (kind == InitKind::Normal && value < 0)
    return emitError() << "standard deviation (" << value
                       << ") must be at least 0";
  if (kind == InitKind::Rotary && value <= 0)
    return emitError() << "rotary base (" << value << ") must be above 0";
  if (rotary && kind != InitKind::Rotary)
    return emitError() << "has " << rotary << ", which is for rotary tables, "
                       << "but starts from " << stringifyInitKind(kind);
  return success();
}

LogicalResult RotaryAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t channels, RotaryScaling scaling,
                                 FloatAttr factor, int64_t length,
                                 DenseF64ArrayAttr divisors) {
  if (channels < 0 || channels % 2 != 0)
    return emitError() << "rotated channels (" << channels
                       << ") must be an even number, at least 0";
  double times = factor ? factor.getValueAsDouble() : 1.0;
  if (!(times >= 1) || !std::isfinite(times))
    return emitError() << "factor (" << times << ") must be at least 1";
  bool isScaled = scaling != RotaryScaling::None;
  if (isScaled != bool(factor))
    return emitError() << "scaling " << stringifyRotaryScaling(scaling)
                       << (factor ? " has a factor" : " has no factor");
  bool isLong = scaling == RotaryScaling::LongRoPE;
  bool hasLength = isLong || scaling == RotaryScaling::YaRN ||
                   scaling == RotaryScaling::Llama3;
  if (hasLength != (length != 0) || length < 0)
    return emitError()
           << "scaling " << stringifyRotaryScaling(scaling)
           << " has the length " << length
           << ", which is at least 1 for yarn, llama3 and longrope and 0 for "
              "others";
  if (isLong && length < 2)
    return emitError() << "scaling longrope has the length " << length
                       << ", expected at least 2";
  if (isLong != bool(divisors))
    return emitError() << "scaling " << stringifyRotaryScaling(scaling)
                       << (divisors ? " has divisors" : " has no divisors");
  for (double divisor : divisors ? divisors.asArrayRef() : ArrayRef<double>())
    if (!(divisor > 0) || !std::isfinite(divisor))
      return emitError() << "divisor (" << divisor << ") must be above 0";
  return success();
}

double RotaryAttr::getFactorOrOne() const {
  return getFactor() ? getFactor().getValueAsDouble() : 1.0;
}

double RotaryAttr::getAmplitude() const {
  double factor = std::log(getFactorOrOne());
  if (getScaling() == RotaryScaling::LongRoPE)
    return std::sqrt(1.0 + factor / std::log(double(getLength())));
  return getScaling() == RotaryScaling::YaRN ? 1.0 + 0.1 * factor : 1.0;
}

SmallVector<double> RotaryAttr::getFrequencies(double base,
                                               int64_t pairs) const {
  constexpr double slowest = 1, turn = 2 * llvm::numbers::pi;
  double fastest = getScaling() == RotaryScaling::YaRN ? 32 : 4;
  int64_t rotated = getChannels() ? getChannels() / 2 : pairs;
  double factor = getFactorOrOne();
  if (getScaling() == RotaryScaling::NTK)
    base *= std::pow(factor, double(rotated) / double(rotated - 1));
  SmallVector<double> frequencies(pairs, 0.0);
  for (int64_t i = 0; i < std::min(rotated, pairs); ++i) {
    double plain = std::pow(base, -double(i) / double(rotated));
    double kept = 1.0;
    if (getScaling() == RotaryScaling::Linear)
      kept = 0.0;
    if (getLength() != 0 && !getDivisors())
      kept = std::clamp((double(getLength()) * plain / turn - slowest) /
                            (fastest - slowest),
                        0.0, 1.0);
    frequencies[i] = getDivisors() ? plain / getDivisors()[i]
                                   : plain * (kept + (1 - kept) / factor);
  }
  return frequencies;
}

//===----------------------------------------------------------------------===//
// Attributes of functions, arguments and results
//===----------------------------------------------------------------------===//

static LogicalResult verifyUnit(Operation *op, NamedAttribute attribute) {
  if (isa<UnitAttr>(attribute.getValue()))
    return success();
  return op->emitError("attribute `")
         << attribute.getName().getValue() << "` must be a unit attribute";
}

static FailureOr<StringRef> verifyString(Operation *op,
                                         NamedAttribute attribute) {
  auto string = dyn_cast<StringAttr>(attribute.getValue());
  if (string && !string.empty())
    return string.getValue();
  return op->emitError("attribute `") << attribute.getName().getValue()
                                      << "` must be a string that is not empty";
}

using StringGetter = StringRef (*)(FunctionOpInterface, unsigned);

/// Whether `index` is the first of the arguments or results that has a string.
/// What concerns all of them is verified there, once: they are many.
static bool isFirst(FunctionOpInterface function, unsigned index,
                    StringGetter get) {
  for (unsigned i = 0; i < index; ++i)
    if (!get(function, i).empty())
      return false;
  return true;
}

/// The first two of `count` arguments or results that have the same string.
static std::optional<std::pair<unsigned, unsigned>>
findDuplicate(FunctionOpInterface function, unsigned count, StringGetter get) {
  llvm::StringMap<unsigned> seen;
  for (unsigned i = 0; i < count; ++i)
    if (StringRef text = get(function, i); !text.empty()) {
      auto [entry, isNew] = seen.try_emplace(text, i);
      if (!isNew)
        return std::make_pair(entry->second, i);
    }
  return std::nullopt;
}

/// The name is a string, and no two of the `count` arguments or results have
/// the same.
static LogicalResult verifyName(FunctionOpInterface function, unsigned index,
                                unsigned count, NamedAttribute attribute,
                                StringRef kind, StringGetter getName) {
  if (failed(verifyString(function, attribute)))
    return failure();
  if (!isFirst(function, index, getName))
    return success();
  auto duplicate = findDuplicate(function, count, getName);
  if (!duplicate)
    return success();
  return function->emitError(kind)
         << "s " << duplicate->first << " and " << duplicate->second
         << " have the same name `" << getName(function, duplicate->first)
         << "`";
}

/// A role that exists, of an argument that the runtime can hold.
static LogicalResult verifyRole(FunctionOpInterface function, unsigned index,
                                NamedAttribute attribute) {
  FailureOr<StringRef> role = verifyString(function, attribute);
  if (failed(role))
    return failure();
  if (symbolizeArgumentRole(*role)) {
    Type type = function.getArgumentTypes()[index];
    if (isa<RankedTensorType>(type))
      return success();
    return function->emitError("argument ")
           << index << " of type " << type << " has the role `" << *role
           << "`, expected a ranked tensor";
  }
  InFlightDiagnostic diagnostic = function->emitError("unknown role `")
                                  << *role << "`, expected one of ";
  llvm::interleaveComma(
      llvm::seq<uint32_t>(0, getMaxEnumValForArgumentRole() + 1), diagnostic,
      [&](uint32_t value) {
        diagnostic << stringifyArgumentRole(static_cast<ArgumentRole>(value));
      });
  return diagnostic;
}

/// A name without a dot, of a state.
static LogicalResult verifyState(FunctionOpInterface function, unsigned index,
                                 NamedAttribute attribute) {
  FailureOr<StringRef> state = verifyString(function, attribute);
  if (failed(state))
    return failure();
  if (state->contains('.'))
    return function->emitError("argument ") << index << " has the `nn.state` `"
                                            << *state << "`, which has a dot";
  if (getArgumentRole(function, index) != ArgumentRole::State)
    return function->emitError("argument ")
           << index << " has `nn.state` but not the role `state`";
  return success();
}

/// One of "batch", "seq" and "" for each dimension.
static LogicalResult verifyDims(FunctionOpInterface function, unsigned index,
                                NamedAttribute attribute) {
  auto type = dyn_cast<ShapedType>(function.getArgumentTypes()[index]);
  auto dims = dyn_cast<ArrayAttr>(attribute.getValue());
  if (!type || !type.hasRank() || !dims)
    return function->emitError(
        "attribute `nn.dims` must be an array of strings "
        "on a shaped argument");
  if (static_cast<int64_t>(dims.size()) != type.getRank())
    return function->emitError("attribute `nn.dims` of argument ")
           << index << " has " << dims.size() << " entries, expected the rank "
           << type.getRank();
  for (Attribute dim : dims) {
    auto name = dyn_cast<StringAttr>(dim);
    if (!name || (name != kBatchDim && name != kSequenceDim && !name.empty()))
      return function->emitError("attribute `nn.dims` of argument ")
             << index << " has the entry " << dim
             << ", expected \"batch\", \"seq\" or \"\"";
  }
  return success();
}

/// Whether a tensor of these elements can have this value: any if they are
/// floating-point numbers, else those that fit.
static bool isElementValue(Type element, double value) {
  auto integer = dyn_cast<IntegerType>(element);
  if (!integer)
    return true;
  double limit = std::ldexp(1.0, integer.getWidth() - 1);
  return value == std::trunc(value) && value >= -limit && value < limit;
}

/// The initial value is one of the argument's element type.
static LogicalResult verifyInitElements(FunctionOpInterface function,
                                        unsigned index, InitAttr init) {
  Type type = function.getArgumentTypes()[index];
  Type element = getElementTypeOrSelf(type);
  bool fits = init.getKind() == InitKind::Constant
                  ? isElementValue(element, init.getValue())
                  : isa<FloatType>(element);
  if (fits)
    return success();
  return function->emitError("argument ")
         << index << " of type " << type << " cannot start from " << init;
}

LogicalResult nn::checkRotary(function_ref<InFlightDiagnostic()> emitError,
                              RotaryAttr rotary, int64_t pairs) {
  if (!rotary)
    return success();
  if (rotary.getChannels() > 2 * pairs)
    return emitError() << "rotates " << rotary.getChannels()
                       << " channels, but its table has " << 2 * pairs;
  int64_t channels = rotary.getChannels() ? rotary.getChannels() : 2 * pairs;
  if (rotary.getDivisors() && rotary.getDivisors().size() != channels / 2)
    return emitError() << "has " << rotary.getDivisors().size()
                       << " divisors for " << channels / 2 << " pairs";
  if (rotary.getScaling() == RotaryScaling::NTK && channels < 4)
    return emitError() << "scales the angles of " << channels
                       << " channels by ntk, expected at least 4";
  return success();
}

static LogicalResult verifyInit(FunctionOpInterface function, unsigned index,
                                NamedAttribute attribute) {
  auto init = dyn_cast<InitAttr>(attribute.getValue());
  if (!init)
    return function->emitError("attribute `nn.init` must be a #nn.init");
  std::optional<ArgumentRole> role = getArgumentRole(function, index);
  if (!role || *role == ArgumentRole::Input)
    return function->emitError("argument ")
           << index << " has an initial value but is no persistent tensor";
  if (failed(verifyInitElements(function, index, init)))
    return failure();
  if (init.getKind() != InitKind::Rotary)
    return success();
  auto type = dyn_cast<RankedTensorType>(function.getArgumentTypes()[index]);
  if (!type || type.getRank() != 3 || type.getDimSize(2) != 2)
    return function->emitError("argument ")
           << index << " of type " << function.getArgumentTypes()[index]
           << " is no rotary table, expected the shape LxPx2";
  return checkRotary(
      [&] { return function->emitError("argument ") << index << " "; },
      init.getRotary(), type.getDimSize(1));
}

static LogicalResult unknownAttribute(Operation *op, NamedAttribute attribute) {
  return refuseAttribute(
      op, attribute,
      {kNameAttr, kRoleAttr, kInitAttr, kDecayAttr, kOptimizerAttr, kStateAttr,
       kDimsAttr, kDifferentiateAttr, kSeedAttr, kAliasAttr, kObjectiveAttr,
       kKeptAttr, kStatisticAttr, kTrainAttr, kConfigAttr, kPrecisionAttr});
}

LogicalResult NNDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attribute) {
  if (attribute.getName() == kTrainAttr) {
    if (!isa<FunctionOpInterface>(op))
      return op->emitError("attribute `nn.train` belongs on a function");
    return verifyUnit(op, attribute);
  }
  if (attribute.getName() == kConfigAttr) {
    if (isa<DictionaryAttr>(attribute.getValue()))
      return success();
    return verifyString(op, attribute);
  }
  if (attribute.getName() == kPrecisionAttr) {
    FailureOr<StringRef> precision = verifyString(op, attribute);
    if (failed(precision) || isPrecision(*precision))
      return precision;
    return op->emitError("attribute `nn.precision` is `")
           << *precision << "`, expected fp32, bf16 or fp16";
  }
  return unknownAttribute(op, attribute);
}

static LogicalResult verifySeed(FunctionOpInterface function, unsigned index,
                                NamedAttribute attribute) {
  auto scalar =
      RankedTensorType::get({}, Float32Type::get(function->getContext()));
  Type type = function.getArgumentTypes()[index];
  if (type != scalar)
    return function->emitError("argument ")
           << index << " has `nn.seed` but is " << type << ", not " << scalar;
  for (unsigned other = 0; other < index; ++other)
    if (isSeed(function, other))
      return function->emitError("arguments ")
             << other << " and " << index << " both have `nn.seed`";
  return verifyUnit(function, attribute);
}

LogicalResult NNDialect::verifyRegionArgAttribute(Operation *op,
                                                  unsigned regionIndex,
                                                  unsigned argIndex,
                                                  NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return unknownAttribute(op, attribute);
  StringRef name = attribute.getName();
  if (name == kNameAttr)
    return verifyName(function, argIndex, function.getNumArguments(), attribute,
                      "argument", getArgumentName);
  if (name == kRoleAttr)
    return verifyRole(function, argIndex, attribute);
  if (name == kInitAttr)
    return verifyInit(function, argIndex, attribute);
  if (name == kStateAttr)
    return verifyState(function, argIndex, attribute);
  if (name == kDimsAttr)
    return verifyDims(function, argIndex, attribute);
  if (name == kDifferentiateAttr)
    return verifyUnit(op, attribute);
  if (name == kSeedAttr)
    return verifySeed(function, argIndex, attribute);
  if (name != kDecayAttr && name != kOptimizerAttr)
    return unknownAttribute(op, attribute);
  if (getArgumentRole(function, argIndex) != ArgumentRole::Parameter)
    return op->emitError("argument ")
           << argIndex << " has `" << name << "` but is no parameter";
  return name == kDecayAttr ? verifyUnit(op, attribute)
                            : LogicalResult(verifyString(op, attribute));
}

/// Every result that updates an argument has its type, and no other result
/// updates it.
static LogicalResult verifyAliases(FunctionOpInterface function) {
  llvm::StringMap<unsigned> arguments;
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i)
    arguments.try_emplace(getArgumentName(function, i), i);
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i) {
    StringRef name = getResultAlias(function, i);
    if (name.empty())
      continue;
    auto argument = arguments.find(name);
    if (argument == arguments.end())
      return function->emitError("result ")
             << i << " is an alias of `" << name << "`, which is no argument";
    Type argumentType = function.getArgumentTypes()[argument->second];
    Type resultType = function.getResultTypes()[i];
    if (argumentType != resultType)
      return function->emitError("result ")
             << i << " of type " << resultType << " is an alias of `" << name
             << "` of type " << argumentType;
  }
  auto duplicate =
      findDuplicate(function, function.getNumResults(), getResultAlias);
  if (!duplicate)
    return success();
  return function->emitError("results ")
         << duplicate->first << " and " << duplicate->second
         << " are both aliases of `"
         << getResultAlias(function, duplicate->first) << "`";
}

static LogicalResult verifyAlias(FunctionOpInterface function, unsigned index,
                                 NamedAttribute attribute) {
  if (failed(verifyString(function, attribute)))
    return failure();
  return isFirst(function, index, getResultAlias) ? verifyAliases(function)
                                                  : success();
}

LogicalResult NNDialect::verifyRegionResultAttribute(Operation *op,
                                                     unsigned regionIndex,
                                                     unsigned resultIndex,
                                                     NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return unknownAttribute(op, attribute);
  StringRef name = attribute.getName();
  if (name == kNameAttr)
    return verifyName(function, resultIndex, function.getNumResults(),
                      attribute, "result", getResultName);
  if (name == kAliasAttr)
    return verifyAlias(function, resultIndex, attribute);
  if (name == kStatisticAttr || name == kKeptAttr)
    return verifyUnit(op, attribute);
  if (name != kObjectiveAttr)
    return unknownAttribute(op, attribute);
  Type type = function.getResultTypes()[resultIndex];
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !isa<FloatType>(tensor.getElementType()))
    return op->emitError("objective has type ")
           << type << ", expected a tensor of floating-point values";
  return verifyUnit(op, attribute);
}
