//===- nsa-dump.cpp - prints artefacts ------------------------------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "nsa/Artifact/Format.h"
#include "runtime/Core/Dump.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>

using namespace nsa;

static constexpr const char *toolName = "nsa-dump";

/// The suffix of a file that other programs know: nvdisasm, objdump.
static std::string suffixOf(const std::string &format) {
  return format == artifact::objectsFormat ? "a" : format;
}

/// Writes the code of the kernels to FOLDER/kernels.SUFFIX, where there are
/// several binaries to kernels-0.SUFFIX and so on.
static Status saveBinaries(const Artifact &artifact,
                           const std::string &folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    return Error{"cannot create '" + folder + "': " + code.message()};
  const auto &binaries = *artifact->binaries();
  for (unsigned i = 0; i < binaries.size(); ++i) {
    const artifact::Binary &binary = *binaries[i];
    std::string number =
        binaries.size() > 1 ? "-" + std::to_string(i) : std::string();
    std::string path =
        folder + "/kernels" + number + "." + suffixOf(binary.format()->str());
    std::string data(reinterpret_cast<const char *>(binary.data()->data()),
                     binary.data()->size());
    NSA_RETURN_IF_ERROR(writeFileAtomically(path, data));
  }
  return {};
}

int main(int argc, char **argv) {
  ignoreFileSizeSignal();
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
  std::string binaries;
  app.add_option("--save-binaries", binaries,
                 "Write the code of the kernels, kernels.a, .ptx or .cubin, "
                 "into this folder")
      ->type_name("FOLDER");
  if (std::optional<int> code = parseCommandLine(app, argc, argv))
    return *code;
  if (!options.memory && !options.kernels && binaries.empty())
    options.program = true;
  Result<Artifact> artifact = Artifact::open(path);
  if (!artifact)
    return reportError(toolName, artifact.message());
  if (!binaries.empty())
    if (Status status = saveBinaries(*artifact, binaries); !status)
      return reportError(toolName, status.message());
  std::string text = dumpArtifact(*artifact, options);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0)
    return reportError(toolName, "cannot write to the standard output");
  return 0;
}
