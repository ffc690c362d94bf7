//===- TopNPatterns.cpp - lists of the largest values of rows -------------===//
//
// Short lists of many rows lie in one thread each (ThreadLists.cpp), others of
// up to 32 elements in neighbouring lanes, one for each position, and longer
// ones in several registers of the 32 lanes of a warp. They are
// sorted by exchanges between lanes, and between registers of a lane. An
// element is one number of 64 bits: larger values first, then lower indices.
// Most candidates are below all of the list: lanes vote which ones are not, and
// sort these few.
//
//===----------------------------------------------------------------------===//

#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPUToNVVM/ThreadLists.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

static Value low(ThreadBuilder &b, Value element) {
  return arith::TruncIOp::create(b, b.getI32Type(), element);
}
static Value high(ThreadBuilder &b, Value element) {
  return low(b, arith::ShRUIOp::create(b, element, b.i64(32)));
}
static Value join(ThreadBuilder &b, Value high, Value low) {
  auto extend = [&](Value word) -> Value {
    return arith::ExtUIOp::create(b, b.getI64Type(), word);
  };
  return arith::OrIOp::create(
      b, arith::ShLIOp::create(b, extend(high), b.i64(32)), extend(low));
}

static Value complement(ThreadBuilder &b, Value word) {
  return arith::XOrIOp::create(b, word, b.i32(-1));
}

/// 0 for what is no candidate, else a number that is larger for larger values,
/// and for lower indices of equal values. Bits of numbers have the order of
/// unsigned integers once those of positive numbers have a sign and those of
/// negative ones are inverted.
static Value packElement(ThreadBuilder &b, Value value, Value index) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  // No zero has a sign after this.
  Value bits = arith::BitcastOp::create(
      b, i32, arith::AddFOp::create(b, value, b.constant(f32, 0)));
  Value sign = arith::ShRSIOp::create(b, bits, b.i32(31));
  Value ordered = arith::XOrIOp::create(
      b, bits, arith::OrIOp::create(b, sign, b.i32(INT32_MIN)));
  Value element = join(b, ordered, complement(b, index));
  Value isCandidate = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, value,
                                            b.constant(f32, kLeast));
  return b.select(isCandidate, element, b.i64(0));
}

/// The value and the index of an element.
static std::pair<Value, Value> unpackElement(ThreadBuilder &b, Value element) {
  Value ordered = high(b, element);
  // The first bit is set of what was positive.
  Value positive = arith::ShRSIOp::create(b, ordered, b.i32(31));
  Value flip =
      arith::OrIOp::create(b, complement(b, positive), b.i32(INT32_MIN));
  Value value = arith::BitcastOp::create(
      b, b.getF32Type(), arith::XOrIOp::create(b, ordered, flip));
  return {b.select(b.equal(element, 0), b.constant(b.getF32Type(), -1), value),
          complement(b, low(b, element))};
}

//===----------------------------------------------------------------------===//
// In lanes
//===----------------------------------------------------------------------===//

namespace {
/// Sorts what groups of lanes hold in descending order: an element each, or
/// several registers, of which the first holds the first `places`. Of several
/// rows in step, so that a row does not wait for its own exchanges.
class LaneSorter {
public:
  /// Lists of `cols` elements, filled up to a power of two, in groups of up to
  /// 32 lanes.
  LaneSorter(ThreadBuilder &b, int64_t cols)
      : b(b), cols(cols), length(int64_t(llvm::bit_ceil(uint64_t(cols)))),
        places(std::min<int64_t>(length, 32)), lane(b.rem(b.threadId(), 32)),
        place(b.rem(lane, places)) {}

  int64_t getPlaces() const { return places; }
  int64_t getLength() const { return length; }
  /// Registers of a list.
  int64_t getDepth() const { return length / places; }

  /// The elements of this lane in a row, which no other thread may read; 0 for
  /// those that do not exist. `isRow` is whether the row does, null is true.
  SmallVector<Value> readRow(Value isRow,
                             llvm::function_ref<Value(Value col)> read);
  /// Writes those of several rows back, where they exist.
  using Writer = llvm::function_ref<void(Value element, Value row, Value col)>;
  void writeRows(ArrayRef<Value> rows, ArrayRef<Value> exists,
                 ArrayRef<Value> elements, Writer write);

  /// Sorts `count` neighbours each, a power of two; those of more than one
  /// register lie one after the other.
  SmallVector<Value> sort(SmallVector<Value> elements, int64_t count);
  /// The first of sorted lists and of sorted groups, sorted.
  SmallVector<Value> merge(ArrayRef<Value> lists, ArrayRef<Value> groups);
  /// Element `number` of a list.
  Value get(ArrayRef<Value> list, int64_t number);

  /// The lists of some rows, sorted: registers of the first row, of the second
  /// .., and the last element of each.
  struct Lists {
    SmallVector<Value> rows, elements, last;
  };
  /// Element `col` of a row of candidates; 0 past its end.
  using Candidates = llvm::function_ref<Value(Value row, Value col)>;
  /// Takes candidates, of `cols` columns, into lists.
  void mergeCandidates(Lists &lists, int64_t cols, Candidates candidates) {
    for (int64_t done = 0; done < cols;)
      done += mergeNext(lists, done, cols, candidates);
  }
  Value isLarger(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, x, y);
  }

private:
  /// The number of an element of this lane in its list.
  Value getCol(int64_t k) { return b.add(place, k * places); }
  Value isInside(Value isRow, Value col) {
    return b.both(isRow, cols < length ? b.less(col, cols) : Value());
  }
  Value hasBit(int64_t bit) {
    return b.differs(arith::AndIOp::create(b, place, b.i32(bit)), 0);
  }
  /// The element of the lane whose position differs in `mask`.
  Value across(Value element, int64_t mask) {
    return join(b, b.shuffle(high(b, element), unsigned(mask)),
                b.shuffle(low(b, element), unsigned(mask)));
  }
  /// Compares elements of `count` neighbours whose numbers differ in
  /// `distance`: the lower position gets the larger one, or the smaller one in
  /// every second run.
  void exchange(MutableArrayRef<Value> elements, int64_t count,
                int64_t distance, int64_t run);
  void exchangeRegisters(MutableArrayRef<Value> elements, int64_t count,
                         int64_t distance, int64_t run);
  /// Merges columns `first` and on, up to 32 of `cols`, into lists; returns how
  /// many.
  int64_t mergeNext(Lists &lists, int64_t first, int64_t cols,
                    Candidates candidates);
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
  int64_t cols, length, places;
  Value lane, place;
};
} // namespace

SmallVector<Value>
LaneSorter::readRow(Value isRow, llvm::function_ref<Value(Value col)> read) {
  SmallVector<Value> elements;
  for (int64_t k = 0; k < getDepth(); ++k) {
    Value col = getCol(k), exists = isInside(isRow, col);
    if (!exists) {
      elements.push_back(read(col));
      continue;
    }
    elements.push_back(b.ifElse(
        exists, b.getI64Type(), [&] { return SmallVector<Value>{read(col)}; },
        [&] { return SmallVector<Value>{b.i64(0)}; })[0]);
  }
  return elements;
}

void LaneSorter::writeRows(ArrayRef<Value> rows, ArrayRef<Value> exists,
                           ArrayRef<Value> elements, Writer write) {
  for (auto [i, element] : llvm::enumerate(elements)) {
    Value col = getCol(int64_t(i) % getDepth());
    size_t row = i / getDepth();
    b.ifThen(isInside(exists[row], col),
             [&, element = element] { write(element, rows[row], col); });
  }
}

void LaneSorter::exchangeRegisters(MutableArrayRef<Value> elements,
                                   int64_t count, int64_t distance,
                                   int64_t run) {
  int64_t depth = count / places, step = distance / places;
  for (auto i : llvm::seq<int64_t>(0, int64_t(elements.size()))) {
    int64_t k = i % depth;
    if ((k & step) != 0)
      continue;
    Value &first = elements[i], &second = elements[i + step];
    Value isSorted = isLarger(first, second);
    Value larger = b.select(isSorted, first, second);
    second = b.select(isSorted, second, first);
    first = larger;
    if (run < count && (k * places & run) != 0)
      std::swap(first, second);
  }
}

void LaneSorter::exchange(MutableArrayRef<Value> elements, int64_t count,
                          int64_t distance, int64_t run) {
  if (distance >= places)
    return exchangeRegisters(elements, count, distance, run);
  int64_t depth = llvm::divideCeil(count, places);
  Value keepsSmaller = hasBit(distance);
  if (run < std::min(count, places))
    keepsSmaller = arith::XOrIOp::create(b, keepsSmaller, hasBit(run));
  SmallVector<Value> others = llvm::map_to_vector(
      elements, [&](Value element) { return across(element, distance); });
  for (auto [i, other] : llvm::enumerate(others)) {
    Value &element = elements[i];
    Value keeps =
        arith::XOrIOp::create(b, isLarger(element, other), keepsSmaller);
    bool isAscending = run >= places && run < count &&
                       (int64_t(i) % depth * places & run) != 0;
    element = isAscending ? b.select(keeps, other, element)
                          : b.select(keeps, element, other);
  }
}

/// Batcher's bitonic sort: runs of 2, 4, 8 .. positions, in turns descending
/// and ascending.
SmallVector<Value> LaneSorter::sort(SmallVector<Value> elements,
                                    int64_t count) {
  for (int64_t run = 2; run <= count; run *= 2)
    for (int64_t distance = run / 2; distance > 0; distance /= 2)
      exchange(elements, count, distance, run);
  return elements;
}

/// Each position of the last register and the one opposite of it in the group:
/// the larger ones and what comes before are a bitonic sequence of the largest.
SmallVector<Value> LaneSorter::merge(ArrayRef<Value> lists,
                                     ArrayRef<Value> groups) {
  SmallVector<Value> elements(lists), opposite(groups);
  if (places > 1)
    for (Value &element : opposite)
      element = across(element, places - 1);
  for (auto [row, element] : llvm::enumerate(opposite)) {
    Value &own = elements[(row + 1) * getDepth() - 1];
    own = b.select(isLarger(own, element), own, element);
  }
  for (int64_t distance = length / 2; distance > 0; distance /= 2)
    exchange(elements, length, distance, length);
  return elements;
}

Value LaneSorter::get(ArrayRef<Value> list, int64_t number) {
  Value element = list[number / places];
  Value first = arith::SubIOp::create(b, lane, place);
  Value source = b.add(first, number % places);
  return join(b, b.shuffleFrom(high(b, element), source),
              b.shuffleFrom(low(b, element), source));
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
      Value votes =
          b.vote(isLarger(candidate, last), NVVM::VoteSyncKind::ballot);
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
    Value exists = b.both(b.less(place, few), b.differs(rest, 0));
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
        b.vote(isMany, NVVM::VoteSyncKind::any), TypeRange(before),
        [&] { return mergeAll(lists, first, groups, candidates); },
        [&] { return mergeFew(lists, first, above, candidates); });
  };
  lists.elements = b.ifElse(b.differs(all, 0), TypeRange(before), mergeSome,
                            [&] { return lists.elements; });
  return groups * places;
}

/// Rows of a thread in step, of lists in one register.
static constexpr int64_t mostRows = 4;

/// Runs `body` for the rows of a tile, some of those of each group of lanes at
/// once, and whether they exist: others are the last one. Null is true.
static void forRowsOfLanes(
    ThreadBuilder &b, const LaneSorter &sorter, int64_t rows,
    llvm::function_ref<void(ArrayRef<Value> rows, ArrayRef<Value> exists)>
        body) {
  int64_t groups = b.getThreads() / sorter.getPlaces();
  Value own = b.div(b.threadId(), sorter.getPlaces());
  int64_t atOnce = std::clamp<int64_t>(mostRows / sorter.getDepth(), 1,
                                       llvm::divideCeil(rows, groups));
  b.loop(b.i32(0), b.i32(int32_t(rows)), b.i32(int32_t(atOnce * groups)), {},
         [&](Value begin, ValueRange) -> SmallVector<Value> {
           SmallVector<Value> inside, exists;
           for (int64_t k = 0; k < atOnce; ++k) {
             Value row =
                 b.add(arith::AddIOp::create(b, own, begin), k * groups);
             exists.push_back(rows % (atOnce * groups) ? b.less(row, rows)
                                                       : Value());
             inside.push_back(b.clamp(row, rows));
           }
           body(inside, exists);
           return {};
         });
}

//===----------------------------------------------------------------------===//
// The operations
//===----------------------------------------------------------------------===//

/// A packed candidate, 0 past the end of its row.
static Value readCandidate(TileReader &in, TopNOp op, const ScratchTile &from,
                           Value row, Value col) {
  ThreadBuilder &b = in.b;
  int64_t cols = RegisterLayout(op.getValues()).cols;
  Value inside = b.clamp(col, cols);
  Value index = arith::AddIOp::create(b, in.scalar(op.getBase()), inside);
  return b.select(b.less(col, cols),
                  packElement(b, from.read(b, row, inside), index), b.i64(0));
}

/// Lists are in the registers of the threads that are their lanes.
static Results lowerTopNInRegisters(TopNOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  ScratchTile from = share(in, op.getValuesMutable());
  RegisterLayout best(op.getBestValues());
  LaneSorter sorter(b, best.cols);
  int64_t rowsAtOnce = b.getThreads() / sorter.getPlaces();
  SmallVector<Value> bestValues = in.registersOf(op.getBestValues());
  SmallVector<Value> bestIndices = in.registersOf(op.getBestIndices());
  SmallVector<Value> topValues, topIndices;
  int64_t ownRows = llvm::divideCeil(best.rows, rowsAtOnce);
  for (int64_t done = 0; done < ownRows; done += mostRows) {
    LaneSorter::Lists lists;
    for (int64_t k = done; k < std::min(done + mostRows, ownRows); ++k) {
      lists.rows.push_back(b.clamp(
          b.add(b.div(b.threadId(), sorter.getPlaces()), k * rowsAtOnce),
          best.rows));
      lists.elements.push_back(packElement(b, bestValues[k], bestIndices[k]));
      lists.last.push_back(sorter.get(lists.elements.back(), best.cols - 1));
    }
    sorter.mergeCandidates(lists, RegisterLayout(op.getValues()).cols,
                           [&](Value row, Value col) {
                             return readCandidate(in, op, from, row, col);
                           });
    for (Value element : lists.elements) {
      auto [value, index] = unpackElement(b, element);
      topValues.push_back(value);
      topIndices.push_back(index);
    }
  }
  return {std::move(topValues), std::move(topIndices)};
}

static Results lowerTopN(TopNOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout best(op.getBestValues());
  LaneSorter sorter(b, best.cols);
  if (isInThreads(op.getBestValues()))
    return lowerTopNInThreads(op, in);
  if (staysInRegisters(op))
    return lowerTopNInRegisters(op, in);
  Scratch scratch(in);
  ScratchTile from = scratch.store(op.getValues());
  ScratchTile values = scratch.store(op.getBestValues());
  ScratchTile indices = scratch.store(op.getBestIndices());
  scratch.endStores();
  auto mergeRows = [&](ArrayRef<Value> rows, ArrayRef<Value> exists) {
    LaneSorter::Lists lists;
    llvm::append_range(lists.rows, rows);
    for (auto [row, isRow] : llvm::zip_equal(rows, exists)) {
      SmallVector<Value> list =
          sorter.readRow(isRow, [&, row = row](Value col) {
            return packElement(b, values.read(b, row, col),
                               indices.read(b, row, col));
          });
      lists.last.push_back(sorter.get(list, best.cols - 1));
      llvm::append_range(lists.elements, list);
    }
    sorter.mergeCandidates(lists, RegisterLayout(op.getValues()).cols,
                           [&](Value row, Value col) {
                             return readCandidate(in, op, from, row, col);
                           });
    sorter.writeRows(rows, exists, lists.elements,
                     [&](Value element, Value row, Value col) {
                       auto [value, index] = unpackElement(b, element);
                       values.write(b, value, row, col);
                       indices.write(b, index, row, col);
                     });
  };
  forRowsOfLanes(b, sorter, best.rows, mergeRows);
  scratch.endStores();
  return {readBack(b, op.getTopValues(), values),
          readBack(b, op.getTopIndices(), indices)};
}

/// Numbers in ascending order are complements in descending order.
static Results lowerSort(SortOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout blocked(op.getInput());
  if (isInThreads(op.getInput()))
    return lowerSortInThreads(op, in);
  LaneSorter sorter(b, blocked.cols);
  ScratchTile shared = storeInScratch(in, op.getInput());
  auto sortRows = [&](ArrayRef<Value> rows, ArrayRef<Value> exists) {
    SmallVector<Value> elements;
    for (auto [row, isRow] : llvm::zip_equal(rows, exists))
      llvm::append_range(
          elements, sorter.readRow(isRow, [&, row = row](Value col) -> Value {
            return arith::ExtUIOp::create(
                b, b.getI64Type(), complement(b, shared.read(b, row, col)));
          }));
    elements = sorter.sort(std::move(elements), sorter.getLength());
    sorter.writeRows(
        rows, exists, elements, [&](Value element, Value row, Value col) {
          shared.write(b, complement(b, low(b, element)), row, col);
        });
  };
  forRowsOfLanes(b, sorter, blocked.rows, sortRows);
  nsa::tile_gpu::BarrierOp::create(b);
  return {readBack(b, op.getResult(), shared)};
}

void nsa::cuda::populateTopNPatterns(TilePatterns &patterns) {
  patterns.add(lowerTopN, lowerSort);
}
