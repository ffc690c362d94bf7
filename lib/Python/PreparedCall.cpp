//===- PreparedCall.cpp - calls by addresses alone ------------------------===//

#include "lib/Python/PreparedCall.h"
#include "lib/Python/Errors.h"
#include "lib/Support/Text.h"

#include <pybind11/stl.h>

#include <algorithm>

namespace py = pybind11;

using namespace nsa;

PreparedCall::PreparedCall(Session &session, const std::string &entryName,
                           const std::vector<std::string> &names)
    : session(session),
      entry(take(session.program().entry(entryName), kInputError)) {
  const std::vector<TensorView> &all = session.program().tensors();
  for (const std::string &name : names) {
    TensorView tensor = take(session.program().tensor(name), kInputError);
    auto isThis = [&](unsigned index) { return all[index].name == name; };
    const std::vector<unsigned> *uses[] = {&entry->inputs, &entry->outputs};
    for (const std::vector<unsigned> *list : uses) {
      auto found = std::find_if(list->begin(), list->end(), isThis);
      if (found == list->end())
        continue;
      tensors.push_back(*found);
      break;
    }
  }
  if (tensors.size() != names.size())
    throw PythonError(kInputError, "entry " + quote(entryName) + " has only " +
                                       std::to_string(tensors.size()) +
                                       " of the " +
                                       std::to_string(names.size()) +
                                       " tensors that are named");
}

/// A number that a library gives as an address.
static void *toPointer(uint64_t address) {
  return reinterpret_cast<void *>(address); // NOLINT(performance-no-int-to-ptr)
}

void PreparedCall::operator()(const py::list &addresses, uint64_t scratch,
                              std::optional<uint64_t> stream) {
  if (addresses.size() != tensors.size())
    throw PythonError(kInputError, "entry " + quote(entry->name) +
                                       " is given " +
                                       std::to_string(addresses.size()) +
                                       " addresses, expected " +
                                       std::to_string(tensors.size()));
  std::vector<Binding> bindings;
  bindings.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    bindings.push_back({tensors[i], toPointer(addresses[i].cast<uint64_t>())});
  Status status;
  {
    py::gil_scoped_release release;
    status = session.run(*entry, bindings, stream, {}, toPointer(scratch));
  }
  check(status);
}

void nsa::definePreparedCall(py::module_ &module) {
  py::class_<PreparedCall>(
      module, "PreparedCall",
      "An entry of a program without memory of its own, called with addresses.")
      .def_property_readonly("scratch_bytes", &PreparedCall::scratchBytes)
      .def_property_readonly("num_commands", &PreparedCall::commands)
      .def("__call__", &PreparedCall::operator(), py::arg("addresses"),
           py::arg("scratch"), py::arg("stream"));
}
