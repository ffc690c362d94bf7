//===- Assembler.cpp - PTX to a cubin -------------------------------------===//

#include "lib/Target/CUDA/Assembler.h"
#include "lib/Target/ObjectCache.h"
#include "lib/Target/TemporaryDirectory.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

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
  return Error::success();
}

/// Runs ptxas with these options; what it prints and the cubin.
static Expected<std::pair<std::string, std::string>>
runAssembler(StringRef ptxas, ArrayRef<StringRef> options, StringRef ptx) {
  nsa::TemporaryDirectory directory("nsa-ptxas");
  if (std::error_code error = directory.getError())
    return createStringError(error, "cannot create a temporary directory");
  std::string input = directory.getFile("kernels.ptx");
  std::string output = directory.getFile("kernels.cubin");
  std::string log = directory.getFile("log");
  if (Error error = nsa::writeFile(input, ptx))
    return error;

  SmallVector<StringRef> arguments = {ptxas};
  append_range(arguments, options);
  arguments.append({"-o", output, input});
  const std::optional<StringRef> redirects[] = {"", StringRef(log),
                                                StringRef(log)};
  std::string message;
  int status = sys::ExecuteAndWait(ptxas, arguments, std::nullopt, redirects, 0,
                                   0, &message);
  ErrorOr<std::unique_ptr<MemoryBuffer>> printed = MemoryBuffer::getFile(log);
  StringRef text = printed ? (*printed)->getBuffer() : StringRef();
  if (status != 0)
    return createStringError("'" + ptxas + "' failed with exit code " +
                             std::to_string(status) + ": " +
                             (message.empty() ? text.trim().str() : message));
  ErrorOr<std::unique_ptr<MemoryBuffer>> cubin =
      MemoryBuffer::getFile(output, /*IsText=*/false,
                            /*RequiresNullTerminator=*/false);
  if (std::error_code error = cubin.getError())
    return createStringError(error, "cannot read what ptxas wrote");
  return std::pair(text.str(), (*cubin)->getBuffer().str());
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
  TemporaryDirectory directory("nsa-ptxas");
  if (directory.getError())
    return "";
  std::string output = directory.getFile("version");
  const StringRef arguments[] = {ptxas, "--version"};
  const std::optional<StringRef> redirects[] = {"", StringRef(output), ""};
  int status = sys::ExecuteAndWait(ptxas, arguments, std::nullopt, redirects);
  ErrorOr<std::unique_ptr<MemoryBuffer>> printed =
      MemoryBuffer::getFile(output);
  return status == 0 && printed ? (*printed)->getBuffer().str() : "";
}

Expected<std::string> nsa::disassemble(StringRef ptxas, ArrayRef<char> cubin) {
  SmallString<128> program(ptxas);
  sys::path::remove_filename(program);
  sys::path::append(program, "cuobjdump");
  if (!sys::fs::can_execute(program))
    return std::string();
  TemporaryDirectory directory("nsa-cuobjdump");
  if (std::error_code error = directory.getError())
    return createStringError(error, "cannot create a temporary directory");
  std::string input = directory.getFile("kernels.cubin");
  std::string output = directory.getFile("listing");
  if (Error error = writeFile(input, cubin))
    return error;
  const StringRef arguments[] = {program, "--dump-sass", input};
  const std::optional<StringRef> redirects[] = {"", StringRef(output),
                                                StringRef(output)};
  int status = sys::ExecuteAndWait(program, arguments, std::nullopt, redirects);
  ErrorOr<std::unique_ptr<MemoryBuffer>> printed =
      MemoryBuffer::getFile(output);
  if (status != 0 || !printed)
    return createStringError("'" + program + "' failed with exit code " +
                             Twine(status));
  return (*printed)->getBuffer().str();
}
