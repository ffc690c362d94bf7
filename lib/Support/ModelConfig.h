//===- ModelConfig.h - the configuration that a model carries ---*- C++ -*-===//

#ifndef NSA_LIB_SUPPORT_MODELCONFIG_H
#define NSA_LIB_SUPPORT_MODELCONFIG_H

#include <string>

namespace nsa {

/// A configuration in JSON as `printModelJson` writes it: keys in the order of
/// the schema, those that it does not have after them, whole numbers of
/// floating-point keys with a point. `json` is an object of sections.
std::string formatModelConfig(const std::string &json);

} // namespace nsa

#endif // NSA_LIB_SUPPORT_MODELCONFIG_H
