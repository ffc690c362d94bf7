//===- GraphOp.td - methods of operations on tensors ------------*- tablegen -*-===//

#ifndef NSA_INTERFACES_GRAPHOP_TD
#define NSA_INTERFACES_GRAPHOP_TD

/// What an operation on tensors says in its definition, and the methods that
/// are made of it: let `extraClassDefinition` be `graphMethods`.
class NSA_GraphMethods {
  code resultNames = [{}];
  /// The types of the results, where expressions say them, and a range of those
  /// of a variadic one after them; of other operations `inferReturnTypes` is
  /// written out.
  code resultTypes = [{}];
  code lastResultTypes = [{}];
  /// The operation whose results are the gradients of the first operands, from
  /// `resultGrads`; the others have none. For an op with
  /// DifferentiableOpInterface, of which `buildBackward` is written out else.
  code backward = [{}];
  /// Of operand `index`, for an op with PrecisionOpInterface.
  code operandPrecision = [{}];
  code graphMethods = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      static constexpr ::llvm::StringLiteral names[] = {
  }] # resultNames # [{
      };
      for (auto [result, name] : ::llvm::zip((*this)->getResults(), names))
        setName(result, name);
    }
  }] # !if(!empty(resultTypes # lastResultTypes), "", [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(
        ::mlir::MLIRContext *context, ::std::optional<::mlir::Location>,
        Adaptor adaptor, ::llvm::SmallVectorImpl<::mlir::Type> &types) {
  }] # !if(!empty(resultTypes), "", "types.append({" # resultTypes # "});")
     # !if(!empty(lastResultTypes), "",
           "::llvm::append_range(types, " # lastResultTypes # ");") # [{
      return ::mlir::success();
    }
  }]) # !if(!empty(backward), "", [{
    ::llvm::LogicalResult $cppClass::buildBackward(
        ::mlir::OpBuilder &builder, ::mlir::ValueRange resultGrads,
        ::llvm::SmallVectorImpl<::mlir::Value> &operandGrads) {
      auto backward = }] # backward # [{;
      ::llvm::append_range(operandGrads, backward->getResults());
      operandGrads.append(
          (*this)->getNumOperands() - backward->getNumResults(), {});
      return ::mlir::success();
    }
  }]) # !if(!empty(operandPrecision), "", [{
    ::nsa::OperandPrecision $cppClass::getOperandPrecision(unsigned index) {
      return }] # operandPrecision # [{;
    }
  }]);
}

#endif // NSA_INTERFACES_GRAPHOP_TD
