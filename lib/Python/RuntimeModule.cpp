//===- RuntimeModule.cpp - the Python module `nsa._runtime` ---------------===//

#include "lib/Python/Arrays.h"
#include "lib/Python/DataModule.h"
#include "lib/Python/Errors.h"
#include "lib/Python/ForeignArrays.h"
#include "lib/Python/PreparedCall.h"
#include "lib/Python/Scheduling.h"
#include "lib/Support/Files.h"
#include "lib/Support/Process.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "nsa/Runtime/ArtifactCache.h"
#include "nsa/Runtime/Session.h"
#include "nsa/Runtime/Weights.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

namespace py = pybind11;

using namespace nsa;

namespace {

//===----------------------------------------------------------------------===//
// Artefacts
//===----------------------------------------------------------------------===//

/// An artefact, which need not be for this machine.
class File {
public:
  File(const std::string &bytes, const std::string &name)
      : opened(take(Artifact::fromBytes(bytes.data(), bytes.size(), name),
                    kInputError)) {}
  explicit File(Artifact artifact) : opened(std::move(artifact)) {}

  const Artifact &get() const { return opened; }
  py::bytes bytes() const { return contents(); }

  void save(const std::string &path) const {
    check(writeFileAtomically(path, contents()), kInputError);
  }

  /// Names of the extents that are still to be given.
  std::vector<std::string> extents() const {
    return opened.needsExtents() ? opened.extentNames()
                                 : std::vector<std::string>();
  }
  std::unique_ptr<File> withExtents(const std::vector<uint64_t> &values) const {
    return std::make_unique<File>(
        take(opened.withExtents(values), kInputError));
  }

  /// {entry: (input names, output names)}
  py::dict entries() const {
    py::dict result;
    for (const artifact::Entry *entry : *opened->entries())
      result[py::str(entry->name()->str())] =
          py::make_tuple(names(*entry->inputs()), names(*entry->outputs()));
    return result;
  }

  /// {tensor: (type, shape, role)}
  py::dict tensors() const {
    py::dict result;
    for (const artifact::Tensor *tensor : *opened->tensors()) {
      py::list shape;
      for (uint64_t extent : *tensor->shape())
        shape.append(extent);
      result[py::str(tensor->name()->str())] = py::make_tuple(
          typeName(tensor->type()), py::tuple(shape), roleName(tensor->role()));
    }
    return result;
  }

  /// {option of nsa-compile: value}
  py::dict options() const {
    py::dict result;
    if (const auto *options = opened->options())
      for (const artifact::Option *option : *options)
        result[py::str(option->key()->str())] = option->value()->str();
    return result;
  }

  std::string target() const { return opened->target()->str(); }
  std::string cpu() const {
    return opened->cpu() ? opened->cpu()->str() : target();
  }
  std::string name() const { return opened.name(); }
  std::string config() const {
    return opened->model_config() ? opened->model_config()->str() : "";
  }

  /// The PTX of its kernels, or nothing: a cubin, or code of a CPU.
  std::optional<std::string> ptx() const {
    for (const artifact::Binary *binary : *opened->binaries())
      if (binary->format()->string_view() == artifact::ptxFormat)
        return std::string(binary->data()->begin(), binary->data()->end());
    return std::nullopt;
  }

private:
  std::string contents() const {
    return {reinterpret_cast<const char *>(opened.fileData()),
            opened.fileBytes()};
  }
  std::vector<std::string>
  names(const flatbuffers::Vector<uint32_t> &indices) const {
    std::vector<std::string> result;
    for (uint32_t index : indices)
      result.push_back(opened->tensors()->Get(index)->name()->str());
    return result;
  }

  Artifact opened;
};

std::unique_ptr<File> readArtifact(const std::string &path) {
  py::gil_scoped_release release;
  return std::make_unique<File>(
      take(readFile(path, mostDataBytes), kInputError), path);
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

/// A program on this machine. Any number of threads may use it.
class Loaded {
public:
  Loaded(const File &file, const RuntimeOptions &options)
      : session(create(file, options)) {}

  /// Runs an entry on arrays where they lie: {name: array}. On a GPU, what the
  /// streams `producers` have by now is waited for.
  void call(const std::string &entryName, const py::dict &arrays,
            std::optional<uint64_t> stream, std::vector<uint64_t> producers) {
    const EntryInfo &entry = findEntry(entryName);
    std::vector<Argument> arguments;
    std::vector<py::object> owners;
    arguments.reserve(arrays.size());
    owners.reserve(arrays.size());
    for (auto [key, value] : arrays) {
      arguments.push_back({key.cast<std::string>(), {}});
      ProducerStream producer;
      HeldArray held = viewArray(
          value, useOf(entry, arguments.back().name, stream.value_or(0)),
          producer);
      arguments.back().array = std::move(held.array);
      owners.push_back(std::move(held.owner));
      if (producer)
        producers.push_back(*producer);
    }
    std::vector<Binding> bindings =
        take(session->bind(entry, arguments), kInputError);
    Status status;
    {
      py::gil_scoped_release release;
      status = session->run(entry, bindings, stream, producers);
    }
    nsa::check(status);
  }

  /// The same on copies of NumPy arrays: {input: array} -> {output: array}.
  py::dict run(const std::string &entryName, const py::dict &inputs) {
    const EntryInfo &entry = findEntry(entryName);
    std::vector<py::array> given = inputArrays(entry, inputs);
    std::vector<py::array> results;
    results.reserve(entry.outputs.size());
    for (unsigned index : entry.outputs)
      results.push_back(emptyArray(tensor(index)));
    std::vector<ArrayElements> from = elementsOf(given);
    std::vector<ArrayElements> to = elementsOf(results);
    use(&entry, [&](Program &program) -> Status {
      for (size_t i = 0; i < from.size(); ++i)
        if (from[i].data)
          copyToTensor(from[i], tensor(entry.inputs[i]));
      Status status = program.run(entry);
      for (size_t i = 0; status && i < to.size(); ++i) {
        status = program.toHost(tensor(entry.outputs[i]));
        copyFromTensor(tensor(entry.outputs[i]), to[i]);
      }
      return status;
    });
    py::dict outputs;
    for (size_t i = 0; i < results.size(); ++i)
      outputs[py::str(tensor(entry.outputs[i]).name)] = results[i];
    return outputs;
  }

  py::array read(const std::string &name) {
    TensorView tensor = take(session->program().tensor(name), kInputError);
    py::array value = emptyArray(tensor);
    ArrayElements to = ArrayElements::of(value);
    use(nullptr, [&](Program &program) -> Status {
      Status status = program.toHost(tensor);
      copyFromTensor(tensor, to);
      return status;
    });
    return value;
  }

  void write(const std::string &name, const py::array &value) {
    TensorView tensor = take(session->program().tensor(name), kInputError);
    py::array dense = take(arrayFor(tensor, value), kInputError);
    ArrayElements from = ArrayElements::of(dense);
    use(nullptr, [&](Program &program) -> Status {
      copyToTensor(from, tensor);
      return program.toDevice(tensor);
    });
  }

  void load(const Weights &weights) {
    use(
        nullptr, [&](Program &program) { return weights.load(program); },
        kInputError);
  }

  std::string device() const { return session->device().text(); }

  PreparedCall prepare(const std::string &entry,
                       const std::vector<std::string> &names) {
    return {*session, entry, names};
  }

  std::unique_ptr<Scheduler> schedule(bool prefills, bool consistent) {
    py::gil_scoped_release release;
    return take(Scheduler::create(*session, prefills, consistent), kInputError);
  }

private:
  static std::unique_ptr<Session> create(const File &file,
                                         const RuntimeOptions &options) {
    py::gil_scoped_release release;
    return take(Session::create(file.get(), options));
  }

  const TensorView &tensor(unsigned index) const {
    return session->program().tensors()[index];
  }

  const EntryInfo &findEntry(const std::string &name) const {
    return *take(session->program().entry(name), kInputError);
  }

  /// How an argument is used; one that the entry does not have is left to the
  /// session, which says so.
  ArrayUse useOf(const EntryInfo &entry, const std::string &name,
                 uint64_t stream) const {
    ArrayUse use;
    use.entry = &entry.name;
    use.argument = &name;
    use.stream = stream;
    use.gpu = session->device().number;
    const TensorView *found = session->program().findTensor(name);
    if (!found)
      return use;
    use.expected = found->type;
    for (unsigned index : entry.outputs)
      use.isWritten |= &tensor(index) == found;
    return use;
  }

  /// Calls `action` without the GIL, which takes nothing of Python: its holder
  /// may wait for the program.
  void use(const EntryInfo *entry,
           const std::function<Status(Program &)> &action,
           const char *kind = kRunError) {
    Status status;
    {
      py::gil_scoped_release release;
      status = session->use(entry, action);
    }
    nsa::check(status, kind);
  }

  static std::vector<ArrayElements>
  elementsOf(const std::vector<py::array> &arrays) {
    std::vector<ArrayElements> result;
    result.reserve(arrays.size());
    for (const py::array &array : arrays)
      result.push_back(array.is_none() ? ArrayElements()
                                       : ArrayElements::of(array));
    return result;
  }

  /// An array for each input of an entry, which is empty for one that need not
  /// be given.
  std::vector<py::array> inputArrays(const EntryInfo &entry,
                                     const py::dict &inputs) const {
    std::vector<py::array> arrays;
    std::vector<std::string> known;
    for (unsigned index : entry.inputs) {
      const TensorView &input = tensor(index);
      known.push_back(input.name);
      if (!inputs.contains(input.name) && !session->isNeeded(input)) {
        arrays.push_back(py::reinterpret_borrow<py::array>(py::none()));
        continue;
      }
      if (!inputs.contains(input.name))
        throw PythonError(kInputError, "entry '" + entry.name +
                                           "' needs the input '" + input.name +
                                           "'");
      py::array value = py::array::ensure(inputs[py::str(input.name)]);
      if (!value) {
        PyErr_Clear();
        throw PythonError(kInputError,
                          "input '" + input.name + "' is not an array");
      }
      arrays.push_back(take(arrayFor(input, value), kInputError));
    }
    for (auto item : inputs) {
      auto name = py::str(item.first).cast<std::string>();
      if (std::find(known.begin(), known.end(), name) == known.end())
        throw PythonError(kInputError, "entry '" + entry.name +
                                           "' has no input '" + name + "'" +
                                           suggestion(name, known));
    }
    return arrays;
  }

  std::unique_ptr<Session> session;
};

std::unique_ptr<Loaded> loadProgram(const File &file, int threads,
                                    uint64_t seed, bool checkFinite,
                                    bool poison, const std::string &blas,
                                    int device, bool externalMemory) {
  RuntimeOptions options;
  options.threads = threads;
  options.seed = seed;
  options.checkFinite = checkFinite;
  options.poison = poison;
  options.blasLibrary = blas;
  options.device = device;
  options.externalMemory = externalMemory;
  // NumPy may have opened OpenBLAS before.
  options.allowSlowGemm = true;
  return std::make_unique<Loaded>(file, options);
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

std::unique_ptr<Weights> openWeights(const std::string &path) {
  py::gil_scoped_release release;
  return std::make_unique<Weights>(take(Weights::open(path), kInputError));
}

/// {name: (type, shape)}
py::dict describeTensors(const Weights &weights) {
  py::dict result;
  for (const Weights::Tensor &tensor : weights.tensors())
    result[py::str(tensor.name)] = py::make_tuple(
        typeName(tensor.type), py::tuple(py::cast(tensor.shape)));
  return result;
}

py::array readWeight(const Weights &weights, const std::string &name) {
  for (const Weights::Tensor &tensor : weights.tensors())
    if (tensor.name == name) {
      std::string bytes(tensor.bytes, 0);
      check(weights.read(tensor, bytes.data()));
      TensorView view;
      view.name = tensor.name;
      view.type = tensor.type;
      view.shape = tensor.shape;
      view.data = bytes.data();
      view.bytes = tensor.bytes;
      py::array value = emptyArray(view);
      copyFromTensor(view, ArrayElements::of(value));
      return value;
    }
  throw PythonError(kInputError,
                    "'" + weights.path() + "' has no parameter " + quote(name));
}

/// Writes {name: array of f32} as a checkpoint; returns its folder.
std::string writeWeightsOf(const std::string &runDirectory,
                           const std::string &config, const std::string &name,
                           int64_t step, const py::dict &arrays,
                           const py::bytes &tokenizer,
                           const std::vector<std::string> &overrides) {
  using Dense = py::array_t<float, py::array::c_style>;
  std::vector<Dense> owners;
  std::vector<NewWeight> weights;
  for (auto [key, value] : arrays) {
    if (!py::isinstance<Dense>(value))
      throw PythonError(kInputError, "parameter '" + key.cast<std::string>() +
                                         "' is not a dense array of float32");
    owners.push_back(value.cast<Dense>());
    const Dense &array = owners.back();
    weights.push_back({key.cast<std::string>(),
                       {array.shape(), array.shape() + array.ndim()},
                       array.data()});
  }
  std::string text(tokenizer);
  py::gil_scoped_release release;
  return take(
      writeWeights(runDirectory, config, name, step, weights, text, overrides),
      kInputError);
}

//===----------------------------------------------------------------------===//
// The cache
//===----------------------------------------------------------------------===//

/// The contents of an artefact from the cache, or what `compile` returns.
py::bytes getCached(const std::string &name, const std::string &source,
                    const std::string &inputs, const py::function &compile,
                    const py::function &say) {
  std::exception_ptr raised;
  auto make = [&](const std::string &, const std::string &path) -> Status {
    py::gil_scoped_acquire acquire;
    try {
      auto made = compile().cast<std::string>();
      py::gil_scoped_release release;
      return writeFileAtomically(path, made);
    } catch (...) {
      raised = std::current_exception();
      return Error{""};
    }
  };
  auto tell = [&](const std::string &line) {
    py::gil_scoped_acquire acquire;
    try {
      say(line);
    } catch (py::error_already_set &error) {
      error.discard_as_unraisable("nsa");
    }
  };
  CompileInputs key;
  key.model = source;
  key.options = {inputs};
  Result<std::string> bytes = Error{""};
  {
    py::gil_scoped_release release;
    Result<ArtifactCache> cache = ArtifactCache::open(readVariable);
    bytes = cache ? cache->read(name, key, make, tell) : cache.takeError();
  }
  if (raised)
    std::rethrow_exception(raised);
  return take(std::move(bytes), kRunError);
}

//===----------------------------------------------------------------------===//
// Exceptions
//===----------------------------------------------------------------------===//

/// Defines an exception in the module under the package's name.
py::object defineError(py::module_ &m, const char *name, const char *help,
                       const py::tuple &bases) {
  std::string full = std::string("nsa.") + name;
  auto error = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      full.c_str(), help, bases.ptr(), /*dict=*/nullptr));
  if (!error)
    throw py::error_already_set();
  m.attr(name) = error;
  return error;
}

void defineErrors(py::module_ &m) {
  auto builtin = [](PyObject *type) {
    return py::reinterpret_borrow<py::object>(type);
  };
  py::object error =
      defineError(m, "Error", "What every error of the package is.",
                  py::make_tuple(builtin(PyExc_Exception)));
  py::object input = defineError(
      m, kInputError,
      "Something that was given is wrong: an array, a name, a value or a file.",
      py::make_tuple(error, builtin(PyExc_ValueError)));
  defineError(m, kCompileError,
              "The source or the value of an option is wrong; the message is "
              "what the compiler reported, with lines and columns.",
              py::make_tuple(input));
  defineError(m, kOptionError,
              "There is no such option, or it takes another type.",
              py::make_tuple(input, builtin(PyExc_TypeError)));
  defineError(m, kRunError,
              "This machine cannot load the program, or a run failed.",
              py::make_tuple(error, builtin(PyExc_RuntimeError)));
}

} // namespace

PYBIND11_MODULE(_runtime, m) {
  m.doc() = "Programs of nsa, loaded and run.";
  m.attr("__version__") = NSA_VERSION;
  defineErrors(m);
  registerErrors();
  defineData(m);

  py::class_<File>(m, "Artifact", "A compiled program, of any machine.")
      .def(py::init([](const py::bytes &data, const std::string &name) {
             return std::make_unique<File>(std::string(data), name);
           }),
           py::arg("data"), py::arg("name"))
      .def("save", &File::save, py::arg("path"))
      .def("with_extents", &File::withExtents, py::arg("values"))
      .def_property_readonly("extents", &File::extents)
      .def_property_readonly("bytes", &File::bytes)
      .def_property_readonly("entries", &File::entries)
      .def_property_readonly("tensors", &File::tensors)
      .def_property_readonly("options", &File::options)
      .def_property_readonly("target", &File::target)
      .def_property_readonly("cpu", &File::cpu)
      .def_property_readonly("name", &File::name)
      .def_property_readonly("config", &File::config)
      .def_property_readonly("ptx", &File::ptx);
  m.def("cached", &getCached, py::arg("name"), py::arg("source"),
        py::arg("inputs"), py::arg("compile"), py::arg("say"));
  m.def("is_cache_off", [] { return ArtifactCache::isOff(readVariable); });
  m.def("read_artifact", &readArtifact, py::arg("path"));

  py::class_<Loaded>(m, "Program", "A program on this machine.")
      .def("call", &Loaded::call, py::arg("entry"), py::arg("arrays"),
           py::arg("stream") = std::nullopt,
           py::arg("producers") = std::vector<uint64_t>())
      .def("run", &Loaded::run, py::arg("entry"), py::arg("inputs"))
      .def("read", &Loaded::read, py::arg("name"))
      .def("write", &Loaded::write, py::arg("name"), py::arg("value"))
      .def("load", &Loaded::load, py::arg("weights"))
      .def("prepare", &Loaded::prepare, py::arg("entry"), py::arg("names"),
           py::keep_alive<0, 1>())
      .def("schedule", &Loaded::schedule, py::arg("prefills"),
           py::arg("consistent"), py::keep_alive<0, 1>())
      .def_property_readonly("device", &Loaded::device);
  definePreparedCall(m);
  defineScheduling(m);
  py::class_<Weights>(m, "Weights", "The parameters of a checkpoint.")
      .def_property_readonly("path", &Weights::path)
      .def_property_readonly("step", &Weights::step)
      .def_property_readonly("config", &Weights::config)
      .def_property_readonly("model_config", &Weights::modelConfig)
      .def_property_readonly("precision", &Weights::precision)
      .def_property_readonly("tensors", &describeTensors)
      .def("read", &readWeight, py::arg("name"));
  m.def("open_weights", &openWeights, py::arg("path"));
  m.def("write_weights", &writeWeightsOf, py::arg("run_directory"),
        py::arg("config"), py::arg("name"), py::arg("step"), py::arg("arrays"),
        py::arg("tokenizer"), py::arg("overrides"));
  m.def(
      "model_config",
      [](const std::string &config, const std::string &name,
         const std::vector<std::string> &overrides) {
        return take(resolveModelConfig(config, name, overrides), kInputError);
      },
      py::arg("config"), py::arg("name"), py::arg("overrides"));
  m.def("load", &loadProgram, py::arg("artifact"), py::kw_only(),
        py::arg("threads"), py::arg("seed"), py::arg("check_finite"),
        py::arg("poison"), py::arg("blas_library"), py::arg("device"),
        py::arg("external_memory") = false);
}
