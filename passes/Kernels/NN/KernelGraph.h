//===- KernelGraph.h - the operations of one kernel -------------*- C++ -*-===//
//
// A kernel computes one operation or those of an `nn.fused`: elementwise ones
// and a root, or several roots of one kind. The root decides how tensors are
// traversed and asks for the elements it needs; what is computed
// elementwise before or after it follows at the same coordinates.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_NN_KERNELGRAPH_H
#define NSA_PASSES_KERNELS_NN_KERNELGRAPH_H

#include "dialects/Interfaces/FusionInterfaces.h"
#include "passes/Kernels/KernelCache.h"

#include <functional>

namespace nsa {

/// The operations of one kernel and the values that go in and out.
class KernelGraph {
public:
  /// Of `nn.fused`, what it holds; of any other operation, itself.
  explicit KernelGraph(mlir::Operation *op);

  llvm::ArrayRef<mlir::Value> getInputs() const { return inputs; }
  llvm::ArrayRef<mlir::Value> getOutputs() const { return outputs; }
  /// The operations that are not elementwise: at most one, or several that
  /// share an iteration space.
  llvm::ArrayRef<mlir::Operation *> getRoots() const { return roots; }
  template <typename OpT>
  OpT getRoot() const {
    return llvm::cast<OpT>(roots.front());
  }
  /// Whether elements of the value are read or written at the indices that a
  /// root names.
  bool isElements(mlir::Value value) const { return elements.contains(value); }
  /// The root whose indices those are, or null if there is no root.
  mlir::Operation *getRootOf(mlir::Value output) const {
    return rootOf.lookup(output);
  }
  /// For the name of a kernel: "add_rms_norm", empty for one operation.
  std::string getSuffix() const;
  /// Everything that the kernel depends on, for an `nn.fused`.
  std::string getKey() const;
  /// Floating-point operations of the elementwise operations per element.
  int64_t getFlopsPerElement() const;

private:
  llvm::SmallVector<mlir::Value> inputs, outputs;
  llvm::SmallVector<ElementwiseOpInterface> elementwise;
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::SmallVector<mlir::Operation *> roots;
  llvm::DenseSet<mlir::Value> elements;
  llvm::DenseMap<mlir::Value, mlir::Operation *> rootOf;
};

/// The arguments of a kernel, by the values of its graph.
class KernelFrame {
public:
  /// Tensors of elements are seen in the shape `elementShape`, or in their own
  /// if that is empty. The argument of an output that is not stored is null.
  KernelFrame(tile::TileBuilder &builder, const KernelGraph &graph,
              llvm::ArrayRef<mlir::Value> arguments,
              llvm::ArrayRef<Extent> elementShape);

  /// The memory of an input in its own shape.
  mlir::Value getInput(mlir::Value value) const { return inputs.lookup(value); }
  /// The memory of an input whose elements are read, or null if the value is no
  /// input.
  mlir::Value getElements(mlir::Value value) const {
    return elements.lookup(value);
  }
  /// The memory of an output, or null if the value is none or is not stored.
  mlir::Value getOutput(mlir::Value value) const {
    return outputs.lookup(value);
  }
  const KernelGraph &getGraph() const { return graph; }
  tile::TileBuilder &getBuilder() const { return builder; }

private:
  tile::TileBuilder &builder;
  const KernelGraph &graph;
  llvm::DenseMap<mlir::Value, mlir::Value> inputs, elements, outputs;
};

/// The elements at one index of the values that are connected to a root.
class Elements {
public:
  /// The coordinates name the same index in all tensors of elements. The root
  /// is null if the graph has none.
  Elements(const KernelFrame &frame, mlir::Operation *root,
           llvm::ArrayRef<tile::Operand> place)
      : frame(frame), root(root), place(place) {}

  /// The tile of a value, in its element type: loaded, computed, or set before.
  mlir::Value get(mlir::Value value);
  mlir::Value getF32(mlir::Value value) {
    return frame.getBuilder().toF32(get(value));
  }
  tile::TileBuilder &getBuilder() const { return frame.getBuilder(); }
  /// Gives the root's result a tile of f32, rounded to its element type.
  void set(mlir::Value value, mlir::Value tile);
  /// Writes all outputs that are elements of the root.
  void storeOutputs();

private:
  const KernelFrame &frame;
  mlir::Operation *root;
  llvm::SmallVector<tile::Operand> place;
  llvm::DenseMap<mlir::Value, mlir::Value> tiles;
};

/// How a root's kernel is cut into programs, and what each does.
struct RootKernel {
  /// For the name: "t128x32".
  std::string shape;
  Extent programs;
  /// Of the roots alone.
  int64_t flops;
  std::function<void(tile::TileBuilder &, const KernelGraph &,
                     llvm::ArrayRef<mlir::Value>)>
      build;
  /// A KernelSpec's.
  bool takesExtents = true;
};

/// Plans the kernel of a graph with roots of one kind.
using PlanRoot = RootKernel (*)(const KernelGraph &graph, MachineAttr machine);

/// The kernels of roots, by operation.
class RootKernels {
public:
  template <typename OpT>
  void add(PlanRoot plan) {
    plans[OpT::getOperationName()] = plan;
  }
  /// Launches the kernel of `op`, whose results it returns. Fails where there
  /// is none, or none that counts so many elements.
  mlir::FailureOr<mlir::ResultRange> launch(KernelCache &cache,
                                            mlir::OpBuilder &builder,
                                            mlir::Operation *op) const;

private:
  llvm::StringMap<PlanRoot> plans;
};

} // namespace nsa

#endif // NSA_PASSES_KERNELS_NN_KERNELGRAPH_H
