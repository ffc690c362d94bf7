//===- ThreadLists.cpp - lists that lie in one thread each ----------------===//
//
// A list lies in registers of one thread, without exchanges between lanes. Most
// candidates are below all of the list: bits say which ones are not, and these
// are inserted. Where a list of the warp has many of them, all are sorted and
// merged by networks of comparisons.
//
//===----------------------------------------------------------------------===//

#include "passes/TileGPUToNVVM/ThreadLists.h"
#include "passes/TileGPU/Scratch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Networks
//===----------------------------------------------------------------------===//

/// Orders two positions of a list.
using Comparator = llvm::function_ref<void(size_t first, size_t second)>;

/// Batcher's odd-even merge sort of `count` elements, a power of two.
static void sortAll(size_t count, Comparator order) {
  for (size_t run = 1; run < count; run *= 2)
    for (size_t distance = run; distance > 0; distance /= 2)
      for (size_t j = distance % run; j + distance < count; j += 2 * distance)
        for (size_t i = j; i < std::min(j + distance, count - distance); ++i)
          if (i / (2 * run) == (i + distance) / (2 * run))
            order(i, i + distance);
}

/// Sorts a sequence of `count` elements that first descends, then ascends.
static void sortBitonic(size_t count, Comparator order) {
  for (size_t distance = count / 2; distance > 0; distance /= 2)
    for (size_t i = 0; i < count; ++i)
      if ((i & distance) == 0)
        order(i, i + distance);
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

namespace {
/// The elements of a list, or candidates: larger values first, then lower
/// indices.
struct Elements {
  SmallVector<Value> values, indices;
};

/// The list of one row, to which the candidates of a tile are added.
class ThreadList {
public:
  ThreadList(TopNOp op, TileReader &in, const ScratchTile &candidates)
      : op(op), in(in), b(in.b), candidates(candidates),
        cols(RegisterLayout(op.getValues()).cols),
        count(RegisterLayout(op.getBestValues()).cols) {}

  /// Adds those of a row to `list`, which are the values, then the indices. No
  /// candidates where the row does not exist; null is true.
  SmallVector<Value> merge(SmallVector<Value> list, Value row, Value isRow);

private:
  Value isAbove(Value value, Value other) {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, value, other);
  }
  Value getIndex(Value col) {
    return arith::AddIOp::create(b, in.scalar(op.getBase()), col);
  }
  Value getBits(Value last, Value row, int64_t first);
  SmallVector<Value> insert(ValueRange list, Value value, Value index);
  SmallVector<Value> mergeFew(ValueRange list, Value row, int64_t first,
                              Value above, Value number);
  SmallVector<Value> mergeMany(ValueRange list, Value row, int64_t first);
  Elements read(Value row, int64_t first, size_t length);
  /// Whether element `j` comes before element `i`.
  Value isSecondFirst(const Elements &x, size_t i, const Elements &y, size_t j);
  void order(Elements &elements, size_t i, size_t j);

  /// Columns that have a bit, and the most that are inserted: more than so many
  /// insertions take longer than networks.
  static constexpr int64_t columns = 32, few = 12;

  TopNOp op;
  TileReader &in;
  ThreadBuilder &b;
  const ScratchTile &candidates;
  int64_t cols;
  size_t count;
};
} // namespace

/// Bit `k` of a row: its candidate of column `first + k` is above `last`.
Value ThreadList::getBits(Value last, Value row, int64_t first) {
  last = arith::MaxNumFOp::create(b, last, b.constant(b.getF32Type(), kLeast));
  Value bits = b.i32(0);
  for (int64_t c = first; c < std::min(first + columns, cols); ++c) {
    Value value = candidates.read(b, row, b.i32(int32_t(c)));
    Value bit = b.select(isAbove(value, last),
                         b.i32(int32_t(1U << (c - first))), b.i32(0));
    bits = b.createOrFold<arith::OrIOp>(bits, bit);
  }
  return bits;
}

/// Candidates come in the order of indices: equal values stay before them.
SmallVector<Value> ThreadList::insert(ValueRange list, Value value,
                                      Value index) {
  SmallVector<Value> above = llvm::map_to_vector(
      list.take_front(count), [&](Value own) { return isAbove(value, own); });
  SmallVector<Value> result;
  for (auto [i, own] : llvm::enumerate(list)) {
    size_t k = i % count;
    Value next = i < count ? value : index;
    if (k > 0)
      next = b.select(above[k - 1], list[i - 1], next);
    result.push_back(b.select(above[k], next, own));
  }
  return result;
}

SmallVector<Value> ThreadList::mergeFew(ValueRange list, Value row,
                                        int64_t first, Value above,
                                        Value number) {
  SmallVector<Value> carried(list);
  carried.push_back(above);
  auto insertNext = [&](Value, ValueRange carried) {
    Value bits = carried.back();
    Value bit = LLVM::CountTrailingZerosOp::create(b, b.getI32Type(), bits,
                                                   /*is_zero_poison=*/true);
    Value col = b.add(bit, first);
    SmallVector<Value> next = insert(
        carried.drop_back(), candidates.read(b, row, col), getIndex(col));
    next.push_back(arith::AndIOp::create(
        b, bits, arith::AddIOp::create(b, bits, b.i32(-1))));
    return next;
  };
  carried = b.loop(b.i32(0), number, b.i32(1), carried, insertNext);
  carried.pop_back();
  return carried;
}

/// Columns `first` and on of a row, empty positions for what is no candidate.
Elements ThreadList::read(Value row, int64_t first, size_t length) {
  Value none = b.constant(b.getF32Type(), -1), noIndex = b.i32(-1);
  Elements result;
  for (int64_t c = first; c < first + int64_t(length); ++c) {
    if (c >= cols) {
      result.values.push_back(none);
      result.indices.push_back(noIndex);
      continue;
    }
    Value col = b.i32(int32_t(c)), value = candidates.read(b, row, col);
    Value exists = isAbove(value, b.constant(b.getF32Type(), kLeast));
    result.values.push_back(b.select(exists, value, none));
    result.indices.push_back(b.select(exists, getIndex(col), noIndex));
  }
  return result;
}

Value ThreadList::isSecondFirst(const Elements &x, size_t i, const Elements &y,
                                size_t j) {
  Value isEqual = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                        x.values[i], y.values[j]);
  Value isLower = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                        y.indices[j], x.indices[i]);
  return arith::OrIOp::create(b, isAbove(y.values[j], x.values[i]),
                              arith::AndIOp::create(b, isEqual, isLower));
}

void ThreadList::order(Elements &elements, size_t i, size_t j) {
  Value swap = isSecondFirst(elements, i, elements, j);
  for (SmallVector<Value> *list : {&elements.values, &elements.indices}) {
    Value first = (*list)[i], second = (*list)[j];
    (*list)[i] = b.select(swap, second, first);
    (*list)[j] = b.select(swap, first, second);
  }
}

/// The first of a sorted list, and of candidates that are sorted in the other
/// direction, are a bitonic sequence.
SmallVector<Value> ThreadList::mergeMany(ValueRange list, Value row,
                                         int64_t first) {
  size_t length = llvm::bit_ceil(count);
  Elements own = {SmallVector<Value>(list.take_front(count)),
                  SmallVector<Value>(list.drop_front(count))};
  own.values.resize(length, b.constant(b.getF32Type(), -1));
  own.indices.resize(length, b.i32(-1));
  int64_t end = std::min(first + columns, cols);
  for (int64_t c = first; c < end; c += int64_t(length)) {
    Elements found = read(row, c, length);
    sortAll(length, [&](size_t i, size_t j) { order(found, i, j); });
    for (size_t i = 0, j = length - 1; i < length; ++i, --j) {
      Value swap = isSecondFirst(own, i, found, j);
      own.values[i] = b.select(swap, found.values[j], own.values[i]);
      own.indices[i] = b.select(swap, found.indices[j], own.indices[i]);
    }
    sortBitonic(length, [&](size_t i, size_t j) { order(own, i, j); });
  }
  own.values.resize(count);
  own.values.append(own.indices.begin(), own.indices.begin() + count);
  return std::move(own.values);
}

SmallVector<Value> ThreadList::merge(SmallVector<Value> list, Value row,
                                     Value isRow) {
  for (int64_t first = 0; first < cols; first += columns) {
    Value above = getBits(list[count - 1], row, first);
    if (isRow)
      above = b.select(isRow, above, b.i32(0));
    Value number = LLVM::CtPopOp::create(b, b.getI32Type(), above);
    Value isMany =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, number, b.i32(few));
    list = b.ifElse(
        b.vote(isMany, NVVM::VoteSyncKind::any), TypeRange(ValueRange(list)),
        [&] { return mergeMany(list, row, first); },
        [&] { return mergeFew(list, row, first, above, number); });
  }
  return list;
}

//===----------------------------------------------------------------------===//
// The operations
//===----------------------------------------------------------------------===//

Results nsa::cuda::lowerTopNInThreads(TopNOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  ScratchTile candidates = share(in, op.getValuesMutable());
  RegisterLayout best(op.getBestValues());
  SmallVector<Value> bestValues = in.registersOf(op.getBestValues());
  SmallVector<Value> bestIndices = in.registersOf(op.getBestIndices());
  ThreadList merger(op, in, candidates);
  Results results(2);
  for (int64_t r = 0; r < best.rowCount(); ++r) {
    auto own = [&](ArrayRef<Value> registers) {
      return registers.slice(size_t(r * best.cols), size_t(best.cols));
    };
    SmallVector<Value> list = llvm::to_vector(
        llvm::concat<const Value>(own(bestValues), own(bestIndices)));
    Value row = b.rowOf(best, r), isRow = b.hasRow(best, r);
    auto merge = [&] {
      return merger.merge(list, b.clamp(row, best.rows), isRow);
    };
    if (isRow) {
      // All lanes of a warp vote.
      Value first = b.add(b.mul(b.place().warp, kWarp), best.rowOffset(r));
      list = b.ifElse(b.less(first, best.rows), TypeRange(ValueRange(list)),
                      merge, [&] { return list; });
    } else {
      list = merge();
    }
    results[0].append(list.begin(), list.begin() + best.cols);
    results[1].append(list.begin() + best.cols, list.end());
  }
  return results;
}

Results nsa::cuda::lowerSortInThreads(SortOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  RegisterLayout layout(op.getInput());
  SmallVector<Value> input = in.registersOf(op.getInput()), results;
  size_t cols = size_t(layout.cols), length = llvm::bit_ceil(cols);
  for (size_t r = 0; r < size_t(layout.rowCount()); ++r) {
    SmallVector<Value> row(ArrayRef<Value>(input).slice(r * cols, cols));
    row.resize(length, b.i32(-1));
    sortAll(length, [&](size_t i, size_t j) {
      Value first = row[i], second = row[j];
      row[i] = arith::MinUIOp::create(b, first, second);
      row[j] = arith::MaxUIOp::create(b, first, second);
    });
    results.append(row.begin(), row.begin() + cols);
  }
  return {results};
}
