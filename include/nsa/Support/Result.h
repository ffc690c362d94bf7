//===- Result.h - a value or an error message -------------------*- C++ -*-===//
//
// The error type of everything that must live without LLVM. A message is one
// lower-case line without a full stop that names what was found and what was
// expected; tools print it once and exit with a non-zero code.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_RESULT_H
#define NSA_SUPPORT_RESULT_H

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace nsa {

/// A failure with a message.
struct Error {
  std::string message;
};

/// Success, or an error message.
class [[nodiscard]] Status {
public:
  Status() = default;
  /*implicit*/ Status(Error error) : error(std::move(error)) {}

  bool ok() const { return !error; }
  explicit operator bool() const { return ok(); }

  /// The message. Only valid on failure.
  const std::string &message() const {
    assert(error && "no message on success");
    return error->message;
  }

  /// The failure as an error of another result. Only valid on failure.
  Error takeError() { return std::move(*error); }

private:
  std::optional<Error> error;
};

/// A value of type T, or an error message.
template <typename T>
class [[nodiscard]] Result {
public:
  /*implicit*/ Result(T value) : value(std::move(value)) {}
  /*implicit*/ Result(Error error) : error(std::move(error)) {}

  bool ok() const { return value.has_value(); }
  explicit operator bool() const { return ok(); }

  T &operator*() {
    assert(value && "dereferenced an error");
    return *value;
  }
  const T &operator*() const {
    assert(value && "dereferenced an error");
    return *value;
  }
  T *operator->() { return &**this; }
  const T *operator->() const { return &**this; }

  /// The message. Only valid on failure.
  const std::string &message() const { return error.message; }

  /// The failure as an error of another result. Only valid on failure.
  Error takeError() { return std::move(error); }

private:
  std::optional<T> value;
  Error error;
};

} // namespace nsa

/// Returns the error of a status, from a function whose result may be one.
#define NSA_RETURN_IF_ERROR(...)                                               \
  do {                                                                         \
    if (::nsa::Status status_ = (__VA_ARGS__); !status_)                       \
      return status_.takeError();                                              \
  } while (false)

/// Declares a variable with the value of a result, whose error is returned:
/// NSA_ASSIGN_OR_RETURN(std::string text, readFile(path)).
#define NSA_ASSIGN_OR_RETURN(declaration, ...)                                 \
  NSA_ASSIGN_OR_RETURN_AS(NSA_NAME_OF_LINE(result, __LINE__), declaration,     \
                          __VA_ARGS__)
#define NSA_ASSIGN_OR_RETURN_AS(result, declaration, ...)                      \
  auto result = (__VA_ARGS__);                                                 \
  if (!result)                                                                 \
    return result.takeError();                                                 \
  declaration = std::move(*result)
#define NSA_NAME_OF_LINE(name, line) NSA_JOIN_NAMES(name, line)
#define NSA_JOIN_NAMES(name, line) name##line

#endif // NSA_SUPPORT_RESULT_H
