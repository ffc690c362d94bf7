//===- TextFiles.cpp - the user's files as documents ----------------------===//

#include "runtime/Data/TextFiles.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fnmatch.h>
#include <utility>

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

/// Keeps the first path in byte-wise order.
static void keepFirst(std::string &first, const std::string &path) {
  if (first.empty() || path < first)
    first = path;
}

/// Adds what lies in `folder`. `hiddenBy` is the hidden entry that the folder
/// is, or lies in; empty if there is none.
static void walk(const fs::path &folder, const FileFilter &filter,
                 const std::string &hiddenBy, FileList &list) {
  std::error_code code;
  fs::directory_iterator entries(folder, code);
  if (code) {
    // Skipped files need not be readable.
    list.unreadable += hiddenBy.empty();
    return;
  }
  for (fs::directory_iterator end; entries != end; entries.increment(code)) {
    if (code)
      break;
    const fs::directory_entry &entry = *entries;
    std::string path = entry.path().string();
    std::string hides = hiddenBy;
    if (hides.empty() && !filter.hidden &&
        entry.path().filename().c_str()[0] == '.')
      hides = path;
    bool isLink = entry.is_symlink(code);
    if (!isLink && entry.is_directory(code)) {
      walk(path, filter, hides, list);
    } else if (!hides.empty()) {
      if (!isLink && entry.is_regular_file(code) && filter.accepts(path)) {
        ++list.hidden;
        keepFirst(list.firstHidden, hides);
      }
    } else if (isLink) {
      ++list.links;
      keepFirst(list.firstLink, path);
    } else if (!entry.is_regular_file(code)) {
      ++list.special;
    } else if (!filter.accepts(path)) {
      ++list.filtered;
    } else {
      list.paths.push_back(path);
    }
  }
  if (code && hiddenBy.empty())
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
      walk(root, filter, "", list);
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

void TextScan::scan(const char *data, size_t size, bool isLast) {
  constexpr size_t longest = 4;
  for (size_t i = 0; i < size;) {
    if (!isLast && size - i < longest) {
      pending.assign(data + i, size - i);
      return;
    }
    size_t length = utf8Length(data + i, size - i);
    auto byte = static_cast<unsigned char>(data[i]);
    bool space = byte >= '\b' && byte <= '\r';
    bool control = (byte < 0x20 && !space) || byte == 0x7F;
    if (length == 0 || control)
      ++odd;
    i += std::max<size_t>(length, 1);
  }
}

void TextScan::add(const char *data, size_t size) {
  total += size;
  hasNul = hasNul || std::memchr(data, 0, size);
  if (hasNul)
    return;
  if (pending.empty())
    return scan(data, size, /*isLast=*/false);
  std::string joined = std::exchange(pending, "");
  joined.append(data, size);
  scan(joined.data(), joined.size(), /*isLast=*/false);
}

bool TextScan::finish() {
  std::string rest = std::exchange(pending, "");
  scan(rest.data(), rest.size(), /*isLast=*/true);
  return !hasNul && odd <= total / 10;
}

bool isText(const uint8_t *data, size_t size) {
  TextScan scan;
  scan.add(reinterpret_cast<const char *>(data), size);
  return scan.finish();
}

bool endsIn(const std::string &path, std::string_view ending) {
  return path.size() > ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), path.rbegin(),
                    [](char a, char b) { return a == std::tolower(b); });
}

/// Whether the first two lines are objects of JSON.
static bool isJsonLines(std::string_view text) {
  for (int line = 0; line < 2; ++line) {
    text.remove_prefix(
        std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    size_t end = std::min(text.find('\n'), text.size());
    bool isObject =
        nlohmann::json::accept(text.substr(0, end)) && text.front() == '{';
    if (!isObject)
      return false;
    text.remove_prefix(end);
  }
  return true;
}

const char *findFormat(const std::string &path, std::string_view beginning) {
  std::string name =
      endsIn(path, ".gz") ? path.substr(0, path.size() - 3) : path;
  if (endsIn(name, ".parquet") || endsIn(name, ".arrow"))
    return "a table";
  if (endsIn(name, ".zst"))
    return "what zstd compressed";
  bool isLines = endsIn(name, ".jsonl") || endsIn(name, ".ndjson") ||
                 (endsIn(name, ".json") && isJsonLines(beginning));
  return isLines ? "JSON lines" : nullptr;
}

} // namespace nsa
