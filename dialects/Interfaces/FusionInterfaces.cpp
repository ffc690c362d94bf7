//===- FusionInterfaces.cpp - what one kernel may compute -----------------===//

#include "dialects/Interfaces/FusionInterfaces.h"

#include "dialects/Interfaces/FusionInterfaces.cpp.inc"
