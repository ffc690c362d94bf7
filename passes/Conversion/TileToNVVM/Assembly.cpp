//===- Assembly.cpp - instructions as text --------------------------------===//

#include "passes/Conversion/TileToNVVM/Assembly.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace nsa::cuda;

static StringRef constraintOf(Type type) {
  if (type.isF32())
    return "f";
  return type.isInteger(64) || isa<LLVM::LLVMPointerType>(type) ? "l" : "r";
}

SmallVector<Value> Assembly::create(ImplicitLocOpBuilder &b) const {
  SmallVector<std::string> constraints;
  for (Type type : results)
    constraints.push_back(("=" + constraintOf(type)).str());
  for (Value input : inputs)
    constraints.push_back(constraintOf(input.getType()).str());
  for (size_t i = 0; i < tied.size(); ++i)
    constraints.push_back(std::to_string(i));
  if (ordersMemory)
    constraints.push_back("~{memory}");
  Type type;
  if (results.size() == 1)
    type = results[0];
  else if (!results.empty())
    type = LLVM::LLVMStructType::getLiteral(b.getContext(), results);
  SmallVector<Value> operands(inputs);
  llvm::append_range(operands, tied);
  auto instruction = LLVM::InlineAsmOp::create(
      b, type, operands, StringRef(text),
      StringRef(llvm::join(constraints, ",")), /*has_side_effects=*/true,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr(), ArrayAttr());
  if (results.size() == 1)
    return {instruction.getRes()};
  SmallVector<Value> values;
  for (int64_t i = 0; i < int64_t(results.size()); ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, instruction.getRes(), i));
  return values;
}

SmallVector<Value> nsa::cuda::passThrough(ImplicitLocOpBuilder &b,
                                          StringRef instruction,
                                          ValueRange values) {
  Assembly assembly{
      instruction.str(), llvm::to_vector(values.getTypes()), {}, values};
  return assembly.create(b);
}
