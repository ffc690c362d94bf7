//===- TensorTypes.td - operand types of the graph dialects -----*- tablegen -*-===//
//
// Type constraints that the nsa and nn dialects share: ranked tensors of static
// shape. Activations are token-major ([batch, sequence, ...]).
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_TENSORTYPES_TD
#define NSA_INTERFACES_TENSORTYPES_TD

include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/CommonTypeConstraints.td"

/// Element types of activations and weights.
def NSA_FloatElement : AnyTypeOf<[F32, BF16, F16]>;

class NSA_StaticTensor<list<Type> elements>
    : StaticShapeTensorOf<elements>;
class NSA_StaticTensorOfRank<list<Type> elements, int rank>
    : ConfinedType<TensorRankOf<elements, [rank]>, [HasStaticShapePred],
                   "statically shaped " # rank # "D tensor of " #
                   !interleave(!foreach(e, elements, e.summary), " or ") #
                   " values",
                   "::mlir::RankedTensorType">;

/// Any rank.
def NSA_FloatTensor : NSA_StaticTensor<[NSA_FloatElement]>;
def NSA_F32Tensor : NSA_StaticTensor<[F32]>;
def NSA_I32Tensor : NSA_StaticTensor<[I32]>;

/// Any rank but 0: rows along the last dimension.
def NSA_FloatRows : ConfinedType<NSA_FloatTensor,
    [CPred<"::llvm::cast<::mlir::ShapedType>($_self).getRank() > 0">],
    "statically shaped tensor of 32-bit float or bfloat16 type or 16-bit float "
    "values with at least one dimension", "::mlir::RankedTensorType">;

/// A given rank.
class NSA_FloatTensorOfRank<int rank>
    : NSA_StaticTensorOfRank<[NSA_FloatElement], rank>;
class NSA_F32TensorOfRank<int rank> : NSA_StaticTensorOfRank<[F32], rank>;
class NSA_I32TensorOfRank<int rank> : NSA_StaticTensorOfRank<[I32], rank>;

/// Sizes that kernels count with: they compute with 32 bits.
def NSA_Within31Bits : AttrConstraint<
    CPred<"::llvm::cast<::mlir::IntegerAttr>($_self).getInt() <= 0x7fffffff">,
    "and at most 2147483647 (it is {{$_self}})">;
class NSA_IndexAttr<AttrConstraint minimum>
    : ConfinedAttr<I64Attr, [minimum, NSA_Within31Bits]>;
def NSA_PositiveI64 : NSA_IndexAttr<IntPositive>;
def NSA_NonNegativeI64 : NSA_IndexAttr<IntNonNegative>;

/// Numbers that kernels compute with: no infinity, and not so small that fp32
/// is not exact.
def NSA_NormalInF32 : AttrConstraint<
    CPred<"::std::isnormal(float(::llvm::cast<::mlir::FloatAttr>($_self).getValueAsDouble()))">,
    "whose value is a normal number in fp32">;
def NSA_ScaleAttr : ConfinedAttr<F64Attr, [AttrConstraint<
    Or<[NSA_NormalInF32.predicate,
        CPred<"::llvm::cast<::mlir::FloatAttr>($_self).getValueAsDouble() == 0.0">]>,
    "whose value is 0 or a normal number in fp32">]>;

def NSA_PositiveF64 : ConfinedAttr<F64Attr, [AttrConstraint<
    CPred<"::llvm::cast<::mlir::FloatAttr>($_self).getValueAsDouble() > 0.0">,
    "whose value is positive">, NSA_NormalInF32]>;

/// A single fp32 number, `tensor<f32>`.
def NSA_F32Scalar : NSA_F32TensorOfRank<0>;

#endif // NSA_INTERFACES_TENSORTYPES_TD
