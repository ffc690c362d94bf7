//===- RTInterfaces.td - what all commands have in common -------*- tablegen -*-===//

#ifndef NSA_DIALECTS_RT_RTINTERFACES_TD
#define NSA_DIALECTS_RT_RTINTERFACES_TD

include "mlir/IR/OpBase.td"

def RT_CommandOpInterface : OpInterface<"CommandOpInterface"> {
  let cppNamespace = "::nsa::rt";
  let description = [{
    A command of an entry. Scheduling and planning see a command only through
    the memory that it reads and writes. A value that is both read and written
    is updated in place.
  }];
  let methods = [
    InterfaceMethod<[{
      Appends the operands that are read: those that are declared so.
    }], "void", "getReads",
      (ins "::llvm::SmallVectorImpl<::mlir::Value> &":$values),
      /*methodBody=*/"", /*defaultImplementation=*/[{
        ::nsa::rt::appendAccessed<::mlir::MemoryEffects::Read>($_op, values);
      }]>,
    InterfaceMethod<[{
      Appends the operands that are written, each completely.
    }], "void", "getWrites",
      (ins "::llvm::SmallVectorImpl<::mlir::Value> &":$values),
      /*methodBody=*/"", /*defaultImplementation=*/[{
        ::nsa::rt::appendAccessed<::mlir::MemoryEffects::Write>($_op, values);
      }]>,
    InterfaceMethod<[{
      Bytes of scratch memory that the command needs while it runs.
    }], "uint64_t", "getWorkspaceSize", (ins), /*methodBody=*/"",
      /*defaultImplementation=*/"return 0;">,
    InterfaceMethod<[{
      Gives the command its scratch memory. Called if it needs some.
    }], "void", "assignWorkspace", (ins "::nsa::rt::SliceAttr":$slice),
      /*methodBody=*/"", /*defaultImplementation=*/"return;">
  ];
}

#endif // NSA_DIALECTS_RT_RTINTERFACES_TD
