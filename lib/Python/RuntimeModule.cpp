//===- RuntimeModule.cpp - the Python module `nsa._runtime` ---------------===//

#include "lib/Python/Arrays.h"
#include "lib/Python/Errors.h"
#include "lib/Support/Files.h"
#include "nsa/Runtime/Runtime.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <mutex>

namespace py = pybind11;

using namespace nsa;

namespace {

/// A compiled program, loaded on this machine. Any number of threads may use
/// it; their calls run one after the other.
class Module {
public:
  Module(const std::string &bytes, const std::string &name,
         const RuntimeOptions &options)
      : bytes(bytes),
        program(take(Program::create(
            take(Artifact::fromBytes(bytes.data(), bytes.size(), name)),
            options))) {}

  py::dict run(const std::string &entryName, const py::dict &inputs) {
    const EntryInfo *entry = take(program.entry(entryName));
    std::vector<py::array> given = inputArrays(*entry, inputs);
    std::vector<py::array> results;
    results.reserve(entry->outputs.size());
    for (unsigned index : entry->outputs)
      results.push_back(emptyArray(program.tensors()[index]));
    std::vector<ArrayElements> from = elementsOf(given);
    std::vector<ArrayElements> to = elementsOf(results);
    check(locked([&]() -> Status {
      for (size_t i = 0; i < from.size(); ++i)
        copyToTensor(from[i], program.tensors()[entry->inputs[i]]);
      Status status = program.run(*entry);
      for (size_t i = 0; status && i < to.size(); ++i) {
        const TensorView &tensor = program.tensors()[entry->outputs[i]];
        status = program.toHost(tensor);
        copyFromTensor(tensor, to[i]);
      }
      return status;
    }));
    py::dict outputs;
    for (size_t i = 0; i < results.size(); ++i)
      outputs[py::str(program.tensors()[entry->outputs[i]].name)] = results[i];
    return outputs;
  }

  py::array read(const std::string &name) {
    TensorView tensor = take(program.tensor(name));
    py::array value = emptyArray(tensor);
    ArrayElements to = ArrayElements::of(value);
    check(locked([&]() -> Status {
      Status status = program.toHost(tensor);
      copyFromTensor(tensor, to);
      return status;
    }));
    return value;
  }

  void write(const std::string &name, const py::array &value) {
    TensorView tensor = take(program.tensor(name));
    py::array dense = take(arrayFor(tensor, value));
    ArrayElements from = ArrayElements::of(dense);
    check(locked([&]() -> Status {
      copyToTensor(from, tensor);
      return program.toDevice(tensor);
    }));
  }

  /// {entry: (input names, output names)}
  py::dict entries() const {
    py::dict result;
    for (const EntryInfo &entry : program.entries())
      result[py::str(entry.name)] =
          py::make_tuple(names(entry.inputs), names(entry.outputs));
    return result;
  }

  /// {tensor: (type, shape, role)}
  py::dict tensors() const {
    py::dict result;
    for (const TensorView &tensor : program.tensors())
      result[py::str(tensor.name)] = py::make_tuple(
          typeName(tensor.type), py::tuple(py::cast(tensor.shape)),
          roleName(tensor.role));
    return result;
  }

  void save(const std::string &path) const {
    check(writeFileAtomically(path, bytes));
  }

  py::bytes artifact() const { return bytes; }

private:
  std::vector<std::string> names(const std::vector<unsigned> &indices) const {
    std::vector<std::string> result;
    result.reserve(indices.size());
    for (unsigned index : indices)
      result.push_back(program.tensors()[index].name);
    return result;
  }

  /// Calls `action` without the GIL, one thread at a time: a program has one
  /// set of tensors. The GIL is let go first, as its holder may wait for this
  /// lock, and `action` takes nothing of Python.
  template <typename Action>
  Status locked(Action action) {
    py::gil_scoped_release release;
    std::lock_guard<std::mutex> lock(mutex);
    return action();
  }

  static std::vector<ArrayElements>
  elementsOf(const std::vector<py::array> &arrays) {
    std::vector<ArrayElements> result;
    result.reserve(arrays.size());
    for (const py::array &array : arrays)
      result.push_back(ArrayElements::of(array));
    return result;
  }

  /// An array for each input of an entry. Every input must be given, and
  /// nothing else.
  std::vector<py::array> inputArrays(const EntryInfo &entry,
                                     const py::dict &inputs) const {
    std::vector<py::array> arrays;
    arrays.reserve(entry.inputs.size());
    for (unsigned index : entry.inputs) {
      const TensorView &tensor = program.tensors()[index];
      if (!inputs.contains(tensor.name))
        throw PythonError("entry '" + entry.name + "' needs the input '" +
                          tensor.name + "'");
      py::array value = py::array::ensure(inputs[py::str(tensor.name)]);
      if (!value) {
        PyErr_Clear();
        throw PythonError("input '" + tensor.name + "' is not an array");
      }
      arrays.push_back(take(arrayFor(tensor, value)));
    }
    if (inputs.size() == entry.inputs.size())
      return arrays;
    std::vector<std::string> known = names(entry.inputs);
    for (auto item : inputs) {
      auto name = py::str(item.first).cast<std::string>();
      if (std::find(known.begin(), known.end(), name) == known.end())
        throw PythonError("entry '" + entry.name + "' has no input '" + name +
                          "'");
    }
    return arrays;
  }

  std::mutex mutex;
  std::string bytes;
  Program program;
};

RuntimeOptions makeRuntimeOptions(int threads, uint64_t seed, bool checkFinite,
                                  bool poison, const std::string &blas) {
  RuntimeOptions options;
  options.threads = threads;
  options.seed = seed;
  options.checkFinite = checkFinite;
  options.poison = poison;
  options.blasLibrary = blas;
  // NumPy may have opened OpenBLAS before.
  options.allowSlowGemm = true;
  return options;
}

std::unique_ptr<Module> loadModule(const std::string &path, int threads,
                                   uint64_t seed, bool checkFinite, bool poison,
                                   const std::string &blas) {
  py::gil_scoped_release release;
  return std::make_unique<Module>(
      take(readFile(path, mostDataBytes)), path,
      makeRuntimeOptions(threads, seed, checkFinite, poison, blas));
}

/// The same of the contents of a file.
std::unique_ptr<Module> loadBytes(const std::string &artifact,
                                  const std::string &name, int threads,
                                  uint64_t seed, bool checkFinite, bool poison,
                                  const std::string &blas) {
  py::gil_scoped_release release;
  return std::make_unique<Module>(
      artifact, name,
      makeRuntimeOptions(threads, seed, checkFinite, poison, blas));
}

} // namespace

PYBIND11_MODULE(_runtime, m) {
  m.doc() = "Programs of nsa, loaded and run.";
  m.attr("__version__") = NSA_VERSION;
  py::register_exception<PythonError>(m, "Error");

  py::class_<Module>(m, "Module", "A compiled program, loaded here.")
      .def("run", &Module::run, py::arg("entry"), py::arg("inputs"),
           "Run an entry: {input: array} -> {output: array}.")
      .def("read", &Module::read, py::arg("name"),
           "A copy of a named tensor, for example a parameter.")
      .def("write", &Module::write, py::arg("name"), py::arg("value"),
           "Overwrite a named tensor.")
      .def("save", &Module::save, py::arg("path"), "Write the .nsax file.")
      .def_property_readonly("entries", &Module::entries,
                             "{entry: (input names, output names)}")
      .def_property_readonly("tensors", &Module::tensors,
                             "{tensor: (type, shape, role)}")
      .def_property_readonly("artifact", &Module::artifact,
                             "The contents of the .nsax file.");

  m.def("load", &loadModule, py::arg("path"), py::kw_only(),
        py::arg("threads") = 0, py::arg("seed") = 0,
        py::arg("check_finite") = false, py::arg("poison") = false,
        py::arg("blas_library") = "", "Load a .nsax file.");
  m.def("load_bytes", &loadBytes, py::arg("artifact"), py::kw_only(),
        py::arg("name") = "artifact", py::arg("threads") = 0,
        py::arg("seed") = 0, py::arg("check_finite") = false,
        py::arg("poison") = false, py::arg("blas_library") = "",
        "Load the contents of a .nsax file.");
}
