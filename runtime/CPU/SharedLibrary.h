//===- SharedLibrary.h - libraries opened at run time -----------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_SHAREDLIBRARY_H
#define NSA_RUNTIME_CPU_SHAREDLIBRARY_H

#include "nsa/Support/Result.h"

#include <dlfcn.h>
#include <string>
#include <vector>

namespace nsa {

/// A shared library, which stays open until the process ends.
struct SharedLibrary {
  void *handle = nullptr;
  /// The file or name that was opened.
  std::string path;

  /// Opens `choice`: a file, or a folder that holds one of `names`, or, when
  /// empty, the first of `names` that the system's loader finds or that lies in
  /// a folder of the environment variable NSA_LIBRARY_PATH (separated by
  /// colons; the Python package adds those of other packages). The error says
  /// that `title` was not found, what was tried, and which `packages` have it.
  static Result<SharedLibrary> open(const std::string &title,
                                    const std::string &choice,
                                    const std::vector<std::string> &names,
                                    const std::string &packages = "");

  /// Sets `function` to that of this name. Remembers the first that is missing.
  template <typename FunctionT>
  void find(FunctionT &function, const char *name) {
    function = reinterpret_cast<FunctionT>(::dlsym(handle, name));
    if (!function && missing.empty())
      missing = name;
  }

  /// An error, if `find` did not find a function, that it is not `title`.
  Status checkFound(const std::string &title) const;

  /// The first name that `find` did not find; empty if there is none.
  std::string missing;
};

} // namespace nsa

#endif // NSA_RUNTIME_CPU_SHAREDLIBRARY_H
