//===- ModelConfigAttr.cpp - the configuration that a model carries -------===//

#include "lib/Frontend/ModelBuilder.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace nsa;

DictionaryAttr nsa::getModelConfig(MLIRContext *context, RunConfig config) {
  Builder builder(context);
  llvm::MapVector<StringRef, SmallVector<NamedAttribute>> sections;
  for (const ConfigField &field : configSchema()) {
    if (!isModelKey(field))
      continue;
    auto toAttribute = [&](const auto &access) -> Attribute {
      const auto &value = access(config);
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, std::string>)
        return builder.getStringAttr(value);
      else if constexpr (std::is_same_v<T, bool>)
        return builder.getBoolAttr(value);
      else if constexpr (std::is_same_v<T, double>)
        return builder.getF64FloatAttr(value);
      else
        return builder.getI64IntegerAttr(value);
    };
    sections[field.section].push_back(
        builder.getNamedAttr(field.key, std::visit(toAttribute, field.access)));
  }
  SmallVector<NamedAttribute> all;
  for (auto &[section, values] : sections)
    all.push_back(
        builder.getNamedAttr(section, builder.getDictionaryAttr(values)));
  return builder.getDictionaryAttr(all);
}
