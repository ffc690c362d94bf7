//===- Scheduling.cpp - many prompts at once in nsa._runtime --------------===//

#include "lib/Python/Scheduling.h"
#include "lib/Python/Errors.h"
#include "nsa/Runtime/StopText.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

namespace py = pybind11;

using namespace nsa;

namespace {

/// What `action` returns, which takes nothing of Python.
template <typename Action>
auto run(const Action &action, const char *kind = kRunError) {
  auto result = [&] {
    py::gil_scoped_release release;
    return action();
  }();
  return take(std::move(result), kind);
}

uint64_t add(Scheduler &self, std::vector<int32_t> prompt, int64_t tokens,
             double temperature, int64_t topK, double topP, uint64_t seed,
             uint64_t stream, std::vector<int32_t> ends,
             std::vector<int32_t> excluded, std::vector<int32_t> given,
             int64_t logprobs) {
  Request request{std::move(prompt),
                  tokens,
                  {temperature, topK, topP},
                  seed,
                  stream,
                  std::move(ends),
                  std::move(excluded),
                  std::move(given),
                  logprobs};
  return run([&] { return self.add(std::move(request)); }, kInputError);
}

/// [(request, id, why it was the last one or None, [(id, logprob)])]
py::list step(Scheduler &self) {
  py::list result;
  const char *const names[] = {nullptr, "stop", "length", "not finite"};
  for (const GeneratedToken &token : run([&] { return self.step(); })) {
    py::list logprobs;
    for (const TokenLogprob &own : token.logprobs)
      logprobs.append(py::make_tuple(own.token, own.logprob));
    result.append(py::make_tuple(token.request, token.token,
                                 names[int(token.finish)], logprobs));
  }
  return result;
}

/// (requests that wait, requests that have a slot)
std::pair<size_t, size_t> count(Scheduler &self) {
  Scheduler::Count found = run([&] { return self.count(); });
  return {found.waiting, found.running};
}

/// int32 [layers, heads, tokens, count]
py::array selection(Scheduler &self, uint64_t request) {
  Selection found = run([&] { return self.selection(request); });
  py::array_t<int32_t> result(
      {found.layers, found.heads, found.tokens, found.count});
  std::copy(found.blocks.begin(), found.blocks.end(), result.mutable_data());
  return result;
}

} // namespace

void nsa::defineScheduling(py::module_ &m) {
  py::class_<Scheduler>(m, "Scheduler", "Many prompts at once, by a program.")
      .def("add", &add, py::arg("prompt"), py::kw_only(), py::arg("tokens"),
           py::arg("temperature"), py::arg("top_k"), py::arg("top_p"),
           py::arg("seed"), py::arg("stream"), py::arg("ends"),
           py::arg("excluded"), py::arg("given"), py::arg("logprobs"))
      .def(
          "cancel",
          [](Scheduler &self, uint64_t request) {
            return run([&] { return self.cancel(request); });
          },
          py::arg("request"))
      .def("step", &step)
      .def("count", &count)
      .def("selection", &selection, py::arg("request"))
      .def_property_readonly("slots", &Scheduler::slots)
      .def_property_readonly("context", &Scheduler::context)
      .def_property_readonly("longest", &Scheduler::longest);
  py::class_<StopText>(m, "StopText",
                       "Passes a text on up to the first of some strings.")
      .def(py::init<std::vector<std::string>>(), py::arg("stops"))
      .def("push", &StopText::push, py::arg("piece"))
      .def("finish", &StopText::finish)
      .def_property_readonly("stopped", &StopText::stopped);
}
