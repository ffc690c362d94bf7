//===- AttentionKernels.h - what attention kernels share --------*- C++ -*-===//
//
// Shapes, tile sizes and the steps of online softmax and of its gradient.
// Attention of every visibility, forward and backward, is made of these.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NSA_ATTENTIONKERNELS_H
#define NSA_PASSES_KERNELS_NSA_ATTENTIONKERNELS_H

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/KernelCache.h"

#include <functional>

namespace nsa {

/// How dots of queries and keys become exponents of the softmax.
///
/// Exponents of fp32 tensors are natural: s and lse are then numbers of one
/// size. Forward, backward and selection compute the same expression, rounded
/// alike, so that exp(s - lse) is 1 where a query sees one score far above the
/// others, however large it is. With 16 bits, whose probabilities are rounded
/// more coarsely, they are exponents of 2, which save a multiplication for each
/// score. An lse has been rounded in other units then: what is relative to it
/// takes one instruction. What is relative to the maximum of a row takes two,
/// so that its power is 1 in the sum, too, not only where it is rounded to 16
/// bits.
class Exponent {
public:
  Exponent(double scale, double softcap, unsigned elementBits,
           bool takesShortcuts)
      : scale(scale), softcap(softcap), isOfTwo(elementBits == 16),
        takesShortcuts(takesShortcuts) {}

  /// A value in the order of scores: the product, or with the scale if that is
  /// not positive.
  tile::Expr ordered(tile::Expr product) const;
  /// The exponent of an `ordered` product.
  tile::Expr ofOrdered(tile::Expr product) const;
  tile::Expr of(tile::Expr product) const {
    return ofOrdered(ordered(product));
  }
  /// The exponential of the difference of two exponents.
  tile::Expr power(tile::Expr difference) const;
  /// The power of a product relative to the exponent `shift`, which comes from
  /// an lse.
  tile::Expr probability(tile::Expr product, tile::Expr shift) const;
  /// The power of an `ordered` product relative to the exponent `shift` of the
  /// largest of a row.
  tile::Expr probabilityOfOrdered(tile::Expr ordered, tile::Expr shift) const;
  /// What an lse is as exponent, 0 in place of -inf.
  mlir::Value fromLse(tile::TileBuilder &b, mlir::Value lse) const;
  /// The exponents relative to which powers have `factors`, which are not
  /// negative, beside those relative to `shift`.
  mlir::Value withFactor(tile::TileBuilder &b, mlir::Value shift,
                         mlir::Value factors) const;
  /// The natural log of the product of `sum` and the power of `exponent`.
  tile::Expr toLse(tile::Expr exponent, tile::Expr sum) const;
  bool isCapped() const { return softcap > 0; }
  /// The derivative of a score by `scale` times the product, if it is capped.
  tile::Expr slope(tile::Expr product) const;

private:
  /// What the exponent of an `ordered` product is a multiple of, and the
  /// factor.
  tile::Expr bounded(tile::Expr ordered) const;
  double factorOfBounded() const;
  /// The difference of the exponent of an `ordered` product and `shift`.
  tile::Expr roundedOnce(tile::Expr ordered, tile::Expr shift) const;

  double scale, softcap;
  bool isOfTwo, takesShortcuts;
};

/// Sizes of q [B, S, Hq, dk], k [B, keys, Hkv, dk] and v [B, keys, Hkv, dv].
/// The v of an op without values (nsa.select) is its k. Queries inside of
/// longer sequences have keys of another batch and of more tokens.
struct AttentionShape {
  AttentionShape(mlir::Value q, mlir::Value k, mlir::Value v, double scale,
                 double softcap)
      : batch(getExtent(q, 0)), sequence(getExtent(q, 1)),
        keys(getExtent(k, 1)), queryHeads(getDim(q, 2)), keyHeads(getDim(k, 2)),
        keyWidth(getDim(q, 3)), valueWidth(getDim(v, 3)),
        elementBits(mlir::getElementTypeOrSelf(q).getIntOrFloatBitWidth()),
        scale(scale), softcap(softcap), keyBatch(batch), tokens(sequence) {}

  /// Makes rows of queries begin where `at`, if not null, says: in sequences of
  /// the keys `k`, of which `start`, if not null, has the tokens.
  void setPlace(mlir::Value at, mlir::Value start, mlir::Value k,
                VisibilityAttrInterface visibility);

  /// What the softmax of the kernels is made of.
  Exponent exponent() const {
    return {scale, softcap, elementBits, takesShortcuts};
  }
  /// Query heads that share a key head.
  int64_t group() const { return queryHeads / keyHeads; }
  /// Tensor cores add 16 products at once: narrower heads get columns of zeros.
  void fitTo(const KernelCut &machine, int64_t parts = 1) {
    columnMultiple = machine.isParallel() && elementBits == 16 ? 16 : 1;
    columnParts = parts;
  }
  /// Elements of a head in a tile, and their numbers.
  int64_t padded(int64_t width) const {
    return static_cast<int64_t>(llvm::alignTo(width, columnMultiple));
  }
  mlir::Value columns(tile::TileBuilder &b, int64_t width) const {
    return b.range(0, padded(width), 1);
  }
  /// The same of what a program computes, which may be a part.
  int64_t ownWidth(int64_t width) const {
    return padded(static_cast<int64_t>(llvm::divideCeil(width, columnParts)));
  }
  mlir::Value ownColumns(tile::TileBuilder &b, int64_t width) const {
    if (columnParts == 1)
      return columns(b, width);
    auto own = static_cast<double>(ownWidth(width));
    return b.range(b.programPart() * own, ownWidth(width), 1);
  }
  /// Builds what one of the programs that share columns writes for all.
  void buildOnce(tile::TileBuilder &b, llvm::function_ref<void()> body) const {
    if (columnParts == 1)
      return body();
    b.ifThen(b.programPart() == 0, body);
  }
  /// The schedule of a kernel of this shape.
  ChosenSchedule choose(KernelCache &cache, mlir::Operation *op,
                        llvm::StringRef suffix, AttentionKernel kernel) const {
    return cache.choose(op, suffix, sequence, kernel);
  }

  /// For kernel names: "b1s64h4x2d16", or "..d16x32" if dk and dv differ; the
  /// rows of queries in it are "b1s64", or "b2s16of1x64" inside of sequences.
  std::string name() const;
  std::string rowsName() const;
  /// Floating-point operations of `width` multiply-adds for each of `pairs` of
  /// a head and a sequence; the largest number if there are more.
  int64_t flops(int64_t width, int64_t pairs) const {
    int64_t ofHead = saturatingProduct(2 * width, pairs);
    if (isPlaced)
      ofHead = ofHead / int64_t(tokens) * int64_t(sequence);
    return saturatingProduct(int64_t(batch) * queryHeads, ofHead);
  }

  Extent batch, sequence, keys;
  int64_t queryHeads, keyHeads, keyWidth, valueWidth;
  unsigned elementBits;
  /// Factor of the scores, and what they are kept below, or 0.
  double scale, softcap;
  /// Sequences of keys, and the most tokens that one of them may have.
  Extent keyBatch, tokens;
  /// Whether rows of queries begin inside of these.
  bool isPlaced = false;
  int64_t columnMultiple = 1, columnParts = 1;
  /// Whether exponents take one instruction where that is exact enough: it
  /// costs each tile of keys a branch.
  bool takesShortcuts = false;
};

template <typename OpT>
AttentionShape getShapeOf(OpT op, mlir::Value value,
                          VisibilityAttrInterface visibility) {
  AttentionShape shape = {op.getQuery(), op.getKey(), value,
                          op.getScaleOrDefault(), op.getSoftcapOrZero()};
  shape.setPlace(getQueryPlace(op), getSequenceStart(op), op.getKey(),
                 visibility);
  return shape;
}
template <typename OpT>
AttentionShape getShapeOf(OpT op) {
  return getShapeOf(op, op.getValue(), op.getVisibility());
}

/// Rows of a tile: `extent` rounded up to `multiple`, at most `limit`.
int64_t getTileSize(const Extent &extent, int64_t limit = 64,
                    int64_t multiple = 8);

/// The query tile of program `number` of `count`. Later queries see more keys,
/// so GPUs take the last tiles first: the longest programs must not start
/// last.
tile::Expr getQueryTileOf(tile::Expr number, const Extent &count,
                          bool isParallel);

/// A visibility in a kernel for sequences of one length: what it says of i32
/// values.
class Visibility {
public:
  Visibility(VisibilityAttrInterface attribute, const Extent &sequence)
      : attribute(attribute.limitTo(sequence.isConstant() ? int64_t(sequence)
                                                          : kLongest)),
        sequence(sequence) {}

  const VisibilityAttrInterface *operator->() const { return &attribute; }
  /// The number of the key that is the first one of a packed sequence which
  /// begins at token `start`.
  tile::Expr keyBase(tile::Expr start) const;

  tile::Expr isVisible(tile::Expr query, tile::Expr key) const;
  tile::Expr firstKey(tile::Expr query) const;
  tile::Expr endKey(tile::Expr query) const;
  tile::Expr firstQuery(tile::Expr key) const;
  tile::Expr endQuery(tile::Expr key) const;

private:
  /// Windows up to this keep positions within 32 bits in every sequence that is
  /// not longer.
  static constexpr int64_t kLongest = 1 << 30;

  VisibilityAttrInterface attribute;
  Extent sequence;
};

/// The running softmax of a tile of rows: per row the maximum of the exponents,
/// the sum of exponentials relative to it, and the weighted sum of values.
struct OnlineSoftmax {
  /// No key seen: maximum -inf, sum 0, values 0.
  static OnlineSoftmax init(tile::TileBuilder &b, int64_t rows, int64_t width);
  static OnlineSoftmax fromCarried(llvm::ArrayRef<mlir::Value> carried) {
    return {carried[0], carried[1], carried[2]};
  }
  llvm::SmallVector<mlir::Value> carried() const { return {max, sum, acc}; }

  /// Takes in the keys of one tile. `products` [rows, keys], ordered, are -inf
  /// where invisible; `values` is [keys, width]; rows where `selected` is 0 see
  /// none of them, if it is not null.
  OnlineSoftmax update(tile::TileBuilder &b, mlir::Value products,
                       const Exponent &exponent, mlir::Value values,
                       mlir::Value selected) const;
  /// The attention output, 0 for rows that saw nothing.
  mlir::Value output(tile::TileBuilder &b) const;
  /// The natural log of the sum of exponentials, -inf for rows that saw
  /// nothing.
  mlir::Value lse(tile::TileBuilder &b, const Exponent &exponent) const;

  mlir::Value max, sum, acc;
};

/// Some keys [n, dk] with their values [n, dv], and which rows see which.
struct KeyTile {
  mlir::Value keys, values;
  /// The keys transposed, for sums in the order of many queries whatever their
  /// number; null where the order does not matter.
  mlir::Value keyColumns = {};
  /// Of the keys, the columns that a program adds to the gradient of queries;
  /// null for all.
  mlir::Value ownKeys = {};
  /// i32, one for each row and one for each key, along different axes: what
  /// `isVisible` is asked about.
  mlir::Value row, key;
  std::function<tile::Expr(tile::Expr row, tile::Expr key)> isVisible;
  /// i32, shaped as `row`: 0 for rows that see none of the keys; null if there
  /// are none.
  mlir::Value selected = {};
  /// i32, shaped as `row`: the first key of the row's sequence, from which
  /// `isVisible` counts keys; null if that is 0 for all rows.
  mlir::Value base = {};
  /// i32, shaped as `key`: where the sequence of the key begins, from which
  /// `isVisible` counts rows, and ends; null if rows are counted from 0.
  mlir::Value begin = {}, end = {};
  /// Of keys of two blocks, `selected` of the one before, for the keys where
  /// `isNext`, i32 and shaped as `key`, is 0; null if there is one block.
  mlir::Value selectedBefore = {}, isNext = {};

  /// What the visibility of a product is made of, in the order of `sees`.
  llvm::SmallVector<mlir::Value> coordinates() const;
  /// Whether a row sees a key, from the elements of their coordinates.
  tile::Expr sees(llvm::ArrayRef<tile::Expr> x) const;
};

/// What the gradient of a row's scores needs besides the products, f32 and one
/// for each row: the exponent that others are relative to, do . o of the
/// branch, and the gate by which the gradient of the output is multiplied (null
/// for 1).
struct RowTerms {
  mlir::Value shift, delta, gate;
};

/// Where the queries of a row of the batch stand in a sequence of keys.
struct QueryPlace {
  /// `at` is null where rows of queries are whole sequences, else for one of
  /// `keyBatch` sequences of `tokens` at most.
  static QueryPlace load(tile::TileBuilder &b, const Extent &keyBatch,
                         const Extent &tokens, mlir::Value at,
                         tile::Expr batch);
  static QueryPlace load(tile::TileBuilder &b, const AttentionShape &shape,
                         mlir::Value at, tile::Expr batch) {
    return load(b, shape.keyBatch, shape.tokens, at, batch);
  }

  /// The position of query `query`, a number or i32 values.
  tile::Expr of(tile::Expr query) const {
    return first ? query + *first : query;
  }
  mlir::Value of(tile::TileBuilder &b, mlir::Value query) const;
  /// A number of tokens or keys, and no more than there are.
  tile::Expr limit(tile::Expr number, const Extent &most) const {
    return first ? min(number, most) : number;
  }

  /// The row of the keys, and the position of query 0, of whole sequences 0.
  tile::Expr batch;
  std::optional<tile::Expr> first = std::nullopt;
};

/// The queries `query`, i32, of a batch row with packed sequences, that begin
/// at `start` [B, S]: where their sequences begin, their offsets in these, and
/// these sequences' first keys.
struct PackedRows {
  PackedRows(tile::TileBuilder &b, const Visibility &visibility,
             mlir::Value start, tile::Operand batch, mlir::Value query);

  mlir::Value begin, row, base;
};

/// Makes the queries `query`, whose sequences begin at `begin`, see of the keys
/// of `tile`, from `first` on, those of two selection blocks up to themselves:
/// of the block whose number is that of the range of `selectBlock` tokens that
/// `first` is in, where `own` is not 0, and of the one before, where `before`
/// is not 0. All i32. What a query sees is one range of keys; `selected` is 0
/// where there are none.
void limitToBlocks(tile::TileBuilder &b, KeyTile &tile, int64_t selectBlock,
                   tile::Expr first, mlir::Value own, mlir::Value before,
                   mlir::Value begin, mlir::Value query);

/// Launches a kernel for the end of each token's sequence, one past its last
/// token: i32 [B, S]. Operations with the same `start` share it.
mlir::Value launchSequenceEnds(KernelCache &cache, mlir::OpBuilder &builder,
                               mlir::Operation *op, mlir::Value start);

/// The body for a key tile: returns the next carried values.
using KeyTileBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
    const KeyTile &tile, llvm::ArrayRef<mlir::Value> carried)>;
/// Runs a body on the tiles of keys that a program goes through, from initial
/// values on.
using KeyWalk = llvm::function_ref<llvm::SmallVector<mlir::Value>(
    llvm::ArrayRef<mlir::Value> inits, KeyTileBody body)>;

/// The softmax of `queries` [rows, dk] over all keys of the walk.
OnlineSoftmax attendToKeys(tile::TileBuilder &b, const AttentionShape &shape,
                           mlir::Value queries, KeyWalk walk);

/// Adds dS K of a tile to `sum`: the gradient of the queries without the scale.
mlir::Value addQueryGrad(tile::TileBuilder &b, mlir::Value queries,
                         mlir::Value outputGrads, const KeyTile &tile,
                         const RowTerms &terms, const Exponent &exponent,
                         mlir::Value sum);

/// Adds dS^T Q and P^T dO of some rows to `sums`: the gradients of the keys,
/// without the scale, and of the values. Keys lie along the rows of `tile`.
llvm::SmallVector<mlir::Value>
addKeyValueGrad(tile::TileBuilder &b, mlir::Value queries,
                mlir::Value outputGrads, const KeyTile &tile,
                const RowTerms &terms, const Exponent &exponent,
                llvm::ArrayRef<mlir::Value> sums, mlir::Value ownQueries = {},
                mlir::Value ownOutputGrads = {});

/// The dot product of each row of `lhs` with that of `rhs`, [rows, 1] in f32.
mlir::Value rowDot(tile::TileBuilder &b, mlir::Value lhs, mlir::Value rhs);

/// Elementwise, in f32.
mlir::Value scaled(tile::TileBuilder &b, mlir::Value tile, double factor);

/// The probability of a product relative to the exponent `shift` where
/// `visible`, else 0. Selected after the exponential, which may be inf for an
/// invisible key.
tile::Expr maskedProbability(tile::Expr visible, tile::Expr product,
                             const Exponent &exponent, tile::Expr shift);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NSA_ATTENTIONKERNELS_H
