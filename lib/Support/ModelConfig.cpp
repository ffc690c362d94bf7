//===- ModelConfig.cpp - the configuration that a model carries -----------===//

#include "lib/Support/ModelConfig.h"
#include "lib/Support/Config.h"
#include "lib/Support/Json.h"

using namespace nsa;

std::string nsa::formatModelConfig(const std::string &json) {
  using Json = nlohmann::ordered_json;
  Json given = Json::parse(json), formatted = Json::object();
  for (const ConfigField &field : configSchema()) {
    auto section = given.find(field.section);
    if (section == given.end() || !section->contains(field.key))
      continue;
    const Json &value = (*section)[field.key];
    bool isFloat =
        std::holds_alternative<ConfigField::FloatAccess>(field.access);
    formatted[field.section][field.key] =
        isFloat && value.is_number() ? Json(value.get<double>()) : value;
  }
  for (const auto &[section, keys] : given.items())
    if (!keys.is_object())
      formatted[section] = keys;
    else
      for (const auto &[key, value] : keys.items())
        if (!formatted[section].contains(key))
          formatted[section][key] = value;
  return jsonText(formatted, 2);
}
