//===- DataModule.h - data sets in nsa._runtime -----------------*- C++ -*-===//

#ifndef NSA_LIB_PYTHON_DATAMODULE_H
#define NSA_LIB_PYTHON_DATAMODULE_H

#include <pybind11/pybind11.h>

namespace nsa {

/// Adds what nsa.data is made of.
void defineData(pybind11::module_ &m);

} // namespace nsa

#endif // NSA_LIB_PYTHON_DATAMODULE_H
