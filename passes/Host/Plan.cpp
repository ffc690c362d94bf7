//===- Plan.cpp - offsets in memory of tensors and buffers ----------------===//

#include "dialects/RT/RTOps.h"
#include "passes/Analysis/ArenaPacker.h"
#include "passes/Host/Passes.h"
#include "passes/Host/TensorOrder.h"
#include "passes/Support/Debug.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"

#define DEBUG_TYPE "nsa-plan"

namespace nsa {
#define GEN_PASS_DEF_PLAN
#include "passes/Host/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

/// Bytes; what kernels may assume of every base pointer.
static constexpr uint64_t kAlignment = 64;

namespace {
/// Creates segments before everything else in a module.
class SegmentTable {
public:
  explicit SegmentTable(ModuleOp module)
      : symbols(module), builder(OpBuilder::atBlockBegin(module.getBody())) {}

  /// A segment of this kind and size, called after its kind.
  rt::SegmentOp create(rt::SegmentKind kind, uint64_t size) {
    auto segment = rt::SegmentOp::create(
        builder, builder.getUnknownLoc(), kind, rt::stringifySegmentKind(kind),
        static_cast<int64_t>(size), static_cast<int64_t>(kAlignment));
    symbols.insert(segment);
    return segment;
  }

private:
  SymbolTable symbols;
  OpBuilder builder;
};

struct PlanPass : nsa::impl::PlanBase<PlanPass> {
  using PlanBase::PlanBase;
  void runOnOperation() override;

private:
  void placeTensors(SegmentTable &segments, rt::SegmentKind kind,
                    ArrayRef<rt::TensorOp> tensors,
                    ArrayRef<rt::FlatViewOp> views);
  void placeBuffers(SegmentTable &segments, ArrayRef<rt::EntryOp> entries);
  void placeWorkspace(SegmentTable &segments, ArrayRef<rt::EntryOp> entries);
  uint64_t getWorkspace(rt::CommandOpInterface command);
};
} // namespace

static rt::SliceAttr getSlice(rt::SegmentOp segment, uint64_t offset,
                              uint64_t size) {
  return rt::SliceAttr::get(segment.getContext(),
                            FlatSymbolRefAttr::get(segment), offset, size);
}

void PlanPass::placeTensors(SegmentTable &segments, rt::SegmentKind kind,
                            ArrayRef<rt::TensorOp> tensors,
                            ArrayRef<rt::FlatViewOp> views) {
  SmallVector<rt::TensorOp> sorted = getMemoryOrder(tensors, views);
  SmallVector<uint64_t> offsets;
  uint64_t size = 0;
  for (rt::TensorOp tensor : sorted) {
    offsets.push_back(size);
    size += alignUp(rt::getByteSize(tensor.getMemoryType()), kAlignment);
  }
  rt::SegmentOp segment = segments.create(kind, size);
  for (auto [tensor, offset] : llvm::zip_equal(sorted, offsets)) {
    uint64_t bytes = rt::getByteSize(tensor.getMemoryType());
    NSA_DEBUG() << "@" << tensor.getSymName() << ": " << bytes << " bytes at "
                << segment.getSymName() << " + " << offset;
    tensor.setSliceAttr(getSlice(segment, offset, bytes));
  }
}

/// Buffers that nothing reads or writes, with the views of them.
static void eraseUnusedMemory(rt::EntryOp entry) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(entry.getBody().front())))
    if (isa<rt::BufferOp, rt::ViewOp, rt::GetOp, rt::FlatViewOp>(op) &&
        op.use_empty())
      op.erase();
}

void PlanPass::placeBuffers(SegmentTable &segments,
                            ArrayRef<rt::EntryOp> entries) {
  SmallVector<ArenaPlan> plans;
  uint64_t size = 0;
  for (rt::EntryOp entry : entries) {
    eraseUnusedMemory(entry);
    std::vector<ArenaBuffer> buffers;
    for (rt::Lifetime lifetime : rt::getLifetimes(entry))
      buffers.push_back({rt::getByteSize(lifetime.buffer.getType()),
                         lifetime.first, lifetime.last});
    ArenaPlan plan = packArena(buffers, kAlignment);
    uint64_t bound = getPeakLiveBytes(buffers, kAlignment);
    remark::analysis(entry.getLoc(), remark::RemarkOpts::name("ArenaPeak")
                                         .category(DEBUG_TYPE)
                                         .function(entry.getSymName()))
        << remark::metric("Bytes", plan.size)
        << remark::metric("LiveBytes", bound);
    entry.setArenaPeak(static_cast<int64_t>(plan.size));
    if (plan.size >= size) {
      size = plan.size;
      liveBytes = bound;
    }
    plans.push_back(std::move(plan));
  }
  arenaBytes = size;
  rt::SegmentOp segment = segments.create(rt::SegmentKind::Arena, size);
  for (auto [entry, plan] : llvm::zip_equal(entries, plans)) {
    rt::EntryOp current = entry;
    for (auto [lifetime, offset] :
         llvm::zip_equal(rt::getLifetimes(current), plan.offsets)) {
      rt::BufferOp buffer = lifetime.buffer;
      uint64_t bytes = rt::getByteSize(buffer.getType());
      NSA_DEBUG() << "@" << current.getSymName() << ": buffer of "
                  << buffer.getLoc() << ", alive from command "
                  << lifetime.first << " to " << lifetime.last << ": " << bytes
                  << " bytes at arena + " << offset;
      buffer.setSliceAttr(getSlice(segment, offset, bytes));
      buffer.setLiveAttr(
          rt::LiveRangeAttr::get(&getContext(), lifetime.first, lifetime.last));
      ++numBuffers;
    }
  }
}

uint64_t PlanPass::getWorkspace(rt::CommandOpInterface command) {
  bool isProduct = isa<rt::GemmOp>(command.getOperation());
  return gemmWorkspace && isProduct ? uint64_t(gemmWorkspace)
                                    : command.getWorkspaceSize();
}

void PlanPass::placeWorkspace(SegmentTable &segments,
                              ArrayRef<rt::EntryOp> entries) {
  SmallVector<std::pair<rt::CommandOpInterface, uint64_t>> users;
  uint64_t size = 0;
  for (rt::EntryOp entry : entries)
    for (rt::CommandOpInterface command : rt::getCommands(entry))
      if (uint64_t bytes = getWorkspace(command)) {
        users.push_back({command, bytes});
        size = std::max(size, bytes);
      }
  rt::SegmentOp segment = segments.create(rt::SegmentKind::Workspace, size);
  for (auto [command, bytes] : users)
    command.assignWorkspace(getSlice(segment, 0, bytes));
}

void PlanPass::runOnOperation() {
  ModuleOp module = getOperation();
  SmallVector<rt::TensorOp> persistent, io, host;
  for (auto tensor : module.getOps<rt::TensorOp>())
    (tensor.isIO()      ? io
     : tensor.getHost() ? host
                        : persistent)
        .push_back(tensor);
  SmallVector<rt::EntryOp> entries(module.getOps<rt::EntryOp>());
  for (auto segment : module.getOps<rt::SegmentOp>()) {
    segment.emitOpError("is there already: the program was planned before");
    return signalPassFailure();
  }
  SmallVector<rt::FlatViewOp> views = getFlatViews(module);
  SegmentTable segments(module);
  placeTensors(segments, rt::SegmentKind::Persistent, persistent, views);
  placeTensors(segments, rt::SegmentKind::IO, io, views);
  placeBuffers(segments, entries);
  placeWorkspace(segments, entries);
  if (!host.empty())
    placeTensors(segments, rt::SegmentKind::Host, host, views);
}
