//===- DataFolder.h - where a data set is made ------------------*- C++ -*-===//
//
// A data set is written into a hidden folder inside its own and takes its place
// when it is complete. Until then the data set that lies there stays as it is;
// from then on the new one will be there, whenever the process ends: the folder
// is renamed first, and the next command moves the rest.
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

  /// Saves the manifest and replaces what the manifest of the old data set
  /// names. A process that ends before that is complete leaves a replacement
  /// that `finishReplacement` finishes. A shard whose place is taken by a file
  /// that no manifest names is an error that changes nothing.
  Status publish(const Manifest &manifest);

private:
  DataFolder() = default;

  std::string directory, temporary;
  /// The folder was made for this data set.
  bool isNew = false;
};

/// Finishes the replacement of the data set in `directory` where a process
/// ended in the middle of it; does nothing if there is none.
Status finishReplacement(const std::string &directory);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_DATAFOLDER_H
