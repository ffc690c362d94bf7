//===- SharedLibrary.cpp - libraries opened at run time -------------------===//

#include "runtime/CPU/SharedLibrary.h"

#include <sys/stat.h>

using namespace nsa;

/// What to hand to dlopen, in order.
static std::vector<std::string>
candidates(const std::string &choice, const std::vector<std::string> &names) {
  if (choice.empty())
    return names;
  struct stat info;
  bool folder = ::stat(choice.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (!folder) {
    // A name without a slash would be searched for elsewhere.
    return {choice.find('/') == std::string::npos ? "./" + choice : choice};
  }
  std::vector<std::string> paths;
  paths.reserve(names.size());
  for (const std::string &name : names)
    paths.push_back(choice + "/" + name);
  return paths;
}

Result<SharedLibrary>
SharedLibrary::open(const std::string &title, const std::string &choice,
                    const std::vector<std::string> &names) {
  std::string tried;
  for (const std::string &path : candidates(choice, names)) {
    SharedLibrary library;
    library.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    library.path = path;
    if (library.handle)
      return library;
    tried += (tried.empty() ? "" : "; ") + std::string(::dlerror());
  }
  return Error{title + " not found (" + tried + ")"};
}
