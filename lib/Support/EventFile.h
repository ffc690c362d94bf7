//===- EventFile.h - TensorBoard's event files ------------------*- C++ -*-===//
//
// A file is a sequence of records: the length (u64, little-endian), the masked
// CRC-32C of the length, the bytes, the masked CRC-32C of the bytes. Each is a
// protocol buffer `tensorboard.Event`; only scalars are written.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_EVENTFILE_H
#define NSA_SUPPORT_EVENTFILE_H

#include "lib/Support/RecordFile.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nsa {

/// CRC-32C (Castagnoli), reflected, as in iSCSI.
uint32_t crc32c(std::string_view bytes);

/// One record of an event file.
std::string eventRecord(std::string_view event);

class EventFile {
public:
  /// Creates `<folder>/events.out.tfevents.<seconds>.<host>.<pid>`, and the
  /// folder. With `firstStep` above 1, readers drop what earlier files hold
  /// from that step on.
  static Result<EventFile> create(const std::string &folder, double wallTime,
                                  int64_t firstStep);

  /// Adds scalars of one step. They are on their way to the disk when this
  /// returns.
  Status scalars(double wallTime, int64_t step,
                 const std::vector<std::pair<std::string, double>> &values);

  /// See RecordFile::finish.
  Status finish() const { return file.finish(); }

private:
  explicit EventFile(RecordFile file) : file(std::move(file)) {}
  RecordFile file;
};

} // namespace nsa

#endif // NSA_SUPPORT_EVENTFILE_H
