//===- SharedLibrary.cpp - libraries opened at run time -------------------===//

#include "runtime/CPU/SharedLibrary.h"

#include <cstdlib>
#include <sstream>
#include <sys/stat.h>

using namespace nsa;

static constexpr const char *kFolders = "NSA_LIBRARY_PATH";

/// The names as they are, then in each folder of the environment.
static std::vector<std::string>
searched(const std::vector<std::string> &names) {
  std::vector<std::string> paths = names;
  const char *folders = std::getenv(kFolders);
  std::istringstream list(folders ? folders : "");
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty())
      for (const std::string &name : names)
        paths.push_back(folder + "/" + name);
  return paths;
}

/// The names to pass to dlopen, in order.
static std::vector<std::string>
candidates(const std::string &choice, const std::vector<std::string> &names) {
  if (choice.empty())
    return searched(names);
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

Result<SharedLibrary> SharedLibrary::open(const std::string &title,
                                          const std::string &choice,
                                          const std::vector<std::string> &names,
                                          const std::string &packages) {
  std::string tried;
  for (const std::string &path : candidates(choice, names)) {
    SharedLibrary library;
    library.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    library.path = path;
    if (library.handle)
      return library;
    tried += (tried.empty() ? "" : "; ") + std::string(::dlerror());
  }
  std::string where;
  if (choice.empty() && !packages.empty())
    where = "; it comes with " + packages;
  return Error{title + " not found (" + tried + ")" + where};
}

Status nsa::SharedLibrary::checkFound(const std::string &title) const {
  if (missing.empty())
    return {};
  return Error{"'" + path + "' is not " + title + ": it has no symbol " +
               missing};
}
