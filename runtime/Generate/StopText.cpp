//===- StopText.cpp - where a generated text ends -------------------------===//

#include "nsa/Runtime/StopText.h"

#include <algorithm>

using namespace nsa;

/// Bytes at the end of `text` that may be the beginning of a stop.
static size_t countPossible(std::string_view text,
                            const std::vector<std::string> &stops) {
  size_t most = 0;
  for (const std::string &stop : stops)
    for (size_t length = std::min(text.size(), stop.size() - 1); length > most;
         --length)
      if (text.substr(text.size() - length) ==
          std::string_view(stop).substr(0, length))
        most = length;
  return most;
}

std::string StopText::push(std::string_view piece) {
  if (found)
    return "";
  pending += piece;
  size_t end = std::string::npos;
  for (const std::string &stop : stops)
    end = std::min(end, pending.find(stop));
  found = end != std::string::npos;
  if (!found)
    end = pending.size() - countPossible(pending, stops);
  std::string known = pending.substr(0, end);
  pending.erase(0, end);
  return known;
}

std::string StopText::finish() {
  std::string rest = found ? "" : pending;
  pending.clear();
  return rest;
}
