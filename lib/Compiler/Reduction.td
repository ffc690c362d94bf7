//===- Reduction.td - passes that make failing files small ----*- tablegen -*-===//

#ifndef NSA_LIB_COMPILER_REDUCTION_TD
#define NSA_LIB_COMPILER_REDUCTION_TD

include "mlir/Pass/PassBase.td"

def ReduceFunctions : Pass<"nsa-reduce-functions", "::mlir::ModuleOp"> {
  let summary = "Reduce functions on tensors while a failure persists";
  let description = [{
    Runs the program `test` on smaller and smaller modules and keeps each that it
    finds interesting: it gets the name of a file as its last argument and exits
    with 0 for a module that is not interesting, as `reduction-tree` of MLIR
    expects.

    In a straight-line function every operation but the last is needed by
    another, so operations cannot simply be erased. This pass tries, until
    nothing more goes: to erase whole functions; to replace the results of
    operations by `nn.fill 0.0`, many at a time first, or by an operand of the
    same type; to erase operations without users; to return fewer values; to
    erase unused arguments.

    A module that is not interesting from the start is an error.
  }];
  let dependentDialects = ["::nsa::nn::NNDialect"];
  let options = [
    Option<"test", "test", "std::string", /*default=*/"",
           "The program that says whether a module is interesting">,
    ListOption<"testArgs", "test-arg", "std::string",
               "Arguments of the program, before the file">,
  ];
}

#endif // NSA_LIB_COMPILER_REDUCTION_TD
