//===- PreparedCall.h - calls by addresses alone ----------------*- C++ -*-===//
//
// For callers that know an entry: they have checked the type, shape, order and
// device of each tensor, once for all calls that are alike, and hand over
// addresses.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_PYTHON_PREPAREDCALL_H
#define NSA_LIB_PYTHON_PREPAREDCALL_H

#include "nsa/Runtime/Session.h"

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// An entry of a session whose program has no memory of its own. Any number of
/// threads may call it.
class PreparedCall {
public:
  /// `names` are all tensors of the entry, in the order of the addresses. The
  /// session must outlive the call. Raises InputError for a name that the entry
  /// does not have.
  PreparedCall(Session &session, const std::string &entry,
               const std::vector<std::string> &names);

  uint64_t scratchBytes() const { return session.program().scratchBytes(); }
  size_t commands() const { return entry->commands; }

  /// Runs the entry. On a GPU with a stream it returns at once; see
  /// Session::call. Needs the GIL.
  void operator()(const pybind11::list &addresses, uint64_t scratch,
                  std::optional<uint64_t> stream);

private:
  Session &session;
  const EntryInfo *entry;
  std::vector<unsigned> tensors;
};

/// Defines the class `PreparedCall` of Python.
void definePreparedCall(pybind11::module_ &module);

} // namespace nsa

#endif // NSA_LIB_PYTHON_PREPAREDCALL_H
