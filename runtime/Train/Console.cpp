//===- Console.cpp - what people see of a run -----------------------------===//

#include "runtime/Train/Console.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <sys/ioctl.h>
#include <utility>

namespace nsa {

Status Console::logTo(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(RecordFile file, RecordFile::open(path));
  log.emplace(std::move(file));
  Status status = log->write(early);
  early.clear();
  return status;
}

void Console::record(const std::string &text) {
  if (!log) {
    early += text + "\n";
    return;
  }
  if (Status status = log->write(text + "\n"); !status)
    std::fprintf(stderr, "nsa-train: warning: %s\n", status.message().c_str());
}

void Console::clearBar() {
  if (!barShown)
    return;
  std::fputs("\r\x1b[K", out);
  std::fflush(out);
  barShown = false;
}

void Console::line(const std::string &text) {
  clearBar();
  std::fprintf(out, "%s\n", text.c_str());
  std::fflush(out);
  record(text);
}

/// The width of the terminal.
int Console::columns() const {
  struct winsize size = {};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return 80;
}

void Console::show(const std::string &text) {
  std::fprintf(out, "\r\x1b[K%s", text.c_str());
  std::fflush(out);
  barShown = true;
}

void Console::busy(const std::string &what) {
  if (live)
    show((what + " ...").substr(0, size_t(std::max(columns() - 1, 0))));
}

std::string Console::withBar(const std::string &text, const Progress &progress,
                             int columns) {
  // A line that reaches the last column would begin another.
  int room = std::max(columns - 1, 0);
  int cells = std::min(room - int(text.size()) - int(std::strlen(" | []")), 20);
  if (cells < 5)
    return text.substr(0, size_t(room));
  return text + " | " + bar(progress.step, progress.steps, cells);
}

void Console::progress(const Progress &progress, bool logged) {
  std::string text = format(progress);
  if (live) {
    // On a narrow terminal, the numbers that change from step to step.
    std::string shown = text;
    if (int(text.size()) >= columns())
      shown = format({progress.step, progress.steps, progress.loss, progress.lr,
                      progress.toksPerSecond, progress.secondsLeft});
    show(withBar(shown, progress, columns()));
  } else if (logged) {
    std::fprintf(out, "%s\n", text.c_str());
    std::fflush(out);
  }
  if (logged)
    record(text);
}

std::string Console::format(const Progress &progress) {
  std::string line = formatted(
      "step %04" PRId64 " | loss %.4f | lr %.2e | toks/s %.0f", progress.step,
      progress.loss, progress.lr, progress.toksPerSecond);
  for (auto [name, value] : {std::pair(" | mean ", progress.meanLoss),
                             {" | bits/byte ", progress.bitsPerByte}})
    if (value)
      line += formatted("%s%.4f", name, *value);
  if (progress.mfu)
    line += formatted(" | mfu %.1f %%", 100 * *progress.mfu);
  return line + " | eta " + duration(progress.secondsLeft);
}

std::string Console::bar(int64_t step, int64_t steps, int width) {
  double share = steps > 0 ? double(step) / double(steps) : 1.0;
  int full = std::clamp(int(share * width), 0, width);
  return "[" + std::string(size_t(full), '#') +
         std::string(size_t(width - full), '.') + "]";
}

std::string Console::duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9))
    return "--:--";
  long long whole = std::llround(seconds);
  if (whole < 3600)
    return formatted("%02lld:%02lld", whole / 60, whole % 60);
  return formatted("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                   whole % 60);
}

} // namespace nsa
