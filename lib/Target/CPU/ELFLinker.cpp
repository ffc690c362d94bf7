//===- ELFLinker.cpp - objects to a shared object -------------------------===//

#include "lib/Target/CPU/ELFLinker.h"
#include "lib/Target/CPU/CrashGuard.h"
#include "lib/Target/TemporaryDirectory.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>

using namespace llvm;
using nsa::runGuarded;

LLD_HAS_DRIVER(elf)

static Error runLinker(ArrayRef<std::string> inputs, StringRef output) {
  std::string outputText = output.str();
  std::vector<const char *> arguments = {"ld.lld",
                                         "-m",
                                         "elf_x86_64",
                                         "-shared",
                                         "-soname",
                                         "nsa-kernels",
                                         "--build-id=none",
                                         "--hash-style=gnu",
                                         "--threads=1",
                                         "--gc-sections",
                                         "--strip-all",
                                         "-z",
                                         "now",
                                         "-o",
                                         outputText.c_str()};
  llvm::append_range(arguments, llvm::map_range(inputs, [](const auto &input) {
                       return input.c_str();
                     }));

  std::string messages;
  raw_string_ostream stream(messages);
  const lld::DriverDef drivers[] = {{lld::Gnu, &lld::elf::link}};
  lld::Result result = {1, false};
  if (Error error = runGuarded(
          [&] { result = lld::lldMain(arguments, stream, stream, drivers); }))
    return createStringError("linking the kernels failed: " +
                             toString(std::move(error)));
  if (result.retCode == 0 && result.canRunAgain)
    return Error::success();
  return createStringError("linking the kernels failed: " +
                           StringRef(messages).trim());
}

Expected<SmallVector<char, 0>>
nsa::linkSharedObject(ArrayRef<SmallVector<char, 0>> objects) {
  static std::mutex linkerMutex;
  std::lock_guard<std::mutex> lock(linkerMutex);

  TemporaryDirectory directory("nsa-link");
  if (std::error_code error = directory.getError())
    return createStringError(error, "cannot create a temporary directory");
  std::vector<std::string> inputs;
  inputs.reserve(objects.size());
  for (auto [number, object] : llvm::enumerate(objects)) {
    inputs.push_back(directory.getFile(Twine(number) + ".o"));
    if (Error error = writeFile(inputs.back(), object))
      return error;
  }
  std::string output = directory.getFile("kernels.so");
  if (Error error = runLinker(inputs, output))
    return error;
  ErrorOr<std::unique_ptr<MemoryBuffer>> linked = MemoryBuffer::getFile(
      output, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (std::error_code error = linked.getError())
    return createStringError(error, "cannot read the linked kernels");
  StringRef bytes = (*linked)->getBuffer();
  return SmallVector<char, 0>(bytes.begin(), bytes.end());
}
