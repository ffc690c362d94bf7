//===- CompilerModule.cpp - the Python module `nsa._compiler` -------------===//

#include "lib/Python/Errors.h"
#include "lib/Support/Process.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Compiler/Compiler.h"
#include "nsa/Compiler/Options.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

namespace py = pybind11;

using namespace nsa;

namespace {

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

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
    throw PythonError(kOptionError, "option '" + keyword + "' takes " +
                                        expected + ", not " +
                                        py::repr(value).cast<std::string>());
  }
}

void setOption(std::string &option, const std::string &keyword,
               py::handle value) {
  option = castOption<std::string>(keyword, value, "a string");
}
void setOption(int64_t &option, const std::string &keyword, py::handle value) {
  option = castOption<int64_t>(keyword, value, "an integer");
}
void setOption(unsigned &option, const std::string &keyword, py::handle value) {
  option = castOption<unsigned>(keyword, value, "a number from 0");
}
void setOption(bool &option, const std::string &keyword, py::handle value) {
  option = castOption<bool>(keyword, value, "True or False");
}
void setOption(std::vector<std::string> &option, const std::string &keyword,
               py::handle value) {
  option =
      castOption<std::vector<std::string>>(keyword, value, "a list of strings");
}

/// The options of a compilation.
struct Request {
  CompilerOptions compiler;
  DebugOptions debug;
};

/// An option that the artefact does not depend on, with the name that
/// nsa-compile gives it.
struct DebugField {
  using Member =
      std::variant<std::string DebugOptions::*, unsigned DebugOptions::*>;
  const char *name;
  Member member;
  const char *help;
};

const std::vector<DebugField> &debugFields() {
  static const std::vector<DebugField> fields = {
      {"save_phases", &DebugOptions::savePhases,
       "Folder for the IR after each phase"},
      {"save_kernels", &DebugOptions::saveKernels,
       "Folder for each kernel at each level"},
      {"remarks_filter", &DebugOptions::remarks,
       "Regular expression of passes that say what they decided"},
      {"columns", &DebugOptions::columns,
       "Columns after which lines of IR are broken; 0 leaves them"}};
  return fields;
}

/// Whether a keyword is an option of MLIR's pass managers: mlir_print_ir_after
/// is --mlir-print-ir-after.
bool isPassManagerOption(const std::string &keyword) {
  return keyword.rfind("mlir_", 0) == 0;
}

void addPassManagerOption(DebugOptions &options, const std::string &keyword,
                          py::handle value) {
  std::string text = "--" + keyword;
  std::replace(text.begin(), text.end(), '_', '-');
  if (py::isinstance<py::bool_>(value)) {
    text += value.cast<bool>() ? "=true" : "=false";
  } else if (py::isinstance<py::str>(value)) {
    text += "=" + value.cast<std::string>();
  } else {
    char between = '=';
    for (const std::string &item : castOption<std::vector<std::string>>(
             keyword, value, "True, a string or a list of strings"))
      text += std::exchange(between, ',') + item;
  }
  options.passManagers.push_back(text);
}

/// Those of nsa-compile, but that any path may be slow.
Request defaultRequest() {
  Request request;
  request.compiler.allowSlowPaths = {"all"};
  return request;
}

constexpr const char *ptxasKeyword = "ptxas",
                     *threadsKeyword = "compile_threads";

void setKeyword(Request &request, const std::string &keyword,
                py::handle value) {
  std::vector<std::string> known = {ptxasKeyword, threadsKeyword};
  if (isPassManagerOption(keyword))
    return addPassManagerOption(request.debug, keyword, value);
  if (keyword == ptxasKeyword)
    return setOption(request.compiler.ptxas, keyword, value);
  if (keyword == threadsKeyword)
    return setOption(request.compiler.threads, keyword, value);
  for (const OptionField &field : optionFields()) {
    known.push_back(toKeyword(field.name));
    if (keyword == known.back())
      return std::visit(
          [&](auto member) {
            setOption(request.compiler.*member, keyword, value);
          },
          field.member);
  }
  for (const DebugField &field : debugFields()) {
    known.emplace_back(field.name);
    if (keyword == field.name)
      return std::visit(
          [&](auto member) {
            setOption(request.debug.*member, keyword, value);
          },
          field.member);
  }
  throw PythonError(kOptionError, "unknown option '" + keyword + "'" +
                                      suggestion(keyword, known));
}

/// Options that the target does not look at are mistakes.
void checkUnused(const Request &request, const py::dict &keywords) {
  bool isCPU = request.compiler.target == artifact::cpuTarget;
  const char *unused = isCPU ? ptxasKeyword : "cpu";
  if (keywords.contains(unused))
    throw PythonError(kOptionError, std::string("option '") + unused +
                                        "' has no effect for the target " +
                                        quote(request.compiler.target));
}

Request makeRequest(const py::dict &keywords) {
  Request request = defaultRequest();
  for (auto [key, value] : keywords)
    setKeyword(request, key.cast<std::string>(), value);
  checkUnused(request, keywords);
  std::string &ptxas = request.compiler.ptxas;
  if (ptxas == "none")
    ptxas.clear();
  else if (ptxas.empty() && request.compiler.target != artifact::cpuTarget)
    ptxas = findPtxas(readVariable);
  return request;
}

/// A line for each option, with its default.
std::string describeOptions() {
  std::string text;
  CompilerOptions defaults = defaultRequest().compiler;
  for (const OptionField &field : optionFields()) {
    std::string value = field.read(defaults);
    if (std::holds_alternative<bool CompilerOptions::*>(field.member))
      value = value == "true" ? "False" : "True";
    else if (std::holds_alternative<
                 std::vector<std::string> CompilerOptions::*>(field.member))
      value = value.empty() ? "[]" : "['" + value + "']";
    else if (std::holds_alternative<std::string CompilerOptions::*>(
                 field.member))
      value = "'" + value + "'";
    text +=
        "\n" + toKeyword(field.name) + "=" + value + ": " + field.help + ".";
  }
  text += "\nptxas='': The program ptxas, 'none' to leave PTX to the driver; "
          "where nsa-compile looks for it if it is not given."
          "\ncompile_threads=2: Threads that compile.";
  for (const DebugField &field : debugFields())
    text += std::string("\n") + field.name + ": " + field.help + ".";
  text +=
      "\nmlir_...: An option of MLIR's pass managers (nsa-opt --help), such "
      "as mlir_timing=True or mlir_print_ir_after=['nsa-fuse'].";
  return text;
}

//===----------------------------------------------------------------------===//
// Compilations
//===----------------------------------------------------------------------===//

/// An artefact or a text, its report, and warnings and remarks.
using Compiled = std::tuple<py::bytes, CompileReport, std::string>;

Compiled compileArtifact(const std::string &source, const std::string &name,
                         const py::dict &keywords) {
  Request request = makeRequest(keywords);
  std::string messages;
  request.debug.messages = &messages;
  CompiledArtifact artifact;
  {
    py::gil_scoped_release release;
    artifact = take(compile(source, name, request.compiler, request.debug),
                    kCompileError);
  }
  return {py::bytes(artifact.bytes), std::move(artifact.report), messages};
}

std::string compileText(const std::string &phase, const std::string &source,
                        const std::string &name, const py::dict &keywords) {
  Request request = makeRequest(keywords);
  py::gil_scoped_release release;
  return take(compileTo(phase, source, name, request.compiler, request.debug),
              kCompileError);
}

/// What decides the artefact besides the source and its name, and whether that
/// is all that a compilation is for: no debug option is set.
std::pair<std::string, bool> describeRequest(const py::dict &keywords) {
  Request request = makeRequest(keywords);
  bool hasDebugOption = !request.debug.passManagers.empty();
  for (const DebugField &field : debugFields())
    hasDebugOption |= keywords.contains(field.name);
  py::gil_scoped_release release;
  return {take(describeInputs(request.compiler), kCompileError),
          !hasDebugOption};
}

CompileReport estimateProgram(const std::string &source,
                              const std::string &name,
                              const py::dict &keywords) {
  Request request = makeRequest(keywords);
  py::gil_scoped_release release;
  return take(estimate(source, name, request.compiler, request.debug),
              kCompileError);
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

py::dict describe(const CommandReport &command) {
  py::dict row;
  row["entry"] = command.entry;
  row["number"] = command.number;
  row["kind"] = command.kind;
  row["call"] = command.call;
  row["flops"] = command.flops;
  row["bytes"] = command.bytes;
  row["registers"] = command.registers;
  row["location"] = command.location;
  row["layer"] = command.layer;
  row["backward"] = command.backward;
  return row;
}

py::list describeTable(const CompileReport &report) {
  py::list rows;
  for (const CommandReport &command : report.table)
    rows.append(describe(command));
  return rows;
}

py::dict describePeaks(const CompileReport &report) {
  py::dict peaks;
  for (const ActivationPeak &peak : report.peaks)
    peaks[py::str(peak.entry)] = peak.bytes;
  return peaks;
}

py::dict describeSeconds(const CompileReport &report) {
  py::dict seconds;
  for (const auto &[phase, time] : report.seconds)
    seconds[py::str(phase)] = time;
  return seconds;
}

uint64_t totalBytes(const CompileReport &report) {
  return report.persistentBytes + report.ioBytes + report.arenaBytes +
         report.workspaceBytes;
}

void defineReport(py::module_ &m) {
  py::class_<CompileReport>(
      m, "Report",
      "What a compilation made, in numbers. str() is a text for people.")
      .def_readonly("kernels", &CompileReport::kernels, "Different kernels.")
      .def_readonly("persistent_bytes", &CompileReport::persistentBytes,
                    "Parameters, gradients, states and constants.")
      .def_readonly("io_bytes", &CompileReport::ioBytes, "Inputs and outputs.")
      .def_readonly("arena_bytes", &CompileReport::arenaBytes,
                    "Values that live while an entry runs.")
      .def_readonly("live_bytes", &CompileReport::liveBytes,
                    "The least that any plan of the arena takes.")
      .def_readonly("workspace_bytes", &CompileReport::workspaceBytes,
                    "Memory of the library of matmuls.")
      .def_readonly("binary_bytes", &CompileReport::binaryBytes,
                    "Machine code; 0 where none was made.")
      .def_property_readonly("total_bytes", &totalBytes,
                             "What a loaded program allocates.")
      .def_property_readonly("commands", &describeTable,
                             "A dict for each command, by entry and position.")
      .def_property_readonly("peaks", &describePeaks,
                             "{entry: bytes of the arena that it uses}")
      .def_property_readonly("seconds", &describeSeconds, "{phase: seconds}")
      .def_property_readonly("memory", &formatMemory,
                             "The memory by segment and kind, as text.")
      .def("__str__", &formatCommands)
      .def("__repr__", [](const CompileReport &report) {
        return "<nsa.Report: " + std::to_string(report.kernels) + " kernels, " +
               std::to_string(report.table.size()) + " commands, " +
               grouped(totalBytes(report)) + " bytes>";
      });
}

} // namespace

PYBIND11_MODULE(_compiler, m) {
  m.doc() = "The compiler of nsa.";
  m.attr("__version__") = NSA_VERSION;
  registerErrors();
  defineReport(m);
  m.def("compile", &compileArtifact, py::arg("source"), py::arg("name"),
        py::arg("options"),
        "The contents of a .nsax file, a report and messages.");
  m.def("compile_to", &compileText, py::arg("phase"), py::arg("source"),
        py::arg("name"), py::arg("options"), "The IR after a phase, as text.");
  m.def("estimate", &estimateProgram, py::arg("source"), py::arg("name"),
        py::arg("options"), "A report without machine code.");
  m.def("describe", &describeRequest, py::arg("options"),
        "What the artefact depends on besides the source, and whether nothing "
        "else was asked for.");
  m.def(
      "model_text",
      [](const std::string &config, const std::string &name) {
        return take(makeModelText(config, name), kCompileError);
      },
      py::arg("config"), py::arg("name"),
      "The text of the model that a configuration describes.");
  m.def("find_ptxas", [] { return findPtxas(readVariable); });
  m.attr("OPTIONS") = describeOptions();
  m.attr("PHASES") = py::cast(compilerPhases());
  m.attr("GPU_PHASES") = py::cast(gpuPhases());
}
