//===- KernelGraph.cpp - the operations of one kernel ---------------------===//

#include "passes/Kernels/NN/KernelGraph.h"
#include "dialects/NN/NNOps.h"
#include "passes/Kernels/NN/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Graph
//===----------------------------------------------------------------------===//

KernelGraph::KernelGraph(Operation *op) {
  if (auto fused = dyn_cast<nn::FusedOp>(op)) {
    llvm::append_range(inputs, fused.getBody().getArguments());
    llvm::append_range(outputs, fused.getYielded());
    for (Operation &inner : fused.getBody().front().without_terminator())
      ops.push_back(&inner);
  } else {
    llvm::append_range(inputs, op->getOperands());
    llvm::append_range(outputs, op->getResults());
    ops.push_back(op);
  }
  for (Operation *inner : ops) {
    if (auto formula = dyn_cast<ElementwiseOpInterface>(inner))
      elementwise.push_back(formula);
    else
      roots.push_back(inner);
    auto fusible = cast<FusibleOpInterface>(inner);
    for (OpOperand &operand : inner->getOpOperands())
      if (fusible.isElementOperand(operand.getOperandNumber()))
        elements.insert(operand.get());
    for (OpResult result : inner->getResults())
      if (fusible.isElementResult(result.getResultNumber()))
        elements.insert(result);
  }
  for (Value output : outputs)
    if (!roots.empty())
      rootOf[output] =
          ops.size() == 1
              ? roots.front()
              : nn::getConnectedRoots(output.getDefiningOp()).front();
}

std::string KernelGraph::getSuffix() const {
  if (ops.size() == 1)
    return "";
  std::string suffix;
  llvm::raw_string_ostream os(suffix);
  llvm::interleave(
      ops, os, [&](Operation *op) { os << op->getName().stripDialect(); }, "_");
  return suffix;
}

std::string KernelGraph::getKey() const {
  // A value that is used as two operands is read once, in a kernel of its own.
  if (ops.size() == 1 &&
      llvm::SmallPtrSet<Value, 4>(inputs.begin(), inputs.end()).size() ==
          inputs.size())
    return "";
  std::string key;
  llvm::raw_string_ostream os(key);
  DenseMap<Value, unsigned> numbers;
  for (Value input : inputs)
    numbers.try_emplace(input, numbers.size());
  auto printNumber = [&](Value value) { os << numbers.lookup(value); };
  for (Operation *op : ops) {
    os << op->getName() << '(';
    llvm::interleaveComma(op->getOperands(), os, printNumber);
    os << ')';
    if (Attribute properties = op->getPropertiesAsAttribute())
      properties.print(os);
    os << " -> " << op->getResultTypes() << "; ";
    for (Value result : op->getResults())
      numbers.try_emplace(result, numbers.size());
  }
  llvm::interleaveComma(outputs, os, printNumber);
  return key;
}

int64_t KernelGraph::getFlopsPerElement() const {
  int64_t flops = 0;
  for (ElementwiseOpInterface op : elementwise)
    flops += const_cast<ElementwiseOpInterface &>(op).getFlopsPerElement();
  return flops;
}

//===----------------------------------------------------------------------===//
// Arguments and elements
//===----------------------------------------------------------------------===//

KernelFrame::KernelFrame(TileBuilder &builder, const KernelGraph &graph,
                         ArrayRef<Value> arguments,
                         ArrayRef<Extent> elementShape)
    : builder(builder), graph(graph) {
  auto view = [&](Value value, Value argument) {
    return graph.isElements(value) && !elementShape.empty()
               ? builder.view(argument, elementShape)
               : argument;
  };
  size_t numInputs = graph.getInputs().size();
  for (auto [value, argument] :
       llvm::zip(graph.getInputs(), arguments.take_front(numInputs)))
    if (!inputs.contains(value)) {
      inputs[value] = argument;
      elements[value] = view(value, argument);
    }
  for (auto [value, argument] :
       llvm::zip_equal(graph.getOutputs(), arguments.drop_front(numInputs)))
    if (argument)
      outputs[value] = view(value, argument);
}

Value Elements::get(Value value) {
  if (Value tile = tiles.lookup(value))
    return tile;
  TileBuilder &b = frame.getBuilder();
  if (Value memory = frame.getElements(value)) {
    Value tile = b.load(memory, place);
    tiles[value] = tile;
    return tile;
  }
  auto op = cast<ElementwiseOpInterface>(value.getDefiningOp());
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(get(operand));
  SmallVector<Type> types;
  for (Value result : op->getResults())
    types.push_back(getElementType(result));
  SmallVector<Value> results = b.map(operands, types, [&](ArrayRef<Expr> x) {
    return op.buildElements(b.getBuilder(), llvm::to_vector_of<Value>(x));
  });
  for (auto [result, tile] : llvm::zip_equal(op->getResults(), results))
    tiles[result] = tile;
  return tiles.lookup(value);
}

void Elements::set(Value value, Value tile) {
  TileBuilder &b = frame.getBuilder();
  tiles[value] = b.convertTo(tile, getElementType(value));
}

void Elements::storeOutputs() {
  // Everything is read before anything is written: an output may take the
  // memory of an input.
  SmallVector<std::pair<Value, Value>> stores;
  for (Value value : frame.getGraph().getOutputs())
    if (frame.getOutput(value) && frame.getGraph().isElements(value) &&
        frame.getGraph().getRootOf(value) == root)
      stores.emplace_back(get(value), frame.getOutput(value));
  for (auto [tile, memory] : stores)
    frame.getBuilder().store(tile, memory, place);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// The kernel of elementwise operations only. Programs are ranges of the
/// flat tensors. Each tile is read before it is written, so a result may take
/// the memory of an operand.
static RootKernel planElementwise(const FlatGrid &grid) {
  return {
      grid.name(), grid.programs, 0,
      [grid](TileBuilder &b, const KernelGraph &graph, ArrayRef<Value> args) {
        KernelFrame frame(b, graph, args, grid.getShape());
        grid.forEachTile(
            b, {},
            [&](ArrayRef<Operand> place,
                ArrayRef<Value>) -> SmallVector<Value> {
              Elements(frame, /*root=*/nullptr, place).storeOutputs();
              return {};
            });
      }};
}

FailureOr<ResultRange> RootKernels::launch(KernelCache &cache,
                                           OpBuilder &builder,
                                           Operation *op) const {
  KernelGraph graph(op);
  int64_t elements = 0;
  Value largest;
  for (Value output : graph.getOutputs())
    if (int64_t count = ShapedType::getNumElements(getShape(output));
        !largest || count > elements) {
      elements = count;
      largest = output;
    }
  RootKernel kernel;
  if (!graph.getRoots().empty()) {
    auto plan = plans.find(graph.getRoots().front()->getName().getStringRef());
    if (plan == plans.end())
      return failure();
    kernel = plan->second(graph, cache.getMachine());
  } else {
    FlatGrid grid(largest, cache.getMachine());
    if (!grid.fits())
      return failure();
    kernel = planElementwise(grid);
  }
  KernelSpec spec = {graph.getSuffix(),
                     kernel.shape,
                     {kernel.programs, 1, 1},
                     kernel.flops + graph.getFlopsPerElement() * elements,
                     graph.getKey()};
  spec.takesExtents = kernel.takesExtents;
  return cache.launch(builder, op, spec, op->getOperands(),
                      op->getResultTypes(),
                      [&](TileBuilder &b, ArrayRef<Value> args) {
                        kernel.build(b, graph, args);
                      });
}
