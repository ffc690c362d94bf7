//===- KernelFiles.cpp - kernels as readable files ------------------------===//

#include "lib/Target/KernelFiles.h"
#include "lib/Support/Files.h"
#include "lib/Support/LineBreaks.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace llvm;

llvm::Error nsa::saveKernelFile(StringRef folder, StringRef name,
                                StringRef extension, StringRef text) {
  if (folder.empty())
    return llvm::Error::success();
  std::string path = (folder + "/" + name + "." + extension).str();
  if (Status status = writeFileAtomically(path, text.str()); !status)
    return createStringError(status.message());
  return llvm::Error::success();
}

LogicalResult nsa::saveKernelIR(StringRef folder,
                                ArrayRef<mlir::Operation *> kernels,
                                StringRef extension) {
  for (mlir::Operation *kernel : kernels) {
    std::string text;
    raw_string_ostream(text) << *kernel << "\n";
    if (llvm::Error error = saveKernelFile(
            folder, mlir::SymbolTable::getSymbolName(kernel).getValue(),
            extension, breakLines(text, kIRColumns)))
      return kernel->emitError(toString(std::move(error)));
  }
  return success();
}

std::string nsa::printKernel(const Module &module, StringRef kernel) {
  ValueToValueMapTy values;
  std::unique_ptr<Module> own =
      CloneModule(module, values, [&](const GlobalValue *global) {
        return !isa<Function>(global) || global->getName() == kernel ||
               global->hasLocalLinkage();
      });
  for (Function &function : make_early_inc_range(*own))
    if (function.getName() != kernel && function.use_empty())
      function.eraseFromParent();
  for (GlobalVariable &global : make_early_inc_range(own->globals()))
    if (global.use_empty())
      global.eraseFromParent();
  std::string text;
  raw_string_ostream stream(text);
  own->print(stream, /*AAW=*/nullptr);
  return text;
}

/// Cuts `text` before each line that `findName` finds a name in; the part
/// before the first stands before each.
static std::map<std::string, std::string>
cut(StringRef text, function_ref<StringRef(StringRef)> findName) {
  std::map<std::string, std::string> parts;
  std::string head, *part = &head;
  for (StringRef line : split(text, '\n')) {
    if (StringRef name = findName(line); !name.empty())
      part = &(parts[name.str()] = head);
    part->append(line);
    part->push_back('\n');
  }
  return parts;
}

std::map<std::string, std::string> nsa::splitPTX(StringRef ptx) {
  return cut(ptx, [](StringRef line) {
    return line.consume_front("\t// .globl") ? line.trim() : StringRef();
  });
}

std::map<std::string, std::string> nsa::splitSASS(StringRef listing) {
  return cut(listing, [](StringRef line) {
    line = line.trim();
    return line.consume_front("Function : ") ? line.trim() : StringRef();
  });
}
