//===- EmitTopN.cpp - lists of the largest values of rows -----------------===//
//
// Lists of up to 32 elements lie in neighbouring lanes, one for each place, and
// are sorted by exchanges between lanes. An element is one number of 64 bits:
// larger values first, then lower indices. Most candidates are below all of the
// list: lanes vote which ones are not, and sort these few.
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
  BlockedLayout best = blockedLayoutOf(op.getBestValues());
  TopNTiles tiles{};
  // Each thread may hold one element of a row already.
  bool inLanes = best.cols <= 32;
  if (inLanes && best.threadsPerRow == best.cols && best.perRow() == 1 &&
      llvm::isPowerOf2_64(uint64_t(best.cols))) {
    tiles.from = share(op.getValuesMutable());
    emitTopNInLanes(op, tiles);
    return;
  }
  beginLayoutConversion();
  tiles.from = localStore(op.getValues());
  tiles.values = localStore(op.getBestValues());
  tiles.indices = localStore(op.getBestIndices());
  tiles.topValues = allocate(best.rows, best.cols, tiles.values.element);
  tiles.topIndices = allocate(best.rows, best.cols, tiles.indices.element);
  endLocalStores();
  if (inLanes)
    emitTopNInLanes(op, tiles);
  else
    emitTopNByCounting(op, tiles);
  endLocalStores();
  readBack(op.getTopValues(), tiles.topValues);
  readBack(op.getTopIndices(), tiles.topIndices);
}

//===----------------------------------------------------------------------===//
// In lanes
//===----------------------------------------------------------------------===//

namespace {
/// Sorts what groups of lanes hold, one element each, in descending order; of
/// several rows in step, so that a row does not wait for its own exchanges.
class LaneSorter {
public:
  /// Groups of `places` lanes, a power of two.
  LaneSorter(ThreadBuilder &b, int64_t places, Value lane)
      : b(b), places(places), lane(lane), place(b.rem(lane, places)) {}

  /// The place of this lane.
  Value getPlace() const { return place; }

  /// 0 for what is no candidate, else a number that is larger for larger
  /// values, and for lower indices of equal values.
  Value pack(Value value, Value index);
  /// The value and the index of an element.
  std::pair<Value, Value> unpack(Value element);
  /// Sorts `count` neighbours each, a power of two.
  SmallVector<Value> sort(SmallVector<Value> elements, int64_t count);
  /// The first `places` of two sorted groups, sorted.
  SmallVector<Value> merge(ArrayRef<Value> first, ArrayRef<Value> second);
  /// What the last lane of a group holds.
  Value last(Value element);

  /// The lists of some rows, sorted, and the last element of each.
  struct Lists {
    SmallVector<Value> rows, elements, last;
  };
  /// Element `col` of a row of candidates; 0 behind its end.
  using Candidates = llvm::function_ref<Value(Value row, Value col)>;
  /// Merges columns `first` and on, up to 32 of `cols`, into lists; returns how
  /// many.
  int64_t mergeNext(Lists &lists, int64_t first, int64_t cols,
                    Candidates candidates);
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
  Value vote(Value condition, NVVM::VoteSyncKind kind) {
    Type type =
        kind == NVVM::VoteSyncKind::ballot ? b.getI32Type() : b.getI1Type();
    return NVVM::VoteSyncOp::create(b, type, b.i32(-1), condition, kind);
  }
  /// The groups of columns of one call of mergeNext.
  int64_t countGroups(int64_t first, int64_t cols) const {
    return std::min<int64_t>(32 / places,
                             llvm::divideCeil(cols - first, places));
  }
  /// Bit `k` of a row: its candidate of column `first + k` is above its last
  /// element. And all votes of the warp in one number, zero if nothing is.
  std::pair<SmallVector<Value>, Value> findAbove(const Lists &lists,
                                                 int64_t first, int64_t groups,
                                                 Candidates candidates);
  /// Merges all columns, or those of up to `few` bits of each row.
  SmallVector<Value> mergeAll(const Lists &lists, int64_t first, int64_t groups,
                              Candidates candidates);
  SmallVector<Value> mergeFew(const Lists &lists, int64_t first,
                              ArrayRef<Value> above, Candidates candidates);

  static constexpr int64_t few = 8;

  ThreadBuilder &b;
  int64_t places;
  Value lane, place;
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
SmallVector<Value> LaneSorter::sort(SmallVector<Value> elements,
                                    int64_t count) {
  for (int64_t run = 2; run <= count; run *= 2) {
    Value ascending = run < count ? hasBit(run) : Value();
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

Value LaneSorter::last(Value element) {
  Value source = arith::OrIOp::create(b, lane, b.i32(int32_t(places - 1)));
  return join(b.shuffleFrom(high(element), source),
              b.shuffleFrom(low(element), source));
}

std::pair<SmallVector<Value>, Value>
LaneSorter::findAbove(const Lists &lists, int64_t first, int64_t groups,
                      Candidates candidates) {
  Value firstLane = arith::SubIOp::create(b, lane, place), all = b.i32(0);
  SmallVector<Value> above;
  for (auto [row, last] : llvm::zip_equal(lists.rows, lists.last)) {
    Value bits = b.i32(0);
    for (int64_t g = 0; g < groups; ++g) {
      Value candidate = candidates(row, b.add(place, first + g * places));
      Value votes = vote(isLarger(candidate, last), NVVM::VoteSyncKind::ballot);
      all = b.createOrFold<arith::OrIOp>(all, votes);
      Value own = arith::ShRUIOp::create(b, votes, firstLane);
      if (places < 32)
        own = arith::AndIOp::create(b, own, b.i32((1 << places) - 1));
      own = b.createOrFold<arith::ShLIOp>(own, b.i32(int32_t(g * places)));
      bits = b.createOrFold<arith::OrIOp>(bits, own);
    }
    above.push_back(bits);
  }
  return {std::move(above), all};
}

SmallVector<Value> LaneSorter::mergeAll(const Lists &lists, int64_t first,
                                        int64_t groups, Candidates candidates) {
  SmallVector<Value> elements = lists.elements;
  for (int64_t g = 0; g < groups; ++g) {
    Value col = b.add(place, first + g * places);
    SmallVector<Value> found = llvm::map_to_vector(
        lists.rows, [&](Value row) { return candidates(row, col); });
    elements = merge(elements, sort(std::move(found), places));
  }
  return elements;
}

SmallVector<Value> LaneSorter::mergeFew(const Lists &lists, int64_t first,
                                        ArrayRef<Value> above,
                                        Candidates candidates) {
  SmallVector<Value> found;
  for (auto [row, bits] : llvm::zip_equal(lists.rows, above)) {
    // The place-th bit: as many lower ones are cleared.
    Value rest = bits;
    for (int64_t k = 0; k + 1 < few; ++k) {
      Value cleared = arith::AndIOp::create(
          b, rest, arith::AddIOp::create(b, rest, b.i32(-1)));
      rest = b.select(b.less(place, k + 1), rest, cleared);
    }
    Value exists = b.both(
        b.less(place, few),
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, rest, b.i32(0)));
    // Without another bit there would be a branch for none.
    Value some = arith::OrIOp::create(b, rest, b.i32(INT32_MIN));
    Value bit = LLVM::CountTrailingZerosOp::create(b, b.getI32Type(), some,
                                                   /*is_zero_poison=*/true);
    Value element = candidates(row, b.add(bit, first));
    found.push_back(b.select(exists, element, b.i64(0)));
  }
  return merge(lists.elements, sort(std::move(found), few));
}

int64_t LaneSorter::mergeNext(Lists &lists, int64_t first, int64_t cols,
                              Candidates candidates) {
  int64_t groups = countGroups(first, cols);
  auto [above, all] = findAbove(lists, first, groups, candidates);
  ValueRange before = lists.elements;
  auto mergeSome = [&, above = above]() -> SmallVector<Value> {
    if (places < few)
      return mergeAll(lists, first, groups, candidates);
    Value isMany = b.constant(b.getI1Type(), 0);
    for (Value bits : above) {
      Value count = LLVM::CtPopOp::create(b, b.getI32Type(), bits);
      isMany = b.createOrFold<arith::OrIOp>(
          isMany, arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, count,
                                        b.i32(few)));
    }
    return b.ifElse(
        vote(isMany, NVVM::VoteSyncKind::any), TypeRange(before),
        [&] { return mergeAll(lists, first, groups, candidates); },
        [&] { return mergeFew(lists, first, above, candidates); });
  };
  Value some =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ne, all, b.i32(0));
  lists.elements = b.ifElse(some, TypeRange(before), mergeSome,
                            [&] { return lists.elements; });
  return groups * places;
}

/// Without places for them in shared memory, lists are in the registers of the
/// threads that are their lanes.
void KernelEmitter::emitTopNInLanes(TopNOp op, const TopNTiles &tiles) {
  // Rows of a thread in step.
  constexpr int64_t mostRows = 4;
  auto isShared = bool(tiles.values.base);
  BlockedLayout candidates = blockedLayoutOf(op.getValues());
  BlockedLayout best = blockedLayoutOf(op.getBestValues());
  auto places = int64_t(llvm::bit_ceil(uint64_t(best.cols)));
  int64_t rowsAtOnce = threads / places;
  LaneSorter sorter(b, places, b.rem(tid, 32));
  Value place = sorter.getPlace(), base = scalar(op.getBase());
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
  SmallVector<Value> bestValues, bestIndices, topValues, topIndices;
  if (!isShared) {
    bestValues = registersOf(op.getBestValues());
    bestIndices = registersOf(op.getBestIndices());
  }
  int64_t ownRows = llvm::divideCeil(best.rows, rowsAtOnce);
  for (int64_t done = 0; done < ownRows; done += mostRows) {
    LaneSorter::Lists lists;
    int64_t end = std::min(done + mostRows, ownRows);
    for (int64_t k = done; k < end; ++k) {
      Value row = arith::MinSIOp::create(
          b, b.add(b.div(tid, places), k * rowsAtOnce), b.i32(best.rows - 1));
      Value element = isShared ? readListed(row, place)
                               : sorter.pack(bestValues[k], bestIndices[k]);
      lists.rows.push_back(row);
      lists.elements.push_back(element);
      lists.last.push_back(isShared ? readListed(row, b.i32(best.cols - 1))
                                    : sorter.last(element));
    }
    for (int64_t c = 0; c < candidates.cols;)
      c += sorter.mergeNext(lists, c, candidates.cols, readCandidate);
    for (int64_t k = done; k < end; ++k) {
      auto [value, index] = sorter.unpack(lists.elements[k - done]);
      topValues.push_back(value);
      topIndices.push_back(index);
    }
  }
  if (!isShared) {
    registers[op.getTopValues()] = std::move(topValues);
    registers[op.getTopIndices()] = std::move(topIndices);
    return;
  }
  for (int64_t k = 0; k < ownRows; ++k) {
    Value row = b.add(b.div(tid, places), k * rowsAtOnce);
    Value exists =
        (k + 1) * rowsAtOnce > best.rows ? b.less(row, best.rows) : Value();
    b.ifThen(b.both(exists, b.less(place, best.cols)), [&, k = k] {
      writeShared(topValues[k], tiles.topValues, row, place);
      writeShared(topIndices[k], tiles.topIndices, row, place);
    });
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
  BlockedLayout candidates = blockedLayoutOf(op.getValues());
  BlockedLayout best = blockedLayoutOf(op.getBestValues());
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
