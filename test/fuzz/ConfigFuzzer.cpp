//===- ConfigFuzzer.cpp - any text as a configuration ---------------------===//
//
// What is accepted prints as text that means the same; what is refused says
// where. The first line may hold an override after "#set ".
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Config.h"
#include "test/fuzz/Fuzz.h"

#include <algorithm>

using namespace nsa;
using namespace nsa::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  std::vector<std::string> overrides;
  const std::string mark = "#set ";
  if (text.compare(0, mark.size(), mark) == 0) {
    size_t end = std::min(text.find('\n'), text.size());
    overrides.push_back(text.substr(mark.size(), end - mark.size()));
    text.erase(0, end);
  }
  Result<RunConfig> config = parseConfig(text, "fuzz.yaml", overrides);
  if (!config) {
    requireMessage(config.message());
    bool located = config.message().compare(0, 10, "fuzz.yaml:") == 0;
    bool inOverride = config.message().compare(0, 10, "override '") == 0;
    require(located || inOverride, "an error says where", config.message());
    return 0;
  }
  std::string printed = printConfigYaml(*config);
  Result<RunConfig> again = parseConfig(printed, "printed.yaml");
  require(again.ok(), "a printed configuration is one", printed);
  require(configHash(*again) == configHash(*config),
          "printing keeps the configuration", printed);
  return 0;
}
