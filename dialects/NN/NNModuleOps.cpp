//===- NNModuleOps.cpp - the text of whole models -------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNModuleDetail.h"
#include "dialects/NN/NNOps.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include "llvm/Support/Format.h"
#include <cmath>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;
using namespace nsa::nn::detail;

//===----------------------------------------------------------------------===//
// Parts of the syntax
//===----------------------------------------------------------------------===//

/// The shortest decimal number that is the value, with a point: "0.02",
/// "10000.0", "1.0e-05".
static std::string formatFloat(double value) {
  char text[40];
  if (value == std::trunc(value) && std::abs(value) < 1e15) {
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
  }
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value)
      break;
  }
  std::string number = text;
  if (number.find('.') == std::string::npos)
    number.insert(std::min(number.find('e'), number.size()), ".0");
  return number;
}

static ParseResult parseFloat(OpAsmParser &parser, FloatAttr &attribute) {
  double value;
  if (parser.parseFloat(value))
    return failure();
  attribute = parser.getBuilder().getF64FloatAttr(value);
  return success();
}

static void printFloat(OpAsmPrinter &printer, Operation *, FloatAttr value) {
  printer << formatFloat(value.getValueAsDouble());
}

static ParseResult parseInitializer(OpAsmParser &parser, InitAttr &init) {
  SMLoc place = parser.getCurrentLocation();
  StringRef name;
  double value;
  if (parser.parseKeyword(&name))
    return failure();
  std::optional<InitKind> kind = symbolizeInitKind(name);
  if (!kind)
    return parser.emitError(place, "unknown initial value `")
           << name << "`, expected normal, constant or rotary";
  RotaryAttr rotary;
  if (parser.parseFloat(value) ||
      (succeeded(parser.parseOptionalKeyword("with")) &&
       parser.parseAttribute(rotary)))
    return failure();
  init = parser.getChecked<InitAttr>(parser.getContext(), *kind,
                                     parser.getBuilder().getF64FloatAttr(value),
                                     rotary);
  return success(init != nullptr);
}

static void printInitializer(OpAsmPrinter &printer, Operation *,
                             InitAttr init) {
  printer << stringifyInitKind(init.getKind()) << " "
          << formatFloat(init.getValue());
  if (init.getRotary())
    printer << " with " << init.getRotary();
}

ParseResult nn::detail::parseDims(OpAsmParser &parser, ArrayAttr &dims) {
  SmallVector<StringRef> names;
  auto parseName = [&]() -> ParseResult {
    StringRef name;
    if (parser.parseKeyword(&name))
      return failure();
    names.push_back(name == "_" ? "" : name);
    return success();
  };
  if (parser.parseCommaSeparatedList(parseName))
    return failure();
  dims = parser.getBuilder().getStrArrayAttr(names);
  return success();
}

void nn::detail::printDims(OpAsmPrinter &printer, Operation *, ArrayAttr dims) {
  llvm::interleaveComma(dims.getAsValueRange<StringAttr>(), printer,
                        [&](StringRef name) {
                          printer << (name.empty() ? StringRef("_") : name);
                        });
}

ParseResult nn::detail::parseIndices(OpAsmParser &parser,
                                     DenseI64ArrayAttr &indices) {
  SmallVector<int64_t> list;
  auto parseRange = [&]() -> ParseResult {
    int64_t begin, end;
    SMLoc place = parser.getCurrentLocation();
    if (parser.parseInteger(begin))
      return failure();
    end = begin + 1;
    if (succeeded(parser.parseOptionalKeyword("to")) &&
        parser.parseInteger(end))
      return failure();
    if (begin < 0 || end <= begin || end > kMaxLayers)
      return parser.emitError(place, "layers ")
             << begin << " to " << end << " are no range from 0 up to at most "
             << kMaxLayers;
    llvm::append_range(list, llvm::seq(begin, end));
    return success();
  };
  if (parser.parseCommaSeparatedList(parseRange))
    return failure();
  indices = parser.getBuilder().getDenseI64ArrayAttr(list);
  return success();
}

void nn::detail::printIndices(OpAsmPrinter &printer, Operation *,
                              DenseI64ArrayAttr attribute) {
  ArrayRef<int64_t> indices = attribute;
  for (size_t begin = 0, end; begin < indices.size(); begin = end) {
    for (end = begin + 1;
         end < indices.size() && indices[end] == indices[end - 1] + 1; ++end)
      ;
    printer << (begin ? ", " : "") << indices[begin];
    if (end > begin + 1)
      printer << " to " << indices[end - 1] + 1;
  }
}

/// A dictionary whose numbers have no types.
static void printConfig(OpAsmPrinter &printer, Attribute value) {
  if (auto dictionary = dyn_cast<DictionaryAttr>(value)) {
    printer << "{";
    llvm::interleaveComma(dictionary, printer, [&](NamedAttribute entry) {
      printer.printKeywordOrString(entry.getName());
      printer << " = ";
      printConfig(printer, entry.getValue());
    });
    printer << "}";
  } else if (auto number = dyn_cast<FloatAttr>(value);
             number && number.getType().isF64()) {
    printer << formatFloat(number.getValueAsDouble());
  } else if (auto integer = dyn_cast<IntegerAttr>(value);
             integer && integer.getType().isSignlessInteger(64)) {
    printer << integer.getInt();
  } else {
    printer << value;
  }
}

StringRef nn::getPlaceName(SymbolRefAttr parameter) {
  StringRef name = parameter.getLeafReference().getValue();
  size_t last = name.rfind('.');
  return last == StringRef::npos ? name : name.take_front(last);
}

/// "selected_key" of @attention.selected.key.weight: a value is named after its
/// parameter, without the part of the layer that it is in.
static std::string getValueName(SymbolRefAttr parameter) {
  StringRef place = getPlaceName(parameter);
  auto [part, rest] = place.split('.');
  std::string name = (rest.empty() ? part : rest).str();
  llvm::replace(name, '.', '_');
  return name;
}

#include "dialects/NN/NNModuleInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/NN/NNModuleOps.cpp.inc"

void NNDialect::registerModuleOps() {
  addOperations<
#define GET_OP_LIST
#include "dialects/NN/NNModuleOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// nn.module
//===----------------------------------------------------------------------===//

/// The version of the text of models. It grows when a text would be read as
/// another model than the one that was written. Texts without one are of the
/// first.
static constexpr uint64_t kTextVersion = 1;

/// Reads `version N`, if it is there.
static ParseResult parseTextVersion(OpAsmParser &parser) {
  if (failed(parser.parseOptionalKeyword("version")))
    return success();
  SMLoc place = parser.getCurrentLocation();
  uint64_t version;
  if (parser.parseInteger(version))
    return failure();
  if (version == kTextVersion)
    return success();
  return parser.emitError(place)
         << "the text of the model has version " << version
         << ", this compiler reads version " << kTextVersion;
}

ParseResult ModelOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parseTextVersion(parser))
    return failure();
  StringRef precision;
  if (succeeded(parser.parseOptionalKeyword("precision"))) {
    if (parser.parseKeyword(&precision))
      return failure();
    result.addAttribute(getPrecisionAttrName(result.name),
                        builder.getStringAttr(precision));
  }
  DictionaryAttr config;
  if (succeeded(parser.parseOptionalKeyword("config")) &&
      parser.parseAttribute(config, getConfigAttrName(result.name),
                            result.attributes))
    return failure();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  Region *body = result.addRegion();
  if (parser.parseRegion(*body, {}))
    return failure();
  if (body->empty())
    body->emplaceBlock();
  return success();
}

void ModelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << " version " << kTextVersion;
  if (getPrecision())
    printer << " precision " << *getPrecision();
  if (getConfig()) {
    printer << " config ";
    printConfig(printer, *getConfig());
  }
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getPrecisionAttrName(), getConfigAttrName()});
  printer << ' ';
  printer.printRegion(getBody());
}

/// No two parameters have the same name in checkpoints.
static LogicalResult verifyNames(ModelOp model) {
  llvm::StringMap<ParameterOp> names;
  auto add = [&](ParameterOp parameter, int64_t index) -> LogicalResult {
    std::string name = getParameterName(parameter, index);
    auto [entry, isNew] = names.try_emplace(name, parameter);
    if (isNew)
      return success();
    InFlightDiagnostic diagnostic = parameter.emitOpError("has the name `")
                                    << name << "` of another parameter";
    diagnostic.attachNote(entry->second.getLoc()) << "the other parameter";
    return diagnostic;
  };
  for (Operation &op : model.getBody().front()) {
    if (auto parameter = dyn_cast<ParameterOp>(op))
      if (failed(add(parameter, 0)))
        return failure();
    auto scope = dyn_cast<ScopeOp>(op);
    if (!scope)
      continue;
    for (auto parameter : scope.getBody().getOps<ParameterOp>())
      for (int64_t index : scope.getIndices())
        if (failed(add(parameter, index)))
          return failure();
  }
  return success();
}

LogicalResult ModelOp::verify() {
  if (auto precision = getPrecision(); precision && !isPrecision(*precision))
    return emitOpError("has the precision `")
           << *precision << "`, expected fp32, bf16 or fp16";
  FunctionOp train;
  for (Operation &op : getBody().front()) {
    if (!isa<ParameterOp, ScopeOp, FunctionOp>(op))
      return op.emitError("`")
             << op.getName()
             << "` stands in an nn.module, expected nn.parameter, nn.scope or "
                "nn.func";
    auto function = dyn_cast<FunctionOp>(op);
    if (!function || !function.getTrain())
      continue;
    if (train)
      return emitOpError("has two functions to train, @")
             << train.getSymName() << " and @" << function.getSymName();
    train = function;
  }
  return verifyNames(*this);
}

//===----------------------------------------------------------------------===//
// Parameters and scopes
//===----------------------------------------------------------------------===//

std::string nn::getParameterName(ParameterOp parameter, int64_t index) {
  auto scope = dyn_cast<ScopeOp>(parameter->getParentOp());
  std::string name = parameter.getSymName().str();
  if (!scope)
    return name;
  return (scope.getNamePrefix() + "." + Twine(index) + "." + name).str();
}

LogicalResult nn::detail::verifyDims(Operation *op, const Twine &what,
                                     Type type, ArrayAttr dims) {
  auto tensor = cast<RankedTensorType>(type);
  if (static_cast<int64_t>(dims.size()) != tensor.getRank())
    return op->emitOpError()
           << what << " of type " << type << " has " << dims.size()
           << " names of dimensions, expected " << tensor.getRank();
  for (StringRef name : dims.getAsValueRange<StringAttr>())
    if (!name.empty() && name != kBatchDim && name != kSequenceDim)
      return op->emitOpError() << what << " has the dimension `" << name
                               << "`, expected batch, seq or _";
  return success();
}

LogicalResult ParameterOp::verify() {
  if (!isa_and_present<ModelOp, ScopeOp>((*this)->getParentOp()))
    return emitOpError("stands in no nn.module and no nn.scope");
  if (failed(checkNumElements(*this, getType())))
    return failure();
  auto type = cast<RankedTensorType>(getType());
  if (getDims() && failed(verifyDims(*this, "parameter", type, *getDims())))
    return failure();
  bool isRotary = getInit().getKind() == InitKind::Rotary;
  if (isRotary && !getFrozen())
    return emitOpError("starts from rotary angles but is not frozen");
  if (isRotary && (type.getRank() != 3 || type.getDimSize(2) != 2))
    return emitOpError("of type ")
           << type << " is no rotary table, expected the shape LxPx2";
  if (isRotary &&
      failed(checkRotary([&] { return emitOpError(); }, getInit().getRotary(),
                         type.getDimSize(1))))
    return failure();
  if (getDecay() && getFrozen())
    return emitOpError("is frozen: decay has no effect");
  if (getOptimizer() && getFrozen())
    return emitOpError("is frozen: the optimizer ")
           << getOptimizerAttr() << " has no effect";
  return success();
}

LogicalResult ScopeOp::verify() {
  if (!isa_and_present<ModelOp>((*this)->getParentOp()))
    return emitOpError("stands in no nn.module");
  ArrayRef<int64_t> indices = getIndices();
  if (indices.empty())
    return emitOpError("has no layers, expected at least one");
  llvm::SmallDenseSet<int64_t> seen;
  for (int64_t index : indices) {
    if (index < 0 || index >= kMaxLayers)
      return emitOpError("has the layer ")
             << index << ", expected 0 to " << kMaxLayers - 1;
    if (!seen.insert(index).second)
      return emitOpError("has the layer ") << index << " twice";
  }
  for (Operation &op : getBody().front())
    if (!isa<ParameterOp>(op))
      return op.emitError("`")
             << op.getName()
             << "` stands in an nn.scope, expected nn.parameter";
  return success();
}
