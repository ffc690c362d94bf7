//===- Reducer.h - what a communication library does for us -----*- C++ -*-===//
//
// The library lies in a plug-in that is opened when a run has several ranks, so
// that the trainer itself does not depend on it. A plug-in defines
// `nsaCreateReducer`.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DISTRIBUTED_REDUCER_H
#define NSA_RUNTIME_DISTRIBUTED_REDUCER_H

#include "nsa/Runtime/Communicator.h"

#include <memory>

namespace nsa {

struct ReducerOptions {
  /// Where ranks find each other, while they connect.
  ProcessGroup *group = nullptr;
  /// The address of this machine that the other ranks can reach.
  std::string address;
};

/// One thread uses it.
class Reducer {
public:
  virtual ~Reducer() = default;

  /// Replaces `count` elements by their sums over all ranks: the same bits on
  /// all ranks, and in every run with as many.
  virtual Status sum(void *data, int64_t count, DataType type) = 0;

  /// Gives every rank the parts of all: `bytes` together, which the number of
  /// ranks divides.
  virtual Status gather(void *data, int64_t bytes) = 0;
};

/// Whether the plug-in can be opened here.
Status checkReducer(const std::string &plugin);

/// Opens a plug-in and connects all ranks. Every rank calls it at once.
Result<std::unique_ptr<Reducer>> openReducer(const std::string &plugin,
                                             const ReducerOptions &options);

/// What a plug-in defines: null and a message on failure. Both sides are built
/// from one source tree, which `reducerVersion` checks.
using CreateReducer = Reducer *(*)(const char *version,
                                   const ReducerOptions &options,
                                   std::string &error);
inline constexpr const char *createReducerName = "nsaCreateReducer";
inline constexpr const char *reducerVersion = NSA_VERSION " 4";

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_REDUCER_H
