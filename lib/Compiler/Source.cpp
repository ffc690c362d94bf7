//===- Source.cpp - the module that is compiled ---------------------------===//

#include "lib/Compiler/Source.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Parser/Parser.h"
#include "passes/Graph/BindExtents.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace nsa;

/// Puts the position in the file below the names that operations have.
static void addPlaces(const AsmParserState &state,
                      const llvm::SourceMgr &sources, MLIRContext *context) {
  for (const AsmParserState::OperationDefinition &definition :
       state.getOpDefs()) {
    auto name = dyn_cast<NameLoc>(definition.op->getLoc());
    llvm::SMLoc start = definition.loc.Start;
    unsigned buffer = sources.FindBufferContainingLoc(start);
    if (!name || !isa<UnknownLoc>(name.getChildLoc()) || buffer == 0)
      continue;
    auto [line, column] = sources.getLineAndColumn(start, buffer);
    StringRef file = sources.getMemoryBuffer(buffer)->getBufferIdentifier();
    definition.op->setLoc(NameLoc::get(
        name.getName(), FileLineColLoc::get(context, file, line, column)));
  }
}

OwningOpRef<ModuleOp> nsa::parseModule(const llvm::SourceMgr &sources,
                                       MLIRContext *context) {
  const llvm::MemoryBuffer *main =
      sources.getMemoryBuffer(sources.getMainFileID());
  if (isBytecode(main->getMemBufferRef()))
    return parseSourceFile<ModuleOp>(sources, context);
  Block block;
  AsmParserState state;
  // Verified when every operation has its location.
  ParserConfig config(context, /*verifyAfterParse=*/false);
  if (failed(parseAsmSourceFile(sources, &block, config, &state)))
    return {};
  addPlaces(state, sources, context);
  Location begin =
      FileLineColLoc::get(context, main->getBufferIdentifier(), 1, 1);
  OwningOpRef<ModuleOp> module =
      detail::constructContainerOpForParserIfNecessary<ModuleOp>(
          &block, context, begin);
  if (module && failed(bindExtents(*module)))
    return {};
  return module;
}
