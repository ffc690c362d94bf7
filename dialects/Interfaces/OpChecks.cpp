//===- OpChecks.cpp - what every op of the project verifies ---------------===//

#include "dialects/Interfaces/OpChecks.h"
#include "dialects/Interfaces/ShapeChecks.h"

using namespace mlir;

LogicalResult nsa::checkNumElements(Operation *op, Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape() ||
      saturatingElements(shaped.getShape()) <= kMaxElements)
    return success();
  return op->emitError("type ")
         << type << " has more than " << kMaxElements << " elements";
}

std::string nsa::suggestName(StringRef name, ArrayRef<StringRef> known) {
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  StringRef found;
  for (StringRef candidate : known)
    if (size_t distance = name.edit_distance(candidate); distance < best) {
      best = distance;
      found = candidate;
    }
  return found.empty() ? "" : ("; did you mean `" + found + "`?").str();
}

LogicalResult nsa::refuseAttribute(Operation *op, NamedAttribute attribute,
                                   ArrayRef<StringRef> known) {
  StringRef name = attribute.getName();
  // One that is known belongs elsewhere.
  std::string suggested =
      llvm::is_contained(known, name) ? "" : suggestName(name, known);
  return op->emitError("attribute `")
         << name << "` is not known here" << suggested;
}

LogicalResult nsa::checkAttributes(Operation *op) {
  for (NamedAttribute attribute : op->getDiscardableAttrs()) {
    StringRef name = attribute.getName();
    if (name.contains('.'))
      continue;
    SmallVector<StringRef> known;
    for (StringAttr own : op->getName().getAttributeNames())
      known.push_back(own);
    return op->emitOpError("has no attribute `")
           << name << "`" << suggestName(name, known);
  }
  return success();
}
