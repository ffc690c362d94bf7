//===- KernelLayouts.cpp - kernels for memory in rows ---------------------===//

#include "passes/Host/KernelLayouts.h"
#include "dialects/Tile/TileBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

static MemRefType getMemRef(Value value) {
  return cast<MemRefType>(value.getType());
}

static bool isDense(RowLayout layout) { return layout.width == layout.pitch; }

//===----------------------------------------------------------------------===//
// Views as vectors
//===----------------------------------------------------------------------===//

namespace {
/// A range of `length` elements from number `piece` * `length` on.
struct Piece {
  RangeOp range;
  Value number;
  int64_t length;
};
} // namespace

/// The index of an access to a vector as a piece of rows of `width` elements.
static std::optional<Piece> matchPiece(Operation *access, Value vector,
                                       int64_t width) {
  ValueRange indices;
  if (auto load = dyn_cast<LoadOp>(access))
    indices = load.getIndices();
  else if (auto store = dyn_cast<StoreOp>(access);
           store && store.getRef() == vector)
    indices = store.getIndices();
  if (indices.size() != 1)
    return std::nullopt;
  auto range = indices[0].getDefiningOp<RangeOp>();
  if (!range || range.getStep() != 1 || range.getAxis() != 1)
    return std::nullopt;
  int64_t length = range.getType().getNumElements();
  auto start = range.getStart().getDefiningOp<arith::MulIOp>();
  APInt factor;
  if (!start || !matchPattern(start.getRhs(), m_ConstantInt(&factor)) ||
      factor.getSExtValue() != length || width % length != 0)
    return std::nullopt;
  return Piece{range, start.getLhs(), length};
}

static bool isVectorOfPieces(ViewOp view, int64_t width) {
  return getMemRef(view.getResult()).getRank() == 1 &&
         llvm::all_of(view->getUsers(), [&](Operation *user) {
           return matchPiece(user, view.getResult(), width).has_value();
         });
}

/// Lets the accesses to `view`, a vector, go to `rows` instead.
static void accessRows(ViewOp view, Value rows, RowLayout layout) {
  for (OpOperand &use :
       llvm::make_early_inc_range(view.getResult().getUses())) {
    Operation *access = use.getOwner();
    Piece piece = *matchPiece(access, view.getResult(), layout.width);
    ImplicitLocOpBuilder b(access->getLoc(), access);
    auto constant = [&](int64_t number) -> Value {
      return arith::ConstantOp::create(b, b.getI32IntegerAttr(number));
    };
    // Unsigned: pieces are counted from 0, and bounds are easier to prove.
    int64_t piecesPerRow = layout.width / piece.length;
    Value row = piece.number, column = constant(0);
    if (piecesPerRow > 1) {
      row = arith::DivUIOp::create(b, piece.number, constant(piecesPerRow));
      column = arith::MulIOp::create(
          b, arith::RemUIOp::create(b, piece.number, constant(piecesPerRow)),
          constant(piece.length));
    }
    Value columns = RangeOp::create(b, piece.range.getType(), column);
    use.set(rows);
    if (auto load = dyn_cast<LoadOp>(access))
      load.getIndicesMutable().assign({row, columns});
    else
      cast<StoreOp>(access).getIndicesMutable().assign({row, columns});
  }
}

//===----------------------------------------------------------------------===//
// Versions
//===----------------------------------------------------------------------===//

bool KernelLayouts::mayTake(KernelOp kernel, unsigned index, RowLayout layout) {
  if (isDense(layout))
    return true;
  Value argument = kernel.getArgument(index);
  Type element = getMemRef(argument).getElementType();
  if (!getRowsType(getMemRef(argument).getShape(), element, layout))
    return false;
  return llvm::all_of(argument.getUsers(), [&](Operation *user) {
    auto view = dyn_cast<ViewOp>(user);
    if (!view)
      return isa<LoadOp, StoreOp>(user);
    ArrayRef<int64_t> shape = getMemRef(view.getResult()).getShape();
    return getRowsType(shape, element, layout)
               ? llvm::all_of(view->getUsers(), llvm::IsaPred<LoadOp, StoreOp>)
               : isVectorOfPieces(view, layout.width);
  });
}

/// Gives an argument and the views of it another layout.
void KernelLayouts::adapt(Value argument, RowLayout layout) {
  MemRefType type = getMemRef(argument);
  Type element = type.getElementType();
  argument.setType(getRowsType(type.getShape(), element, layout));
  for (Operation *user : llvm::make_early_inc_range(argument.getUsers())) {
    auto view = dyn_cast<ViewOp>(user);
    if (!view)
      continue;
    MemRefType shown = getMemRef(view.getResult());
    if (MemRefType rows = getRowsType(shown.getShape(), element, layout)) {
      view.getResult().setType(rows);
      continue;
    }
    OpBuilder builder(view);
    MemRefType matrix = getRowsType(
        {shown.getNumElements() / layout.width, layout.width}, element, layout);
    accessRows(view, ViewOp::create(builder, view.getLoc(), matrix, argument),
               layout);
    view.erase();
  }
}

/// The name of a version: the distance of rows of each argument that has some.
static std::string getVersionName(KernelOp kernel, ArrayRef<MemRefType> types) {
  std::string name = kernel.getSymName().str();
  llvm::raw_string_ostream os(name);
  for (auto [index, type] : llvm::enumerate(types))
    if (RowLayout layout = *getRowLayout(type); !isDense(layout))
      os << "_a" << index << "p" << layout.pitch;
  return name;
}

KernelOp KernelLayouts::get(KernelOp kernel, ArrayRef<MemRefType> types) {
  SmallVector<Type> arguments(types.begin(), types.end());
  if (kernel.getArgumentTypes() == ArrayRef<Type>(arguments))
    return kernel;
  auto type = FunctionType::get(kernel.getContext(), arguments, {});
  KernelOp &version = versions[{kernel.getOperation(), type}];
  if (version)
    return version;
  OpBuilder builder(kernel);
  version = cast<KernelOp>(builder.clone(*kernel));
  version.setSymName(getVersionName(kernel, types));
  version.setFunctionType(type);
  for (auto [argument, memref] : llvm::zip_equal(version.getArguments(), types))
    if (RowLayout layout = *getRowLayout(memref); !isDense(layout))
      adapt(argument, layout);
  symbols.insert(version);
  return version;
}

KernelOp KernelLayouts::getCopy(MemRefType source, MemRefType target,
                                Location loc) {
  auto type = FunctionType::get(source.getContext(), {source, target}, {});
  KernelOp &version = versions[{nullptr, type}];
  if (version)
    return version;
  // One of the two has rows, in which the other one fits.
  int64_t width =
      std::min(getRowLayout(source)->width, getRowLayout(target)->width);
  int64_t rows = source.getNumElements() / width;
  int64_t tile = std::min<int64_t>(llvm::PowerOf2Ceil(width), 1024);
  // A tile of 4,096 elements for each program: short rows leave a GPU idle.
  int64_t perProgram = 4096 / tile;
  int64_t programs = llvm::divideCeil(rows, perProgram);
  std::string name;
  llvm::raw_string_ostream os(name);
  os << "copy_t" << rows << "x" << width << "_" << source.getElementType();
  for (auto [prefix, memref] : {std::pair("_a0p", source), {"_a1p", target}})
    if (RowLayout layout = *getRowLayout(memref); !isDense(layout))
      os << prefix << layout.pitch;
  version = createKernel(
      module, loc, name, {source}, {target},
      {static_cast<int32_t>(programs), 1, 1},
      [&](TileBuilder &b, ArrayRef<Value> args) {
        auto view = [&](Value argument) -> Value {
          MemRefType type = getMemRef(argument);
          RowLayout layout = *getRowLayout(type);
          return ViewOp::create(
              b.getBuilder(),
              getRowsType({rows, width}, type.getElementType(), layout),
              argument);
        };
        Value from = view(args[0]), to = view(args[1]);
        Value row = b.range(b.programId(0) * perProgram, perProgram, 0);
        for (int64_t at = 0; at < width; at += tile) {
          Value columns = b.range(at, tile, 1);
          b.store(b.load(from, {row, columns}), to, {row, columns});
        }
      });
  symbols.insert(version);
  version->setAttr("bytes", OpBuilder(module).getI64IntegerAttr(
                                2 * source.getNumElements() *
                                source.getElementTypeBitWidth() / 8));
  return version;
}

void KernelLayouts::eraseUnused() {
  llvm::DenseSet<Operation *> models;
  for (auto &[key, version] : versions)
    if (key.first)
      models.insert(key.first);
  SymbolTableCollection tables;
  SymbolUserMap users(tables, module);
  for (auto kernel : llvm::make_early_inc_range(module.getOps<KernelOp>()))
    if (models.contains(kernel) && users.useEmpty(kernel))
      symbols.erase(kernel);
}
