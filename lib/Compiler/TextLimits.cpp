//===- TextLimits.cpp - text that MLIR's parser can read ------------------===//

#include "lib/Compiler/TextLimits.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBufferRef.h"

using namespace nsa;
using llvm::StringRef;

static constexpr llvm::StringLiteral kOpening = "([{<", kClosing = ")]}>";

static bool isWordCharacter(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '.';
}

namespace {

/// Walks over the tokens of a text, as far as nesting needs them.
class TextScanner {
public:
  explicit TextScanner(StringRef text) : text(text) {}

  /// Why the parser cannot read the text; nothing if it can.
  std::string run();

  /// Where the last token begins and where it ends.
  size_t begin = 0, end = 0;

private:
  /// An open bracket, by its kind, and the terms so far of the expression in
  /// it.
  struct Level {
    size_t kind;
    unsigned terms;
  };

  StringRef next();
  size_t takeDepth(StringRef token);
  bool isOneTermMore(StringRef token, StringRef last);

  StringRef text;
  llvm::SmallVector<Level> levels;
  /// Levels inside of each alias, and the alias that is being defined, if any.
  llvm::StringMap<size_t> aliases;
  StringRef defined;
};

} // namespace

/// The next token: a string, a word or number, a name that begins with # or !,
/// an arrow, >=, or one character; nothing at the end. Comments are skipped.
StringRef TextScanner::next() {
  for (begin = end; begin < text.size();)
    if (text.substr(begin).starts_with("//"))
      begin = std::min(text.find('\n', begin), text.size());
    else if (llvm::isSpace(text[begin]) || text[begin] == '\0')
      ++begin;
    else
      break;
  StringRef rest = text.substr(begin);
  size_t size = std::min<size_t>(1, rest.size());
  if (rest.starts_with("\"")) {
    while (size < rest.size() && rest[size] != '"' && rest[size] != '\n')
      size += rest[size] == '\\' ? 2 : 1;
    size = std::min(size + 1, rest.size());
  } else if (rest.starts_with("->") || rest.starts_with(">=")) {
    size = 2;
  } else if (size &&
             (isWordCharacter(rest[0]) || rest[0] == '#' || rest[0] == '!')) {
    // The sign of an exponent is part of its number.
    auto isExponent = [&] {
      return llvm::isDigit(rest[0]) && (rest[size - 1] | 0x20) == 'e' &&
             (rest[size] == '+' || rest[size] == '-');
    };
    while (size < rest.size() && (isWordCharacter(rest[size]) || isExponent()))
      ++size;
  }
  end = begin + size;
  return rest.take_front(size);
}

/// Whether a token can be the last one of an operand.
static bool endsOperand(StringRef token) {
  return !token.empty() && token != ">=" &&
         (isWordCharacter(token[0]) ||
          StringRef("\"#!)]}>").contains(token[0]));
}

/// Opens and closes brackets; the levels around or in the token. A bracket that
/// closes closes those left open in it; one that was never opened is for the
/// parser to report.
size_t TextScanner::takeDepth(StringRef token) {
  size_t opening =
             token.size() == 1 ? kOpening.find(token[0]) : StringRef::npos,
         closing =
             token.size() == 1 ? kClosing.find(token[0]) : StringRef::npos;
  if (opening != StringRef::npos)
    levels.push_back({opening, 0});
  if (closing != StringRef::npos)
    for (size_t depth = levels.size(); depth > 0; --depth)
      if (levels[depth - 1].kind == closing) {
        levels.truncate(depth - 1);
        break;
      }
  auto alias = aliases.find(token);
  return levels.size() + (alias == aliases.end() ? 0 : alias->second + 1);
}

/// Counts terms. Signs before the numbers of a list, and of those of operations
/// in a region, are none. A comma begins the next expression.
bool TextScanner::isOneTermMore(StringRef token, StringRef last) {
  if (levels.empty() || kOpening[levels.back().kind] != '(')
    return false;
  bool isSign = token == "+" || token == "-";
  if (token == ",")
    levels.back().terms = 0;
  return isSign && (endsOperand(last) || last == "+" || last == "-") &&
         ++levels.back().terms > kMaxTerms;
}

std::string TextScanner::run() {
  // The tokens before, the last one first.
  StringRef before[3];
  for (StringRef token = next(); !token.empty(); token = next()) {
    // Text after the value of an alias is no part of it.
    if (levels.empty() && endsOperand(before[0]) &&
        (isWordCharacter(token[0]) || StringRef("\"#!@%^").contains(token[0])))
      defined = {};
    if (levels.empty() && token == "=" && !before[0].empty() &&
        (before[0][0] == '#' || before[0][0] == '!')) {
      defined = before[0];
      aliases[defined] = 0;
    }
    size_t depth = takeDepth(token);
    if (!defined.empty())
      aliases[defined] = std::max(aliases[defined], depth);
    if (depth > kMaxNesting)
      return "the text is nested " + std::to_string(depth) +
             " levels deep, expected at most " + std::to_string(kMaxNesting);
    if (isOneTermMore(token, before[0]))
      return "an expression has more than " + std::to_string(kMaxTerms) +
             " terms";
    // MLIR's parser ends the process at arrays of index elements.
    if (token == "index" && before[0] == "<" && before[1] == "array" &&
        before[2] != "@" && before[2] != "%" && before[2] != "^")
      return "an array attribute has elements of type 'index', expected "
             "integers or floating-point numbers";
    before[2] = before[1];
    before[1] = before[0];
    before[0] = token;
  }
  return "";
}

std::string nsa::findUnparsable(StringRef text, StringRef file) {
  if (mlir::isBytecode(llvm::MemoryBufferRef(text, file)))
    return "";
  TextScanner scanner(text);
  std::string problem = scanner.run();
  if (problem.empty())
    return "";
  StringRef before = text.take_front(scanner.begin);
  size_t line = before.count('\n') + 1;
  size_t column = before.size() - (before.rfind('\n') + 1) + 1;
  return (file + ":" + llvm::Twine(line) + ":" + llvm::Twine(column) +
          ": error: " + problem)
      .str();
}
