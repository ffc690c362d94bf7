//===- StandardStreams.cpp - stdin and the like of a module ---------------===//
//
// libfyaml's archive is compiled for programs, which have stdin, stdout and
// stderr at addresses known to the linker; a shared object has not. What is
// linked with this finds the module's own variables, which hold those of the C
// library.
//
//===----------------------------------------------------------------------===//

#include <dlfcn.h>

extern "C" {
[[gnu::visibility("hidden")]] void *stdin = nullptr;
[[gnu::visibility("hidden")]] void *stdout = nullptr;
[[gnu::visibility("hidden")]] void *stderr = nullptr;
}

/// Before all other constructors, which may print.
[[gnu::constructor(101)]] static void findStandardStreams() {
  stdin = *static_cast<void **>(dlsym(RTLD_DEFAULT, "stdin"));
  stdout = *static_cast<void **>(dlsym(RTLD_DEFAULT, "stdout"));
  stderr = *static_cast<void **>(dlsym(RTLD_DEFAULT, "stderr"));
}
