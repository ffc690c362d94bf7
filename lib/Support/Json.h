//===- Json.h - numbers and texts where nlohmann is lenient -----*- C++ -*-===//
//
// nlohmann's get<> converts what is no whole number of the type: signs wrap,
// fractions are cut, booleans count, large values are undefined. The readers
// here throw std::runtime_error with the value instead, for the callers'
// handler of nlohmann's own exceptions. Its parse() takes the last of several
// values of one name, and copies of deeply nested values overflow the stack;
// parseJson refuses both. Its dump() throws where a string, such as a path, is
// not UTF-8; jsonText replaces such bytes.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_JSON_H
#define NSA_SUPPORT_JSON_H

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace nsa {

/// Reads one value; throws on what is no JSON, on a name that an object has
/// twice, and on nesting that none of this project's files has.
template <typename Json, typename Iterator>
Json parseJson(Iterator begin, Iterator end) {
  constexpr size_t deepest = 16;
  std::vector<std::set<std::string>> names;
  size_t lists = 0;
  auto check = [&](int, typename Json::parse_event_t event, Json &value) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start)
      names.emplace_back();
    else if (event == Event::object_end)
      names.pop_back();
    else if (event == Event::array_start)
      ++lists;
    else if (event == Event::array_end)
      --lists;
    else if (event == Event::key &&
             !names.back().insert(value.template get<std::string>()).second)
      throw std::runtime_error("duplicate name '" +
                               value.template get<std::string>() + "'");
    if (names.size() + lists > deepest)
      throw std::runtime_error("nested more than " + std::to_string(deepest) +
                               " deep");
    return true;
  };
  return Json::parse(begin, end, check);
}

/// A value as text in ASCII; on several lines if `indent` is not negative.
template <typename Json>
std::string jsonText(const Json &value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/true,
                    Json::error_handler_t::replace);
}

/// A value in a message. A list or an object, which may be nested deeply, is
/// only named.
template <typename Json>
std::string describeJson(const Json &value) {
  return value.is_structured() ? value.type_name()
                               : "'" + jsonText(value) + "'";
}

template <typename Json>
uint64_t readUnsigned(const Json &value) {
  if (!value.is_number_unsigned())
    throw std::runtime_error(describeJson(value) +
                             " is not an unsigned integer");
  return value.template get<uint64_t>();
}

template <typename Json>
int64_t readInteger(const Json &value) {
  bool tooLarge =
      value.is_number_unsigned() &&
      value.template get<uint64_t>() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_integer() || tooLarge)
    throw std::runtime_error(describeJson(value) + " is not a 64-bit integer");
  return value.template get<int64_t>();
}

} // namespace nsa

#endif // NSA_SUPPORT_JSON_H
