//===- Verifier.h - shards against their manifest ---------------*- C++ -*-===//
//
// A damaged shard trains as well as a good one: only its hash tells. Hashing
// takes as long as reading, so training may begin before it is done.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_DATA_VERIFIER_H
#define NSA_RUNTIME_DATA_VERIFIER_H

#include "runtime/Data/TokenStream.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace nsa {

/// A file that a run reads, as it was when it was verified.
struct DataFile : FileInfo {
  /// Zero of an index, which is read once.
  FileStamp stamp;
};

/// Hashes every shard of a data set, compares it with the manifest, and every
/// token with the vocabulary. Threads of its own read the files that `data` has
/// open.
class DataVerifier {
public:
  /// `data` must outlive the object, and stay where it is.
  explicit DataVerifier(const Dataset &data);

  /// Begins, once.
  void start(int threads);

  /// Breaks off what is not finished.
  ~DataVerifier();

  DataVerifier(const DataVerifier &) = delete;
  DataVerifier &operator=(const DataVerifier &) = delete;

  /// Waits for the end, at most so many seconds, and returns `status`.
  Status wait(double seconds);

  /// The same without a limit.
  Status wait();

  /// The first shard, in the order of the manifest, that is not what the
  /// manifest says: its name and both hashes, or its token. Before the end, the
  /// first that was found; success then says little.
  Status status() const;

  /// Whether every shard was compared, or one was found that differs.
  bool isFinished() const;

  /// Of the end: all files in order, with what was hashed of each. Of files of
  /// other projects that is the tokens of a split.
  std::vector<DataFile> files() const;

  /// What the files are to be besides, in the same order, because a run has
  /// gone so far with these: a difference is the status, now or when it is
  /// found, with both hashes and `of`, such as "the checkpoint 'step-4'".
  void expect(const std::vector<DataFile> &known, const std::string &of);

  /// After the end: hashes the files again that were written since, and
  /// compares.
  Status verifyAgain();

  /// From now on one thread reads, beside training.
  void yieldToTraining() { background = true; }

  /// Bytes of all shards, and those that were hashed.
  uint64_t bytes() const { return allBytes; }
  uint64_t bytesDone() const { return doneBytes; }

private:
  struct Task {
    const Shard *shard;
    const ShardInfo *info;
    /// Once it was hashed.
    std::optional<DataFile> found = {};
  };

  /// What is read: the whole file, or the tokens where it has no hash.
  static std::pair<uint64_t, uint64_t> bytesOf(const Task &task);

  bool isDone() const { return hasBegun && working == 0; }
  void work(size_t worker);
  Result<DataFile> check(const Task &task, std::vector<char> &buffer);
  Status compare(size_t index, const DataFile &file) const;
  void fail(size_t index, const Status &status);

  int64_t vocab;
  std::vector<Task> tasks;
  std::vector<FileInfo> indices;
  uint64_t allBytes = 0;
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> doneBytes{0};
  std::atomic<bool> background{false}, stopped{false};

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool hasBegun = false;
  size_t working = 0;
  /// The first task that failed, and how.
  size_t failedTask;
  std::optional<std::string> failure;
  std::vector<DataFile> expected;
  std::string expectedOf;

  std::vector<std::thread> workers;
};

/// Threads that verify on a machine of which `ranks` processes take a share: a
/// disk is busy with few.
int verifierThreads(int ranks);

/// Compares every shard of `directory` with the manifest, and the manifest with
/// its own hash. The message names the first file that differs and both hashes.
Status verifyShards(const Dataset &data);
Status verifyShards(const std::string &directory, const Manifest &manifest);

} // namespace nsa

#endif // NSA_RUNTIME_DATA_VERIFIER_H
