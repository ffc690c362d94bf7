//===- CommandLine.cpp - parsing for the tools without LLVM ---------------===//

#include "lib/Support/CommandLine.h"
#include "lib/Support/Suggest.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <iostream>
#include <limits>

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

/// What to say about the arguments that nothing claimed.
static std::string describeExtras(const CLI::App &app) {
  std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (extras.empty())
    return "";
  std::string word = extras.front();
  word = word.substr(0, word.find('='));
  if (word.size() > 1 && word[0] == '-')
    return "unknown option '" + word + "'" + suggestion(word, knownFlags(app));
  std::vector<std::string> subcommands;
  for (const CLI::App *sub :
       app.get_subcommands([](const CLI::App *) { return true; }))
    subcommands.push_back(sub->get_name());
  if (!subcommands.empty() && app.get_subcommands().empty())
    return "unknown command '" + word + "'" + suggestion(word, subcommands);
  return "unexpected argument '" + word + "'";
}

std::optional<int> parseCommandLine(CLI::App &app, int argc,
                                    const char *const *argv) {
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
      message = error.what();
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
      return "'" + text + "' is no whole number that fits; it " + expected;
    return value >= least && value <= most ? "" : expected + ", not " + text;
  };
}

NumberCheck atLeast(long long least) {
  return between(least, std::numeric_limits<long long>::max());
}

int reportError(const std::string &tool, const std::string &message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: error: %s\n", tool.c_str(), message.c_str());
  return 1;
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
