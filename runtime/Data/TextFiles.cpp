//===- TextFiles.cpp - the user's files as documents ----------------------===//

#include "runtime/Data/TextFiles.h"
#include "lib/Support/Files.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fnmatch.h>
#include <zlib.h>

namespace fs = std::filesystem;

namespace nsa {

static bool matches(const std::string &glob, const std::string &path) {
  if (glob.find('/') != std::string::npos)
    return fnmatch(glob.c_str(), path.c_str(), 0) == 0;
  std::string name = path.substr(path.rfind('/') + 1);
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

bool FileFilter::accepts(const std::string &path) const {
  auto matchesPath = [&](const std::string &glob) {
    return matches(glob, path);
  };
  if (std::any_of(exclude.begin(), exclude.end(), matchesPath))
    return false;
  return include.empty() ||
         std::any_of(include.begin(), include.end(), matchesPath);
}

static void walk(const fs::path &folder, const FileFilter &filter,
                 FileList &list) {
  std::error_code code;
  fs::directory_iterator entries(folder, code);
  if (code) {
    ++list.unreadable;
    return;
  }
  for (fs::directory_iterator end; entries != end; entries.increment(code)) {
    if (code)
      break;
    const fs::directory_entry &entry = *entries;
    std::string name = entry.path().filename().string();
    if (name[0] == '.' || entry.is_symlink(code)) {
      ++list.ignored;
    } else if (entry.is_directory(code)) {
      walk(entry.path(), filter, list);
    } else if (!entry.is_regular_file(code)) {
      ++list.ignored;
    } else if (!filter.accepts(entry.path().string())) {
      ++list.filtered;
    } else {
      list.paths.push_back(entry.path().string());
    }
  }
  if (code)
    ++list.unreadable;
}

Result<FileList> listFiles(const std::vector<std::string> &roots,
                           const FileFilter &filter) {
  FileList list;
  for (const std::string &root : roots) {
    std::error_code code;
    fs::file_status status = fs::status(root, code);
    if (!fs::exists(status))
      return Error{
          "no file or folder '" + root + "'" +
          (status.type() == fs::file_type::none ? ": " + code.message() : "")};
    if (fs::is_directory(status))
      walk(root, filter, list);
    else if (filter.accepts(root))
      list.paths.push_back(root);
    else
      ++list.filtered;
  }
  std::sort(list.paths.begin(), list.paths.end());
  list.paths.erase(std::unique(list.paths.begin(), list.paths.end()),
                   list.paths.end());
  return list;
}

bool isText(const uint8_t *data, size_t size) {
  if (size == 0)
    return true;
  if (std::memchr(data, 0, size))
    return false;
  size_t odd = 0;
  for (size_t i = 0; i < size;) {
    size_t length =
        utf8Length(reinterpret_cast<const char *>(data + i), size - i);
    bool space = data[i] >= '\b' && data[i] <= '\r';
    bool control = (data[i] < 0x20 && !space) || data[i] == 0x7F;
    if (length == 0 || control)
      ++odd;
    i += std::max<size_t>(length, 1);
  }
  return odd <= size / 10;
}

static Result<std::string> readGzip(const std::string &path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (!file)
    return systemError("cannot open", path);
  std::string contents;
  char buffer[1 << 16];
  int got = 0;
  while ((got = gzread(file, buffer, sizeof buffer)) > 0)
    contents.append(buffer, size_t(got));
  int code = Z_OK;
  std::string reason = gzerror(file, &code);
  if (got < 0 || code != Z_OK) {
    gzclose(file);
    return Error{"cannot decompress '" + path + "': " + reason};
  }
  if (gzclose(file) != Z_OK)
    return Error{"cannot decompress '" + path + "': truncated"};
  return contents;
}

Result<std::string> readDocument(const std::string &path) {
  bool gzip = path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0;
  return gzip ? readGzip(path) : readFile(path);
}

} // namespace nsa
