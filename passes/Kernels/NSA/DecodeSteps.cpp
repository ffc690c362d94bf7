//===- DecodeSteps.cpp - few launches for a step of decoding --------------===//
//
// On a GPU, attention of one query has too few heads to fill the machine: the
// keys are split (as in Flash-Decoding), each split with an lse. The reader of
// the result sums the splits of all branches, in order, and gates them.
//
//===----------------------------------------------------------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"
#include "passes/Kernels/NSA/Caches.h"
#include "passes/Kernels/NSA/DecodeKernels.h"
#include "passes/Kernels/NSA/RowGates.h"
#include "passes/Kernels/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_LAUNCHDECODESTEPS
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// The attention of one block.
class AttentionSteps {
public:
  AttentionSteps(Block &block, KernelCache &cache)
      : block(block), cache(cache) {}

  void run();

private:
  SmallVector<DecodeAttentionOp> findTogether(DecodeAttentionOp op);
  void launchParts(DecodeAttentionOp op);
  void sumParts(DecodeAttentionOp op);
  SmallVector<bool> findLast(ArrayRef<DecodeAttentionOp> branches);
  void sumBranches(CombineOp op);

  Block &block;
  KernelCache &cache;
  DenseMap<Operation *, AttentionParts> parts;
};
} // namespace

static CombineOp getCombine(DecodeAttentionOp op) {
  Value output = op.getOutput();
  return output.hasOneUse() ? dyn_cast<CombineOp>(*output.user_begin())
                            : CombineOp();
}

/// The branches of the same sum that can be computed where `op` is.
SmallVector<DecodeAttentionOp>
AttentionSteps::findTogether(DecodeAttentionOp op) {
  SmallVector<DecodeAttentionOp> together = {op};
  CombineOp combine = getCombine(op);
  if (!combine)
    return together;
  for (Value branch : combine.getBranches()) {
    auto other = branch.getDefiningOp<DecodeAttentionOp>();
    if (!other || other == op || parts.contains(other) ||
        other->getBlock() != &block || getCombine(other) != combine)
      continue;
    bool isReady = llvm::all_of(other->getOperands(), [&](Value operand) {
      Operation *source = operand.getDefiningOp();
      return !source || source->isBeforeInBlock(op);
    });
    if (isReady)
      together.push_back(other);
  }
  return together;
}

/// The weights of the matmuls after attention. Its kernels leave bandwidth
/// unused: each has some of these as unused inputs, which it prefetches to the
/// L2 cache.
static SmallVector<Value> findNextWeights(Operation *op, MachineAttr machine) {
  constexpr size_t most = 2;
  SmallVector<Value> weights;
  if (machine.getWarpgroupRows() == 0)
    return weights;
  for (Operation *next = op->getNextNode(); next && weights.size() < most;
       next = next->getNextNode())
    if (auto product = dyn_cast<nn::MatmulOp>(next);
        product && isa<BlockArgument>(product.getRhs()))
      weights.push_back(product.getRhs());
  return weights;
}

void AttentionSteps::launchParts(DecodeAttentionOp op) {
  if (parts.contains(op))
    return;
  SmallVector<DecodeAttentionOp> together = findTogether(op);
  std::vector<LaunchPart> launches;
  std::string suffix = "parts";
  for (DecodeAttentionOp branch : together) {
    LaunchPart part =
        DecodeAttention(branch, cache.getMachine()).getPart(cache);
    // Branches differ in their attributes.
    llvm::raw_string_ostream os(part.spec.suffix);
    Attribute(branch.getVisibility()).print(os);
    os << ' ' << part.spec.shape;
    if (branch.getScale())
      os << ' ' << branch.getScaleOrDefault();
    if (branch.getSoftcap())
      os << " capped " << branch.getSoftcapOrZero();
    suffix +=
        branch == op ? "" : ("_" + branch.getVisibility().getKind()).str();
    launches.push_back(std::move(part));
  }
  for (Value weight : findNextWeights(op, cache.getMachine()))
    launches.back().inputs.push_back(weight);
  OpBuilder builder(op);
  auto results = launchTogether(cache, builder, op, suffix, launches);
  for (auto [branch, values] : llvm::zip_equal(together, results)) {
    auto [output, lse] = named<2>(values);
    parts[branch] = {output, lse};
  }
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

namespace {
/// The parts of a head: some columns of outputs, and lse [parts, 1].
struct HeadParts {
  /// Loads of all branches come before the first sum, which has barriers.
  HeadParts(TileBuilder &b, Value output, Value lses, Expr batch, Expr head,
            Value columns) {
    ArrayRef<int64_t> shape = cast<MemRefType>(output.getType()).getShape();
    Value part = b.range(0, shape[1], 0);
    lse = b.load(lses, {batch, head, part});
    rows = b.load(output, {batch, part, head, columns});
  }

  /// A row of the columns.
  Value getSum(TileBuilder &b) const {
    Value all = mergeLse(b, lse, /*axis=*/0);
    Value weights = b.map({lse, all}, b.f32(), [](ArrayRef<Expr> x) {
      return select(x[0] == -INFINITY, 0, exp(x[0] - x[1]));
    });
    return b.reduceAdd(b.map({rows, weights}, b.f32(),
                             [](ArrayRef<Expr> x) { return x[0] * x[1]; }),
                       /*axis=*/0);
  }

  Value rows, lse;
};
} // namespace

/// The output of attention, and its lse if that is read, from parts.
void AttentionSteps::sumParts(DecodeAttentionOp op) {
  AttentionParts own = parts.lookup(op);
  ArrayRef<int64_t> shape = getShape(op.getOutput());
  int64_t width = shape[3];
  bool hasLse = !op.getLse().use_empty();
  SmallVector<Type> types = {op.getOutput().getType()};
  if (hasLse)
    types.push_back(op.getLse().getType());
  KernelSpec spec = {"sum",
                     DecodeAttention(op, cache.getMachine()).name(),
                     {shape[2], shape[0], 1}};
  spec.key = std::to_string(getDim(own.output, 1)) + (hasLse ? " lse" : "");
  OpBuilder builder(op);
  auto results = cache.launch(
      builder, op, spec, {own.output, own.lse}, types,
      [&](TileBuilder &b, ArrayRef<Value> args) {
        auto [outputs, lses] = named<2>(args.take_front(2));
        ArrayRef<Value> out = args.drop_front(2);
        Expr head = b.programId(0), batch = b.programId(1);
        Value columns = b.range(0, width, 1);
        b.store(HeadParts(b, outputs, lses, batch, head, columns).getSum(b),
                out.front(), {batch, 0, head, columns});
        if (!hasLse)
          return;
        int64_t count = getDim(own.output, 1);
        Value split = b.load(lses, {batch, head, b.range(0, count, 0)});
        b.store(mergeLse(b, split, /*axis=*/0), out.back(),
                {batch, head, b.range(0, 1, 1)});
      });
  op.getOutput().replaceAllUsesWith(results.front());
  if (hasLse)
    op.getLse().replaceAllUsesWith(results.back());
  op.erase();
}

/// The gates of a head, f32, from memory or from logits.
static SmallVector<Value> buildGates(TileBuilder &b, nn::GateOp gate,
                                     ArrayRef<Value> args, Expr batch,
                                     Expr head, int64_t branches) {
  SmallVector<Expr> values;
  if (!gate) {
    for (int64_t c = 0; c < branches; ++c)
      values.push_back(b.loadScalar(args.front(), {batch, 0, head, c}));
    return llvm::to_vector_of<Value>(values);
  }
  nn::GateOp::Adaptor in(args, gate);
  ArrayRef<int64_t> shape = getShape(gate.getLogits());
  Value logits = b.view(in.getLogits(), {shape[0], shape[2]});
  for (int64_t c = 0; c < branches; ++c) {
    Expr column = head * static_cast<double>(branches) + static_cast<double>(c);
    Expr value = convert(b.loadScalar(logits, {batch, column}), b.f32());
    if (in.getBias())
      value = value + b.loadScalar(in.getBias(), {column});
    values.push_back(value);
  }
  if (gate.getActivation() == nn::GateActivation::Softmax)
    return activateGates(values);
  SmallVector<Value> gates;
  for (Expr value : values)
    llvm::append_range(gates, activateGates(value));
  return gates;
}

/// Columns of a head that a program sums: fewer where there are few heads.
static int64_t getColumns(ArrayRef<int64_t> shape, MachineAttr machine) {
  constexpr int64_t fewest = 16;
  int64_t columns = shape[3];
  while (columns % (2 * fewest) == 0 &&
         shape[0] * shape[2] * (shape[3] / columns) < machine.getProcessors())
    columns /= 2;
  return columns;
}

/// Which branches the last launch computes: the sum may begin before it ends.
SmallVector<bool>
AttentionSteps::findLast(ArrayRef<DecodeAttentionOp> branches) {
  Operation *last = nullptr;
  for (DecodeAttentionOp branch : branches) {
    Operation *launch = parts.lookup(branch).output.getDefiningOp();
    if (!last || last->isBeforeInBlock(launch))
      last = launch;
  }
  return llvm::map_to_vector(branches, [&](DecodeAttentionOp branch) {
    return parts.lookup(branch).output.getDefiningOp() == last;
  });
}

/// Program: (head, sequence, some columns). Sums the parts of each branch, and
/// the branches.
void AttentionSteps::sumBranches(CombineOp op) {
  SmallVector<DecodeAttentionOp> branches;
  for (Value branch : op.getBranches())
    branches.push_back(branch.getDefiningOp<DecodeAttentionOp>());
  auto gate = op.getGates().getDefiningOp<nn::GateOp>();
  if (gate && !gate->hasOneUse())
    gate = {};
  SmallVector<Value> inputs;
  if (gate)
    llvm::append_range(inputs, gate->getOperands());
  else
    inputs.push_back(op.getGates());
  size_t numGates = inputs.size();
  ArrayRef<int64_t> shape = getShape(op.getOutput());
  int64_t width = getColumns(shape, cache.getMachine());
  KernelSpec spec = {"parts",
                     "b" + std::to_string(shape[0]) + "h" +
                         std::to_string(shape[2]) + "d" +
                         std::to_string(shape[3]),
                     {shape[2], shape[0], shape[3] / width}};
  if (gate)
    spec.key = (nn::stringifyGateActivation(gate.getActivation()) +
                (gate.getBias() ? " bias" : ""))
                   .str();
  llvm::raw_string_ostream key(spec.key);
  for (DecodeAttentionOp branch : branches) {
    AttentionParts own = parts.lookup(branch);
    inputs.append({own.output, own.lse});
    spec.shape += "p" + std::to_string(getDim(own.output, 1));
  }
  key << ' ';
  llvm::interleaveComma(TypeRange(ValueRange(inputs)), key);
  SmallVector<bool> isLast = findLast(branches);
  llvm::interleave(isLast, key, " ");
  OpBuilder builder(op);
  Value sum = cache.launch(
      builder, op, spec, inputs, op.getOutput().getType(),
      [&](TileBuilder &b, ArrayRef<Value> args) {
        Expr head = b.programId(0), batch = b.programId(1);
        int64_t count = int64_t(branches.size());
        SmallVector<Value> gates =
            buildGates(b, gate, args.take_front(numGates), batch, head, count);
        SmallVector<Value> outputs(count), weights;
        ArrayRef<Value> memory = args.drop_front(numGates);
        Value columns =
            b.range(b.programId(2) * static_cast<double>(width), width, 1);
        for (bool last : {false, true}) {
          SmallVector<std::pair<int64_t, HeadParts>> heads;
          for (int64_t c = 0; c < count; ++c)
            if (isLast[c] == last)
              heads.emplace_back(c,
                                 HeadParts(b, memory[2 * c], memory[2 * c + 1],
                                           batch, head, columns));
          for (auto &[c, parts] : heads)
            outputs[c] = parts.getSum(b);
        }
        for (Value gate : gates)
          weights.push_back(b.splat(gate, 1, 1));
        b.store(gatedSum(b, weights, outputs), args.back(),
                {batch, 0, head, columns});
      })[0];
  op.getOutput().replaceAllUsesWith(sum);
  op.erase();
  if (gate)
    gate.erase();
  for (DecodeAttentionOp branch : branches)
    if (branch->use_empty())
      branch.erase();
}

/// Whether all that the sum reads of a branch are its parts.
static bool sumsParts(CombineOp op) {
  return llvm::all_of(op.getBranches(), [&](Value branch) {
    auto attention = branch.getDefiningOp<DecodeAttentionOp>();
    return attention && getCombine(attention) == op;
  });
}

/// Parts are launched where attention was, before scores of blocks and selected
/// attention.
void AttentionSteps::run() {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (auto attention = dyn_cast<DecodeAttentionOp>(op))
      launchParts(attention);
    auto select = dyn_cast<DecodeSelectOp>(op);
    if (!select)
      continue;
    auto attention = select.getLse().getDefiningOp<DecodeAttentionOp>();
    OpBuilder builder(select);
    Value indices = launchDecodeSelect(
        cache, builder, select,
        attention ? parts.lookup(attention).lse : select.getLse(),
        findNextWeights(select, cache.getMachine()));
    select.getIndices().replaceAllUsesWith(indices);
    select.erase();
  }
  for (auto op : llvm::make_early_inc_range(block.getOps<CombineOp>()))
    if (sumsParts(op))
      sumBranches(op);
  for (auto op : llvm::make_early_inc_range(block.getOps<DecodeAttentionOp>()))
    sumParts(op);
}

namespace {
struct LaunchDecodeSteps : nsa::impl::LaunchDecodeStepsBase<LaunchDecodeSteps> {
  void runOnOperation() override;
};
} // namespace

void LaunchDecodeSteps::runOnOperation() {
  ModuleOp module = getOperation();
  KernelCache cache(module);
  if (!cache.getMachine().isParallel())
    return;
  for (auto function : module.getOps<FunctionOpInterface>()) {
    if (function.isExternal() || !function.getFunctionBody().hasOneBlock())
      continue;
    Block &block = function.getFunctionBody().front();
    launchCacheSteps(block, cache);
    AttentionSteps(block, cache).run();
  }
  if (cache.hasFailed())
    signalPassFailure();
}
