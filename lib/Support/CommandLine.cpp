//===- CommandLine.cpp - parsing for the tools without LLVM ---------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Files.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <new>
#include <stdexcept>

namespace nsa {

/// Every flag that `app` or one of its subcommands in use understands.
static std::vector<std::string> knownFlags(const CLI::App &app) {
  std::vector<std::string> flags;
  for (const CLI::Option *option : app.get_options()) {
    for (const std::string &name : option->get_lnames())
      flags.push_back("--" + name);
    for (const std::string &name : option->get_snames())
      flags.push_back("-" + name);
  }
  for (const CLI::App *sub : app.get_subcommands())
    for (std::string &flag : knownFlags(*sub))
      flags.push_back(std::move(flag));
  return flags;
}

/// The error for unrecognized arguments.
static std::string describeExtras(const CLI::App &app) {
  std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (extras.empty())
    return "";
  std::string word = extras.front();
  word = word.substr(0, word.find('='));
  if (word.size() > 1 && word[0] == '-')
    return "unknown option " + quote(word) + suggestion(word, knownFlags(app));
  std::vector<std::string> subcommands;
  for (const CLI::App *sub :
       app.get_subcommands([](const CLI::App *) { return true; }))
    subcommands.push_back(sub->get_name());
  if (!subcommands.empty() && app.get_subcommands().empty())
    return "unknown command " + quote(word) + suggestion(word, subcommands);
  return "unexpected argument " + quote(word);
}

/// CLI11 takes "2x" and "-3" for a flag,
static std::string checkFlag(const std::string &text) {
  bool isKnown = text == "true" || text == "false";
  return isKnown ? "" : "must be true or false, not '" + text + "'";
}

/// and reads "010" as 8.
static std::string checkDecimal(const std::string &text) {
  size_t first = std::min(text.find_first_not_of("+-"), text.size());
  bool isOther = text[first] == '0' && first + 1 < text.size();
  return isOther ? "'" + text + "' is no decimal number: it begins with 0" : "";
}

/// Whether an option is a flag; those that stand for a text are not.
static bool isSwitch(const CLI::Option &option) {
  const std::vector<std::string> &names = option.get_lnames();
  return option.get_items_expected_max() == 0 && !names.empty() &&
         option.get_flag_value(names.front(), "") == "true";
}

static void checkValues(CLI::App &app) {
  for (CLI::Option *option : app.get_options()) {
    if (isSwitch(*option))
      option->check(checkFlag);
    else if (option->get_type_name().find("INT") != std::string::npos)
      option->check(checkDecimal);
  }
  for (CLI::App *sub : app.get_subcommands([](CLI::App *) { return true; }))
    checkValues(*sub);
}

std::optional<int> parseCommandLine(CLI::App &app, int argc,
                                    const char *const *argv) {
  checkValues(app);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() == 0) {
      app.exit(error, std::cout, std::cerr);
      return 0;
    }
    std::string message = describeExtras(app);
    if (message.empty())
      message = shortened(oneLine(error.what()), 2 * kMostQuoted);
    std::fprintf(stderr, "%s: error: %s (--help lists the options)\n",
                 app.get_name().c_str(), message.c_str());
    return exitUsage;
  }
}

NumberCheck between(long long least, long long most) {
  return [=](const std::string &text) -> std::string {
    long long value;
    std::string expected = "must be at least " + std::to_string(least);
    if (most != std::numeric_limits<long long>::max())
      expected += " and at most " + std::to_string(most);
    if (!CLI::detail::lexical_cast(text, value))
      return quote(text) + " is no whole number that fits; it " + expected;
    return value >= least && value <= most ? "" : expected + ", not " + text;
  };
}

NumberCheck atLeast(long long least) {
  return between(least, std::numeric_limits<long long>::max());
}

std::string checkFinite(const std::string &text) {
  char *end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  bool isNumber = !text.empty() && *end == '\0';
  bool isPlain =
      std::isfinite(value) && text.find_first_of("xX") == std::string::npos;
  return !isNumber || isPlain
             ? ""
             : "must be a finite decimal number, not '" + text + "'";
}

int reportError(const std::string &tool, const std::string &message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: error: %s\n", tool.c_str(), message.c_str());
  return 1;
}

Status writeOutput(const std::string &path, const std::string &contents) {
  if (!path.empty() && path != "-")
    return writeFileAtomically(path, contents);
  if (std::fwrite(contents.data(), 1, contents.size(), stdout) !=
          contents.size() ||
      std::fflush(stdout) != 0)
    return Error{"cannot write to the standard output"};
  return {};
}

int finishOutput(const std::string &tool, int code) {
  errno = 0;
  bool written = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (written || code != 0)
    return code;
  return reportError(
      tool, std::string("cannot write the output") +
                (errno ? std::string(": ") + std::strerror(errno) : ""));
}

int runTool(const std::string &tool, const std::function<int()> &body) {
  ignoreFileSizeSignal();
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return reportError(tool, "not enough memory");
  } catch (const std::length_error &) {
    return reportError(tool, "not enough memory: a size is beyond any");
  } catch (const std::exception &error) {
    return reportError(tool, error.what());
  }
}

std::optional<unsigned long long> parseCount(const std::string &text) {
  unsigned long long value = 0, unit = 1;
  const unsigned long long limit =
      std::numeric_limits<unsigned long long>::max();
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9';
       ++digits) {
    unsigned digit = unsigned(text[digits] - '0');
    if (value > (limit - digit) / 10)
      return std::nullopt;
    value = value * 10 + digit;
  }
  std::string suffix = text.substr(digits);
  if (suffix == "k")
    unit = 1000;
  else if (suffix == "M")
    unit = 1000 * 1000;
  else if (suffix == "G")
    unit = 1000ull * 1000 * 1000;
  else if (!suffix.empty())
    return std::nullopt;
  if (digits == 0 || value > limit / unit)
    return std::nullopt;
  return value * unit;
}

} // namespace nsa
