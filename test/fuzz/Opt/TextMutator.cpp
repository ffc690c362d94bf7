//===- TextMutator.cpp - changes to MLIR text by tokens -------------------===//

#include "test/fuzz/Opt/TextMutator.h"

#include <algorithm>
#include <cctype>

using namespace nsa::fuzz;
using Random = std::minstd_rand;

/// A number below `limit`, which is positive.
static size_t pick(Random &random, size_t limit) {
  return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
}

static void cutAtLine(std::string &text, size_t maxSize) {
  if (text.size() <= maxSize)
    return;
  text.resize(maxSize);
  if (size_t newline = text.rfind('\n'); newline != std::string::npos)
    text.resize(newline + 1);
}

//===----------------------------------------------------------------------===//
// Lines
//===----------------------------------------------------------------------===//

static std::vector<std::string> splitLines(const std::string &text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

static std::string changeLines(const std::string &text, Random &random) {
  std::vector<std::string> lines = splitLines(text);
  if (lines.empty())
    return text;
  size_t at = pick(random, lines.size()), other = pick(random, lines.size());
  switch (pick(random, 3)) {
  case 0:
    lines.erase(lines.begin() + static_cast<ptrdiff_t>(at));
    break;
  case 1:
    lines.insert(lines.begin() + static_cast<ptrdiff_t>(at),
                 std::string(lines[other]));
    break;
  default:
    std::swap(lines[at], lines[other]);
  }
  std::string result;
  for (const std::string &line : lines)
    result += line;
  return result;
}

std::string TextMutator::cross(const std::string &a, const std::string &b,
                               size_t maxSize, unsigned seed) {
  Random random(seed);
  std::vector<std::string> first = splitLines(a), second = splitLines(b);
  std::string result;
  for (size_t i = 0, end = pick(random, first.size() + 1); i < end; ++i)
    result += first[i];
  for (size_t i = pick(random, second.size() + 1); i < second.size(); ++i)
    result += second[i];
  cutAtLine(result, maxSize);
  return result;
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

namespace {
struct Token {
  enum Kind { Number, Word, Value, Symbol, Text, Sign } kind;
  size_t begin, size;
};
} // namespace

static bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
         c == '$';
}

/// The tokens of MLIR as far as mutations need them. An 'x' between the sizes
/// of a shape is a sign, so that sizes are numbers.
static std::vector<Token> tokenize(const std::string &text) {
  std::vector<Token> tokens;
  bool inShape = false;
  for (size_t i = 0; i < text.size();) {
    char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
      continue;
    }
    size_t begin = i++;
    Token::Kind kind = Token::Sign;
    auto skip = [&](auto accepts) {
      while (i < text.size() && accepts(text[i]))
        ++i;
    };
    if (c == '"') {
      kind = Token::Text;
      skip([](char c) { return c != '"' && c != '\n'; });
      i += i < text.size();
    } else if (isDigit(c)) {
      kind = Token::Number;
      skip([&](char c) { return isDigit(c) || (!inShape && c == '.'); });
    } else if (c == '%' || c == '@' || c == '#' || c == '!' || c == '^') {
      kind = c == '%' ? Token::Value : Token::Symbol;
      skip(isWord);
    } else if (inShape && c == 'x') {
      kind = Token::Sign;
    } else if (isWord(c)) {
      kind = Token::Word;
      skip(isWord);
    }
    inShape =
        c == '<' || (inShape && kind == Token::Number) || (inShape && c == 'x');
    tokens.push_back({kind, begin, i - begin});
  }
  return tokens;
}

/// A number that tends to break things, or one near `old`.
static std::string interestingNumber(const std::string &old, Random &random) {
  static const char *const numbers[] = {"0",
                                        "1",
                                        "2",
                                        "3",
                                        "-1",
                                        "7",
                                        "8",
                                        "16",
                                        "17",
                                        "64",
                                        "255",
                                        "1024",
                                        "65536",
                                        "2147483647",
                                        "2147483648",
                                        "-2147483648",
                                        "4294967296",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551616",
                                        "1.0e300",
                                        "0x7FF0000000000000"};
  constexpr size_t count = sizeof numbers / sizeof *numbers;
  if (pick(random, 2) == 0 || old.size() > 9 ||
      old.find('.') != std::string::npos)
    return numbers[pick(random, count)];
  long value = std::stol(old);
  const long near[] = {value - 1, value + 1, value * 2, value / 2};
  return std::to_string(near[pick(random, 4)]);
}

std::string TextMutator::changeToken(const std::string &text,
                                     Random &random) const {
  std::vector<Token> tokens = tokenize(text);
  if (tokens.empty())
    return text;
  const Token &token = tokens[pick(random, tokens.size())];
  auto textOf = [&](const Token &t) { return text.substr(t.begin, t.size); };
  auto replace = [&](const Token &t, const std::string &by) {
    return text.substr(0, t.begin) + by + text.substr(t.begin + t.size);
  };
  std::vector<Token> alike;
  for (const Token &other : tokens)
    if (other.kind == token.kind)
      alike.push_back(other);
  switch (pick(random, 8)) {
  case 0:
    return replace(token, "");
  case 1:
    return replace(token, textOf(token) + " " + textOf(token));
  case 2:
    return replace(token, textOf(tokens[pick(random, tokens.size())]));
  case 3:
    if (token.kind == Token::Word && !words.empty())
      return replace(token, words[pick(random, words.size())]);
    [[fallthrough]];
  default:
    if (token.kind == Token::Number)
      return replace(token, interestingNumber(textOf(token), random));
    return replace(token, textOf(alike[pick(random, alike.size())]));
  }
}

/// Replaces a number or a word wherever it occurs: a size that changes in all
/// types at once often leaves the module valid.
static std::string changeEverywhere(const std::string &text, Random &random) {
  std::vector<Token> tokens = tokenize(text);
  std::vector<Token> candidates;
  for (const Token &token : tokens)
    if (token.kind == Token::Number || token.kind == Token::Word)
      candidates.push_back(token);
  if (candidates.empty())
    return text;
  auto textOf = [&](const Token &t) { return text.substr(t.begin, t.size); };
  const Token &chosen = candidates[pick(random, candidates.size())];
  const Token &other = candidates[pick(random, candidates.size())];
  std::string old = textOf(chosen), by = textOf(other);
  if (other.kind != chosen.kind)
    by = chosen.kind == Token::Number ? std::to_string(pick(random, 130))
         : old == "f32"               ? "bf16"
                                      : "f32";
  std::string result;
  size_t copied = 0;
  for (const Token &token : tokens)
    if (token.kind == chosen.kind && textOf(token) == old) {
      result += text.substr(copied, token.begin - copied) + by;
      copied = token.begin + token.size;
    }
  return result + text.substr(copied);
}

std::string TextMutator::mutate(std::string text, size_t maxSize,
                                unsigned seed) const {
  Random random(seed);
  for (size_t i = 0, changes = 1 + pick(random, 3); i < changes; ++i)
    switch (pick(random, 4)) {
    case 0:
      text = changeLines(text, random);
      break;
    case 1:
      text = changeEverywhere(text, random);
      break;
    default:
      text = changeToken(text, random);
    }
  cutAtLine(text, maxSize);
  return text;
}
