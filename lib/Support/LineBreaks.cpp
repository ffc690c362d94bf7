//===- LineBreaks.cpp - IR that fits a page -------------------------------===//

#include "lib/Support/LineBreaks.h"

#include <vector>

using namespace nsa;

namespace {

/// A blank where a line may end, or the end of a parenthesis (of no width),
/// and the brackets that are open before it.
struct Blank {
  size_t at;
  size_t depth;
  size_t width = 1;
};

} // namespace

/// The columns where a line may end, in no string, up to a comment.
static std::vector<Blank> findBlanks(std::string_view line, size_t begin) {
  std::vector<Blank> blanks;
  size_t depth = 0;
  bool isString = false;
  for (size_t i = begin; i < line.size(); ++i) {
    char c = line[i];
    if (isString) {
      if (c == '\\')
        ++i;
      isString = c != '"';
      continue;
    }
    if (c == '/' && line.substr(i, 2) == "//") {
      if (!blanks.empty() && blanks.back().at + 1 == i)
        blanks.pop_back();
      break;
    }
    bool isArrow = c == '>' && i > 0 && line[i - 1] == '-';
    if (c == '"')
      isString = true;
    else if (c == '(' || c == '[' || c == '{' || c == '<') {
      if (c == '(')
        blanks.push_back({i + 1, depth, 0});
      ++depth;
    } else if ((c == ')' || c == ']' || c == '}' || (c == '>' && !isArrow)) &&
               depth > 0)
      --depth;
    else if (c == ' ')
      blanks.push_back({i, depth});
  }
  return blanks;
}

/// How well a line reads that ends at this blank: best before types,
/// results and attributes, in brackets best after a comma.
static int rateEnd(std::string_view line, const Blank &blank) {
  // Only after a name that is too long with what follows.
  if (blank.width == 0)
    return 0;
  std::string_view rest = line.substr(blank.at + 1);
  bool isOutside = blank.depth == 0;
  // A dictionary stays with its name.
  std::string_view name = line.substr(0, blank.at);
  if (name.back() == '=' ||
      (name.size() > 7 && name.substr(name.size() - 7) == " config"))
    return 0;
  if (line[blank.at - 1] == ',')
    return isOutside ? 1 : 2;
  bool isPart = rest.substr(0, 2) == "->" || rest.substr(0, 2) == ": " ||
                rest.substr(0, 1) == "{" || rest.substr(0, 11) == "attributes ";
  return !isPart ? 0 : isOutside ? 2 : 1;
}

static void breakLine(std::string &text, std::string_view line,
                      size_t columns) {
  size_t indent = line.find_first_not_of(' ');
  if (line.size() <= columns || indent == line.npos) {
    text += line;
    return;
  }
  std::vector<Blank> blanks = findBlanks(line, indent);
  size_t begin = 0, first = 0, left = columns;
  while (line.size() - begin > left) {
    // The last of the shallowest blanks; an opening brace at the end of the
    // line stays there.
    const Blank *best = nullptr;
    auto isBetter = [&](const Blank &blank) {
      if (!best)
        return true;
      int rate = rateEnd(line, blank), bestRate = rateEnd(line, *best);
      if ((rate == 0) != (bestRate == 0))
        return rate != 0;
      if (blank.depth != best->depth)
        return blank.depth < best->depth;
      return rate >= bestRate;
    };
    size_t next = first;
    for (; next < blanks.size(); ++next) {
      const Blank &blank = blanks[next];
      if (blank.at + 2 >= line.size() && line.back() == '{')
        break;
      if (blank.at - begin > left && best)
        break;
      if (blank.at > begin && isBetter(blank))
        best = &blank;
    }
    if (!best)
      break;
    text += line.substr(begin, best->at - begin);
    text += '\n';
    text.append(indent + 4, ' ');
    begin = best->at + best->width;
    first = static_cast<size_t>(best - blanks.data()) + 1;
    left = columns > indent + 4 ? columns - indent - 4 : 1;
  }
  text += line.substr(begin);
}

std::string nsa::breakLines(std::string_view text, size_t columns) {
  std::string broken;
  broken.reserve(text.size() + text.size() / 16);
  while (!text.empty()) {
    size_t end = text.find('\n');
    breakLine(broken, text.substr(0, end), columns);
    if (end == text.npos)
      break;
    broken += '\n';
    text.remove_prefix(end + 1);
  }
  return broken;
}
