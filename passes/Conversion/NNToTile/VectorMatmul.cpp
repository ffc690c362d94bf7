//===- VectorMatmul.cpp - products of a few rows with a matrix ------------===//
//
// With a few rows, a product takes as long as its matrix takes to be read. A
// program reads some rows of the matrix, each once, and has the rows that they
// are multiplied with to itself: it computes them again from what a norm or an
// elementwise operation in front of the product reads, which would be a launch.
// An elementwise operation behind the product takes the sums.
//
//===----------------------------------------------------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/LibraryMatmuls.h"
#include "passes/Conversion/NNToTile/KernelGraph.h"
#include "passes/Conversion/NNToTile/NNToTile.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// x [m, k] times the transpose of w [n, k].
class VectorMatmul {
public:
  VectorMatmul(nn::MatmulOp op, const KernelSchedule &schedule);

  /// Whether it has so few rows that reading the matrix takes all of the time.
  static bool isOne(nn::MatmulOp op);
  void launch(KernelCache &cache);

private:
  bool canCompute(Operation *op) const;
  /// The operation that computes x, if that is done here; else null.
  Operation *findProducer() const;
  /// The elementwise operation that takes the product, or its two halves, as
  /// the only one; else null.
  Operation *findConsumer() const;
  std::string getKey(const KernelGraph *graph) const;
  bool isWhole() const { return slice == sizes.k; }

  /// x at some columns of a row; with `storesOthers`, the first program writes
  /// what else the producer computes.
  Value getFactor(const KernelFrame *frame, TileBuilder &b, Value x,
                  int64_t row, Value cols, bool storesOthers) const;
  void build(TileBuilder &b, const KernelGraph *graph,
             ArrayRef<Value> args) const;
  /// Writes what the consumer makes of the sums of each half.
  void store(TileBuilder &b, ArrayRef<Value> sums, Value y, int64_t row,
             Expr first) const;

  mutable nn::MatmulOp op;
  nn::MatmulOp::Sizes sizes;
  Operation *producer = nullptr, *consumer = nullptr;
  /// Parts of the rows of w that the consumer takes together, and their length.
  int64_t halves = 1, length;
  /// Rows of w that a program reads at once, one for each warp; all of its
  /// rows; and columns of a tile.
  static constexpr int64_t rowTile = 8;
  int64_t perProgram, slice;
};
} // namespace

/// The columns that a program takes at once: all, if a warp has registers for
/// them, or a part of them of which each thread has whole vectors.
static int64_t getSlice(int64_t k, int64_t bits) {
  constexpr int64_t lanes = 32, mostBytes = 6144;
  int64_t vectors = lanes * 128 / bits;
  for (int64_t slice = std::min(k, mostBytes * 8 / bits); slice >= vectors;
       --slice)
    if (k % slice == 0 && (slice % vectors == 0 || slice == k))
      return slice;
  return std::min<int64_t>(k, vectors);
}

VectorMatmul::VectorMatmul(nn::MatmulOp op, const KernelSchedule &schedule)
    : op(op), sizes(op.getSizes()),
      slice(getSlice(sizes.k,
                     getElementType(op.getLhs()).getIntOrFloatBitWidth())) {
  producer = findProducer();
  consumer = findConsumer();
  if (consumer)
    halves = consumer->getNumOperands();
  length = sizes.n / halves;
  // What is computed again by each program is little beside what it reads if
  // there are no more of them than run at once: two on a multiprocessor, one
  // where its threads hold a row that was normed.
  bool isNormed = producer && !KernelGraph(producer).getRoots().empty();
  int64_t programs = (isNormed ? 1 : 2) * schedule.processors;
  perProgram = static_cast<int64_t>(
      llvm::alignTo(llvm::divideCeil(length, programs), rowTile));
}

bool VectorMatmul::isOne(nn::MatmulOp op) {
  constexpr int64_t mostRows = 4, vector = 8;
  nn::MatmulOp::Sizes sizes = op.getSizes();
  return op.getTransposeRhs() && !op.getTransposeLhs() &&
         !op.getAccumulator() && sizes.m <= mostRows && sizes.m > 0 &&
         sizes.n > 0 && sizes.k > 0 && sizes.k % vector == 0;
}

/// Whether programs can compute what `op` does.
bool VectorMatmul::canCompute(Operation *op) const {
  if (!isa<nn::FusedOp, FusibleOpInterface>(op))
    return false;
  KernelGraph graph(op);
  bool isNormed = graph.getRoots().size() == 1 &&
                  isa<nn::RMSNormOp>(graph.getRoots().front());
  if (!graph.getRoots().empty() && !(isNormed && isWhole()))
    return false;
  Value lhs = this->op.getLhs();
  for (auto [output, result] :
       llvm::zip_equal(graph.getOutputs(), op->getResults())) {
    if (result == lhs || result.use_empty())
      continue;
    if (!graph.isElements(output) || !isWhole())
      return false;
  }
  return llvm::all_of(graph.getInputs(), [&](Value value) {
    return !graph.isElements(value) ||
           ShapedType::getNumElements(getShape(value)) == sizes.m * sizes.k;
  });
}

Operation *VectorMatmul::findProducer() const {
  Operation *source = op.getLhs().getDefiningOp();
  if (!source || !op.getLhs().hasOneUse() || !canCompute(source))
    return nullptr;
  // The launch stands where the producer does.
  Operation *matrix = op.getRhs().getDefiningOp();
  return matrix && !matrix->isBeforeInBlock(source) ? nullptr : source;
}

Operation *VectorMatmul::findConsumer() const {
  Value output = op.getOutput();
  if (!output.hasOneUse())
    return nullptr;
  Operation *user = *output.user_begin();
  auto isAlone = [&](Operation *by, size_t operands) {
    return isa<ElementwiseOpInterface>(by) &&
           isa<FunctionOpInterface>(by->getParentOp()) &&
           by->getNumResults() == 1 && by->getNumOperands() == operands;
  };
  auto split = dyn_cast<nn::SplitOp>(user);
  if (!split)
    return isAlone(user, 1) ? user : nullptr;
  if (split.getRows() || split.getParts().size() != 2 ||
      split.getSizes()[0] != split.getSizes()[1] ||
      split.getSizes()[0] % rowTile != 0)
    return nullptr;
  Operation *by = nullptr;
  for (Value part : split.getParts()) {
    if (!part.hasOneUse() || (by && *part.user_begin() != by))
      return nullptr;
    by = *part.user_begin();
  }
  return isAlone(by, 2) ? by : nullptr;
}

void VectorMatmul::store(TileBuilder &b, ArrayRef<Value> sums, Value y,
                         int64_t row, Expr first) const {
  Value result = sums[0];
  if (consumer) {
    auto formula = cast<ElementwiseOpInterface>(consumer);
    Type rounded = getElementType(op.getOutput());
    SmallVector<Value> operands;
    for (Value operand : consumer->getOperands()) {
      auto part = cast<OpResult>(operand);
      unsigned half =
          isa<nn::SplitOp>(part.getOwner()) ? part.getResultNumber() : 0;
      operands.push_back(b.convertTo(sums[half], rounded));
    }
    Type type = getElementType(consumer->getResult(0));
    result = b.map(operands, SmallVector<Type>{type}, [&](ArrayRef<Expr> x) {
      return formula.buildElements(b.getBuilder(),
                                   llvm::to_vector_of<Value>(x));
    })[0];
  }
  b.store(result, y, {row, b.range(first, rowTile, 0)});
}

Value VectorMatmul::getFactor(const KernelFrame *frame, TileBuilder &b, Value x,
                              int64_t row, Value cols,
                              bool storesOthers) const {
  if (!frame)
    return b.load(x, {row, cols});
  const KernelGraph &graph = frame->getGraph();
  Operation *root = graph.getRoots().empty() ? nullptr : graph.getRoots()[0];
  Elements at(*frame, root, {row, cols});
  if (auto norm = dyn_cast_or_null<nn::RMSNormOp>(root)) {
    double eps = norm.getEps().convertToDouble();
    Value weights = b.load(frame->getInput(norm.getWeight()), {cols});
    Value input = at.getF32(norm.getInput());
    Value squares =
        b.map({input}, b.f32(), [](ArrayRef<Expr> e) { return e[0] * e[0]; });
    Value rstd = b.map({b.reduceAdd(squares)}, b.f32(), [&](ArrayRef<Expr> e) {
      return 1 / sqrt(e[0] * (1.0 / static_cast<double>(sizes.k)) + eps);
    });
    at.set(norm.getOutput(),
           b.map({input, rstd, weights}, b.f32(),
                 [](ArrayRef<Expr> e) { return e[0] * e[1] * e[2]; }));
  }
  auto number = cast<OpResult>(op.getLhs()).getResultNumber();
  Value factor = at.get(graph.getOutputs()[number]);
  if (storesOthers)
    b.ifThen(b.programId(0) == 0, [&] { at.storeOutputs(); });
  return factor;
}

/// Program: a range of rows of w. `args` are what x is computed from or x, w,
/// y, and what else is computed, null where that has no memory.
void VectorMatmul::build(TileBuilder &b, const KernelGraph *graph,
                         ArrayRef<Value> args) const {
  size_t numInputs = graph ? graph->getInputs().size() : 1;
  Value w = b.view(args[numInputs], {sizes.n, sizes.k});
  Value y = b.view(args[numInputs + 1], {sizes.m, length});
  std::optional<KernelFrame> frame;
  Value x;
  if (graph) {
    SmallVector<Value> own(args.take_front(numInputs));
    llvm::append_range(own, args.drop_front(numInputs + 2));
    frame.emplace(b, *graph, own, ArrayRef<Extent>{sizes.m, sizes.k});
  } else {
    x = b.view(args[0], {sizes.m, sizes.k});
  }
  const KernelFrame *from = frame ? &*frame : nullptr;
  Expr start = b.programId(0) * static_cast<double>(perProgram);
  Expr end = min(start + static_cast<double>(perProgram), length);
  Value cols = b.range(0, slice, 1);
  auto loadRows = [&](Expr first, int64_t half, Value columns) {
    Expr own = first + static_cast<double>(half * length);
    return b.load(w, {b.range(own, rowTile, 0), columns});
  };
  auto multiply = [&](Value rows, Value factor) {
    return b.reduceAdd(b.map({rows, factor}, b.f32(),
                             [](ArrayRef<Expr> e) { return e[0] * e[1]; }));
  };
  auto storeAll = [&](ArrayRef<Value> sums, Expr first) {
    for (int64_t row = 0; row < sizes.m; ++row)
      store(b, sums.slice(row * halves, halves), y, row, first);
  };
  SmallVector<Value> factors;
  for (int64_t row = 0; isWhole() && row < sizes.m; ++row)
    factors.push_back(getFactor(from, b, x, row, cols, bool(graph)));
  SmallVector<Value> zeros(sizes.m * halves, b.zeros(rowTile, 1));
  // One half after the other, so that threads have registers for two programs
  // on a multiprocessor.
  auto addSlice = [&](Expr first, Value columns, ArrayRef<Value> carried) {
    SmallVector<Value> next(carried);
    for (int64_t half = 0; half < halves; ++half) {
      Value rows = loadRows(first, half, columns);
      for (int64_t row = 0; row < sizes.m; ++row) {
        Value factor = isWhole() ? factors[row]
                                 : getFactor(from, b, x, row, columns, false);
        Value sum = multiply(rows, factor);
        Value &total = next[row * halves + half];
        total = isWhole() ? sum
                          : b.map({total, sum}, b.f32(),
                                  [](ArrayRef<Expr> e) { return e[0] + e[1]; });
      }
    }
    return next;
  };
  b.forLoop(start, end, rowTile, {},
            [&](Expr first, ArrayRef<Value>) -> SmallVector<Value> {
              auto addColumns = [&](Expr column, ArrayRef<Value> carried) {
                return addSlice(first, b.range(column, slice, 1), carried);
              };
              storeAll(isWhole()
                           ? addSlice(first, cols, zeros)
                           : b.forLoop(0, sizes.k, slice, zeros, addColumns),
                       first);
              return {};
            });
}

/// What the kernel depends on besides the product.
std::string VectorMatmul::getKey(const KernelGraph *graph) const {
  std::string key = graph ? graph->getKey() : "vector";
  llvm::raw_string_ostream os(key);
  if (consumer) {
    os << ' ' << consumer->getName();
    if (Attribute properties = consumer->getPropertiesAsAttribute())
      properties.print(os);
    for (Value operand : consumer->getOperands())
      os << ' ' << cast<OpResult>(operand).getResultNumber();
    os << ' ' << consumer->getResult(0).getType();
  }
  if (!graph)
    return key;
  os << ' ' << producer->getName();
  if (Attribute properties = producer->getPropertiesAsAttribute())
    properties.print(os);
  os << " (" << producer->getOperandTypes() << ") -> ("
     << producer->getResultTypes() << ") ";
  for (OpResult result : producer->getResults())
    os << (result == op.getLhs() ? 'x' : result.use_empty() ? '0' : '1');
  return key;
}

void VectorMatmul::launch(KernelCache &cache) {
  std::optional<KernelGraph> graph;
  OpBuilder builder(op);
  SmallVector<Value> inputs = {op.getLhs()}, others;
  std::string suffix = "vector";
  if (producer) {
    graph.emplace(producer);
    builder.setInsertionPoint(producer);
    inputs.assign(producer->operand_begin(), producer->operand_end());
    suffix = graph->getSuffix();
    if (suffix.empty())
      suffix = producer->getName().stripDialect();
    for (Value result : producer->getResults())
      if (result != op.getLhs() && !result.use_empty())
        others.push_back(result);
  }
  if (consumer)
    suffix += ("_" + consumer->getName().stripDialect()).str();
  inputs.push_back(op.getRhs());
  const KernelGraph *own = graph ? &*graph : nullptr;
  auto size = [](int64_t number) { return std::to_string(number); };
  KernelSpec spec = {
      suffix,
      "m" + size(sizes.m) + "n" + size(sizes.n) + "k" + size(sizes.k),
      {static_cast<int64_t>(llvm::divideCeil(length, perProgram)), 1, 1},
      2 * sizes.m * sizes.n * sizes.k,
      getKey(own)};
  Value output = consumer ? consumer->getResult(0) : Value(op.getOutput());
  SmallVector<Type> types = {output.getType()};
  llvm::append_range(types, ValueRange(others).getTypes());
  ResultRange results =
      cache.launch(builder, op, spec, inputs, types,
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     // Results that nobody needs have no memory.
                     SmallVector<Value> all(args.take_front(inputs.size() + 1));
                     args = args.drop_front(all.size());
                     if (producer)
                       for (Value result : producer->getResults()) {
                         bool isStored = llvm::is_contained(others, result);
                         all.push_back(isStored ? args.front() : Value());
                         args = args.drop_front(isStored ? 1 : 0);
                       }
                     build(b, own, all);
                   });
  output.replaceAllUsesWith(results[0]);
  for (auto [value, result] : llvm::zip_equal(others, results.drop_front()))
    value.replaceAllUsesWith(result);
  if (consumer) {
    auto split = dyn_cast<nn::SplitOp>(*op.getOutput().user_begin());
    consumer->erase();
    if (split)
      split.erase();
  }
  op.erase();
  if (producer)
    producer->erase();
}

void nsa::launchVectorMatmuls(ModuleOp module, KernelCache &cache) {
  SmallVector<nn::MatmulOp> products;
  module.walk([&](nn::MatmulOp op) {
    if (isa<FunctionOpInterface>(op->getParentOp()) && VectorMatmul::isOne(op))
      products.push_back(op);
  });
  for (nn::MatmulOp op : products)
    VectorMatmul(op, cache.getSchedule()).launch(cache);
}
