//===- SynchronizationTrace.cpp - accesses of one execution ---------------===//

#include "passes/TileGPU/SynchronizationTrace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/TileGPU/Scratch.h"
#include "passes/TileGPU/SharedTiles.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/TileReader.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

using Kind = TraceEvent::Kind;

namespace {
class Tracer {
public:
  Tracer(KernelOp kernel, TraceChoice choice, TakenBranches &taken)
      : kernel(kernel), choice(choice), taken(taken) {}

  SynchronizationTrace run() {
    visit(kernel.getBody().front());
    return std::move(trace);
  }

private:
  /// A bound of a loop that is not known is `Chosen`.
  enum Origin { Exact, Chosen, DerivedFromChosen };
  struct Scalar {
    int64_t value = 0;
    Origin origin = Exact;
  };

  std::optional<int64_t> evaluate(Value value);
  Origin getOriginOfResult(ValueRange operands) const;
  std::optional<int64_t> chooseBound(Value value);
  int64_t getOr(Value value, int64_t otherwise) {
    return evaluate(value).value_or(otherwise);
  }
  void assign(ValueRange to, ValueRange from);
  void execute(Operation *op);

  void visit(Block &block);
  void visit(Operation *op);
  void visitLoop(scf::ForOp loop);
  int64_t countTrips(scf::ForOp loop) const;
  void visitBranch(Operation *branch, std::optional<int64_t> condition);
  bool chooseBranch(Operation *branch) const;
  void visitRoles(WarpSpecializeOp roles);
  void visitReads(Operation *op);
  void visitLines(Operation *op, Value value);

  TraceEvent &add(Kind kind, Operation *op, int64_t count = 0) {
    return events->emplace_back(TraceEvent{kind, op, count});
  }
  TraceEvent &addAccess(Kind kind, Operation *op, Value buffer, Value stage);
  /// The address of the mbarrier of an operation on one.
  template <typename OpTy>
  int64_t getAddress(OpTy op) {
    auto own = op.getBarriers().template getDefiningOp<MBarriersOp>();
    return own.getAddress(getOr(op.getIndex(), 0));
  }
  void addInit(MBarrierInitOp op);
  void addScratch(Operation *op);

  KernelOp kernel;
  TraceChoice choice;
  TakenBranches &taken;
  SynchronizationTrace trace;
  std::vector<TraceEvent> *events = &trace.consumer;
  llvm::DenseMap<Value, Scalar> values;
};
} // namespace

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static bool isInteger(Type type) { return type.isIntOrIndex(); }

/// A loop of unknown bounds starts at 0. The same value gives all loops, and
/// both roles, the same number of iterations.
std::optional<int64_t> Tracer::chooseBound(Value value) {
  std::optional<int64_t> chosen;
  for (OpOperand &use : value.getUses()) {
    auto loop = dyn_cast<scf::ForOp>(use.getOwner());
    if (!loop || use.getOperandNumber() > 2)
      continue;
    int64_t own = use.getOperandNumber() == 2;
    if (use.getOperandNumber() == 1) {
      trace.hasTrips = true;
      own = getOr(loop.getLowerBound(), 0) +
            countTrips(loop) * getOr(loop.getStep(), 1);
    }
    chosen = std::max(chosen.value_or(own), own);
  }
  if (chosen)
    values[value] = {*chosen, Chosen};
  return chosen;
}

/// A bound that follows from another loop's is chosen, too: the other role may
/// be without that loop.
std::optional<int64_t> Tracer::evaluate(Value value) {
  auto known = values.find(value);
  bool isKnown = known != values.end();
  if (isKnown && known->second.origin != DerivedFromChosen)
    return known->second.value;
  if (isInteger(value.getType()))
    if (std::optional<int64_t> chosen = chooseBound(value))
      return chosen;
  return isKnown ? std::optional(known->second.value) : std::nullopt;
}

Tracer::Origin Tracer::getOriginOfResult(ValueRange operands) const {
  return llvm::all_of(operands,
                      [&](Value operand) {
                        return values.lookup(operand).origin == Exact;
                      })
             ? Exact
             : DerivedFromChosen;
}

void Tracer::assign(ValueRange to, ValueRange from) {
  auto all = llvm::map_to_vector(from, [&](Value value) {
    std::optional<int64_t> known = evaluate(value);
    return std::pair(known, getOriginOfResult(value));
  });
  for (auto [value, known] : llvm::zip_equal(to, all))
    if (known.first)
      values[value] = {*known.first, known.second};
    else
      values.erase(value);
}

/// Evaluates an operation on ranges of one value each.
void Tracer::execute(Operation *op) {
  for (Value result : op->getResults())
    values.erase(result);
  if (auto iteration = dyn_cast<IterationOp>(op))
    return assign(op->getResults(), iteration.getValue());
  auto ranged = dyn_cast<InferIntRangeInterface>(op);
  if (!ranged || !isa<arith::ArithDialect>(op->getDialect()) ||
      !llvm::all_of(op->getOperandTypes(), isInteger))
    return;
  SmallVector<ConstantIntRanges> operands;
  for (Value operand : op->getOperands()) {
    unsigned width = ConstantIntRanges::getStorageBitwidth(operand.getType());
    std::optional<int64_t> known = evaluate(operand);
    operands.push_back(
        known ? ConstantIntRanges::constant(APInt(width, uint64_t(*known), true,
                                                  /*implicitTrunc=*/true))
              : ConstantIntRanges::maxRange(width));
  }
  ranged.inferResultRanges(
      operands, [&](Value result, const ConstantIntRanges &range) {
        if (std::optional<APInt> known = range.getConstantValue())
          values[result] = {known->getSExtValue(),
                            getOriginOfResult(op->getOperands())};
      });
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TraceEvent &Tracer::addAccess(Kind kind, Operation *op, Value buffer,
                              Value stage) {
  auto type = cast<MemDescType>(buffer.getType());
  ArrayRef<int64_t> shape = type.getShape();
  TraceEvent &event = add(kind, op);
  event.buffer = buffer;
  event.begin = getOffset(buffer) + (stage ? getOr(stage, 0) : 0);
  event.end = event.begin + (type.isLine() ? 4 * shape[0] * shape[1]
                                           : SharedShape(buffer).bytes());
  return event;
}

/// Threads meet before and after what they store.
void Tracer::addScratch(Operation *op) {
  int64_t bytes = getScratchBytes(op);
  if (bytes == 0)
    return;
  for (Kind kind : {Kind::Write, Kind::Read}) {
    add(Kind::Barrier, op);
    TraceEvent &event = add(kind, op);
    event.begin = kernel->getAttrOfType<IntegerAttr>(kScratchAttr).getInt();
    event.end = event.begin + bytes;
  }
}

/// Rows in buffers that are read where a value is used.
void Tracer::visitLines(Operation *op, Value value) {
  if (!isTile(value) || !isReadWhereUsed(value))
    return;
  if (auto line = value.getDefiningOp<LocalLoadOp>())
    addAccess(Kind::Read, op, line.getBuffer(), line.getStage());
  else
    for (Value input : value.getDefiningOp()->getOperands())
      visitLines(op, input);
}

void Tracer::visitReads(Operation *op) {
  auto dot = dyn_cast<DotOp>(op);
  bool isAsync = dot && isWgmma(dot);
  for (Value operand : op->getOperands()) {
    if (auto view = operand.getDefiningOp<LocalViewOp>())
      addAccess(isAsync ? Kind::WgmmaRead : Kind::Read, op, view.getBuffer(),
                view.getStage());
    visitLines(op, operand);
  }
  if (auto line = dyn_cast<LocalLoadOp>(op);
      line && !isReadWhereUsed(line.getTile()))
    addAccess(Kind::Read, op, line.getBuffer(), line.getStage());
  if (isAsync)
    add(Kind::CommitWgmma, op);
}

//===----------------------------------------------------------------------===//
// Mbarriers
//===----------------------------------------------------------------------===//

void Tracer::addInit(MBarrierInitOp op) {
  for (Value barriers : op->getOperands()) {
    auto own = barriers.getDefiningOp<MBarriersOp>();
    for (int64_t k = 0; k < own.getBarriers().getType().getCount(); ++k)
      add(Kind::InitMBarrier, op, int64_t(own.getArrivals())).mbarrier =
          own.getAddress(k);
  }
  add(Kind::Barrier, op);
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

/// Whether a loop goes around a pipeline: both roles have to tell it alike.
static bool isPipelined(scf::ForOp loop) {
  return llvm::any_of(*loop.getBody(),
                      llvm::IsaPred<AsyncCommitOp, MBarrierWaitOp,
                                    MBarrierArriveOp, MBarrierExpectOp>);
}

/// Of loops around others two iterations show what there is to see.
int64_t Tracer::countTrips(scf::ForOp loop) const {
  return isPipelined(loop) ? choice.trips : std::min<int64_t>(choice.trips, 2);
}

/// The first iteration and the last ones: the conditions of copies ahead are
/// those of the whole loop.
void Tracer::visitLoop(scf::ForOp loop) {
  int64_t lower = getOr(loop.getLowerBound(), 0),
          step = std::max<int64_t>(getOr(loop.getStep(), 1), 1),
          upper = getOr(loop.getUpperBound(), lower);
  int64_t all =
      std::max<int64_t>(llvm::divideCeilSigned(upper - lower, step), 0);
  constexpr int64_t most = 20;
  int64_t trips = std::min<int64_t>(all, isPipelined(loop) ? most : 3);
  assign(loop.getRegionIterArgs(), loop.getInitArgs());
  for (int64_t k = 0; k < trips; ++k) {
    int64_t number = k == 0 ? 0 : all - trips + k;
    values[loop.getInductionVar()] = {
        lower + number * step,
        getOriginOfResult({loop.getLowerBound(), loop.getStep()})};
    visit(*loop.getBody());
    assign(loop.getRegionIterArgs(), loop.getYieldedValues());
  }
  assign(loop.getResults(), loop.getRegionIterArgs());
}

/// One that no execution has taken yet, else one around such a branch.
bool Tracer::chooseBranch(Operation *branch) const {
  if (choice.branches != TraceChoice::Explore)
    return choice.branches == TraceChoice::Then;
  for (bool side : {true, false})
    if (!taken.contains({branch, side}))
      return side;
  return branch->getRegion(0)
      .walk([&](Operation *inner) -> WalkResult {
        return success(
            !isa<scf::IfOp, WarpIfOp>(inner) ||
            (taken.contains({inner, true}) && taken.contains({inner, false})));
      })
      .wasInterrupted();
}

void Tracer::visitBranch(Operation *branch, std::optional<int64_t> condition) {
  trace.hasBranches |= !condition;
  bool side = condition ? *condition != 0 : chooseBranch(branch);
  taken.insert({branch, side});
  Region &region = branch->getRegion(side ? 0 : 1);
  if (region.empty())
    return;
  visit(region.front());
  assign(branch->getResults(), region.front().getTerminator()->getOperands());
}

void Tracer::visitRoles(WarpSpecializeOp roles) {
  trace.fork = trace.consumer.size();
  events = &trace.producer;
  visit(roles.getProducer().front());
  events = &trace.consumer;
  visit(roles.getConsumer().front());
}

void Tracer::visit(Block &block) {
  for (Operation &op : block)
    visit(&op);
}

void Tracer::visit(Operation *op) {
  execute(op);
  auto addArguments = [&](bool isWrite) {
    for (const GlobalAccess &access : getGlobalAccesses(op))
      if (access.isWrite == isWrite)
        add(Kind::GlobalAccess, op).access = access;
  };
  addArguments(/*isWrite=*/false);
  visitReads(op);
  addScratch(op);
  addArguments(/*isWrite=*/true);
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](LocalStoreOp store) {
        addAccess(Kind::Write, op, store.getBuffer(), {});
      })
      .Case([&](AsyncCopyOp copy) {
        Kind kind = copy.getBarriers() ? Kind::TmaLoad
                    : copy.isAsync()   ? Kind::AsyncCopy
                                       : Kind::Write;
        TraceEvent &event =
            addAccess(kind, op, copy.getBuffer(), copy.getStage());
        // Its threads arrive later, and it has no bytes to expect.
        if (copy.getBarriers())
          event.mbarrier = getAddress(copy);
        // Of several stages, a group ends with an operation of its own.
        if (!copy.getStage())
          add(Kind::CommitCopies, op);
      })
      .Case([&](TmaLoadOp load) {
        MemDescType type = load.getBuffer().getType();
        TraceEvent &event =
            addAccess(Kind::TmaLoad, op, load.getBuffer(), load.getStage());
        event.mbarrier = getAddress(load);
        event.count = type.getShape()[0] * type.getShape()[1] *
                      type.getElementType().getIntOrFloatBitWidth() / 8;
      })
      .Case([&](MBarrierInitOp init) { addInit(init); })
      .Case([&](MBarrierWaitOp wait) {
        add(Kind::WaitMBarrier, op, getOr(wait.getParity(), 0) & 1).mbarrier =
            getAddress(wait);
      })
      .Case([&](MBarrierExpectOp expect) {
        add(Kind::ExpectBytes, op, int64_t(expect.getBytes())).mbarrier =
            getAddress(expect);
      })
      .Case([&](MBarrierArriveOp arrive) {
        Value condition = arrive.getCondition();
        if (!condition || getOr(condition, 1) != 0)
          add(Kind::Arrive, op,
              arrive.getCopies()
                  ? kWarp
                  : getThreads(kernel) / (arrive.getEach() ? 1 : kWarp))
              .mbarrier = getAddress(arrive);
      })
      .Case([&](AnyOp) { add(Kind::Barrier, op); })
      .Case([&](AsyncCommitOp) { add(Kind::CommitCopies, op); })
      .Case([&](AsyncWaitOp wait) {
        add(Kind::WaitCopies, op, wait.getPending());
      })
      .Case([&](WgmmaWaitOp wait) {
        add(Kind::WaitWgmma, op, wait.getPending());
      })
      .Case([&](BarrierOp) { add(Kind::Barrier, op); })
      .Case([&](FenceAsyncOp) { add(Kind::Fence, op); })
      .Case([&](scf::ForOp loop) { visitLoop(loop); })
      .Case([&](scf::IfOp branch) {
        visitBranch(op, evaluate(branch.getCondition()));
      })
      .Case([&](WarpIfOp) { visitBranch(op, std::nullopt); })
      .Case([&](CopyIfOp copies) {
        if (getOr(copies.getCondition(), 1) != 0)
          visit(copies.getBody().front());
      })
      .Case([&](WarpSpecializeOp roles) { visitRoles(roles); });
}

SynchronizationTrace nsa::cuda::traceKernel(KernelOp kernel, TraceChoice choice,
                                            TakenBranches &taken) {
  return Tracer(kernel, choice, taken).run();
}
