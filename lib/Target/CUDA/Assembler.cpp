//===- Assembler.cpp - PTX to a cubin -------------------------------------===//

#include "lib/Target/CUDA/Assembler.h"
#include "lib/Support/Files.h"
#include "lib/Target/ObjectCache.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include <cerrno>
#include <cstdlib>

using namespace llvm;

/// The number before `unit` in a text such as "8 bytes stack frame, 0
/// bytes spill stores"; 0 if there is none.
static uint64_t numberBefore(StringRef line, StringRef unit) {
  size_t at = line.find(unit);
  if (at == StringRef::npos)
    return 0;
  StringRef before = line.take_front(at).rtrim();
  StringRef digits = before.take_back(
      before.size() - (before.find_last_not_of("0123456789") + 1));
  uint64_t number = 0;
  return digits.getAsInteger(10, number) ? 0 : number;
}

/// Whether the line is one of the messages C7500 to C7599. Those that ptxas 12
/// and 13 have say that wgmma are serialized, or that registers are not
/// reallocated for them; of later ones we assume no better.
static bool saysSerialised(StringRef line) {
  size_t at = line.find("(C75");
  return at != StringRef::npos && line.size() > at + 6 &&
         isDigit(line[at + 4]) && isDigit(line[at + 5]) && line[at + 6] == ')';
}

/// The function that a warning names, or an empty name.
static StringRef namedFunction(StringRef line) {
  StringRef name = line.split("function '").second;
  return name.contains('\'') ? name.split('\'').first : StringRef();
}

void nsa::parseAssemblerLog(StringRef log, Assembly &assembly) {
  KernelResources *current = nullptr;
  bool isAnySerialised = false;
  for (StringRef line : split(log, '\n')) {
    line = line.trim();
    if (line.consume_front("ptxas info    : Compiling entry function '") ||
        line.consume_front("ptxas info    : Function properties for ")) {
      current = &assembly.kernels[line.split('\'').first.trim()];
    } else if (line.starts_with("ptxas warning") || saysSerialised(line)) {
      assembly.warnings.push_back(line.str());
      StringRef name = namedFunction(line);
      if (saysSerialised(line) && !name.empty())
        assembly.kernels[name].isSerialised = true;
      else if (saysSerialised(line))
        isAnySerialised = true;
    } else if (current && line.contains("bytes stack frame")) {
      current->stackBytes = numberBefore(line, "bytes stack frame");
      current->spillStores = numberBefore(line, "bytes spill stores");
      current->spillLoads = numberBefore(line, "bytes spill loads");
    } else if (current && line.contains("registers")) {
      current->registers = numberBefore(line, "registers");
    }
  }
  // The messages come before or between those of kernels: one without a name
  // may be of any.
  for (auto &kernel : assembly.kernels)
    kernel.second.isSerialised |= isAnySerialised;
}

Error nsa::checkLaunchRegisters(const Assembly &assembly,
                                const StringMap<uint64_t> &expected) {
  for (const auto &kernel : expected) {
    auto known = assembly.kernels.find(kernel.first());
    if (known != assembly.kernels.end() &&
        known->second.registers != kernel.second)
      return createStringError(
          "ptxas gives a thread of kernel @" + kernel.first() + " " +
          Twine(known->second.registers) + " registers at launch instead of " +
          Twine(kernel.second) + ", of which some hand theirs over");
  }
  return llvm::Error::success();
}

namespace {
/// A program with a directory for its files, which only its owner may enter,
/// that goes with everything in it.
class Program {
public:
  Program(StringRef path, StringRef prefix);
  ~Program();

  /// Writes a file for it, unless the name is empty, and runs it. Returns what
  /// it prints.
  Expected<std::string> run(ArrayRef<StringRef> options, StringRef name,
                            StringRef contents) const;
  std::string getFile(StringRef name) const {
    return (directory + "/" + name).str();
  }

private:
  StringRef path;
  SmallString<128> directory;
  int error = 0;
};
} // namespace

Program::Program(StringRef path, StringRef prefix) : path(path) {
  sys::path::system_temp_directory(/*ErasedOnReboot=*/true, directory);
  sys::path::append(directory, prefix + "-XXXXXX");
  // Whatever the umask: no other user can put a link in it.
  if (!::mkdtemp(const_cast<char *>(directory.c_str())))
    error = errno;
}

Program::~Program() {
  if (error)
    return;
  // Nothing can be done about a file that remains.
  [[maybe_unused]] std::error_code failure =
      sys::fs::remove_directories(directory);
}

Expected<std::string> Program::run(ArrayRef<StringRef> options, StringRef name,
                                   StringRef contents) const {
  if (error)
    return createStringError(std::error_code(error, std::generic_category()),
                             "cannot create a temporary directory");
  if (!name.empty()) {
    nsa::Result<nsa::OutputFile> file = nsa::OutputFile::create(getFile(name));
    nsa::Status status = file ? file->write(contents) : file.takeError();
    if (!status)
      return createStringError(status.message());
  }
  SmallVector<StringRef> arguments = {path};
  append_range(arguments, options);
  std::string log = getFile("log"), message;
  const std::optional<StringRef> redirects[] = {"", StringRef(log),
                                                StringRef(log)};
  int status = sys::ExecuteAndWait(path, arguments, std::nullopt, redirects, 0,
                                   0, &message);
  ErrorOr<std::unique_ptr<MemoryBuffer>> printed = MemoryBuffer::getFile(log);
  StringRef text = printed ? (*printed)->getBuffer() : StringRef();
  if (status != 0)
    return createStringError("'" + path + "' failed with exit code " +
                             std::to_string(status) + ": " +
                             (message.empty() ? text.trim().str() : message));
  return text.str();
}

/// Runs ptxas with these options; what it prints and the cubin.
static Expected<std::pair<std::string, std::string>>
runAssembler(StringRef ptxas, ArrayRef<StringRef> options, StringRef ptx) {
  Program program(ptxas, "nsa-ptxas");
  std::string input = program.getFile("kernels.ptx");
  std::string output = program.getFile("kernels.cubin");
  SmallVector<StringRef> arguments(options);
  arguments.append({"-o", output, input});
  Expected<std::string> text = program.run(arguments, "kernels.ptx", ptx);
  if (!text)
    return text.takeError();
  ErrorOr<std::unique_ptr<MemoryBuffer>> cubin =
      MemoryBuffer::getFile(output, /*IsText=*/false,
                            /*RequiresNullTerminator=*/false);
  if (std::error_code error = cubin.getError())
    return createStringError(error, "cannot read what ptxas wrote");
  return std::pair(std::move(*text), (*cubin)->getBuffer().str());
}

Expected<nsa::Assembly>
nsa::assemble(StringRef ptxas, StringRef ptx, const CUDAChip &chip,
              unsigned threads, function_ref<void(const std::string &)> warn) {
  std::string arch = ("-arch=" + chip.name).str();
  std::string split =
      "--split-compile=" + std::to_string(std::max(threads, 1u));
  SmallVector<StringRef> options = {arch, "-O3", "-v", split};
  if (ptx.contains("\n\t.loc\t"))
    options.push_back("-lineinfo");
  auto writeInputs = [&](raw_ostream &inputs) {
    inputs << getAssemblerVersion(ptxas) << '\0' << join(options, " ") << '\0'
           << ptx;
  };
  // The cache keeps the number of bytes of the log, the log and the cubin.
  auto generate = [&]() -> Expected<std::string> {
    auto made = runAssembler(ptxas, options, ptx);
    if (!made)
      return made.takeError();
    return utostr(made->first.size()) + '\n' + made->first + made->second;
  };
  Expected<std::string> made = generateOnce(writeInputs, generate, warn);
  if (!made)
    return made.takeError();
  StringRef rest = *made;
  size_t logBytes = 0;
  rest.consumeInteger(10, logBytes);
  StringRef cubin = rest.drop_front(1 + logBytes);
  Assembly assembly;
  assembly.cubin.assign(cubin.begin(), cubin.end());
  parseAssemblerLog(rest.substr(1, logBytes), assembly);
  return assembly;
}

std::string nsa::getAssemblerVersion(StringRef ptxas) {
  Expected<std::string> version =
      Program(ptxas, "nsa-ptxas").run({"--version"}, "", "");
  if (version)
    return std::move(*version);
  consumeError(version.takeError());
  return "";
}

Expected<std::string> nsa::disassemble(StringRef ptxas, ArrayRef<char> cubin) {
  SmallString<128> path(ptxas);
  sys::path::remove_filename(path);
  sys::path::append(path, "cuobjdump");
  if (!sys::fs::can_execute(path))
    return std::string();
  Program program(path, "nsa-cuobjdump");
  std::string input = program.getFile("kernels.cubin");
  return program.run({"--dump-sass", input}, "kernels.cubin",
                     StringRef(cubin.data(), cubin.size()));
}
