//===- Emulate.cpp - runs a program for a GPU without one -----------------===//
//
//   nsa-emulate MODULE TARGET [OPTION=VALUE...]
//
// Compiles a module for the emulator of unit/Emulator and does on poisoned
// memory what it reads, line by line: "run ENTRY", "write TENSOR FILE" sets a
// tensor to the array of a file, "read TENSOR FILE" writes such a file. It
// answers each line with "ok", of a run with the entry's outputs, or with what
// is wrong.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "runtime/Core/TensorFiles.h"
#include "test/unit/Emulator/EmulatedModule.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdio>
#include <iostream>
#include <sstream>

using namespace nsa;

namespace {
struct Options {
  CompilerOptions compiler;
  /// Batch and length of a module with `?`.
  std::vector<uint64_t> extents;
};
} // namespace

static std::vector<std::string> splitList(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',', -1, /*KeepEmpty=*/false);
  return {parts.begin(), parts.end()};
}

static Status setOption(Options &options, llvm::StringRef text) {
  auto [key, value] = text.split('=');
  if (key == "gradients")
    options.compiler.gradients = splitList(value);
  else if (key == "precision")
    options.compiler.precision = value.str();
  else if (key == "recompute")
    options.compiler.recompute = value.str();
  else if (key == "context")
    options.compiler.context = std::stoll(value.str());
  else if (key == "prefill-chunk")
    options.compiler.prefillChunk = std::stoll(value.str());
  else if (key == "pages")
    options.compiler.pages = std::stoll(value.str());
  else if (key == "sample-context")
    options.compiler.sampleContext = std::stoll(value.str());
  else if (key == "extents")
    for (const std::string &number : splitList(value))
      options.extents.push_back(std::stoull(number));
  else
    return Error{"there is no option '" + key.str() + "'"};
  return {};
}

static Result<Program> load(const char *path, const Options &options) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.takeError();
  auto compiled = emulator::compileForEmulator(*text, options.compiler);
  if (!compiled)
    return compiled.takeError();
  Result<Artifact> artifact =
      Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
  if (artifact && artifact->needsExtents())
    artifact = artifact->withExtents(options.extents);
  if (!artifact)
    return artifact.takeError();
  RuntimeOptions poisoned;
  poisoned.poison = true;
  return Program::create(*artifact, poisoned);
}

static Status copyTensor(const Program &program, const std::string &verb,
                         const std::string &name, const std::string &path) {
  Result<TensorView> tensor = program.tensor(name.c_str());
  if (!tensor)
    return tensor.takeError();
  if (verb == "read")
    return writeFileAtomically(path, formatTensor(*tensor));
  Result<NpyArray> array = readNpy(path);
  if (!array)
    return array.takeError();
  return loadTensor(*array, *tensor);
}

/// Does what a line says and adds the names of outputs to `answer`.
static Status obey(Program &program, const std::string &line,
                   std::string &answer) {
  std::istringstream words(line);
  std::string verb, name, path;
  words >> verb >> name >> path;
  if (verb != "run")
    return copyTensor(program, verb, name, path);
  const EntryInfo *entry = program.findEntry(name);
  if (!entry)
    return Error{"there is no entry '" + name + "'"};
  for (unsigned output : entry->outputs)
    answer += " " + program.tensors()[output].name;
  return program.run(*entry);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: nsa-emulate MODULE TARGET [OPTION=VALUE...]\n");
    return 2;
  }
  Options options;
  options.compiler.target = argv[2];
  options.compiler.allowSlowPaths = {"all"};
  for (int i = 3; i < argc; ++i)
    if (Status status = setOption(options, argv[i]); !status) {
      std::fprintf(stderr, "error: %s\n", status.message().c_str());
      return 2;
    }
  Result<Program> program = load(argv[1], options);
  if (!program) {
    std::fprintf(stderr, "error: %s\n", program.message().c_str());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer = "ok";
    if (Status status = obey(*program, line, answer); !status) {
      answer = "error: " + status.message();
      llvm::replace(answer, '\n', ' ');
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
