//===- CompilerModule.cpp - the Python module `nsa._compiler` -------------===//

#include "lib/Python/Errors.h"
#include "lib/Support/Suggest.h"
#include "nsa/Compiler/Compiler.h"
#include "nsa/Compiler/Options.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

namespace py = pybind11;

using namespace nsa;

namespace {

/// "micro-batch" as a keyword of Python.
std::string toKeyword(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

template <typename Value>
Value castOption(const std::string &keyword, py::handle value,
                 const char *expected) {
  try {
    return value.cast<Value>();
  } catch (const py::cast_error &) {
    throw py::type_error("option '" + keyword + "' takes " + expected +
                         ", not " + py::repr(value).cast<std::string>());
  }
}

void setOption(std::string &option, const std::string &keyword,
               py::handle value) {
  option = castOption<std::string>(keyword, value, "a string");
}
void setOption(int64_t &option, const std::string &keyword, py::handle value) {
  option = castOption<int64_t>(keyword, value, "an integer");
}
void setOption(bool &option, const std::string &keyword, py::handle value) {
  option = castOption<bool>(keyword, value, "True or False");
}
void setOption(std::vector<std::string> &option, const std::string &keyword,
               py::handle value) {
  option =
      castOption<std::vector<std::string>>(keyword, value, "a list of strings");
}

/// Those of nsa-compile, but that any path may be slow.
CompilerOptions defaultOptions() {
  CompilerOptions options;
  options.allowSlowPaths = {"all"};
  return options;
}

CompilerOptions makeCompilerOptions(const py::kwargs &keywords) {
  CompilerOptions options = defaultOptions();
  std::vector<std::string> known;
  for (const OptionField &field : optionFields())
    known.push_back(toKeyword(field.name));
  for (auto [key, value] : keywords) {
    auto keyword = key.cast<std::string>();
    auto found = std::find(known.begin(), known.end(), keyword);
    if (found == known.end())
      throw py::type_error("unknown option '" + keyword + "'" +
                           suggestion(keyword, known));
    const OptionField &field = optionFields()[found - known.begin()];
    std::visit([&, &value = value](
                   auto member) { setOption(options.*member, keyword, value); },
               field.member);
  }
  return options;
}

/// A line for each option, with its default.
std::string describeOptions() {
  std::string text;
  for (const OptionField &field : optionFields()) {
    std::string value = field.read(defaultOptions());
    bool isList =
        std::holds_alternative<std::vector<std::string> CompilerOptions::*>(
            field.member);
    if (std::holds_alternative<bool CompilerOptions::*>(field.member))
      value = "False";
    else if (isList)
      value = value.empty() ? "[]" : "['" + value + "']";
    else if (std::holds_alternative<std::string CompilerOptions::*>(
                 field.member))
      value = "'" + value + "'";
    text +=
        "\n" + toKeyword(field.name) + "=" + value + ": " + field.help + ".";
  }
  return text;
}

py::bytes compileArtifact(const std::string &text, const std::string &name,
                          const py::kwargs &keywords) {
  CompilerOptions options = makeCompilerOptions(keywords);
  CompiledArtifact artifact;
  {
    py::gil_scoped_release release;
    artifact = take(compile(text, name, options));
  }
  return py::bytes(artifact.bytes);
}

std::string compileText(const std::string &phase, const std::string &text,
                        const std::string &name, const py::kwargs &keywords) {
  CompilerOptions options = makeCompilerOptions(keywords);
  py::gil_scoped_release release;
  return take(compileTo(phase, text, name, options));
}

} // namespace

PYBIND11_MODULE(_compiler, m) {
  m.doc() = "The compiler of nsa.";
  m.attr("__version__") = NSA_VERSION;
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const PythonError &error) {
      py::set_error(py::module_::import("nsa._runtime").attr("Error"),
                    error.what());
    }
  });
  m.def("compile", &compileArtifact, py::arg("text"), py::kw_only(),
        py::arg("name") = "module.mlir", "The contents of a .nsax file.");
  m.def("compile_to", &compileText, py::arg("phase"), py::arg("text"),
        py::kw_only(), py::arg("name") = "module.mlir",
        "The IR after a phase, as text.");
  m.attr("OPTIONS") = describeOptions();
  m.attr("PHASES") = py::cast(compilerPhases());
}
