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

template <typename OpT>
static bool mayContract(OpT op) {
  return bitEnumContainsAll(op.getFastmathFlags(),
                            LLVM::FastmathFlags::contract);
}

/// `value`, if it is a product that may be part of a sum.
static LLVM::FMulOp getProduct(Value value) {
  auto product = value.getDefiningOp<LLVM::FMulOp>();
  return product && mayContract(product) ? product : LLVM::FMulOp();
}

/// Makes one instruction of every product and sum that may be one, as code
/// generators of GPUs do: what must be rounded twice is not to be among them.
static void contractProducts(LLVM::LLVMFuncOp function) {
  function.walk([](Operation *op) {
    auto add = dyn_cast<LLVM::FAddOp>(op);
    auto sub = dyn_cast<LLVM::FSubOp>(op);
    if (!(add && mayContract(add)) && !(sub && mayContract(sub)))
      return;
    unsigned place = getProduct(op->getOperand(0)) ? 0 : 1;
    LLVM::FMulOp product = getProduct(op->getOperand(place));
    if (!product)
      return;
    OpBuilder b(op);
    auto negate = [&](Value value) -> Value {
      return LLVM::FNegOp::create(b, op->getLoc(), value);
    };
    Value factor = product.getLhs(), other = op->getOperand(1 - place);
    if (sub)
      (place == 0 ? other : factor) = negate(place == 0 ? other : factor);
    auto fused =
        LLVM::FMAOp::create(b, op->getLoc(), op->getResult(0).getType(), factor,
                            product.getRhs(), other);
    op->getResult(0).replaceAllUsesWith(fused);
    op->erase();
    if (product->use_empty())
      product->erase();
  });
}

Result<const Code *> Emulator::find(const std::string &symbol) {
  std::unique_ptr<Code> &known = kernels[symbol];
  if (known)
    return known.get();
  auto function = module->lookupSymbol<LLVM::LLVMFuncOp>(symbol);
  if (!function)
    return Error{"there is no kernel @" + symbol};
  contractProducts(function);
  FailureOr<Code> code = translate(function);
  if (failed(code))
    return Error{takeMessages()};
  known = std::make_unique<Code>(std::move(*code));
  return known.get();
}

/// The code with the sizes of a launch.
static Code withSizes(const Code &code, const LaunchSizes &sizes) {
  Code changed = code;
  for (auto [reg, extent] : llvm::zip_equal(code.extents, sizes.extents))
    changed.constants.push_back({reg, /*wide=*/true, extent});
  for (auto [map, own] : llvm::zip_equal(changed.maps, sizes.maps)) {
    map.extents = own.extents;
    map.strides = own.strides;
  }
  return changed;
}

Status Emulator::launch(const std::string &symbol, Dim3 grid,
                        const std::vector<Argument> &arguments,
                        const LaunchSizes &sizes) {
  Result<const Code *> code = find(symbol);
  if (!code)
    return code.takeError();
  if (arguments.size() != (*code)->arguments.size())
    return Error{"kernel @" + symbol + " has " +
                 std::to_string((*code)->arguments.size()) +
                 " arguments, not " + std::to_string(arguments.size())};
  if (sizes.extents.size() != (*code)->extents.size())
    return Error{"kernel @" + symbol + " has " +
                 std::to_string((*code)->extents.size()) + " extents, not " +
                 std::to_string(sizes.extents.size())};
  GlobalMemory global(arguments, (*code)->globalGranule);
  std::optional<Code> changed;
  if (!sizes.extents.empty())
    changed = withSizes(**code, sizes);
  Block block(changed ? *changed : **code, grid, global);
  for (uint32_t z = 0; z < grid.z; ++z)
    for (uint32_t y = 0; y < grid.y; ++y)
      for (uint32_t x = 0; x < grid.x; ++x)
        if (!block.run({x, y, z}))
          return Error{block.error};
  instructions += block.executed;
  return {};
}
