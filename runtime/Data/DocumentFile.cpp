//===- DocumentFile.cpp - a user's file, in pieces ------------------------===//

#include "runtime/Data/DocumentFile.h"
#include "lib/Support/Files.h"
#include "runtime/Data/TextFiles.h"

#include <algorithm>
#include <climits>
#include <zlib.h>

namespace nsa {

/// zlib also reads files that are not compressed; those of other names are not
/// to be taken for compressed ones whatever they begin with.
struct DocumentFile::State {
  std::string path;
  gzFile gzip = nullptr;
  std::optional<InputFile> plain;
  uint64_t offset = 0, mostInflated = 0;

  ~State() {
    if (gzip)
      gzclose(gzip);
  }
  Result<size_t> readGzip(char *data, size_t size);
};

DocumentFile::DocumentFile(std::unique_ptr<State> state)
    : state(std::move(state)) {}
DocumentFile::DocumentFile(DocumentFile &&) noexcept = default;
DocumentFile &DocumentFile::operator=(DocumentFile &&) noexcept = default;
DocumentFile::~DocumentFile() = default;

Result<DocumentFile> DocumentFile::open(const std::string &path,
                                        uint64_t mostInflated) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->mostInflated = mostInflated;
  // Whatever the name says, only regular files are read in pieces.
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  bool isGzip = endsIn(path, ".gz");
  if (!isGzip) {
    state->plain = std::move(file);
  } else {
    state->gzip = gzopen(path.c_str(), "rb");
    if (!state->gzip)
      return systemError("cannot open", path);
    gzbuffer(state->gzip, 1 << 17);
  }
  return DocumentFile(std::move(state));
}

Result<size_t> DocumentFile::State::readGzip(char *data, size_t size) {
  size_t done = 0;
  while (done < size) {
    auto step = unsigned(std::min<size_t>(size - done, INT_MAX));
    int got = gzread(gzip, data + done, step);
    int code = Z_OK;
    std::string reason = gzerror(gzip, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      return Error{"cannot decompress '" + path + "': " + reason};
    if (got == 0)
      break;
    done += size_t(got);
    if (mostInflated > 0 && offset + done > mostInflated)
      return Error{"'" + path + "' inflates to more than " +
                   std::to_string(mostInflated) +
                   " bytes (--max-inflated-bytes)"};
  }
  offset += done;
  return done;
}

Result<size_t> DocumentFile::read(char *data, size_t size) {
  if (state->gzip)
    return state->readGzip(data, size);
  uint64_t left = state->plain->size() - state->offset;
  size = size_t(std::min<uint64_t>(size, left));
  NSA_RETURN_IF_ERROR(state->plain->readAt(state->offset, data, size));
  state->offset += size;
  return size;
}

} // namespace nsa
