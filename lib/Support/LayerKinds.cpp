//===- LayerKinds.cpp - what the layers of a model attend to --------------===//

#include "lib/Support/LayerKinds.h"

#include <charconv>
#include <climits>
#include <string_view>

using namespace nsa;

static std::string_view trim(std::string_view text) {
  size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Takes `sign` and the number after it from the end of `text`; `number` stays
/// as it is where there is no such sign.
static Status takeNumber(std::string_view &text, char sign, const char *what,
                         int64_t most, int64_t &number) {
  size_t place = text.rfind(sign);
  if (place == std::string_view::npos)
    return {};
  std::string digits(trim(text.substr(place + 1)));
  text = trim(text.substr(0, place));
  const char *end = digits.data() + digits.size();
  auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error == std::errc() && stop == end && number >= 1 && number <= most)
    return {};
  return Error{std::string(what) + " '" + digits +
               "' must be a number from 1 to " + std::to_string(most)};
}

Result<std::vector<LayerKind>> nsa::getLayerKinds(const RunConfig &config) {
  const ModelConfig &model = config.model;
  auto expected = static_cast<size_t>(model.nLayers);
  std::string_view list = model.layers;
  if (trim(list).empty())
    return std::vector<LayerKind>(expected,
                                  {model.attention, config.nsa.w, true});
  // One kind alone is that of all layers.
  int64_t otherwise = list.find(',') == list.npos ? model.nLayers : 1;
  std::vector<LayerKind> kinds;
  size_t found = 0;
  for (bool isLast = false; !isLast;) {
    size_t comma = list.find(',');
    isLast = comma == std::string_view::npos;
    std::string_view kind = trim(list.substr(0, comma));
    if (!isLast)
      list.remove_prefix(comma + 1);
    int64_t count = otherwise, window = config.nsa.w;
    NSA_RETURN_IF_ERROR(
        takeNumber(kind, '*', "the count of layers", 1000, count));
    constexpr std::string_view suffix = "/nope";
    bool isRotated = kind.size() < suffix.size() ||
                     kind.substr(kind.size() - suffix.size()) != suffix;
    if (!isRotated)
      kind = trim(kind.substr(0, kind.size() - suffix.size()));
    bool hasWidth = kind.find(':') != std::string_view::npos;
    NSA_RETURN_IF_ERROR(
        takeNumber(kind, ':', "the width of a window", INT_MAX, window));
    if ((kind != "nsa" && kind != "dense" && kind != "window") ||
        (hasWidth && kind != "window"))
      return Error{"unknown kind '" + std::string(kind) +
                   (hasWidth ? ":" + std::to_string(window) : std::string()) +
                   "' of a layer; expected nsa, dense, window or window:WIDTH, "
                   "and /nope after it for no rotary embedding"};
    found += static_cast<size_t>(count);
    for (int64_t i = 0; i < count && kinds.size() < expected; ++i)
      kinds.push_back({std::string(kind), window, isRotated});
  }
  if (found != expected)
    return Error{"kinds of " + std::to_string(found) +
                 " layers, but n_layers is " + std::to_string(expected)};
  return kinds;
}
