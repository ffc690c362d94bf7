//===- NSASpellings.cpp - attention that names a branch -------------------===//
//
// `nsa.window_attention ... {window = 32 : i64} : functional type` and its like
// are read as `nsa.attention ... visible(#nsa.window<32>)`: no other code knows
// of them.
//
//===----------------------------------------------------------------------===//

#include "dialects/NSA/NSAOps.h"

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

/// Takes the parameters of the visibility from `attributes`.
static VisibilityAttrInterface takeVisibility(OpAsmParser &parser, SMLoc loc,
                                              const Spelling &spelling,
                                              NamedAttrList &attributes) {
  auto emitError = [&] { return parser.emitError(loc); };
  SmallVector<int64_t> values;
  for (StringRef parameter : spelling.parameters) {
    Attribute found = attributes.erase(parameter);
    if (!found) {
      emitError() << "requires attribute '" << parameter << "'";
      return nullptr;
    }
    auto value = dyn_cast<IntegerAttr>(found);
    if (!value || !value.getType().isSignlessInteger(64) ||
        value.getInt() < 1 || value.getInt() > INT32_MAX) {
      emitError() << "attribute '" << parameter
                  << "' failed to satisfy constraint: 64-bit signless integer "
                     "attribute whose value is positive and at most "
                  << INT32_MAX << " (it is " << found << ")";
      return nullptr;
    }
    values.push_back(value.getInt());
  }
  return cast_or_null<VisibilityAttrInterface>(
      spelling.build(emitError, parser.getContext(), values));
}

/// Other attributes are the scale and those of dialects.
static LogicalResult checkOthers(OpAsmParser &parser, SMLoc loc,
                                 const Spelling &spelling,
                                 const NamedAttrList &attributes) {
  auto known = llvm::to_vector_of<StringRef, 4>(spelling.parameters);
  known.push_back("scale");
  for (NamedAttribute attribute : attributes) {
    StringRef found = attribute.getName();
    if (found == "scale" && isa<FloatAttr>(attribute.getValue()))
      continue;
    if (found == "scale")
      return parser.emitError(loc)
             << "attribute 'scale' must be a number of type f64, found "
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
  if (!visibility ||
      failed(checkOthers(parser, attributesLoc, spelling, state.attributes)))
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
  state.name =
      OperationName(isBackward ? AttentionBackwardOp::getOperationName()
                               : AttentionOp::getOperationName(),
                    parser.getContext());
  return success();
}

std::optional<Dialect::ParseOpHook>
NSADialect::getParseOperationHook(StringRef name) const {
  if (!findSpelling(name))
    return std::nullopt;
  return ParseOpHook(parseSpelling);
}
