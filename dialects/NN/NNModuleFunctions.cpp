//===- NNModuleFunctions.cpp - functions and repeated layers --------------===//

#include "dialects/NN/NNModuleDetail.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;
using namespace nsa::nn::detail;

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

FailureOr<ModelOp> nn::detail::getModel(Operation *op) {
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
