//===- OutputWriter.cpp - writes lines without waiting --------------------===//

#include "runtime/Distributed/OutputWriter.h"
#include "runtime/Distributed/SignalBlockedThread.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

namespace nsa {

/// Outlives the writer where its thread is stuck in a write.
struct OutputWriter::State {
  State(int fd, size_t most) : fd(fd), most(most) {}

  void write();
  /// Writes until all of `text` is written, or the reader is gone.
  void put(const std::string &text) const;

  const int fd;
  const size_t most;
  std::mutex mutex;
  std::condition_variable changed;
  /// What is not written, without what the thread writes at this moment.
  std::string waiting;
  uint64_t dropped = 0;
  bool isWriting = false, isOver = false;
};

void OutputWriter::State::put(const std::string &text) const {
  for (size_t done = 0; done < text.size();) {
    ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0 && errno == EAGAIN) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    if (count <= 0)
      return;
    done += size_t(count);
  }
}

void OutputWriter::State::write() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return isOver || !waiting.empty(); });
    if (isOver)
      return;
    std::string text = std::move(waiting);
    waiting.clear();
    if (dropped)
      text += "nsa-train: " + std::to_string(dropped) +
              " lines left out here, since nobody read\n";
    dropped = 0;
    isWriting = true;
    lock.unlock();
    put(text);
    lock.lock();
    isWriting = false;
    changed.notify_all();
  }
}

OutputWriter::OutputWriter(std::FILE *file, size_t most) {
  std::fflush(file);
  state = std::make_shared<State>(::fileno(file), most);
  startSignalBlockedThread([state = state] { state->write(); }).detach();
}

OutputWriter::~OutputWriter() {
  std::lock_guard<std::mutex> lock(state->mutex);
  state->isOver = true;
  state->changed.notify_all();
}

void OutputWriter::line(const std::string &text) {
  std::lock_guard<std::mutex> lock(state->mutex);
  if (state->dropped || state->waiting.size() + text.size() > state->most)
    ++state->dropped;
  else
    state->waiting += text + "\n";
  state->changed.notify_all();
}

void OutputWriter::drain(const std::function<bool()> &givesUp) {
  std::unique_lock<std::mutex> lock(state->mutex);
  while (!state->changed.wait_for(lock, std::chrono::milliseconds(100), [&] {
    return state->waiting.empty() && !state->isWriting;
  }))
    if (givesUp())
      return;
}

bool OutputWriter::isSame(std::FILE *a, std::FILE *b) {
  struct stat first, second;
  return ::fstat(::fileno(a), &first) == 0 &&
         ::fstat(::fileno(b), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

} // namespace nsa
