//===- OutputWriter.h - writes lines without waiting ------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_OUTPUTWRITER_H
#define NSA_RUNTIME_DISTRIBUTED_OUTPUTWRITER_H

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

namespace nsa {

/// Writes lines on a thread of its own, so that a reader who pauses (a pager, a
/// terminal after Ctrl-S) does not block others. Of what is not read, `most`
/// bytes are kept; after that lines are left out, and their number is written
/// once there is room. A reader that has gone is no error.
class OutputWriter {
public:
  explicit OutputWriter(std::FILE *file, size_t most = size_t(4) << 20);
  /// What is not written yet is lost: see `drain`.
  ~OutputWriter();

  /// Takes a line, without its end.
  void line(const std::string &text);

  /// Waits until all is written; asks every 100 ms whether to stop waiting.
  void drain(const std::function<bool()> &givesUp);

  /// Whether two files are the same one, so that one writer keeps the order.
  static bool isSame(std::FILE *a, std::FILE *b);

private:
  struct State;
  std::shared_ptr<State> state;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_OUTPUTWRITER_H
