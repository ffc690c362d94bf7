//===- StopText.h - where a generated text ends -----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_STOPTEXT_H
#define NSA_RUNTIME_STOPTEXT_H

#include <string>
#include <string_view>
#include <vector>

namespace nsa {

/// Passes a text on up to the first of some strings, which may come in pieces.
class StopText {
public:
  /// No string is empty.
  explicit StopText(std::vector<std::string> stops) : stops(std::move(stops)) {}

  /// Takes a piece. Returns what is known to come before any stop.
  std::string push(std::string_view piece);
  /// What was kept back because a stop might have begun there: the text ends.
  std::string finish();
  /// Whether a stop was found.
  bool stopped() const { return found; }

private:
  std::vector<std::string> stops;
  std::string pending;
  bool found = false;
};

} // namespace nsa

#endif // NSA_RUNTIME_STOPTEXT_H
