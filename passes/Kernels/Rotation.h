//===- Rotation.h - rotary embedding of elements and of rows ----*- C++ -*-===//
//
// One formula for every kernel that rotates, so that all give the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_ROTATION_H
#define NSA_PASSES_KERNELS_ROTATION_H

#include "dialects/Tile/TileBuilder.h"
#include "passes/Kernels/LaunchGroup.h"

namespace nsa {

/// A channel of the lower half of a head and its partner of the upper half,
/// turned by an angle, forth or back: f32 values from f32 values.
std::array<mlir::Value, 2> rotatePair(tile::TileBuilder &b, tile::Expr lower,
                                      tile::Expr upper, tile::Expr cosine,
                                      tile::Expr sine, bool inverse);

/// Whether a table of angles, or null, has those of all of `rows` positions in
/// every call: it has as many if their number is known at the call only.
bool hasAnglesOfAll(mlir::Value table, const Extent &rows);

/// Rows of a tensor [B, rows, H, D]: of one batch, row or rows [n, 1], and head
/// or head of each row.
struct RowsOfHeads {
  tile::Operand batch, row, head;
};

/// Writes the rows `rows` of `from`, turned by the angles of `position`, i32,
/// in `table` [L, D/2, 2], to the same rows of `to`, which may be `from`; or to
/// the rows `target`, as many.
void rotateRows(tile::TileBuilder &b, mlir::Value from, mlir::Value to,
                mlir::Value table, const RowsOfHeads &rows,
                tile::Operand position, bool inverse,
                const RowsOfHeads *target = nullptr);

/// Where row `row` of `rows` stands in a packed sequence whose first token is
/// `begin`: at a position of the table, whatever the start of the sequence is.
tile::Expr getPackedPosition(tile::Expr row, tile::Expr begin, int64_t stride,
                             const Extent &rows);
/// The same of the tokens `row`, i32, of a batch row whose sequences begin at
/// `start`; `row` where that is null.
mlir::Value getPackedPositions(tile::TileBuilder &b, mlir::Value row,
                               mlir::Value start, tile::Operand batch,
                               const Extent &rows);

/// Rotates the `count` rows from `first` on of a batch and head, a few at a
/// time. The position of row `i` is `i * stride`, of packed sequences, which
/// begin at `start` [B, S], where it stands in its own.
void rotateRange(tile::TileBuilder &b, mlir::Value from, mlir::Value to,
                 mlir::Value table, tile::Expr batch, tile::Expr head,
                 tile::Expr first, int64_t count, int64_t stride, bool inverse,
                 mlir::Value start = {});

/// Programs that rotate all of `from` [B, S, H, D], forth or back, each a few
/// heads of some rows, for which it has the angles. The result may take the
/// memory of `from`. `start` is null where a row of the batch is one sequence.
LaunchPart rotateTensor(mlir::Value from, mlir::Value table, mlir::Value start,
                        bool inverse);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_ROTATION_H
