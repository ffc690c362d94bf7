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

#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

namespace nsa {

/// Looks at every event of a text before values are made of it; throws on what
/// parseJson refuses. nlohmann's own callback for the same purpose walks over a
/// whole list for each of its elements.
template <typename Json>
class JsonChecker final : public nlohmann::json_sax<Json> {
public:
  explicit JsonChecker(size_t mostNames) : mostNames(mostNames) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Json::number_integer_t) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t) override {
    return true;
  }
  bool number_float(typename Json::number_float_t,
                    const std::string &) override {
    return true;
  }
  bool string(std::string &) override { return true; }
  bool binary(typename Json::binary_t &) override { return true; }
  bool start_object(size_t) override {
    names.emplace_back();
    return enter();
  }
  bool key(std::string &name) override {
    if (!names.back().insert(name).second)
      throw std::runtime_error("duplicate name " + quote(name));
    if (names.back().size() > mostNames)
      throw std::runtime_error("an object of more than " +
                               std::to_string(mostNames) + " names");
    return true;
  }
  bool end_object() override {
    names.pop_back();
    return true;
  }
  bool start_array(size_t) override {
    ++lists;
    return enter();
  }
  bool end_array() override {
    --lists;
    return true;
  }
  /// Json::parse says it.
  bool parse_error(size_t, const std::string &,
                   const nlohmann::detail::exception &) override {
    return false;
  }

private:
  bool enter() const {
    constexpr size_t deepest = 16;
    if (names.size() + lists > deepest)
      throw std::runtime_error("nested more than " + std::to_string(deepest) +
                               " deep");
    return true;
  }

  size_t mostNames;
  /// Of the objects around.
  std::vector<std::unordered_set<std::string>> names;
  size_t lists = 0;
};

/// Reads one value; throws on what is no JSON, on a name that an object has
/// twice, on more than `mostNames` names in an object, which an ordered one
/// looks up one by one, and on nesting that none of this project's files has.
template <typename Json, typename Iterator>
Json parseJson(Iterator begin, Iterator end, size_t mostNames = 10000) {
  JsonChecker<Json> checker(mostNames);
  Json::sax_parse(begin, end, &checker);
  try {
    return Json::parse(begin, end);
  } catch (const typename Json::exception &error) {
    // It repeats what was read last, which may be a long string.
    throw std::runtime_error(shortened(oneLine(error.what()), 2 * kMostQuoted));
  }
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
  return value.is_structured() ? value.type_name() : quote(jsonText(value));
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

/// A hash as toHex writes it.
template <typename Json>
uint64_t readHash(const Json &value) {
  Result<uint64_t> hash = fromHex(value.template get<std::string>());
  if (!hash)
    throw std::runtime_error(hash.message());
  return *hash;
}

} // namespace nsa

#endif // NSA_SUPPORT_JSON_H
