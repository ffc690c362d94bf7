//===- NSASpellings.cpp - clauses of nsa ops ------------------------------===//
//
// `nsa.window_attention ... {window = 32 : i64} : functional type` and its like
// are read as `nsa.attention ... visible(#nsa.window<32>)`, and the parameters
// of `nsa.select` and of compression as those of `by(...)`: no other code knows
// of them.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSASpellings.h"

using namespace mlir;
using namespace nsa;

namespace {
/// One spelling: the parameters of its visibility by name, in the order in
/// which `build` takes them.
struct Spelling {
  StringRef name;
  SmallVector<StringRef, 2> parameters;
  Attribute (*build)(function_ref<InFlightDiagnostic()> emitError,
                     MLIRContext *context, ArrayRef<int64_t> values);
};
} // namespace

static const Spelling *findSpelling(StringRef name) {
  static const Spelling spellings[] = {
      {"nsa.compressed_attention",
       {"block", "stride"},
       [](auto emitError, MLIRContext *context, auto values) -> Attribute {
         return CompressedAttr::getChecked(emitError, context, values[0],
                                           values[1]);
       }},
      {"nsa.selected_attention",
       {"select_block"},
       [](auto emitError, MLIRContext *context, auto values) -> Attribute {
         return SelectedAttr::getChecked(emitError, context, values[0],
                                         /*count=*/int64_t(0),
                                         /*initial=*/int64_t(1),
                                         /*local=*/int64_t(2));
       }},
      {"nsa.window_attention",
       {"window"},
       [](auto emitError, MLIRContext *context, auto values) -> Attribute {
         return WindowAttr::getChecked(emitError, context, values[0]);
       }}};
  name.consume_back("_backward");
  const Spelling *found =
      llvm::find_if(spellings, [&](const Spelling &spelling) {
        return spelling.name == name;
      });
  return found == std::end(spellings) ? nullptr : found;
}

/// Takes a parameter from `attributes`: at least `least`, or `otherwise` if it
/// is not there and that is given.
static FailureOr<int64_t>
takeParameter(function_ref<InFlightDiagnostic()> emitError, StringRef name,
              NamedAttrList &attributes, int64_t least,
              std::optional<int64_t> otherwise = std::nullopt) {
  Attribute found = attributes.erase(name);
  if (!found && otherwise)
    return *otherwise;
  if (!found)
    return emitError() << "requires attribute '" << name << "'";
  auto value = dyn_cast<IntegerAttr>(found);
  if (value && value.getType().isSignlessInteger(64) &&
      value.getInt() >= least && value.getInt() <= INT32_MAX)
    return value.getInt();
  return emitError() << "attribute '" << name
                     << "' failed to satisfy constraint: 64-bit signless "
                        "integer attribute whose value is "
                     << (least == 0 ? "non-negative" : "positive")
                     << " and at most " << INT32_MAX << " (it is " << found
                     << ")";
}

/// Takes the parameters of the visibility from `attributes`.
static VisibilityAttrInterface takeVisibility(OpAsmParser &parser, SMLoc loc,
                                              const Spelling &spelling,
                                              NamedAttrList &attributes) {
  auto emitError = [&] { return parser.emitError(loc); };
  SmallVector<int64_t> values;
  for (StringRef parameter : spelling.parameters) {
    FailureOr<int64_t> value =
        takeParameter(emitError, parameter, attributes, /*least=*/1);
    if (failed(value))
      return nullptr;
    values.push_back(*value);
  }
  return cast_or_null<VisibilityAttrInterface>(
      spelling.build(emitError, parser.getContext(), values));
}

/// Attributes besides the parameters are those of dialects and, if it is among
/// `known`, the scale and the softcap.
static LogicalResult checkOthers(OpAsmParser &parser, SMLoc loc,
                                 ArrayRef<StringRef> known,
                                 const NamedAttrList &attributes) {
  bool hasScale = llvm::is_contained(known, "scale");
  for (NamedAttribute attribute : attributes) {
    StringRef found = attribute.getName();
    bool isOfScores = hasScale && (found == "scale" || found == "softcap");
    if (isOfScores && isa<FloatAttr>(attribute.getValue()))
      continue;
    if (isOfScores)
      return parser.emitError(loc) << "attribute '" << found
                                   << "' must be a number of type f64, found "
                                   << attribute.getValue();
    if (!found.contains('.'))
      return parser.emitError(loc) << "has no attribute `" << found << "`"
                                   << suggestName(found, known);
  }
  return success();
}

static ParseResult parseSpelling(OpAsmParser &parser, OperationState &state) {
  StringRef name = state.name.getStringRef();
  const Spelling &spelling = *findSpelling(name);
  bool isBackward = name != spelling.name;
  SMLoc loc = parser.getNameLoc();
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  FunctionType type;
  if (parser.parseOperandList(operands))
    return failure();
  SMLoc attributesLoc = parser.getCurrentLocation();
  if (parser.parseOptionalAttrDict(state.attributes) ||
      parser.parseColonType(type) ||
      parser.resolveOperands(operands, type.getInputs(), loc, state.operands))
    return failure();
  VisibilityAttrInterface visibility =
      takeVisibility(parser, attributesLoc, spelling, state.attributes);
  auto known = llvm::to_vector_of<StringRef, 4>(spelling.parameters);
  known.push_back("scale");
  if (!visibility ||
      failed(checkOthers(parser, attributesLoc, known, state.attributes)))
    return failure();
  size_t expected = (isBackward ? 6 : 3) + (visibility.getIndexBlock() != 0);
  if (operands.size() != expected)
    return parser.emitError(loc)
           << "has " << operands.size() << " operands, expected " << expected;
  size_t results = isBackward ? 3 : 2;
  if (type.getNumResults() != results)
    return parser.emitError(loc) << "has " << type.getNumResults()
                                 << " results, expected " << results;
  state.addTypes(type.getResults());
  state.addAttribute("visibility", visibility);
  SmallVector<int32_t> segments(isBackward ? 6 : 3, 1);
  segments.append({visibility.getIndexBlock() != 0, /*start=*/0, /*at=*/0});
  state.addAttribute("operandSegmentSizes",
                     parser.getBuilder().getDenseI32ArrayAttr(segments));
  state.name =
      OperationName(isBackward ? AttentionBackwardOp::getOperationName()
                               : AttentionOp::getOperationName(),
                    parser.getContext());
  return success();
}

//===----------------------------------------------------------------------===//
// Compression and selection
//===----------------------------------------------------------------------===//

/// Takes `block` and `stride`.
static CompressedAttr takeBlocks(function_ref<InFlightDiagnostic()> emitError,
                                 MLIRContext *context,
                                 NamedAttrList &attributes) {
  FailureOr<int64_t> block = takeParameter(emitError, "block", attributes, 1);
  if (failed(block))
    return nullptr;
  FailureOr<int64_t> stride = takeParameter(emitError, "stride", attributes, 1);
  if (failed(stride))
    return nullptr;
  return CompressedAttr::getChecked(emitError, context, *block, *stride);
}

/// Takes the parameters of `nsa.select` that are not those of compression.
static SelectedAttr takeSelected(function_ref<InFlightDiagnostic()> emitError,
                                 MLIRContext *context,
                                 NamedAttrList &attributes) {
  SmallVector<int64_t, 4> values;
  auto take = [&](StringRef name, int64_t least,
                  std::optional<int64_t> otherwise = std::nullopt) {
    FailureOr<int64_t> value =
        takeParameter(emitError, name, attributes, least, otherwise);
    if (succeeded(value))
      values.push_back(*value);
    return succeeded(value);
  };
  if (!take("select_block", 1) || !take("count", 1) || !take("initial", 0, 1) ||
      !take("local", 1, 2))
    return nullptr;
  return SelectedAttr::getChecked(emitError, context, values[0], values[1],
                                  values[2], values[3]);
}

/// Parses `by(...)` and the dictionary after it; without the clause, the
/// dictionary has the parameters of `compressed` and, unless it is null, of
/// `selected`.
static ParseResult parseClause(OpAsmParser &parser, CompressedAttr &compressed,
                               SelectedAttr *selected,
                               NamedAttrList &attributes) {
  bool hasClause = succeeded(parser.parseOptionalKeyword("by"));
  if (hasClause && (parser.parseLParen() || parser.parseAttribute(compressed) ||
                    (selected && (parser.parseComma() ||
                                  parser.parseAttribute(*selected))) ||
                    parser.parseRParen()))
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOptionalAttrDict(attributes))
    return failure();
  SmallVector<StringRef> known;
  if (!hasClause) {
    auto emitError = [&] { return parser.emitError(loc); };
    compressed = takeBlocks(emitError, parser.getContext(), attributes);
    if (compressed && selected)
      *selected = takeSelected(emitError, parser.getContext(), attributes);
    if (!compressed || (selected && !*selected))
      return failure();
    known = {"block", "stride"};
    if (selected)
      known.append({"select_block", "count", "initial", "local"});
  }
  if (selected)
    known.push_back("scale");
  return checkOthers(parser, loc, known, attributes);
}

ParseResult nsa::parseBlocks(OpAsmParser &parser, CompressedAttr &compressed,
                             NamedAttrList &attributes) {
  return parseClause(parser, compressed, /*selected=*/nullptr, attributes);
}

void nsa::printBlocks(OpAsmPrinter &printer, Operation *op,
                      CompressedAttr compressed, DictionaryAttr attributes) {
  printer << "by(" << compressed << ")";
  printer.printOptionalAttrDict(attributes.getValue(),
                                {"compressed", "kind", "operandSegmentSizes"});
}

ParseResult nsa::parseSelection(OpAsmParser &parser, CompressedAttr &compressed,
                                SelectedAttr &selected,
                                NamedAttrList &attributes) {
  return parseClause(parser, compressed, &selected, attributes);
}

void nsa::printSelection(OpAsmPrinter &printer, Operation *op,
                         CompressedAttr compressed, SelectedAttr selected,
                         DictionaryAttr attributes) {
  printer << "by(" << compressed << ", " << selected << ")";
  printer.printOptionalAttrDict(
      attributes.getValue(), {"compressed", "selected", "operandSegmentSizes"});
}

ParseResult nsa::parseSelectionTypes(OpAsmParser &parser, Type &query,
                                     Type &key, Type &lse, Type &indices) {
  SMLoc loc = parser.getCurrentLocation();
  bool isFunction = succeeded(parser.parseOptionalLParen());
  if (parser.parseType(query) || parser.parseComma() || parser.parseType(key))
    return failure();
  SmallVector<Type> results;
  if (isFunction &&
      (parser.parseComma() || parser.parseType(lse) || parser.parseRParen()))
    return failure();
  SMLoc resultsLoc = parser.getCurrentLocation();
  if (parser.parseArrowTypeList(results))
    return failure();
  if (results.size() != 1)
    return parser.emitError(resultsLoc)
           << "has " << results.size() << " results, expected 1";
  indices = results.front();
  if (isFunction)
    return success();
  auto type = dyn_cast<RankedTensorType>(query);
  if (!type || type.getRank() != 4)
    return parser.emitError(loc)
           << "query must be a tensor of rank 4, found " << query;
  lse = RankedTensorType::get(
      {type.getDimSize(0), type.getDimSize(2), type.getDimSize(1)},
      Float32Type::get(parser.getContext()));
  return success();
}

void nsa::printSelectionTypes(OpAsmPrinter &printer, Operation *op, Type query,
                              Type key, Type lse, Type indices) {
  printer << query << ", " << key << " -> " << indices;
}

std::optional<Dialect::ParseOpHook>
NSADialect::getParseOperationHook(StringRef name) const {
  if (!findSpelling(name))
    return std::nullopt;
  return ParseOpHook(parseSpelling);
}
