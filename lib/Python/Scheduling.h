//===- Scheduling.h - many prompts at once in nsa._runtime ------*- C++ -*-===//

#ifndef NSA_LIB_PYTHON_SCHEDULING_H
#define NSA_LIB_PYTHON_SCHEDULING_H

#include "nsa/Runtime/Scheduler.h"

#include <pybind11/pybind11.h>

namespace nsa {

/// Defines the classes `Scheduler` and `StopText` of Python.
void defineScheduling(pybind11::module_ &module);

} // namespace nsa

#endif // NSA_LIB_PYTHON_SCHEDULING_H
