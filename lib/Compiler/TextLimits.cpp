//===- TextLimits.cpp - text that MLIR's parser can read ------------------===//

#include "lib/Compiler/TextLimits.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBufferRef.h"

using namespace nsa;
using llvm::StringRef;

namespace {

/// Walks over the tokens of a text, as far as nesting needs them: strings and
/// comments are skipped, words and numbers are one token each.
class TextScanner {
public:
  explicit TextScanner(StringRef text) : text(text) {}

  /// Returns whether the parser can read the text; else `problem` says why not,
  /// and `at` is the offset.
  bool run();

  size_t at = 0;
  std::string problem;

private:
  /// An open bracket, by its kind, and the terms so far of the expression in
  /// it.
  struct Level {
    size_t kind;
    unsigned terms;
  };
  enum class Token { Operand, Sign, Other };

  void skipString();
  bool openBracket(size_t kind);
  void closeBracket(size_t kind);
  bool takeAlias();
  bool takeWord();
  bool takeSign();
  void takeOther();
  bool checkNesting(size_t depth);
  size_t skipBlanks(size_t from) const;
  size_t endOfWord(size_t from) const;
  bool isAt(size_t index, char c) const {
    return index < text.size() && text[index] == c;
  }

  StringRef text;
  llvm::SmallVector<Level> levels;
  Token last = Token::Other;
  /// Levels inside of each alias, and the alias that is being defined, if any.
  llvm::StringMap<size_t> aliases;
  StringRef defined;
};

} // namespace

static constexpr llvm::StringLiteral kOpening = "([{<", kClosing = ")]}>";

static bool isWordCharacter(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.';
}

/// Where the next token begins.
size_t TextScanner::skipBlanks(size_t from) const {
  while (from < text.size()) {
    if (text.substr(from).starts_with("//"))
      from = std::min(text.find('\n', from), text.size());
    else if (llvm::isSpace(text[from]) || text[from] == '\0')
      ++from;
    else
      break;
  }
  return from;
}

/// The end of the word or number at `from`. The sign of an exponent is part of
/// its number.
size_t TextScanner::endOfWord(size_t from) const {
  bool isNumber = from < text.size() && llvm::isDigit(text[from]);
  size_t end = from;
  while (end < text.size()) {
    bool isExponent = isNumber && end > from && (text[end - 1] | 0x20) == 'e' &&
                      (text[end] == '+' || text[end] == '-');
    if (!isWordCharacter(text[end]) && !isExponent)
      break;
    ++end;
  }
  return end;
}

void TextScanner::skipString() {
  for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at)
    if (text[at] == '\\')
      ++at;
  ++at;
  last = Token::Operand;
}

bool TextScanner::checkNesting(size_t depth) {
  if (!defined.empty())
    aliases[defined] = std::max(aliases[defined], depth);
  if (depth <= kMaxNesting)
    return true;
  problem = "the text is nested " + std::to_string(depth) +
            " levels deep, expected at most " + std::to_string(kMaxNesting);
  return false;
}

bool TextScanner::openBracket(size_t kind) {
  levels.push_back({kind, 0});
  last = Token::Other;
  if (!checkNesting(levels.size()))
    return false;
  ++at;
  return true;
}

/// Closes the last bracket of this kind and those left open in it. One that was
/// never opened is for the parser to report.
void TextScanner::closeBracket(size_t kind) {
  for (size_t depth = levels.size(); depth > 0; --depth)
    if (levels[depth - 1].kind == kind) {
      levels.truncate(depth - 1);
      break;
    }
  last = Token::Operand;
  ++at;
}

/// A name that begins with # or !: of something written elsewhere, or of a
/// dialect.
bool TextScanner::takeAlias() {
  size_t end = endOfWord(at + 1), next = skipBlanks(end);
  StringRef name = text.slice(at, end);
  if (levels.empty() && isAt(next, '=')) {
    defined = name;
    aliases[defined] = 0;
  } else if (auto known = aliases.find(name); known != aliases.end()) {
    if (!checkNesting(levels.size() + known->second + 1))
      return false;
  }
  at = end;
  last = Token::Operand;
  return true;
}

/// MLIR's parser ends the process at arrays of index elements.
bool TextScanner::takeWord() {
  size_t end = endOfWord(at), next = skipBlanks(end);
  bool hasPrefix = at > 0 && StringRef("!#@%^").contains(text[at - 1]);
  if (text.slice(at, end) == "array" && !hasPrefix && isAt(next, '<')) {
    size_t element = skipBlanks(next + 1);
    if (text.slice(element, endOfWord(element)) == "index") {
      problem = "an array attribute has elements of type 'index', expected "
                "integers or floating-point numbers";
      return false;
    }
  }
  at = end;
  last = Token::Operand;
  return true;
}

/// A plus or minus. Signs before the numbers of a list, and of those of
/// operations in a region, are no terms.
bool TextScanner::takeSign() {
  bool isTerm = last != Token::Other && !levels.empty() &&
                kOpening[levels.back().kind] == '(';
  last = Token::Sign;
  if (isTerm && ++levels.back().terms > kMaxTerms) {
    problem =
        "an expression has more than " + std::to_string(kMaxTerms) + " terms";
    return false;
  }
  ++at;
  return true;
}

/// A comma begins the next expression.
void TextScanner::takeOther() {
  if (text[at] == ',' && !levels.empty())
    levels.back().terms = 0;
  last = Token::Other;
  ++at;
}

bool TextScanner::run() {
  for (at = skipBlanks(0); at < text.size(); at = skipBlanks(at)) {
    char c = text[at];
    bool isReadable = true;
    // Text after the value of an alias is no part of it.
    if (levels.empty() && last == Token::Operand &&
        (isWordCharacter(c) || StringRef("\"#!@%^").contains(c)))
      defined = {};
    if (c == '"')
      skipString();
    else if (text.substr(at).starts_with("->") ||
             text.substr(at).starts_with(">=")) {
      at += 2;
      last = Token::Other;
    } else if (size_t kind = kOpening.find(c); kind != StringRef::npos)
      isReadable = openBracket(kind);
    else if (size_t kind = kClosing.find(c); kind != StringRef::npos)
      closeBracket(kind);
    else if (c == '#' || c == '!')
      isReadable = takeAlias();
    else if (isWordCharacter(c))
      isReadable = takeWord();
    else if (c == '+' || c == '-')
      isReadable = takeSign();
    else
      takeOther();
    if (!isReadable)
      return false;
  }
  return true;
}

std::string nsa::findUnparsable(StringRef text, StringRef file) {
  if (mlir::isBytecode(llvm::MemoryBufferRef(text, file)))
    return "";
  TextScanner scanner(text);
  if (scanner.run())
    return "";
  StringRef before = text.take_front(scanner.at);
  size_t line = before.count('\n') + 1;
  size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  return (file + ":" + llvm::Twine(line) + ":" + llvm::Twine(column) +
          ": error: " + scanner.problem)
      .str();
}
