//===- EmitTopN.cpp - lists of the largest values of rows -----------------===//
//
// Lists of up to 32 elements lie in neighbouring lanes, one for each place, and
// are sorted by exchanges between lanes. An element is one number of 64 bits:
// larger values first, then lower indices.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

/// What is not above it is no candidate, and an empty place of a list.
static constexpr double kLeast = -0.5;

static Value compare(ThreadBuilder &b, arith::CmpFPredicate predicate, Value x,
                     Value y) {
  return arith::CmpFOp::create(b, predicate, x, y);
}

static Value isGreater(ThreadBuilder &b, Value x, Value y) {
  return compare(b, arith::CmpFPredicate::OGT, x, y);
}

void KernelEmitter::emitTopN(TopNOp op) {
  Spread best = spreadOf(op.getBestValues());
  beginExchange();
  TopNTiles tiles{publish(op.getValues()),
                  publish(op.getBestValues()),
                  publish(op.getBestIndices()),
                  {},
                  {}};
  tiles.topValues = allocate(best.rows, best.cols, tiles.values.element);
  tiles.topIndices = allocate(best.rows, best.cols, tiles.indices.element);
  endPublishing();
  if (best.cols <= 32)
    emitTopNInLanes(op, tiles);
  else
    emitTopNByCounting(op, tiles);
  barrier();
  readBack(op.getTopValues(), tiles.topValues);
  readBack(op.getTopIndices(), tiles.topIndices);
}

//===----------------------------------------------------------------------===//
// In lanes
//===----------------------------------------------------------------------===//

/// `values`, or if `condition` holds what `change` makes of them.
static SmallVector<Value> changeIf(ThreadBuilder &b, Value condition,
                                   ArrayRef<Value> values,
                                   function_ref<SmallVector<Value>()> change) {
  OpBuilder::InsertionGuard guard(b);
  auto branch = scf::IfOp::create(b, TypeRange(ValueRange(values)), condition,
                                  /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, values);
  b.setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(b, change());
  return llvm::to_vector_of<Value>(branch.getResults());
}

namespace {
/// Sorts what groups of lanes hold, one element each, in descending order; of
/// several rows in step, so that a row does not wait for its own exchanges.
class LaneSorter {
public:
  /// Groups of `places` lanes, a power of two; `place` is this lane's.
  LaneSorter(ThreadBuilder &b, int64_t places, Value place)
      : b(b), places(places), place(place) {}

  /// 0 for what is no candidate, else a number that is larger for larger
  /// values, and for lower indices of equal values.
  Value pack(Value value, Value index);
  /// The value and the index of an element.
  std::pair<Value, Value> unpack(Value element);
  SmallVector<Value> sort(SmallVector<Value> elements);
  /// The first `places` of two sorted groups, sorted.
  SmallVector<Value> merge(ArrayRef<Value> first, ArrayRef<Value> second);
  Value isLarger(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, x, y);
  }

private:
  Value i64(Value word) {
    return arith::ExtUIOp::create(b, b.getI64Type(), word);
  }
  Value low(Value element) {
    return arith::TruncIOp::create(b, b.getI32Type(), element);
  }
  Value high(Value element) {
    return low(arith::ShRUIOp::create(b, element, b.i64(32)));
  }
  Value join(Value high, Value low) {
    return arith::OrIOp::create(
        b, arith::ShLIOp::create(b, i64(high), b.i64(32)), i64(low));
  }
  Value hasBit(int64_t bit) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                 arith::AndIOp::create(b, place, b.i32(bit)),
                                 b.i32(0));
  }
  /// The element of the lane whose place differs in `mask`.
  Value across(Value element, int64_t mask) {
    return join(b.shuffle(high(element), unsigned(mask)),
                b.shuffle(low(element), unsigned(mask)));
  }
  /// Compares with the lane whose place differs in `distance`: the lower place
  /// gets the larger element, or the smaller one where `ascending` holds.
  void exchange(MutableArrayRef<Value> elements, int64_t distance,
                Value ascending);

  ThreadBuilder &b;
  int64_t places;
  Value place;
};
} // namespace

/// Bits of numbers have the order of unsigned integers once those of positive
/// numbers have a sign and those of negative ones are inverted.
Value LaneSorter::pack(Value value, Value index) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  // No zero has a sign after this.
  Value bits = arith::BitcastOp::create(
      b, i32, arith::AddFOp::create(b, value, b.constant(f32, 0)));
  Value sign = arith::ShRSIOp::create(b, bits, b.i32(31));
  Value ordered = arith::XOrIOp::create(
      b, bits, arith::OrIOp::create(b, sign, b.i32(INT32_MIN)));
  Value element = join(ordered, arith::XOrIOp::create(b, index, b.i32(-1)));
  return b.select(isGreater(b, value, b.constant(f32, kLeast)), element,
                  b.i64(0));
}

std::pair<Value, Value> LaneSorter::unpack(Value element) {
  Value ordered = high(element);
  // The first bit is set of what was positive.
  Value positive = arith::ShRSIOp::create(b, ordered, b.i32(31));
  Value flip = arith::OrIOp::create(
      b, arith::XOrIOp::create(b, positive, b.i32(-1)), b.i32(INT32_MIN));
  Value value = arith::BitcastOp::create(
      b, b.getF32Type(), arith::XOrIOp::create(b, ordered, flip));
  Value isEmpty =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, element, b.i64(0));
  return {b.select(isEmpty, b.constant(b.getF32Type(), -1), value),
          arith::XOrIOp::create(b, low(element), b.i32(-1))};
}

void LaneSorter::exchange(MutableArrayRef<Value> elements, int64_t distance,
                          Value ascending) {
  Value keepsSmaller = hasBit(distance);
  if (ascending)
    keepsSmaller = arith::XOrIOp::create(b, keepsSmaller, ascending);
  SmallVector<Value> others = llvm::map_to_vector(
      elements, [&](Value element) { return across(element, distance); });
  for (auto [element, other] : llvm::zip_equal(elements, others)) {
    Value keeps =
        arith::XOrIOp::create(b, isLarger(element, other), keepsSmaller);
    element = b.select(keeps, element, other);
  }
}

/// Batcher's bitonic sort: runs of 2, 4, 8 .. places, in turns descending and
/// ascending.
SmallVector<Value> LaneSorter::sort(SmallVector<Value> elements) {
  for (int64_t run = 2; run <= places; run *= 2) {
    Value ascending = run < places ? hasBit(run) : Value();
    for (int64_t distance = run / 2; distance > 0; distance /= 2)
      exchange(elements, distance, ascending);
  }
  return elements;
}

/// Each place and the one opposite of it in the other group: the larger ones
/// are a bitonic sequence of the largest.
SmallVector<Value> LaneSorter::merge(ArrayRef<Value> first,
                                     ArrayRef<Value> second) {
  SmallVector<Value> elements(second);
  if (places > 1)
    for (Value &element : elements)
      element = across(element, places - 1);
  for (auto [element, own] : llvm::zip_equal(elements, first))
    element = b.select(isLarger(own, element), own, element);
  for (int64_t distance = places / 2; distance > 0; distance /= 2)
    exchange(elements, distance, Value());
  return elements;
}

void KernelEmitter::emitTopNInLanes(TopNOp op, const TopNTiles &tiles) {
  // Rows of a thread in step.
  constexpr int64_t mostRows = 4;
  Spread candidates = spreadOf(op.getValues());
  Spread best = spreadOf(op.getBestValues());
  auto places = int64_t(llvm::bit_ceil(uint64_t(best.cols)));
  int64_t rowsAtOnce = threads / places;
  Value place = b.rem(tid, places), base = scalar(op.getBase());
  LaneSorter sorter(b, places, place);
  /// Element `col` of a row, 0 behind the last one.
  auto read = [&](const SharedTile &tile, Value row, Value col, int64_t cols,
                  llvm::function_ref<Value(Value, Value)> indexOf) -> Value {
    Value inside = arith::MinSIOp::create(b, col, b.i32(cols - 1));
    Value element =
        sorter.pack(readShared(tile, row, inside), indexOf(row, inside));
    return b.select(b.less(col, cols), element, b.i64(0));
  };
  auto readListed = [&](Value row, Value col) {
    return read(tiles.values, row, col, best.cols, [&](Value row, Value col) {
      return readShared(tiles.indices, row, col);
    });
  };
  auto readCandidate = [&](Value row, Value col) {
    return read(tiles.from, row, col, candidates.cols,
                [&](Value, Value col) -> Value {
                  return arith::AddIOp::create(b, base, col);
                });
  };
  for (int64_t done = 0; done < best.rows; done += mostRows * rowsAtOnce) {
    SmallVector<Value> rows, exist, lists, last;
    for (int64_t k = done;
         k < std::min(best.rows, done + mostRows * rowsAtOnce);
         k += rowsAtOnce) {
      Value row = b.add(b.div(tid, places), k);
      exist.push_back(k + rowsAtOnce > best.rows ? b.less(row, best.rows)
                                                 : Value());
      rows.push_back(arith::MinSIOp::create(b, row, b.i32(best.rows - 1)));
      lists.push_back(readListed(rows.back(), place));
      last.push_back(readListed(rows.back(), b.i32(best.cols - 1)));
    }
    for (int64_t c = 0; c < candidates.cols; c += places) {
      SmallVector<Value> found;
      Value isNew = b.constant(b.getI1Type(), 0);
      for (auto [row, least] : llvm::zip_equal(rows, last)) {
        found.push_back(readCandidate(row, b.add(place, c)));
        isNew = b.createOrFold<arith::OrIOp>(
            isNew, sorter.isLarger(found.back(), least));
      }
      Value some = NVVM::VoteSyncOp::create(b, b.getI1Type(), b.i32(-1), isNew,
                                            NVVM::VoteSyncKind::any);
      lists = changeIf(b, some, lists, [&] {
        return sorter.merge(lists, sorter.sort(std::move(found)));
      });
    }
    for (auto [row, exists, list] : llvm::zip_equal(rows, exist, lists)) {
      auto unpacked = sorter.unpack(list);
      b.ifThen(b.both(exists, b.less(place, best.cols)), [&, row = row] {
        writeShared(unpacked.first, tiles.topValues, row, place);
        writeShared(unpacked.second, tiles.topIndices, row, place);
      });
    }
  }
}

//===----------------------------------------------------------------------===//
// In shared memory
//===----------------------------------------------------------------------===//

/// How many of the elements of a row meet a condition.
Value KernelEmitter::countInRow(const SharedTile &tile, Value row, int64_t cols,
                                function_ref<Value(Value, Value)> meets) {
  return b.loop(b.i32(0), b.i32(cols), b.i32(1), {b.i32(0)},
                [&](Value col, ValueRange count) -> SmallVector<Value> {
                  Value counts = meets(readShared(tile, row, col), col);
                  Value more = b.add(count[0], 1);
                  return {b.select(counts, more, count[0])};
                })[0];
}

/// Every element, of the list or a candidate, counts those that come before it:
/// larger ones, and equal ones of the list or further left. That is its place,
/// if the list is long enough.
void KernelEmitter::emitTopNByCounting(TopNOp op, const TopNTiles &tiles) {
  Spread candidates = spreadOf(op.getValues());
  Spread best = spreadOf(op.getBestValues());
  const SharedTile &from = tiles.from, &values = tiles.values,
                   &indices = tiles.indices;
  const SharedTile &topValues = tiles.topValues, &topIndices = tiles.topIndices;
  Value base = scalar(op.getBase());
  Value least = b.constant(b.getF32Type(), kLeast);
  auto put = [&](Value row, Value place, Value value, Value index) {
    b.ifThen(b.less(place, best.cols), [&] {
      writeShared(value, topValues, row, place);
      writeShared(index, topIndices, row, place);
    });
  };
  forPieces(best.rows * best.cols, best.cols, [&](Value row, Value col) {
    Value value = readShared(values, row, col);
    Value larger =
        countInRow(from, row, candidates.cols, [&](Value x, Value) -> Value {
          return b.both(isGreater(b, x, least), isGreater(b, x, value));
        });
    put(row, arith::AddIOp::create(b, col, larger), value,
        readShared(indices, row, col));
  });
  forPieces(
      candidates.rows * candidates.cols, candidates.cols,
      [&](Value row, Value col) {
        Value value = readShared(from, row, col);
        b.ifThen(isGreater(b, value, least), [&] {
          Value before =
              countInRow(values, row, best.cols, [&](Value x, Value) -> Value {
                return compare(b, arith::CmpFPredicate::OGE, x, value);
              });
          Value larger = countInRow(
              from, row, candidates.cols, [&](Value x, Value c) -> Value {
                Value isLeft =
                    arith::CmpIOp::create(b, arith::CmpIPredicate::slt, c, col);
                Value isEqual = compare(b, arith::CmpFPredicate::OEQ, x, value);
                return arith::OrIOp::create(b, isGreater(b, x, value),
                                            b.both(isEqual, isLeft));
              });
          put(row, arith::AddIOp::create(b, before, larger), value,
              arith::AddIOp::create(b, base, col));
        });
      });
}
