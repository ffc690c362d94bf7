//===- PrecisionOpInterface.cpp -------------------------------------------===//

#include "dialects/Interfaces/PrecisionOpInterface.h"

#include "dialects/Interfaces/PrecisionOpInterface.cpp.inc"
