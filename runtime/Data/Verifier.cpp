//===- Verifier.cpp - shards against their manifest -----------------------===//

#include "runtime/Data/Verifier.h"
#include "lib/Support/Hash.h"
#include "runtime/Data/SplitFiles.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

namespace nsa {

/// The size of one read: it fits a cache of the processor, and begins with
/// a whole token.
static constexpr size_t chunkBytes = 1 << 18;

int verifierThreads(int ranks) {
  int processors = int(std::thread::hardware_concurrency());
  return std::clamp(processors / std::max(ranks, 1), 1, 4);
}

DataVerifier::DataVerifier(const Dataset &data)
    : vocab(data.manifest.vocabSize) {
  for (auto [stream, split] : {std::pair(&data.train, &data.manifest.train),
                               std::pair(&data.val, &data.manifest.val)})
    for (size_t i = 0; i < split->shards.size(); ++i) {
      tasks.push_back({&stream->parts()[i], &split->shards[i]});
      allBytes += bytesOf(tasks.back()).second - bytesOf(tasks.back()).first;
    }
  for (const auto *sources : {&data.trainDocuments, &data.valDocuments})
    for (const DocumentSource &source : *sources)
      for (const FileInfo &file : {source.info.index, source.info.marks})
        if (!file.file.empty())
          indices.push_back(file);
  indices.insert(indices.end(), data.indices.begin(), data.indices.end());
  failedTask = tasks.size() + indices.size();
}

void DataVerifier::start(int threads) {
  size_t count = std::min(size_t(std::max(threads, 1)), tasks.size());
  {
    std::lock_guard<std::mutex> lock(mutex);
    hasBegun = true;
    working = count;
  }
  // Signals are for the thread that trains.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  for (size_t worker = 0; worker < count; ++worker)
    workers.emplace_back([this, worker] { work(worker); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

DataVerifier::~DataVerifier() {
  stopped = true;
  for (std::thread &thread : workers)
    thread.join();
}

/// The error about the first of the `size` bytes of tokens at `data` that the
/// vocabulary does not have; `at` is where they begin in the shard.
static std::optional<Error> findOutside(const Shard &shard, uint64_t at,
                                        const char *data, size_t size,
                                        int64_t vocab) {
  uint64_t first = at / shard.tokenBytes();
  size_t count = size / shard.tokenBytes();
  auto check = [&](const auto *tokens) -> std::optional<Error> {
    size_t found = findOutside(tokens, count, vocab);
    if (found == count)
      return std::nullopt;
    return tokenOutside(shard, first + found, tokens[found], vocab);
  };
  return shard.width() == TokenWidth::U16
             ? check(reinterpret_cast<const uint16_t *>(data))
             : check(reinterpret_cast<const uint32_t *>(data));
}

std::pair<uint64_t, uint64_t> DataVerifier::bytesOf(const Task &task) {
  const Shard &shard = *task.shard;
  return task.info->isHashed ? std::pair(uint64_t(0), shard.bytes())
                             : std::pair(shard.firstByte(), shard.endByte());
}

Result<DataFile> DataVerifier::check(const Task &task,
                                     std::vector<char> &buffer) {
  const Shard &shard = *task.shard;
  // Before the first byte: what is written from now on shows.
  NSA_ASSIGN_OR_RETURN(FileStamp stamp, shard.stamp());
  StreamHash hash;
  std::optional<Error> outside;
  auto [begin, end] = bytesOf(task);
  for (uint64_t at = begin; at < end && !stopped; at += buffer.size()) {
    size_t size = size_t(std::min<uint64_t>(buffer.size(), end - at));
    NSA_RETURN_IF_ERROR(shard.readBytes(at, size, buffer.data()));
    hash.update(buffer.data(), size);
    doneBytes += size;
    size_t header = at < shard.firstByte() ? size_t(shard.firstByte()) : 0;
    if (!outside)
      outside = findOutside(shard, at + header - shard.firstByte(),
                            buffer.data() + header, size - header, vocab);
  }
  if (task.info->isHashed && hash.digest() != task.info->hash)
    return Error{"'" + shard.path() + "' has hash " + toHex(hash.digest()) +
                 ", its manifest says " + toHex(task.info->hash)};
  if (outside)
    return *outside;
  return DataFile{{task.info->file, hash.digest()}, stamp};
}

/// Compares a file with the one that is expected in its place.
Status DataVerifier::compare(size_t index, const DataFile &file) const {
  if (expected.empty() || expected[index].hash == file.hash)
    return {};
  std::string path =
      index < tasks.size() ? tasks[index].shard->path() : file.file;
  return Error{"'" + path + "' has changed: its hash is " + toHex(file.hash) +
               ", " + expectedOf + " is of one with " +
               toHex(expected[index].hash) +
               " (--allow-changed-data goes on with it)"};
}

void DataVerifier::fail(size_t index, const Status &status) {
  if (status || index >= failedTask)
    return;
  failedTask = index;
  failure = status.message();
  // No later one may be taken.
  next = tasks.size();
}

void DataVerifier::expect(const std::vector<DataFile> &known,
                          const std::string &of) {
  std::lock_guard<std::mutex> lock(mutex);
  size_t count = tasks.size() + indices.size();
  if (known.size() != count) {
    fail(0, Error{of + " is of " + std::to_string(known.size()) +
                  " files of data, this is of " + std::to_string(count) +
                  " (--allow-changed-data goes on with them)"});
    return;
  }
  expected = known;
  expectedOf = of;
  for (size_t i = 0; i < count; ++i)
    if (i >= tasks.size())
      fail(i, compare(i, {indices[i - tasks.size()], {}}));
    else if (tasks[i].found)
      fail(i, compare(i, *tasks[i].found));
}

std::vector<DataFile> DataVerifier::files() const {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<DataFile> all;
  for (const Task &task : tasks)
    if (task.found)
      all.push_back(*task.found);
  for (const FileInfo &index : indices)
    all.push_back({index, {}});
  return all;
}

Status DataVerifier::verifyAgain() {
  std::vector<char> buffer;
  for (Task &task : tasks) {
    NSA_ASSIGN_OR_RETURN(FileStamp stamp, task.shard->stamp());
    if (!task.found || task.found->stamp == stamp)
      continue;
    buffer.resize(chunkBytes);
    NSA_ASSIGN_OR_RETURN(DataFile again, check(task, buffer));
    if (again.hash != task.found->hash)
      return Error{"'" + task.shard->path() +
                   "' has changed since it was verified: its hash was " +
                   toHex(task.found->hash) + ", it is " + toHex(again.hash)};
    task.found = again;
  }
  return {};
}

void DataVerifier::work(size_t worker) {
  std::vector<char> buffer(chunkBytes);
  // Tasks begin in order: all before one that failed are done or in work.
  for (size_t index; !stopped && !(worker > 0 && background) &&
                     (index = next++) < tasks.size();) {
    Result<DataFile> found = check(tasks[index], buffer);
    if (stopped)
      break;
    std::lock_guard<std::mutex> lock(mutex);
    fail(index, found ? compare(index, *found) : Error{found.message()});
    if (found)
      tasks[index].found = *found;
  }
  std::lock_guard<std::mutex> lock(mutex);
  --working;
  changed.notify_all();
}

Status DataVerifier::status() const {
  std::lock_guard<std::mutex> lock(mutex);
  return failure ? Status(Error{*failure}) : Status();
}

bool DataVerifier::isFinished() const {
  std::lock_guard<std::mutex> lock(mutex);
  return isDone();
}

Status DataVerifier::wait(double seconds) {
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_for(lock, std::chrono::duration<double>(seconds),
                     [this] { return isDone(); });
  }
  return status();
}

Status DataVerifier::wait() {
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return isDone(); });
  }
  return status();
}

Status verifyShards(const Dataset &data) {
  const Manifest &manifest = data.manifest;
  DataVerifier verifier(data);
  verifier.start(verifierThreads(1));
  NSA_RETURN_IF_ERROR(verifier.wait());
  for (const SplitInfo *split : {&manifest.train, &manifest.val})
    if (Result<std::vector<uint64_t>> index =
            readDocumentIndex(data.directory, *split);
        !index)
      return Error{index.message()};
    else if (Result<std::vector<uint8_t>> marks =
                 readTargetMarks(data.directory, *split);
             !marks)
      return Error{marks.message()};
  if (Result<std::string> tokenizer =
          readTokenizerText(data.directory, manifest);
      !tokenizer)
    return Error{tokenizer.message()};
  return manifest.checkOwnHash(data.directory);
}

Status verifyShards(const std::string &directory, const Manifest &manifest) {
  Result<Dataset> data = Dataset::open(directory, manifest);
  return data ? verifyShards(*data) : Status(data.takeError());
}

} // namespace nsa
