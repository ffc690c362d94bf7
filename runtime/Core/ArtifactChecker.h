//===- ArtifactChecker.h - the walk that checks an artefact -----*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_ARTIFACTCHECKER_H
#define NSA_RUNTIME_CORE_ARTIFACTCHECKER_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Support/Result.h"
#include "runtime/Core/KernelChecks.h"

#include <optional>
#include <set>
#include <string>

namespace nsa::artifact {

inline std::string num(uint64_t value) { return std::to_string(value); }

/// Whether an element of `type` can hold `value`. Floats round.
bool holds(DataType type, double value);

/// Walks an artefact and keeps the first complaint. Every check returns
/// whether it passed.
class Checker {
public:
  explicit Checker(const Artifact &root) : root(root) {}

  Status run();

private:
  bool fail(const std::string &message) {
    if (error.empty())
      error = context + message;
    return false;
  }

  bool checkName(const flatbuffers::String *name, const char *what);
  bool checkUnique(std::set<std::string> &seen, const flatbuffers::String *name,
                   const char *what);
  template <typename T>
  bool checkAligned(const flatbuffers::Vector<T> &vector, const char *what) {
    return isAligned(vector) ||
           fail(std::string(what) + " is misaligned in the file");
  }
  bool checkSlice(const Slice &slice, const std::string &what,
                  uint64_t alignment);
  bool checkSize(const Slice &slice, std::optional<uint64_t> size,
                 const std::string &what);
  bool checkSegment(const Segment &segment);
  bool checkTensor(const Tensor &tensor);
  bool checkInit(const Tensor &tensor);
  bool checkKernel(const Kernel &kernel);
  bool isHost(const Slice &slice) const {
    return root.segments()->Get(slice.segment())->kind() == SegmentKind::Host;
  }
  bool checkPlace(const Command &command);
  bool checkEntry(const Entry &entry);
  bool checkIndices(const flatbuffers::Vector<uint32_t> &indices,
                    const char *what);
  bool checkCommand(const Command &command);
  bool check(const Launch &launch);
  bool check(const Gemm &gemm);
  bool check(const Fill &fill);
  bool checkChunks(const Slice &memory, uint64_t sequences,
                   uint64_t elementSize);
  bool checkChunks(const Copy &copy, const Slice &whole, const Slice &own);
  bool check(const Copy &copy);
  bool check(const Initialize &initialize);
  bool check(const CollectiveStart &start);
  bool checkReductions(const Entry &entry);
  bool checkBuffer(const Buffer &buffer);
  bool checkSegments();
  /// Checks what has names, each its own.
  template <typename T>
  bool checkAll(const flatbuffers::Vector<flatbuffers::Offset<T>> &all,
                const std::string &what, bool (Checker::*check)(const T &));
  bool checkExtents();
  bool checkRest();

  const Artifact &root;
  /// Where the walk is, for messages: "entry 'step', command 3: ".
  std::string context;
  std::string error;
};

} // namespace nsa::artifact

#endif // NSA_RUNTIME_CORE_ARTIFACTCHECKER_H
