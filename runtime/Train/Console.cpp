//===- Console.cpp - what people see of a run -----------------------------===//

#include "runtime/Train/Console.h"

#include <algorithm>
#include <cmath>

namespace nsa {

Status Console::logTo(const std::string &path) {
  Result<OutputFile> file = OutputFile::append(path);
  if (!file)
    return file.takeError();
  log.emplace(std::move(*file));
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

void Console::progress(const Progress &progress, bool logged) {
  std::string text = format(progress);
  if (live) {
    std::string cells = bar(progress.step, progress.steps, 20);
    std::fprintf(out, "\r\x1b[K%s | %s", text.c_str(), cells.c_str());
    std::fflush(out);
    barShown = true;
  } else if (logged) {
    std::fprintf(out, "%s\n", text.c_str());
    std::fflush(out);
  }
  if (logged)
    record(text);
}

std::string Console::format(const Progress &progress) {
  char text[160];
  std::snprintf(text, sizeof text,
                "step %04lld | loss %.4f | lr %.2e | toks/s %.0f | eta %s",
                static_cast<long long>(progress.step), progress.loss,
                progress.lr, progress.toksPerSecond,
                duration(progress.secondsLeft).c_str());
  return text;
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
  char text[48];
  if (whole < 3600)
    std::snprintf(text, sizeof text, "%02lld:%02lld", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600,
                  whole / 60 % 60, whole % 60);
  return text;
}

} // namespace nsa
