//===- ToolOptions.cpp - what --help of a tool shows ----------------------===//

#include "lib/Compiler/ToolOptions.h"
#include "llvm/Support/CommandLine.h"

namespace cl = llvm::cl;

void nsa::hideForeignOptions() {
  for (auto &entry : cl::getRegisteredOptions()) {
    cl::Option *option = entry.second;
    bool isGeneric = llvm::any_of(option->Categories, [](auto *category) {
      return category->getName() == "Generic Options";
    });
    if (!isGeneric && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
  }
}
