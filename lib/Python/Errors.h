//===- Errors.h - results as exceptions -------------------------*- C++ -*-===//

#ifndef NSA_LIB_PYTHON_ERRORS_H
#define NSA_LIB_PYTHON_ERRORS_H

#include "nsa/Support/Result.h"

#include <stdexcept>

namespace nsa {

/// Becomes nsa.Error.
struct PythonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(const Status &status) {
  if (!status)
    throw PythonError(status.message());
}

template <typename T>
T take(Result<T> result) {
  if (!result)
    throw PythonError(result.message());
  return std::move(*result);
}

} // namespace nsa

#endif // NSA_LIB_PYTHON_ERRORS_H
