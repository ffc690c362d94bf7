//===- Debug.cpp - what passes tell a developer ---------------------------===//

#include "passes/Support/Debug.h"

#include "mlir/IR/Operation.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace nsa;

debug::Line::~Line() {
  stream << '\n';
  llvm::errs() << text;
}

debug::Line &debug::Line::operator<<(Location location) {
  auto place = location->findInstanceOf<FileLineColLoc>();
  if (!place)
    stream << "an unknown place";
  else
    stream << llvm::sys::path::filename(place.getFilename().getValue()) << ':'
           << place.getLine() << ':' << place.getColumn();
  return *this;
}

debug::Line &debug::Line::operator<<(Operation *op) {
  stream << op->getName() << " at ";
  return *this << op->getLoc();
}
