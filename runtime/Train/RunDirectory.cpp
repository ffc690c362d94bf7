//===- RunDirectory.cpp - the files of one run ----------------------------===//

#include "runtime/Train/RunDirectory.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace nsa {

namespace fs = std::filesystem;

static constexpr const char *haltFile = ".HALT";
static constexpr const char *lockFile = ".lock";

double wallClock() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double steadyClock() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

static std::string formatTime(double seconds, const char *format) {
  std::time_t whole = std::time_t(seconds);
  std::tm parts;
  gmtime_r(&whole, &parts);
  char text[64];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

std::string isoTime(double secondsSinceEpoch) {
  return formatTime(secondsSinceEpoch, "%Y-%m-%dT%H:%M:%SZ");
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

/// The part of a table that a run resumed after `lastStep` keeps.
static Result<std::string> keepRows(const std::string &path,
                                    const std::string &text,
                                    const std::string &header,
                                    int64_t lastStep) {
  std::string head = header + "\n";
  if (text.compare(0, head.size(), head) != 0)
    return Error{"'" + path + "' does not start with '" + header + "'"};
  size_t kept = head.size();
  while (kept < text.size()) {
    size_t end = text.find('\n', kept);
    if (end == std::string::npos)
      break;
    int64_t step = 0;
    const char *begin = text.data() + kept;
    std::from_chars_result parsed =
        std::from_chars(begin, text.data() + end, step);
    if (parsed.ec != std::errc() || *parsed.ptr != ',')
      return Error{"'" + path + "' has a damaged row " +
                   quote(text.substr(kept, end - kept))};
    if (step > lastStep)
      break;
    kept = end + 1;
  }
  return text.substr(0, kept);
}

Result<CsvLog> CsvLog::open(const std::string &path, const std::string &header,
                            int64_t lastStep) {
  std::string contents = header + "\n";
  NSA_ASSIGN_OR_RETURN(bool there, fileExists(path));
  if (there) {
    NSA_ASSIGN_OR_RETURN(std::string text, readFile(path, mostDataBytes));
    NSA_ASSIGN_OR_RETURN(contents, keepRows(path, text, header, lastStep));
  }
  NSA_RETURN_IF_ERROR(writeFileAtomically(path, contents));
  NSA_ASSIGN_OR_RETURN(RecordFile file, RecordFile::open(path));
  std::vector<std::string> last;
  for (size_t end = contents.size(); last.size() < CsvLog::keptRows;) {
    // Every row ends with a newline, and so does the header before them.
    size_t begin = contents.rfind('\n', end - 2) + 1;
    if (begin == 0)
      break;
    last.push_back(contents.substr(begin, end - 1 - begin));
    end = begin;
  }
  std::reverse(last.begin(), last.end());
  return CsvLog(std::move(file), std::move(last));
}

Status CsvLog::append(const std::string &row) { return file.write(row + "\n"); }

bool hasResult(const std::string &runDirectory) {
  Result<std::string> text = readFile(runDirectory + "/metrics.json");
  if (!text)
    return false;
  nlohmann::json json =
      nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.value("end", nlohmann::json()) == "finished";
}

//===----------------------------------------------------------------------===//
// The directory
//===----------------------------------------------------------------------===//

RunDirectory::RunDirectory(std::string path, HeldDirectory held)
    : folder(std::move(path)), held(std::move(held)), started(wallClock()) {
  std::string seed = folder + " " + std::to_string(::getpid()) + " " +
                     std::to_string(started) + " " +
                     std::to_string(steadyClock());
  runId = toHex(hashBytes(seed)).substr(0, 12);
}

Result<RunDirectory> RunDirectory::hold(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(HeldDirectory held, HeldDirectory::open(path));
  return RunDirectory(path, std::move(held));
}

Status RunDirectory::check() const {
  NSA_ASSIGN_OR_RETURN(bool there, held.isThere());
  if (!there)
    return Error{"the run directory '" + folder +
                 "' was removed or renamed while the run wrote into it"};
  return {};
}

/// The error about a new run whose name is taken.
static Error alreadyThere(const std::string &path) {
  Result<bool> isRun = fileExists(path + "/config.json");
  if (isRun && *isRun)
    return Error{"the run '" + path +
                 "' exists (--resume continues it, --run-name names another)"};
  return Error{"'" + path +
               "' exists and is no run (--run-name names another)"};
}

Result<RunDirectory> RunDirectory::create(const std::string &outDir,
                                          const std::string &name,
                                          const std::string &label) {
  std::error_code code;
  fs::create_directories(outDir, code);
  if (code)
    return Error{"cannot create '" + outDir + "': " + code.message()};
  std::string base =
      outDir + "/" +
      (name.empty() ? formatTime(wallClock(), "%Y%m%d-%H%M%S-") + label : name);
  std::string path = base;
  for (int attempt = 2; ::mkdir(path.c_str(), 0777) != 0; ++attempt) {
    if (errno != EEXIST)
      return systemError("cannot create", path);
    if (!name.empty())
      return alreadyThere(path);
    path = base + "-" + std::to_string(attempt);
  }
  return hold(path);
}

Result<RunDirectory> RunDirectory::reopen(const std::string &path) {
  std::error_code code;
  if (!fs::is_directory(path, code))
    return Error{"no run directory '" + path + "'" +
                 (code ? ": " + code.message() : "")};
  return hold(path);
}

Result<FileLock> RunDirectory::lock(const std::string &path) {
  return FileLock::take(path + "/" + lockFile, "the run '" + path + "'");
}

Status RunDirectory::write(const std::string &name,
                           const std::string &contents) const {
  return writeFileAtomically(file(name), contents);
}

HaltRequest RunDirectory::checkHalt() {
  HaltRequest request;
  struct stat info;
  std::string path = file(haltFile);
  if (::stat(path.c_str(), &info) != 0)
    return request;
  std::string word;
  if (S_ISREG(info.st_mode))
    if (Result<std::string> text = readFile(path))
      word = *text;
  size_t begin = word.find_first_not_of(" \t\r\n");
  word = begin == std::string::npos ? "" : word.substr(begin);
  word = word.substr(0, word.find_first_of(" \t\r\n"));
  double written = double(info.st_mtim.tv_sec) + 1e-9 * info.st_mtim.tv_nsec;
  request.halt = word.empty() ? written >= started : word == runId;
  if (!request.halt && !reportedStale) {
    reportedStale = true;
    request.ignored =
        "ignoring '" + path + "': it is " +
        (word.empty() ? "older than this run" : "for run '" + word + "'") +
        ", this is run '" + runId + "'";
  }
  return request;
}

void RunDirectory::clearHalt() const { ::unlink(file(haltFile).c_str()); }

} // namespace nsa
