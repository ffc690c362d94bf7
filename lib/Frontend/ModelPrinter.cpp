//===- ModelPrinter.cpp - a model as text ---------------------------------===//

#include "dialects/NN/NNModuleOps.h"
#include "dialects/NSA/NSAOps.h"
#include "lib/Frontend/ModelBuilder.h"
#include "lib/Support/LineBreaks.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa;

namespace {

/// Short names of types and of what a branch sees.
class ShortNames : public OpAsmDialectInterface {
public:
  ShortNames(Dialect *dialect, llvm::DenseMap<Type, std::string> names)
      : OpAsmDialectInterface(dialect), names(std::move(names)) {}

  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    StringRef name = llvm::TypeSwitch<Attribute, StringRef>(attr)
                         .Case([](CompressedAttr) { return "cmp"; })
                         .Case([](SelectedAttr) { return "slc"; })
                         .Case([](WindowAttr) { return "win"; })
                         .Default(StringRef());
    os << name;
    return name.empty() ? AliasResult::NoAlias : AliasResult::FinalAlias;
  }
  AliasResult getAlias(Type type, raw_ostream &os) const override {
    auto found = names.find(type);
    if (found == names.end())
      return AliasResult::NoAlias;
    os << found->second;
    return AliasResult::FinalAlias;
  }

private:
  llvm::DenseMap<Type, std::string> names;
};

} // namespace

/// The name of a value of this type, after its producer.
static StringRef getTypeName(Operation *op, unsigned result) {
  if (isa<nn::EmbedOp>(op))
    return "x";
  if (isa<AttentionOp>(op))
    return result == 0 ? "o" : "lse";
  if (isa<CompressOp>(op))
    return "kvc";
  if (isa<SelectOp>(op))
    return "idx";
  auto linear = dyn_cast<nn::LinearOp>(op);
  if (!linear)
    return "";
  StringRef place = nn::getPlaceName(linear.getWeight());
  if (place.ends_with("query"))
    return "q";
  if (place.ends_with(".key") || place.ends_with(".value"))
    return "kv";
  // The embedding is the head where they are tied.
  return place == "head" || place == "embedding" ? "logits" : "";
}

/// A name for each type that several operations share. The first value of a
/// type names it.
static llvm::DenseMap<Type, std::string> nameTypes(nn::ModelOp model) {
  llvm::DenseMap<Type, std::string> names;
  auto add = [&](Type type, StringRef name) {
    if (!name.empty())
      names.try_emplace(type, name.str());
  };
  model.walk([&](nn::FunctionOp function) {
    if (function.getTrain())
      for (Type type : function.getFunctionType().getInputs())
        add(type, "ids");
  });
  model.walk([&](nn::EmbedOp op) { add(op.getType(), "x"); });
  model.walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (OpResult result : op->getResults())
      add(result.getType(), getTypeName(op, result.getResultNumber()));
  });
  return names;
}

std::string nsa::printModel(ModuleOp module) {
  nn::ModelOp model = *module.getOps<nn::ModelOp>().begin();
  Dialect *dialect = model->getDialect();
  // Aliases stand before an operation that is in no other.
  OwningOpRef<nn::ModelOp> alone(model.clone());
  dialect->addInterface(
      std::make_unique<ShortNames>(dialect, nameTypes(*alone)));
  std::string text;
  llvm::raw_string_ostream stream(text);
  alone->print(stream, OpPrintingFlags());
  return breakLines(text, kIRColumns);
}
