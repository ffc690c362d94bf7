//===- VectorMatmul.cpp - matmuls of a few rows with a matrix -------------===//
//
// With a few rows, a matmul takes as long as its matrix takes to be read. A
// program reads some rows of the matrix, each once, all threads together: each
// has some columns of the rows that they are multiplied with. It
// recomputes these from the operands of a norm or an elementwise operation
// before the matmul, which saves a launch. An elementwise operation after the
// matmul is fused too.
//
// With an overlapped launch, rows of the matrix are read first, since no launch
// before it writes them.
//
//===----------------------------------------------------------------------===//

#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Kernels/NN/KernelGraph.h"
#include "passes/Kernels/NN/NNToTile.h"
#include "passes/Kernels/Passes.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/raw_ostream.h"

#include <numeric>

namespace nsa {
#define GEN_PASS_DEF_LAUNCHVECTORMATMULS
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// x [m, k] times the transpose of w [n, k].
class VectorMatmul {
public:
  VectorMatmul(nn::MatmulOp op, MachineAttr machine);

  /// Whether it has so few rows that reading the matrix takes all of the time.
  static bool isOne(nn::MatmulOp op);
  void launch(KernelCache &cache);

private:
  bool canCompute(Operation *op) const;
  /// The operation that computes x, if that is done here; else null.
  Operation *findProducer() const;
  /// The elementwise operation that takes the matmul, or its two halves, as
  /// the only one; else null.
  Operation *findConsumer() const;
  std::string getKey(const KernelGraph *graph) const;

  /// A row of x; the first program writes what else the producer computes.
  Value getFactor(const KernelFrame *frame, TileBuilder &b, Value x,
                  int64_t row) const;
  /// Some rows of w, from the same ones of each half on: of each, all halves.
  SmallVector<Value> loadRows(TileBuilder &b, Value w, Expr first) const;
  /// Adds to the sums, in columns from `place` on, those of rows of w.
  SmallVector<Value> addProducts(TileBuilder &b, ArrayRef<Value> rows,
                                 ArrayRef<Value> factors, Expr place,
                                 ArrayRef<Value> sums) const;
  void build(TileBuilder &b, const KernelGraph *graph,
             ArrayRef<Value> args) const;
  /// Writes what the consumer makes of the sums of each half.
  void store(TileBuilder &b, ArrayRef<Value> sums, Value y, int64_t row,
             Value place) const;

  mutable nn::MatmulOp op;
  nn::MatmulOp::Sizes sizes;
  Operation *producer = nullptr, *consumer = nullptr;
  /// Parts of the rows of w that the consumer takes together, and their length.
  int64_t halves = 1, length;
  /// A row is a tile: lines of so many columns, one for each warp at a time.
  int64_t lines, cols;
  /// Rows of w in each half that a program has, at most, and reads at once.
  static constexpr int64_t most = 32;
  /// Programs of a multiprocessor, as far as registers go.
  static constexpr int64_t programsAtOnce = 3;
  int64_t perProgram, atOnce;
};
} // namespace

/// The columns that a warp takes at once: a vector for each thread, or the most
/// of which there are as many in each line.
static int64_t getCols(int64_t k, int64_t vector) {
  int64_t cols = std::min(k, 32 * vector);
  while (k % cols != 0)
    cols -= vector;
  return cols;
}

VectorMatmul::VectorMatmul(nn::MatmulOp op, MachineAttr machine)
    : op(op), sizes(op.getSizes()) {
  producer = findProducer();
  consumer = findConsumer();
  if (consumer)
    halves = consumer->getNumOperands();
  length = sizes.n / halves;
  unsigned bits = getElementType(op.getRhs()).getIntOrFloatBitWidth();
  cols = getCols(sizes.k, std::gcd(sizes.k, int64_t(128) / bits));
  lines = sizes.k / cols;
  // Vectors of a thread on their way at once, with those of the same row for
  // 8 warps.
  constexpr int64_t vectors = 12, warps = 8, mostAtOnce = 8;
  int64_t perRow = halves * llvm::divideCeil(lines, warps);
  atOnce = std::clamp<int64_t>(llvm::bit_floor(uint64_t(vectors / perRow)), 1,
                               mostAtOnce);
  // Short programs: as they end, those of the next launch take their SM,
  // and ask for rows of their matrix while they wait.
  perProgram = std::min(
      most,
      static_cast<int64_t>(llvm::alignTo(
          llvm::divideCeil(length, 4 * machine.getProcessors()), atOnce)));
}

bool VectorMatmul::isOne(nn::MatmulOp op) {
  constexpr int64_t mostRows = 4, mostColumns = 32768, vector = 8;
  nn::MatmulOp::Sizes sizes = op.getSizes();
  return op.getTransposeRhs() && !op.getTransposeLhs() &&
         !op.getAccumulator() && sizes.m <= mostRows && sizes.m > 0 &&
         sizes.n > 0 && sizes.k > 0 && sizes.k <= mostColumns &&
         sizes.k % vector == 0;
}

/// Whether programs can compute what `op` does.
bool VectorMatmul::canCompute(Operation *op) const {
  if (!isa<nn::FusedOp, FusibleOpInterface>(op))
    return false;
  KernelGraph graph(op);
  bool isNormed = graph.getRoots().size() == 1 &&
                  isa<nn::RMSNormOp>(graph.getRoots().front());
  if (!graph.getRoots().empty() && !isNormed)
    return false;
  Value lhs = this->op.getLhs();
  for (auto [output, result] :
       llvm::zip_equal(graph.getOutputs(), op->getResults())) {
    if (result == lhs || result.use_empty())
      continue;
    if (!graph.isElements(output))
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
      split.getSizes()[0] != split.getSizes()[1])
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
                         int64_t row, Value place) const {
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
  b.store(result, y, {row, place});
}

Value VectorMatmul::getFactor(const KernelFrame *frame, TileBuilder &b, Value x,
                              int64_t row) const {
  SmallVector<Operand> place = {row, b.range(0, lines, 0), b.range(0, cols, 1)};
  if (!frame)
    return b.load(x, place);
  const KernelGraph &graph = frame->getGraph();
  Operation *root = graph.getRoots().empty() ? nullptr : graph.getRoots()[0];
  Elements at(*frame, root, place);
  if (auto norm = dyn_cast_or_null<nn::RMSNormOp>(root)) {
    double eps = norm.getEps().convertToDouble();
    Value weights =
        b.load(b.view(frame->getInput(norm.getWeight()), {lines, cols}),
               ArrayRef(place).drop_front());
    if (norm.getPlusOne())
      weights =
          b.map({weights}, b.f32(), [](ArrayRef<Expr> e) { return 1 + e[0]; });
    Value input = at.getF32(norm.getInput());
    Value squares =
        b.map({input}, b.f32(), [](ArrayRef<Expr> e) { return e[0] * e[0]; });
    Value sum = b.reduceAdd(b.reduceAdd(squares, /*axis=*/1), /*axis=*/0);
    Value rstd = b.map({sum}, b.f32(), [&](ArrayRef<Expr> e) {
      return 1 / sqrt(e[0] * (1.0 / static_cast<double>(sizes.k)) + eps);
    });
    at.set(norm.getOutput(),
           b.map({input, rstd, weights}, b.f32(),
                 [](ArrayRef<Expr> e) { return e[0] * e[1] * e[2]; }));
  }
  auto number = cast<OpResult>(op.getLhs()).getResultNumber();
  Value factor = at.get(graph.getOutputs()[number]);
  b.ifThen(b.programId(0) == 0, [&] { at.storeOutputs(); });
  return factor;
}

SmallVector<Value> VectorMatmul::loadRows(TileBuilder &b, Value w,
                                          Expr first) const {
  SmallVector<Value> rows;
  for (int64_t i = 0; i < atOnce; ++i)
    for (int64_t half = 0; half < halves; ++half) {
      // Rows past the last one are that one again.
      Expr row = min(first + static_cast<double>(i), length - 1);
      rows.push_back(b.load(w, {row + static_cast<double>(half * length),
                                b.range(0, lines, 0), b.range(0, cols, 1)}));
    }
  return rows;
}

SmallVector<Value> VectorMatmul::addProducts(TileBuilder &b,
                                             ArrayRef<Value> rows,
                                             ArrayRef<Value> factors,
                                             Expr place,
                                             ArrayRef<Value> sums) const {
  SmallVector<Value> next(sums);
  Value column = b.range(0, most, 1);
  for (auto [number, row] : llvm::enumerate(rows)) {
    auto i = static_cast<int64_t>(number) / halves;
    int64_t half = static_cast<int64_t>(number) % halves;
    for (auto [m, factor] : llvm::enumerate(factors)) {
      Value sum =
          b.reduceAdd(b.map({row, factor}, b.f32(),
                            [](ArrayRef<Expr> e) { return e[0] * e[1]; }));
      Value &total = next[static_cast<int64_t>(m) * halves + half];
      total = b.map({total, sum, column}, b.f32(), [&](ArrayRef<Expr> e) {
        return select(e[2] == place + static_cast<double>(i), e[1], e[0]);
      });
    }
  }
  return next;
}

/// Program: a range of rows of w. `args` are what x is computed from or x, w,
/// y, and what else is computed, null where that has no memory.
void VectorMatmul::build(TileBuilder &b, const KernelGraph *graph,
                         ArrayRef<Value> args) const {
  size_t numInputs = graph ? graph->getInputs().size() : 1;
  Value w = b.view(args[numInputs], {sizes.n, lines, cols});
  Value y = b.view(args[numInputs + 1], {sizes.m, length});
  std::optional<KernelFrame> frame;
  SmallVector<Extent> shape = {sizes.m, lines, cols};
  Value x;
  if (graph) {
    SmallVector<Value> own(args.take_front(numInputs));
    llvm::append_range(own, args.drop_front(numInputs + 2));
    frame.emplace(b, *graph, own, shape);
  } else {
    x = b.view(args.front(), shape);
  }
  Expr start = b.programId(0) * static_cast<double>(perProgram);
  SmallVector<Value> rows = loadRows(b, w, start), factors;
  for (int64_t row = 0; row < sizes.m; ++row)
    factors.push_back(getFactor(frame ? &*frame : nullptr, b, x, row));
  // A warp has the sums of its lines; a column for each row.
  SmallVector<Value> sums(sizes.m * halves, b.zeros(lines, most));
  sums = addProducts(b, rows, factors, b.constant(0), sums);
  if (perProgram > atOnce)
    sums = b.forLoop(atOnce, perProgram, atOnce, sums,
                     [&](Expr first, ArrayRef<Value> carried) {
                       return addProducts(b, loadRows(b, w, start + first),
                                          factors, first, carried);
                     });
  Value place = b.map({b.range(0, most, 1)}, b.i32(), [&](ArrayRef<Expr> e) {
    return select((e[0] < static_cast<double>(perProgram)) &
                      (start + e[0] < static_cast<double>(length)),
                  start + e[0], -1);
  });
  for (Value &sum : sums)
    sum = b.reduceAdd(sum, /*axis=*/0);
  for (int64_t row = 0; row < sizes.m; ++row)
    store(b, ArrayRef(sums).slice(row * halves, halves), y, row, place);
}

/// What the kernel depends on besides the matmul.
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
  spec.minBlocks = programsAtOnce;
  Value output = consumer ? consumer->getResult(0) : Value(op.getOutput());
  SmallVector<Type> types = {output.getType()};
  llvm::append_range(types, ValueRange(others).getTypes());
  ResultRange results =
      cache.launch(builder, op, spec, inputs, types,
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     // Unused results have no memory.
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
  output.replaceAllUsesWith(results.front());
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

namespace {
struct LaunchVectorMatmuls
    : nsa::impl::LaunchVectorMatmulsBase<LaunchVectorMatmuls> {
  void runOnOperation() override;
};
} // namespace

void LaunchVectorMatmuls::runOnOperation() {
  ModuleOp module = getOperation();
  KernelCache cache(module);
  if (!cache.getMachine().isParallel() ||
      !module.lookupSymbol(training::decodeEntry))
    return;
  SmallVector<nn::MatmulOp> products;
  for (auto function : module.getOps<func::FuncOp>()) {
    // Training entries keep their matmuls.
    if (!llvm::is_contained({StringRef(training::prefillEntry),
                             StringRef(training::decodeEntry),
                             StringRef(training::nextEntry)},
                            function.getName()))
      continue;
    for (auto op : function.getOps<nn::MatmulOp>())
      if (VectorMatmul::isOne(op))
        products.push_back(op);
  }
  for (nn::MatmulOp op : products)
    VectorMatmul(op, cache.getMachine()).launch(cache);
  if (cache.hasFailed())
    signalPassFailure();
}
