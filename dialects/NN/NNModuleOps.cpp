//===- NNModuleOps.cpp - the text of whole models -------------------------===//

#include "dialects/NN/NNModuleOps.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include "llvm/Support/Format.h"
#include <cmath>

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

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
  if (parser.parseFloat(value))
    return failure();
  init = parser.getChecked<InitAttr>(
      parser.getContext(), *kind, parser.getBuilder().getF64FloatAttr(value));
  return success(init != nullptr);
}

static void printInitializer(OpAsmPrinter &printer, Operation *,
                             InitAttr init) {
  printer << stringifyInitKind(init.getKind()) << " "
          << formatFloat(init.getValue());
}

/// "seq, _, _" for ["seq", "", ""].
static ParseResult parseDims(OpAsmParser &parser, ArrayAttr &dims) {
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

static void printDims(OpAsmPrinter &printer, Operation *, ArrayAttr dims) {
  llvm::interleaveComma(dims.getAsValueRange<StringAttr>(), printer,
                        [&](StringRef name) {
                          printer << (name.empty() ? StringRef("_") : name);
                        });
}

/// "0, 2 to 5" for 0, 2, 3, 4: the end of a range is not part of it.
static ParseResult parseIndices(OpAsmParser &parser,
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

static void printIndices(OpAsmPrinter &printer, Operation *,
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

//===----------------------------------------------------------------------===//
// nn.module
//===----------------------------------------------------------------------===//

ParseResult ModelOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes))
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
  if (auto precision = getPrecision(); precision && *precision != "fp32" &&
                                       *precision != "bf16" &&
                                       *precision != "fp16")
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

ParameterOp nn::findParameter(ModelOp model, SymbolRefAttr reference) {
  return dyn_cast_or_null<ParameterOp>(
      SymbolTable::lookupSymbolIn(model, reference));
}

std::string nn::getParameterName(ParameterOp parameter, int64_t index) {
  auto scope = dyn_cast<ScopeOp>(parameter->getParentOp());
  std::string name = parameter.getSymName().str();
  if (!scope)
    return name;
  return (scope.getNamePrefix() + "." + Twine(index) + "." + name).str();
}

/// One of batch, seq and nothing for each dimension.
static LogicalResult verifyDims(Operation *op, const Twine &what, Type type,
                                ArrayAttr dims) {
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
  if (getDecay() && getFrozen())
    return emitOpError("is frozen: decay has no effect");
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

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// The name without its sign; one that is a number becomes "argN".
static std::string getSSAName(const OpAsmParser::UnresolvedOperand &operand) {
  StringRef name = operand.name.drop_front();
  bool isNumber = !name.empty() && llvm::isDigit(name.front());
  return ((isNumber ? "arg" : "") + name).str();
}

static void setNames(Block &block, ArrayAttr names, OpAsmSetValueNameFn set) {
  for (auto [argument, name] :
       llvm::zip(block.getArguments(), names.getAsValueRange<StringAttr>()))
    set(argument, name);
}

void FunctionOp::getAsmBlockArgumentNames(Region &region,
                                          OpAsmSetValueNameFn setName) {
  if (!region.empty())
    setNames(region.front(), getArgNames(), setName);
}

void RepeatOp::getAsmBlockArgumentNames(Region &region,
                                        OpAsmSetValueNameFn setName) {
  if (!region.empty())
    setNames(region.front(), getArgNames(), setName);
}

void RepeatOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  for (Value result : getResults())
    setName(result, cast<FlatSymbolRefAttr>(getScopes()[0]).getValue());
}

void CallOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  for (Value result : getResults())
    setName(result, getCallee());
}

/// "(%tokens: tensor<2x8xi32> [batch, seq], ...)".
static ParseResult parseArguments(OpAsmParser &parser,
                                  SmallVectorImpl<OpAsmParser::Argument> &list,
                                  SmallVectorImpl<Attribute> &dims) {
  return parser.parseCommaSeparatedList(
      OpAsmParser::Delimiter::Paren, [&]() -> ParseResult {
        ArrayAttr names = parser.getBuilder().getArrayAttr({});
        if (parser.parseArgument(list.emplace_back(), /*allowType=*/true))
          return failure();
        if (succeeded(parser.parseOptionalLSquare()) &&
            (parseDims(parser, names) || parser.parseRSquare()))
          return failure();
        dims.push_back(names);
        return success();
      });
}

/// "-> T", "-> (T, T)" or, with names, "-> (loss: T, logits: T)".
static ParseResult parseResults(OpAsmParser &parser, bool named,
                                SmallVectorImpl<Type> &types,
                                SmallVectorImpl<Attribute> &names) {
  if (parser.parseOptionalArrow())
    return success();
  auto parseResult = [&]() -> ParseResult {
    std::string name;
    if (named) {
      if (parser.parseKeywordOrString(&name) || parser.parseColon())
        return failure();
      names.push_back(parser.getBuilder().getStringAttr(name));
    }
    return parser.parseType(types.emplace_back());
  };
  if (succeeded(parser.parseOptionalLParen()))
    return failure(parser.parseCommaSeparatedList(parseResult) ||
                   parser.parseRParen());
  return parseResult();
}

ParseResult FunctionOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  bool train = succeeded(parser.parseOptionalKeyword("train"));
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Attribute> dims, resultNames, argNames;
  SmallVector<Type> inputs, results;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parseArguments(parser, arguments, dims) ||
      parseResults(parser, train, results, resultNames))
    return failure();
  for (const OpAsmParser::Argument &argument : arguments) {
    inputs.push_back(argument.type);
    argNames.push_back(builder.getStringAttr(getSSAName(argument.ssaName)));
  }
  result.addAttribute(getFunctionTypeAttrName(result.name),
                      TypeAttr::get(builder.getFunctionType(inputs, results)));
  result.addAttribute(getArgNamesAttrName(result.name),
                      builder.getArrayAttr(argNames));
  if (llvm::any_of(dims,
                   [](Attribute d) { return !cast<ArrayAttr>(d).empty(); }))
    result.addAttribute(getArgDimsAttrName(result.name),
                        builder.getArrayAttr(dims));
  if (train) {
    result.addAttribute(getTrainAttrName(result.name), builder.getUnitAttr());
    result.addAttribute(getResultNamesAttrName(result.name),
                        builder.getArrayAttr(resultNames));
  }
  return failure(parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parser.parseRegion(*result.addRegion(), arguments));
}

void FunctionOp::print(OpAsmPrinter &printer) {
  printer << (getTrain() ? " train " : " ");
  printer.printSymbolName(getSymName());
  printer << '(';
  Block &entry = getBody().front();
  for (BlockArgument argument : entry.getArguments()) {
    unsigned index = argument.getArgNumber();
    printer << (index ? ", " : "") << argument << ": " << argument.getType();
    ArrayAttr dims =
        getArgDims() ? cast<ArrayAttr>((*getArgDims())[index]) : ArrayAttr();
    if (!dims || dims.empty())
      continue;
    printer << " [";
    printDims(printer, *this, dims);
    printer << ']';
  }
  printer << ')';
  ArrayRef<Type> results = getFunctionType().getResults();
  if (!results.empty()) {
    bool parenthesised = results.size() > 1 || getTrain();
    printer << (parenthesised ? " -> (" : " -> ");
    for (auto [index, type] : llvm::enumerate(results)) {
      printer << (index ? ", " : "");
      if (getTrain()) {
        printer.printKeywordOrString(
            cast<StringAttr>((*getResultNames())[index]));
        printer << ": ";
      }
      printer << type;
    }
    printer << (parenthesised ? ")" : "");
  }
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getFunctionTypeAttrName(), getArgNamesAttrName(),
       getArgDimsAttrName(), getResultNamesAttrName(), getTrainAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

static LogicalResult verifyUnique(Operation *op, StringRef kind,
                                  ArrayAttr names) {
  llvm::StringMap<unsigned> seen;
  for (StringRef name : names.getAsValueRange<StringAttr>())
    if (name.empty() || !seen.try_emplace(name, 0).second)
      return op->emitOpError("has two ")
             << kind << "s of the name `" << name << "`";
  return success();
}

LogicalResult FunctionOp::verify() {
  FunctionType type = getFunctionType();
  Block &entry = getBody().front();
  if (TypeRange(entry.getArgumentTypes()) != TypeRange(type.getInputs()))
    return emitOpError("has arguments of other types than its type ") << type;
  for (Type part :
       llvm::concat<const Type>(type.getInputs(), type.getResults())) {
    auto tensor = dyn_cast<RankedTensorType>(part);
    if (!tensor || !tensor.hasStaticShape())
      return emitOpError("has an argument or result of type ")
             << part << ", expected a tensor of static shape";
    if (failed(checkNumElements(*this, part)))
      return failure();
  }
  if (getArgNames().size() != type.getNumInputs() ||
      (getArgDims() && getArgDims()->size() != type.getNumInputs()))
    return emitOpError("has ") << type.getNumInputs() << " arguments but "
                               << getArgNames().size() << " names";
  if (failed(verifyUnique(*this, "argument", getArgNames())))
    return failure();
  if (getArgDims())
    for (auto [index, dims] : llvm::enumerate(*getArgDims())) {
      auto names = dyn_cast<ArrayAttr>(dims);
      if (!names || !llvm::all_of(names, llvm::IsaPred<StringAttr>))
        return emitOpError("argument ")
               << index << " has dimensions that are no array of names";
      if (!names.empty() && failed(verifyDims(*this, "argument " + Twine(index),
                                              type.getInput(index), names)))
        return failure();
    }
  size_t numNames = getResultNames() ? getResultNames()->size() : 0;
  if (numNames != (getTrain() ? type.getNumResults() : 0))
    return emitOpError("has ")
           << type.getNumResults() << " results but " << numNames << " names";
  if (getTrain() && type.getNumResults() == 0)
    return emitOpError("is to be trained but has no result");
  if (getResultNames() &&
      failed(verifyUnique(*this, "result", *getResultNames())))
    return failure();
  if (entry.empty() || !isa<ReturnOp>(entry.back()))
    return emitOpError("does not end with nn.return");
  return success();
}

LogicalResult ReturnOp::verify() {
  auto function = cast<FunctionOp>((*this)->getParentOp());
  TypeRange expected = function.getFunctionType().getResults();
  if (getOperandTypes() == expected)
    return success();
  return emitOpError("returns (")
         << getOperandTypes() << "), expected the results (" << expected
         << ") of @" << function.getSymName();
}

/// Operations of models stand directly in functions and in repeated layers.
static FailureOr<ModelOp> getModel(Operation *op) {
  Operation *parent = op->getParentOp();
  auto model = op->getParentOfType<ModelOp>();
  if (model && isa<FunctionOp, RepeatOp>(parent))
    return model;
  return op->emitOpError("stands in no nn.func and no nn.repeat");
}

LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &tables) {
  FailureOr<ModelOp> model = getModel(*this);
  if (failed(model))
    return failure();
  auto callee = tables.lookupSymbolIn<FunctionOp>(*model, getCalleeAttr());
  if (!callee)
    return emitOpError("calls ")
           << getCalleeAttr() << ", which is no nn.func of the module";
  if (callee.getTrain())
    return emitOpError("calls ")
           << getCalleeAttr() << ", the function to train";
  auto type =
      FunctionType::get(getContext(), getOperandTypes(), getResultTypes());
  if (callee.getFunctionType() == type)
    return success();
  return emitOpError("calls ") << getCalleeAttr() << " as " << type
                               << ", expected " << callee.getFunctionType();
}

//===----------------------------------------------------------------------===//
// nn.repeat
//===----------------------------------------------------------------------===//

ParseResult RepeatOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  SmallVector<Attribute> scopes, names;
  if (parser.parseCommaSeparatedList([&]() -> ParseResult {
        FlatSymbolRefAttr scope;
        if (parser.parseAttribute(scope))
          return failure();
        scopes.push_back(scope);
        return success();
      }))
    return failure();
  DenseI64ArrayAttr indices;
  if (succeeded(parser.parseOptionalKeyword("at"))) {
    if (parseIndices(parser, indices))
      return failure();
    result.addAttribute(getIndicesAttrName(result.name), indices);
  }
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> initial;
  SmallVector<Type> types;
  SMLoc place = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(
          OpAsmParser::Delimiter::Paren, [&]() -> ParseResult {
            OpAsmParser::Argument &argument = arguments.emplace_back();
            if (parser.parseArgument(argument) || parser.parseEqual() ||
                parser.parseOperand(initial.emplace_back()) ||
                parser.parseColonType(argument.type))
              return failure();
            types.push_back(argument.type);
            names.push_back(
                builder.getStringAttr(getSSAName(argument.ssaName)));
            return success();
          }))
    return failure();
  result.addAttribute(getScopesAttrName(result.name),
                      builder.getArrayAttr(scopes));
  result.addAttribute(getArgNamesAttrName(result.name),
                      builder.getArrayAttr(names));
  result.addTypes(types);
  return failure(
      parser.resolveOperands(initial, types, place, result.operands) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.parseRegion(*result.addRegion(), arguments));
}

void RepeatOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  llvm::interleaveComma(getScopes(), printer);
  if (getIndices()) {
    printer << " at ";
    printIndices(printer, *this, getIndicesAttr());
  }
  printer << " (";
  llvm::interleaveComma(
      llvm::zip(getBody().front().getArguments(), getInitial()), printer,
      [&](auto pair) {
        auto [argument, value] = pair;
        printer << argument << " = " << value << " : " << value.getType();
      });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getScopesAttrName(), getArgNamesAttrName(), getIndicesAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult RepeatOp::verify() {
  Block &block = getBody().front();
  if (getScopes().empty())
    return emitOpError("has no scope, expected at least one");
  if (block.empty() || !isa<NextOp>(block.back()))
    return emitOpError("does not end with nn.next");
  TypeRange types = getInitial().getTypes();
  if (TypeRange(block.getArgumentTypes()) != types)
    return emitOpError("begins with (") << types << "), its layers take ("
                                        << block.getArgumentTypes() << ")";
  TypeRange next = block.back().getOperandTypes();
  if (next != types)
    return emitOpError("begins with (")
           << types << "), its layers end with (" << next << ")";
  if (getResultTypes() != types)
    return emitOpError("begins with (")
           << types << "), its results are (" << getResultTypes() << ")";
  if (getArgNames().size() != types.size())
    return emitOpError("has ") << types.size() << " arguments but "
                               << getArgNames().size() << " names";
  return verifyUnique(*this, "argument", getArgNames());
}

LogicalResult RepeatOp::verifySymbolUses(SymbolTableCollection &tables) {
  FailureOr<ModelOp> model = getModel(*this);
  if (failed(model))
    return failure();
  ScopeOp first;
  for (auto name : getScopes().getAsRange<FlatSymbolRefAttr>()) {
    auto scope = tables.lookupSymbolIn<ScopeOp>(*model, name);
    if (!scope)
      return emitOpError("repeats ")
             << name << ", which is no nn.scope of the module";
    if (!first)
      first = scope;
    if (scope.getNamePrefix() != first.getNamePrefix())
      return emitOpError("repeats scopes named `")
             << first.getNamePrefix() << "` and `" << scope.getNamePrefix()
             << "`, expected one name";
    ArrayRef<int64_t> indices = getIndices().value_or(first.getIndices());
    if (!getIndices() && scope.getIndices() != indices)
      return emitOpError("repeats @")
             << first.getSymName() << " and " << name
             << ", which have other layers: say which ones with `at`";
    for (int64_t index : indices)
      if (!llvm::is_contained(scope.getIndices(), index))
        return emitOpError("repeats layer ")
               << index << ", which " << name << " does not have";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Operations with parameters
//===----------------------------------------------------------------------===//

/// The type of the parameter that `op` reads.
static FailureOr<ParameterOp> readParameter(Operation *op,
                                            SymbolTableCollection &tables,
                                            SymbolRefAttr reference) {
  FailureOr<ModelOp> model = getModel(op);
  if (failed(model))
    return failure();
  if (auto found = dyn_cast_or_null<ParameterOp>(
          tables.lookupSymbolIn(*model, reference)))
    return found;
  return op->emitOpError("reads ")
         << reference << ", which is no nn.parameter of the module";
}

/// The parameter has this shape.
static LogicalResult checkParameter(Operation *op,
                                    SymbolTableCollection &tables,
                                    SymbolRefAttr reference,
                                    ArrayRef<int64_t> expected) {
  FailureOr<ParameterOp> parameter = readParameter(op, tables, reference);
  if (failed(parameter))
    return failure();
  auto type = cast<RankedTensorType>(parameter->getType());
  if (type.getShape() == expected)
    return success();
  return op->emitOpError("reads ")
         << reference << " of shape " << formatShape(type.getShape())
         << ", expected " << formatShape(expected);
}

LogicalResult GetOp::verifySymbolUses(SymbolTableCollection &tables) {
  return checkParameter(*this, tables, getParameter(), getShape(getValue()));
}

LogicalResult LinearOp::verifySymbolUses(SymbolTableCollection &tables) {
  ArrayRef<int64_t> in = getShape(getInput()), out = getShape(getOutput());
  SmallVector<int64_t> columns(in.drop_back());
  int64_t width = out.back();
  if (auto heads = getHeads()) {
    if (out.size() != in.size() + 1 || in.size() != 3 ||
        out[out.size() - 2] != static_cast<int64_t>(*heads))
      return emitOpError("has a result of shape ")
             << formatShape(out) << " for " << *heads
             << " heads, expected the shape BxTxHxD";
    width = saturatingProduct(width, *heads);
    columns.push_back(*heads);
  }
  columns.push_back(out.back());
  if (out != ArrayRef(columns))
    return emitOpError("has a result of shape ")
           << formatShape(out) << " for an input of shape " << formatShape(in)
           << ", expected " << formatShape(columns);
  return checkParameter(*this, tables, getWeight(), {width, in.back()});
}

LogicalResult NormOp::verifySymbolUses(SymbolTableCollection &tables) {
  return checkParameter(*this, tables, getWeight(),
                        getShape(getInput()).back());
}

LogicalResult EmbedOp::verifySymbolUses(SymbolTableCollection &tables) {
  ArrayRef<int64_t> out = getShape(getOutput());
  if (out.drop_back() != getShape(getIds()))
    return emitOpError("has a result of shape ")
           << formatShape(out) << " for ids of shape "
           << formatShape(getShape(getIds()));
  FailureOr<ParameterOp> table = readParameter(*this, tables, getTable());
  if (failed(table))
    return failure();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(table->getType()).getShape();
  return checkParameter(*this, tables, getTable(),
                        {shape.empty() ? 0 : shape.front(), out.back()});
}

LogicalResult RopeOp::verifySymbolUses(SymbolTableCollection &tables) {
  FailureOr<ParameterOp> table = readParameter(*this, tables, getTable());
  if (failed(table))
    return failure();
  if (table->getInit().getKind() != InitKind::Rotary)
    return emitOpError("reads ")
           << getTable() << ", which starts from no rotary angles";
  ArrayRef<int64_t> shape = cast<RankedTensorType>(table->getType()).getShape();
  int64_t rows = getDim(getInput(), 1), width = getDim(getInput(), 3);
  int64_t last = saturatingProduct(std::max<int64_t>(rows, 1) - 1,
                                   getStride().value_or(1));
  if (last >= shape[0])
    return emitOpError("reads position ")
           << last << ", " << getTable() << " has " << shape[0];
  if (width % 2 != 0)
    return emitOpError("rotates heads of ")
           << width << " channels, expected an even number";
  return checkParameter(*this, tables, getTable(), {shape[0], width / 2, 2});
}

LogicalResult GatesOp::verifySymbolUses(SymbolTableCollection &tables) {
  ArrayRef<int64_t> logits = getShape(getLogits()),
                    gates = getShape(getGates());
  if (logits.drop_back() != gates.take_front(2) ||
      logits.back() != saturatingProduct(gates[2], gates[3]))
    return emitOpError("has gates of shape ")
           << formatShape(gates) << " for logits of shape "
           << formatShape(logits);
  return checkParameter(*this, tables, getBias(), logits.back());
}

//===----------------------------------------------------------------------===//
// What they stand for
//===----------------------------------------------------------------------===//

Value GetOp::expand(OpBuilder &, Location, Value, Value parameter) {
  return parameter;
}

Value LinearOp::expand(OpBuilder &builder, Location loc, Value input,
                       Value weight) {
  Value product = MatmulOp::create(
      builder, loc, input, weight, /*accumulator=*/Value(),
      /*transpose_lhs=*/false, /*transpose_rhs=*/true, TypeAttr());
  if (!getHeads())
    return product;
  return SplitHeadsOp::create(builder, loc, product, *getHeads());
}

Value NormOp::expand(OpBuilder &builder, Location loc, Value input,
                     Value weight) {
  return RMSNormOp::create(builder, loc, input, weight, getEps()).getOutput();
}

Value EmbedOp::expand(OpBuilder &builder, Location loc, Value ids,
                      Value table) {
  return EmbeddingOp::create(builder, loc, table, ids);
}

Value RopeOp::expand(OpBuilder &builder, Location loc, Value input,
                     Value table) {
  return RotaryOp::create(builder, loc, input, table, getStride().value_or(1),
                          /*inverse=*/false);
}

Value GatesOp::expand(OpBuilder &builder, Location loc, Value logits,
                      Value bias) {
  return GateOp::create(builder, loc, getActivation(), logits, bias);
}
