//===- KernelCache.h - kernels shared between operations --------*- C++ -*-===//
//
// The conversions of graph operations ask the cache for their kernels, so that
// operations of one kind with the same attributes and types (the layers of a
// model) share one `tile.kernel` symbol.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_KERNELCACHE_H
#define NSA_PASSES_KERNELS_KERNELCACHE_H

#include "dialects/Interfaces/Extents.h"
#include "dialects/Tile/TileBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "passes/Kernels/Schedule.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace nsa {

/// A schedule of a kernel's list.
struct ChosenSchedule {
  /// Null for what the conversion chooses.
  ScheduleAttr sizes = {};
  /// As there; 1 where parts of a launch have their own.
  int64_t columnParts = 1;
  /// Names the kernel and its list; empty where there is no choice.
  std::string kernel;
  /// Its index in the list.
  int64_t number = 0;
  bool isLast = false;
};

/// What distinguishes one kernel of an operation.
struct KernelSpec {
  /// Tells several kernels of one operation apart ("dq"); empty for the only
  /// one.
  std::string suffix;
  /// The sizes to show in the name, e.g. "b1s64h4x2d16_w32". Not part of the
  /// key.
  std::string shape;
  /// Number of programs along x, y and z, each at least 1.
  std::array<Extent, 3> grid = {1, 1, 1};
  /// Floating-point operations of one launch; 0 if unknown.
  int64_t flops = 0;
  /// What else the kernel depends on than the operation's name, attributes and
  /// types.
  std::string key = "";
  /// The name of a kernel that depends on none of these, but on the types of
  /// its inputs and outputs, the shape and the key alone.
  std::string ownName = "";
  /// Minimum programs per multiprocessor, which limits registers; 0 for as many
  /// as fit.
  int64_t minBlocks = 0;
  /// Whether a producer warpgroup copies for loops of few accumulator
  /// registers, too.
  bool hasProducer = false;
  /// An input that holds the numbers of selected blocks, if there is one, and
  /// the tokens of a block.
  mlir::Value indices = {};
  int64_t selectBlock = 0;
  /// Those of queries that begin inside of sequences, where `at` says, are not
  /// checked: a run knows no positions.
  void setIndices(mlir::Value numbers, int64_t block, mlir::Value at) {
    if (at)
      return;
    indices = numbers;
    selectBlock = block;
  }
  /// Whether everything that the kernel does with extents of its arguments, and
  /// its grid, is an expression of those of a call where they are no constants.
  bool takesExtents = false;
  /// Whether programs have less work the larger their coordinate along x is. A
  /// GPU starts programs in order, x first: these coordinates then go along z,
  /// so that the longest programs of all heads and batches start first and
  /// short ones fill the tail.
  bool longestFirst = false;
  /// Whether programs have less work the smaller their coordinate along z is,
  /// all of a row of the batch: on a GPU the last rows then start first.
  bool lastRowsFirst = false;
  /// What `KernelCache::choose` has found for it.
  ChosenSchedule schedule = {};
  /// Inputs, and the outputs that are these inputs with some elements changed.
  llvm::SmallVector<std::pair<int64_t, int64_t>, 0> inPlace = {};
};

/// Elements of 4 bytes from a row of `length` of them to the next, so that all
/// rows begin where the TMA unit of a GPU can copy from: at multiples of 16
/// bytes, where the length is known at the call only.
Extent getRowPitch(const Extent &length, bool isParallel);

/// The grid of a kernel of which some programs share columns, and its body in
/// it: they are neighbours along x.
std::array<Extent, 3> getGridOfParts(const KernelSpec &spec);
void buildParts(tile::TileBuilder &b, const KernelSpec &spec,
                std::array<tile::Expr, 3> ids, llvm::function_ref<void()> body);

/// The kernels made so far for one module, which must outlive the cache.
class KernelCache {
public:
  /// Builds the body of a kernel. `args` are memrefs of the shapes and element
  /// types of the launch's inputs, then of its outputs. The cache adds the
  /// terminator.
  using BodyFn = llvm::function_ref<void(tile::TileBuilder &builder,
                                         llvm::ArrayRef<mlir::Value> args)>;

  explicit KernelCache(mlir::ModuleOp module)
      : module(module), machine(MachineAttr::of(module)), symbols(module) {}

  /// What all kernels of the cache are cut for.
  MachineAttr getMachine() const { return machine; }

  /// The first schedule of `op` for its kernel with this suffix that is not
  /// among the refused ones of the module.
  /// All batches, and sequences of about the same length, have one answer.
  ChosenSchedule choose(mlir::Operation *op, llvm::StringRef suffix,
                        const Extent &sequence, AttentionKernel kernel);

  /// Launches a kernel of `op` on `inputs` at the builder's insertion point and
  /// returns the results, of types `outputs`, which differ from those of `op`
  /// when it becomes several launches.
  ///
  /// The kernel is shared by all operations of the same name, inherent
  /// attributes, operand and result types, and operations inside: `body` must
  /// depend on nothing else but what is in the spec's key.
  /// Its symbol is made of the operation's name, the suffix, the shape and the
  /// narrowest float type of the operation
  /// ("window_attention_b1s64h4x2d16_w32_f32"), its location is that of the
  /// first operation, and it has the i64 attributes `flops` (if
  /// counted) and `bytes` (the size of its arguments).
  mlir::ResultRange launch(mlir::OpBuilder &builder, mlir::Operation *op,
                           const KernelSpec &spec, mlir::ValueRange inputs,
                           mlir::TypeRange outputs, BodyFn body);

  /// Launches a kernel with a name of its own where the last of its inputs is
  /// made, once for all operations that ask for it.
  mlir::ResultRange launchOnce(mlir::OpBuilder &builder, mlir::Operation *op,
                               const KernelSpec &spec, mlir::ValueRange inputs,
                               mlir::TypeRange outputs, BodyFn body);

  /// Replaces an operation by one kernel to its results, from `operands` or
  /// else from its own.
  llvm::LogicalResult replace(mlir::PatternRewriter &rewriter,
                              mlir::Operation *op, const KernelSpec &spec,
                              mlir::ValueRange operands, BodyFn body);
  llvm::LogicalResult replace(mlir::PatternRewriter &rewriter,
                              mlir::Operation *op, const KernelSpec &spec,
                              BodyFn body) {
    return replace(rewriter, op, spec, op->getOperands(), body);
  }

  /// The type of a tensor between kernels. Notes what sizes stand for, if they
  /// are no constants.
  mlir::RankedTensorType getTensorType(llvm::ArrayRef<Extent> shape,
                                       mlir::Type element);
  /// The same for rows along the last dimension, of this pitch.
  mlir::RankedTensorType getRowsType(llvm::ArrayRef<Extent> shape,
                                     mlir::Type element, const Extent &pitch);
  mlir::Type getI32Type() {
    return mlir::IntegerType::get(module.getContext(), 32);
  }
  mlir::Type getF32Type() {
    return mlir::Float32Type::get(module.getContext());
  }

  int64_t getNumKernels() const { return kernels.size(); }
  int64_t getNumLaunches() const { return numLaunches; }
  /// Whether a kernel could not be made, for which there has been an error.
  bool hasFailed() const { return failed; }

private:
  /// Fails where a schedule is not for the machine.
  llvm::LogicalResult checkSchedule(mlir::Operation *op, AttentionKernel kernel,
                                    ScheduleAttr sizes) const;
  /// Writes on a kernel and its `grid` what their extents stand for. Fails
  /// where they are no constants, but the kernel takes them as such.
  llvm::LogicalResult noteExtents(mlir::Operation *op, const KernelSpec &spec,
                                  llvm::ArrayRef<Extent> grid,
                                  tile::KernelOp kernel);
  /// Fails where the number of an extent stands for something else.
  llvm::LogicalResult addExtent(ExtentTable &table, const Extent &extent);
  tile::LaunchOp create(mlir::OpBuilder &builder, mlir::Location loc,
                        tile::KernelOp kernel, mlir::ValueRange inputs,
                        mlir::TypeRange outputs);
  tile::KernelOp getOrCreate(mlir::Operation *op, const KernelSpec &spec,
                             mlir::TypeRange inputs, mlir::TypeRange outputs,
                             BodyFn body);

  mlir::ModuleOp module;
  MachineAttr machine;
  mlir::SymbolTable symbols;
  llvm::StringMap<tile::KernelOp> kernels;
  /// Sizes of tensors between kernels that are the same for all extents.
  llvm::SmallDenseSet<int64_t> constants;
  int64_t numLaunches = 0;
  bool failed = false;
};

/// A pattern that replaces an operation by launches of cached kernels.
template <typename OpT>
struct KernelPattern : mlir::RewritePattern {
  using Convert = llvm::LogicalResult (*)(OpT, KernelCache &,
                                          mlir::PatternRewriter &);

  KernelPattern(mlir::MLIRContext *context, KernelCache &cache, Convert convert)
      : mlir::RewritePattern(OpT::getOperationName(), /*benefit=*/1, context),
        cache(cache), convert(convert) {}

  /// What is inside of an operation has no kernels of its own.
  llvm::LogicalResult
  matchAndRewrite(mlir::Operation *op,
                  mlir::PatternRewriter &rewriter) const final {
    if (!llvm::isa<mlir::FunctionOpInterface>(op->getParentOp()))
      return mlir::failure();
    return convert(llvm::cast<OpT>(op), cache, rewriter);
  }

  KernelCache &cache;
  Convert convert;
};

/// Patterns of functions. The cache must outlive them.
struct KernelPatterns {
  template <typename... OpTs>
  void add(llvm::LogicalResult (*...convert)(OpTs, KernelCache &,
                                             mlir::PatternRewriter &)) {
    (set.add<KernelPattern<OpTs>>(set.getContext(), cache, convert), ...);
  }

  mlir::RewritePatternSet &set;
  KernelCache &cache;
};

/// Kernels of the nsa dialect, forward and backward.
void populateNSAToTilePatterns(KernelPatterns &patterns);

/// Kernels of the nn dialect: all but `nn.matmul`, which is a library call, and
/// the operations that become views or fills.
void populateNNToTilePatterns(KernelPatterns &patterns);

} // namespace nsa

#endif // NSA_PASSES_KERNELS_KERNELCACHE_H
