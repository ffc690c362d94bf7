//===- nsa-model.cpp - a configuration to model.mlir ----------------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Config.h"
#include "lib/Support/Files.h"
#include "nsa/Compiler/Compiler.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

using namespace nsa;

static constexpr const char *toolName = "nsa-model";

/// The text that the command line asks for.
static Result<std::string> makeText(const std::string &path, bool keys,
                                    const std::vector<std::string> &overrides,
                                    size_t stage) {
  if (keys)
    return printConfigReference();
  if (path.empty())
    return Error{"no configuration given; --keys shows what one may say"};
  NSA_ASSIGN_OR_RETURN(std::string config, readConfigText(path));
  return makeModelText(config, path, overrides, stage);
}

int main(int argc, char **argv) {
  ignoreFileSizeSignal();
  CLI::App app("Writes the model that a configuration describes", toolName);
  app.set_version_flag("--version", std::string(toolName) + " " + NSA_VERSION);
  std::string config, output;
  std::vector<std::string> overrides;
  size_t stage = 1;
  bool keys = false;
  app.add_option("config", config, "Configuration to read")
      ->type_name("config.yaml");
  app.add_flag("--keys", keys,
               "Print every key of a configuration with its default, meaning "
               "and values, and do nothing else");
  app.add_option("-o,--output", output, "Output file [the standard output]")
      ->type_name("model.mlir");
  app.add_option("--set", overrides,
                 "Override a key: section.key=value (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--stage", stage,
                 "Of a configuration with stages, the one whose model is "
                 "written [1]")
      ->type_name("NUMBER");
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  Result<std::string> text = makeText(config, keys, overrides, stage);
  if (!text)
    return reportError(toolName, text.message());
  Status status = writeOutput(output, *text);
  return status ? 0 : reportError(toolName, status.message());
}
