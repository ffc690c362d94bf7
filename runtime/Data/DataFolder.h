//===- DataFolder.h - where a data set is made ------------------*- C++ -*-===//
//
// A data set is written into a hidden folder inside its own and takes its place
// when it is complete. Until then the data set that lies there stays as it is.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_DATAFOLDER_H
#define NSA_RUNTIME_DATA_DATAFOLDER_H

#include "runtime/Data/Manifest.h"

#include <string>
#include <vector>

namespace nsa {

/// The folder of a data set in the making. What was written and not published
/// is removed with the object.
class DataFolder {
public:
  /// Creates `directory` if needed. One that holds a data set, or a file named
  /// like a shard, is an error unless `overwrite`.
  static Result<DataFolder> open(const std::string &directory, bool overwrite);

  DataFolder(DataFolder &&other) noexcept;
  DataFolder &operator=(DataFolder &&) = delete;
  ~DataFolder();

  /// Where the shards are written.
  const std::string &staging() const { return temporary; }

  /// Saves the manifest, removes what the manifest of the old data set names,
  /// and moves the new files into their places. A shard whose place is taken by
  /// a file that no manifest names is an error that changes nothing.
  Status publish(const Manifest &manifest);

private:
  DataFolder() = default;
  Status removeOld(const std::vector<std::string> &old) const;

  std::string directory, temporary;
  /// The folder was made for this data set.
  bool isNew = false;
};

} // namespace nsa

#endif // NSA_RUNTIME_DATA_DATAFOLDER_H
