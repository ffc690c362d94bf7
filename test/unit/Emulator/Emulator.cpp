//===- Emulator.cpp - CUDA kernels without a GPU --------------------------===//

#include "test/unit/Emulator/Emulator.h"
#include "dialects/RT/RTDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/Emulator/Translate.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::emulator;

Emulator::Emulator() : context(MLIRContext::Threading::DISABLED) {
  context.loadDialect<LLVM::LLVMDialect, NVVM::NVVMDialect, rt::RTDialect>();
  context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    llvm::raw_string_ostream stream(messages);
    stream << diagnostic.getLocation() << ": " << diagnostic << "\n";
  });
}

std::string Emulator::takeMessages() {
  std::string text = std::move(messages);
  messages.clear();
  return text;
}

Result<std::unique_ptr<Emulator>> Emulator::parse(const std::string &text) {
  std::unique_ptr<Emulator> emulator(new Emulator());
  emulator->module =
      parseSourceString<ModuleOp>(text, &emulator->context, "kernels.mlir");
  if (!emulator->module)
    return Error{emulator->takeMessages()};
  return emulator;
}

Result<const Code *> Emulator::find(const std::string &symbol) {
  std::unique_ptr<Code> &known = kernels[symbol];
  if (known)
    return known.get();
  auto function = module->lookupSymbol<LLVM::LLVMFuncOp>(symbol);
  if (!function)
    return Error{"there is no kernel @" + symbol};
  FailureOr<Code> code = translate(function);
  if (failed(code))
    return Error{takeMessages()};
  known = std::make_unique<Code>(std::move(*code));
  return known.get();
}

Status Emulator::launch(const std::string &symbol, Dim3 grid,
                        const std::vector<Argument> &arguments) {
  Result<const Code *> code = find(symbol);
  if (!code)
    return code.takeError();
  if (arguments.size() != (*code)->arguments.size())
    return Error{"kernel @" + symbol + " has " +
                 std::to_string((*code)->arguments.size()) +
                 " arguments, not " + std::to_string(arguments.size())};
  GlobalMemory global(arguments, (*code)->globalGranule);
  Block block(**code, grid, global);
  for (uint32_t z = 0; z < grid.z; ++z)
    for (uint32_t y = 0; y < grid.y; ++y)
      for (uint32_t x = 0; x < grid.x; ++x)
        if (!block.run({x, y, z}))
          return Error{block.error};
  instructions += block.executed;
  return {};
}
