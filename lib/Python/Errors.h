//===- Errors.h - results as exceptions -------------------------*- C++ -*-===//

#ifndef NSA_LIB_PYTHON_ERRORS_H
#define NSA_LIB_PYTHON_ERRORS_H

#include "nsa/Support/Result.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <stdexcept>

namespace nsa {

/// The classes of exceptions of the package, by their names there.
inline constexpr const char *kInputError = "InputError";
inline constexpr const char *kCompileError = "CompileError";
inline constexpr const char *kOptionError = "OptionError";
inline constexpr const char *kRunError = "RunError";

/// Becomes an exception of one of these classes.
struct PythonError : std::runtime_error {
  PythonError(const char *kind, const std::string &message)
      : std::runtime_error(message), kind(kind) {}

  const char *kind;
};

inline void check(const Status &status, const char *kind = kRunError) {
  if (!status)
    throw PythonError(kind, status.message());
}

template <typename T>
T take(Result<T> result, const char *kind = kRunError) {
  if (!result)
    throw PythonError(kind, result.message());
  return std::move(*result);
}

/// Lets a module raise them; an exception of Python that is being handled is
/// the cause. The classes are those of nsa._runtime.
inline void registerErrors() {
  pybind11::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const PythonError &error) {
      pybind11::object kind =
          pybind11::module_::import("nsa._runtime").attr(error.kind);
      pybind11::set_error(kind, error.what());
    }
  });
}

/// Raises one whose cause is what Python has raised.
[[noreturn]] inline void raiseFrom(pybind11::error_already_set &cause,
                                   const char *kind,
                                   const std::string &message) {
  pybind11::object type = pybind11::module_::import("nsa._runtime").attr(kind);
  pybind11::raise_from(cause, type.ptr(), message.c_str());
  throw pybind11::error_already_set();
}

} // namespace nsa

#endif // NSA_LIB_PYTHON_ERRORS_H
