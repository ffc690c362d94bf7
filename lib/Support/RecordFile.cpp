//===- RecordFile.cpp - records at the end of a file ----------------------===//

#include "lib/Support/RecordFile.h"

namespace nsa {

Result<RecordFile> RecordFile::open(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(OutputFile file, OutputFile::append(path));
  return RecordFile(std::move(file), path);
}

Status RecordFile::write(std::string_view record) {
  kept += record;
  size_t written = 0;
  Status status = file.write(kept.data(), kept.size(), &written);
  kept.erase(0, written);
  bool isNew = !status && !isFailing;
  isFailing = !status;
  return isNew ? status : Status();
}

Status RecordFile::finish() const {
  if (kept.empty())
    return {};
  return Error{"the last " + std::to_string(kept.size()) + " bytes of '" +
               path + "' could not be written"};
}

} // namespace nsa
