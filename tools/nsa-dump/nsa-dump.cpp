//===- nsa-dump.cpp - prints artefacts ------------------------------------===//

#include "lib/Support/CommandLine.h"
#include "runtime/Core/Dump.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>

using namespace nsa;

static constexpr const char *toolName = "nsa-dump";

int main(int argc, char **argv) {
  CLI::App app("Prints a .nsax artefact: header, segments, tensors and the "
               "commands of each entry, unless an option asks for less",
               toolName);
  app.set_version_flag("--version", std::string(toolName) + " " + NSA_VERSION);
  std::string path;
  DumpOptions options;
  app.add_option("artefact", path, "File to print")->required();
  app.add_flag("--memory", options.memory,
               "Print bytes by segment and role, and what lies where in the "
               "arena from which command to which");
  app.add_flag("--kernels", options.kernels,
               "Print grid, stack, work and symbol of each kernel");
  app.add_flag("--program", options.program,
               "Print the program as well as what the other options ask for");
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  if (!options.memory && !options.kernels)
    options.program = true;
  Result<Artifact> artifact = Artifact::open(path);
  if (!artifact)
    return reportError(toolName, artifact.message());
  std::string text = dumpArtifact(*artifact, options);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0)
    return reportError(toolName, "cannot write to the standard output");
  return 0;
}
