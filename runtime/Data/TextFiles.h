//===- TextFiles.h - the user's files as documents --------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DATA_TEXTFILES_H
#define NSA_RUNTIME_DATA_TEXTFILES_H

#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

/// Which files a walk takes. A glob with a slash is matched against the whole
/// path, one without against the file name.
struct FileFilter {
  /// Empty takes every file.
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  /// Takes entries below a root whose name begins with a dot, too.
  bool hidden = false;

  bool accepts(const std::string &path) const;
};

/// What a walk found.
struct FileList {
  /// In byte-wise order, without duplicates.
  std::vector<std::string> paths;
  uint64_t filtered = 0;
  /// Files that only their own name, or that of a folder, hides, and the first
  /// hidden file or folder with one.
  uint64_t hidden = 0;
  std::string firstHidden;
  /// Symbolic links below the roots, and the first.
  uint64_t links = 0;
  std::string firstLink;
  /// Devices, pipes and sockets below the roots.
  uint64_t special = 0;
  /// Folders that could not be listed.
  uint64_t unreadable = 0;
};

/// Every regular file under `roots` (files or folders, recursively). Hidden
/// entries below a root are left out unless the filter takes them; symbolic
/// links are not followed. A root that does not exist is an error.
Result<FileList> listFiles(const std::vector<std::string> &roots,
                           const FileFilter &filter);

/// Decides whether bytes that arrive in pieces are text: no NUL, and at most a
/// tenth of the bytes are control characters or belong to no valid UTF-8
/// sequence.
class TextScan {
public:
  void add(const char *data, size_t size);

  /// Whether all of it is text; nothing may follow.
  bool finish();

  /// No bytes that follow can make it text.
  bool isBinary() const { return hasNul; }

private:
  void scan(const char *data, size_t size, bool isLast);

  uint64_t total = 0, odd = 0;
  bool hasNul = false;
  /// The beginning of a sequence that may go on.
  std::string pending;
};

/// The same for bytes in memory.
bool isText(const uint8_t *data, size_t size);

/// Whether a name ends in `ending`, in capitals or not.
bool endsIn(const std::string &path, std::string_view ending);

/// What a file holds besides plain text, such as `JSON lines` or `a table`;
/// nothing for any other. Of a .json the beginning of its contents decides:
/// two lines, each an object.
const char *findFormat(const std::string &path, std::string_view beginning);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_TEXTFILES_H
