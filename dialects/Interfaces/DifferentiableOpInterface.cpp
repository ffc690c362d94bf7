//===- DifferentiableOpInterface.cpp --------------------------------------===//

#include "dialects/Interfaces/DifferentiableOpInterface.h"

#include "dialects/Interfaces/DifferentiableOpInterface.cpp.inc"
