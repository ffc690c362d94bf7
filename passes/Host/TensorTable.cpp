//===- TensorTable.cpp - the named tensors of a program -------------------===//

#include "passes/Host/TensorTable.h"

#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace nsa;

MemRefType nsa::getMemoryType(Type tensorType) {
  auto type = dyn_cast<RankedTensorType>(tensorType);
  if (!type || !type.hasStaticShape())
    return {};
  Type element = type.getElementType();
  if (!element.isF32() && !element.isBF16() && !element.isF16() &&
      !element.isSignlessInteger(32) && !element.isSignlessInteger(64) &&
      !element.isUnsignedInteger(8))
    return {};
  if (!rt::isAddressable(type))
    return {};
  return getMemRefType(type);
}

MemRefType nsa::getBufferType(MemRefType type) {
  RowLayout layout = *getRowLayout(type);
  if (layout.width == layout.pitch)
    return type;
  SmallVector<int64_t> shape(type.getShape());
  assert(shape.back() == layout.width && "rows of several dimensions");
  shape.back() = layout.pitch;
  return MemRefType::get(shape, type.getElementType());
}

static rt::TensorRole convertRole(nn::ArgumentRole role) {
  switch (role) {
  case nn::ArgumentRole::Input:
    return rt::TensorRole::Input;
  case nn::ArgumentRole::Parameter:
    return rt::TensorRole::Parameter;
  case nn::ArgumentRole::Constant:
    return rt::TensorRole::Constant;
  case nn::ArgumentRole::Gradient:
    return rt::TensorRole::Gradient;
  case nn::ArgumentRole::State:
    return rt::TensorRole::State;
  }
  llvm_unreachable("unknown role");
}

/// Whether tensors of this role start at zero unless they say otherwise.
static bool startsAtZero(rt::TensorRole role) {
  return role == rt::TensorRole::Gradient || role == rt::TensorRole::State;
}

static bool isPersistent(func::FuncOp function, unsigned index) {
  std::optional<nn::ArgumentRole> role = nn::getArgumentRole(function, index);
  return role && *role != nn::ArgumentRole::Input;
}

static std::string nameOr(StringRef name, const char *stem, unsigned index) {
  return name.empty() ? (stem + Twine(index)).str() : name.str();
}

rt::TensorOp TensorTable::create(StringRef name, rt::TensorRole role,
                                 MemRefType type, nn::InitAttr init, bool decay,
                                 StringRef state, Location loc) {
  OpBuilder builder(module.getContext());
  if (tensors.empty())
    builder.setInsertionPointToStart(module.getBody());
  else
    builder.setInsertionPointAfter(tensors.back());
  auto tensor = rt::TensorOp::create(builder, loc, role, name, type, init,
                                     decay, /*state=*/StringAttr(),
                                     /*slice=*/rt::SliceAttr());
  if (!state.empty())
    tensor.setState(state);
  symbols.insert(tensor);
  tensors.push_back(tensor);
  return tensor;
}

//===----------------------------------------------------------------------===//
// Persistent tensors
//===----------------------------------------------------------------------===//

/// Whether a function sees a tensor as another function did.
static LogicalResult checkAgreement(rt::TensorOp tensor, rt::TensorRole role,
                                    MemRefType type, nn::InitAttr init,
                                    bool decay, StringRef state,
                                    func::FuncOp function, Location loc) {
  auto disagree = [&](const auto &before, const auto &now) {
    InFlightDiagnostic diagnostic = emitError(loc)
                                    << "'" << tensor.getSymName() << "' is "
                                    << now << " in '" << function.getSymName()
                                    << "' but " << before << " elsewhere";
    diagnostic.attachNote(tensor.getLoc()) << "it was first seen here";
    return diagnostic;
  };
  if (tensor.getMemoryType() != type)
    return disagree(tensor.getMemoryType(), type);
  if (tensor.getRole() != role)
    return disagree(rt::stringifyTensorRole(tensor.getRole()),
                    rt::stringifyTensorRole(role));
  if (tensor.getInitAttr() != init)
    return disagree(tensor.getInitAttr(), init);
  if (tensor.getDecay() != decay)
    return disagree(tensor.getDecay() ? "decaying" : "not decaying",
                    decay ? "decaying" : "not decaying");
  if (tensor.getState().value_or("") != state)
    return disagree("state `" + tensor.getState().value_or("").str() + "`",
                    "state `" + state.str() + "`");
  return success();
}

LogicalResult TensorTable::addPersistent(func::FuncOp function,
                                         unsigned index) {
  Location loc = function.getArgument(index).getLoc();
  StringRef name = nn::getArgumentName(function, index);
  rt::TensorRole role = convertRole(*nn::getArgumentRole(function, index));
  if (name.empty())
    return emitError(loc) << "argument " << index << " of '"
                          << function.getSymName() << "' has role "
                          << rt::stringifyTensorRole(role) << " but no name";
  Type tensorType = function.getArgumentTypes()[index];
  MemRefType type = getMemoryType(tensorType);
  if (!type)
    return emitError(loc) << "'" << name << "' has type " << tensorType
                          << ", which the runtime cannot hold";
  nn::InitAttr init = nn::getArgumentInit(function, index);
  if (!init && startsAtZero(role))
    init = nn::InitAttr::get(module.getContext(), nn::InitKind::Constant, 0.0);
  if (!init)
    return emitError(loc) << rt::stringifyTensorRole(role) << " '" << name
                          << "' has no initial value";
  bool decay = nn::hasDecay(function, index);
  StringRef state = nn::getArgumentState(function, index);

  Operation *symbol = symbols.lookup(name);
  auto tensor = dyn_cast_or_null<rt::TensorOp>(symbol);
  if (symbol && !tensor)
    return emitError(loc) << "'" << name
                          << "' is the name of a tensor and of a "
                          << symbol->getName();
  if (!tensor)
    tensor = create(name, role, type, init, decay, state, loc);
  else if (failed(checkAgreement(tensor, role, type, init, decay, state,
                                 function, loc)))
    return failure();
  arguments[{function.getOperation(), index}] = tensor;
  return success();
}

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

rt::TensorOp TensorTable::claimIO(func::FuncOp function,
                                  const std::string &name, rt::TensorRole role,
                                  Type tensorType, Location loc) {
  MemRefType type = getMemoryType(tensorType);
  if (!type) {
    emitError(loc) << "'" << name << "' has type " << tensorType
                   << ", which the runtime cannot hold";
    return {};
  }
  for (const std::string &candidate :
       {name, (function.getSymName() + "." + name).str()}) {
    Operation *symbol = symbols.lookup(candidate);
    if (!symbol)
      return create(candidate, role, type, /*init=*/{}, /*decay=*/false,
                    /*state=*/"", loc);
    auto tensor = dyn_cast<rt::TensorOp>(symbol);
    if (tensor && tensor.getRole() == role && tensor.getMemoryType() == type)
      return tensor;
  }
  emitError(loc) << "neither '" << name << "' nor '" << function.getSymName()
                 << "." << name << "' is free as the name of an "
                 << rt::stringifyTensorRole(role);
  return {};
}

LogicalResult TensorTable::addIO(func::FuncOp function) {
  Operation *op = function;
  llvm::SmallPtrSet<Operation *, 8> used;
  auto claim = [&](const std::string &name, rt::TensorRole role, Type type,
                   Location loc) -> rt::TensorOp {
    rt::TensorOp tensor = claimIO(function, name, role, type, loc);
    if (tensor && !used.insert(tensor).second) {
      emitError(loc) << "'" << function.getSymName() << "' has two "
                     << rt::stringifyTensorRole(role) << "s called '" << name
                     << "'";
      return {};
    }
    return tensor;
  };
  for (BlockArgument argument : function.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (isPersistent(function, index))
      continue;
    std::string name =
        nameOr(nn::getArgumentName(function, index), "arg", index);
    rt::TensorOp tensor = claim(name, rt::TensorRole::Input, argument.getType(),
                                argument.getLoc());
    if (!tensor)
      return failure();
    arguments[{op, index}] = tensor;
  }
  Operation *terminator = function.getBody().front().getTerminator();
  for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
    if (!nn::getResultAlias(function, index).empty())
      continue;
    std::string name =
        nameOr(nn::getResultName(function, index), "result", index);
    rt::TensorOp tensor =
        claim(name, rt::TensorRole::Output, type, terminator->getLoc());
    if (!tensor)
      return failure();
    results[{op, unsigned(index)}] = tensor;
  }
  return success();
}

LogicalResult TensorTable::add(ArrayRef<func::FuncOp> functions) {
  for (func::FuncOp function : functions)
    for (unsigned index = 0; index < function.getNumArguments(); ++index)
      if (isPersistent(function, index) &&
          failed(addPersistent(function, index)))
        return failure();
  for (func::FuncOp function : functions)
    if (failed(addIO(function)))
      return failure();
  return success();
}

SmallVector<rt::TensorOp> TensorTable::getInitialized() const {
  return llvm::to_vector(llvm::make_filter_range(
      tensors, [](rt::TensorOp tensor) { return bool(tensor.getInitAttr()); }));
}
