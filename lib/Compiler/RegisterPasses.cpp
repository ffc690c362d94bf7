//===- RegisterPasses.cpp - the passes of the compiler tools --------------===//

#include "lib/Compiler/Registration.h"
#ifdef NSA_HAVE_NSATransforms
#include "passes/Transforms/Passes.h"
#endif
#ifdef NSA_HAVE_NSAConversion
#include "passes/Conversion/Passes.h"
#endif
#ifdef NSA_HAVE_NSATensorToRT
#include "passes/Conversion/TensorToRT/Passes.h"
#endif
#include "mlir/Transforms/Passes.h"

void nsa::registerPasses() {
  mlir::registerCanonicalizer();
  mlir::registerCSE();
  mlir::registerSymbolDCE();
#ifdef NSA_HAVE_NSATransforms
  registerNSATransformsPasses();
#endif
#ifdef NSA_HAVE_NSAConversion
  registerNSAConversionPasses();
#endif
#ifdef NSA_HAVE_NSATensorToRT
  registerNSATensorToRTPasses();
#endif
}
