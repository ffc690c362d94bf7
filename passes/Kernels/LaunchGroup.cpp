//===- LaunchGroup.cpp - kernels side by side in one launch ---------------===//

#include "passes/Kernels/LaunchGroup.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

static Extent getNumPrograms(const LaunchPart &part) {
  auto grid = getGridOfParts(part.spec);
  return grid[0] * grid[1] * grid[2];
}

namespace {
/// The body of a group.
class GroupBuilder {
public:
  GroupBuilder(TileBuilder &b, ArrayRef<Value> args, ArrayRef<LaunchPart> parts)
      : b(b), args(args), parts(parts) {
    for (const LaunchPart &part : parts)
      numInputs += part.inputs.size();
  }

  /// Builds the parts from `index` on, whose first program is `begin`.
  void build(Expr program, size_t index, const Extent &begin);

private:
  void buildPart(Expr program, size_t index, const Extent &begin);

  TileBuilder &b;
  ArrayRef<Value> args;
  ArrayRef<LaunchPart> parts;
  size_t numInputs = 0;
};
} // namespace

void GroupBuilder::build(Expr program, size_t index, const Extent &begin) {
  if (index + 1 == parts.size())
    return buildPart(program, index, begin);
  Extent end = begin + getNumPrograms(parts[index]);
  b.ifThenElse(
      program < end,
      [&] {
        buildPart(program, index, begin);
        return SmallVector<Value>();
      },
      [&] {
        build(program, index + 1, end);
        return SmallVector<Value>();
      });
}

void GroupBuilder::buildPart(Expr program, size_t index, const Extent &begin) {
  const LaunchPart &part = parts[index];
  // In a form of which it is known that it is in the part's grid: loads need no
  // checks then.
  Expr number = min(max(program - begin, 0), getNumPrograms(part) - 1);
  auto [x, y, z] = getGridOfParts(part.spec);
  std::array<Expr, 3> ids = {number % x, number / x % y, number / (x * y)};
  size_t input = 0, output = numInputs;
  for (const LaunchPart &before : parts.take_front(index)) {
    input += before.inputs.size();
    output += before.outputs.size();
  }
  SmallVector<Value> own(args.slice(input, part.inputs.size()));
  llvm::append_range(own, args.slice(output, part.outputs.size()));
  buildParts(b, part.spec, ids, [&] { part.build(b, own); });
}

ResultRange nsa::launch(KernelCache &cache, OpBuilder &builder, Operation *op,
                        const LaunchPart &part) {
  return cache.launch(builder, op, part.spec, part.inputs, part.outputs,
                      part.build);
}

SmallVector<SmallVector<Value>>
nsa::launchTogether(KernelCache &cache, OpBuilder &builder, Operation *op,
                    StringRef suffix, ArrayRef<LaunchPart> parts) {
  KernelSpec spec = parts.front().spec;
  spec.suffix = suffix.str();
  spec.grid = {0, 1, 1};
  spec.schedule = {};
  spec.flops = 0;
  decltype(spec.inPlace) inPlace;
  SmallVector<Value> inputs;
  SmallVector<Type> outputs;
  llvm::raw_string_ostream key(spec.key);
  for (const LaunchPart &part : parts) {
    key << part.spec.suffix << ' ';
    llvm::interleaveComma(TypeRange(part.inputs), key);
    spec.grid[0] = spec.grid[0] + getNumPrograms(part);
    spec.takesExtents &= part.spec.takesExtents;
    spec.flops += part.spec.flops;
    // One of them multiplies at most, which that of the group is of.
    if (part.spec.schedule.sizes)
      spec.schedule = part.spec.schedule;
    for (auto [input, output] : part.spec.inPlace)
      inPlace.emplace_back(input + int64_t(inputs.size()),
                           output + int64_t(outputs.size()));
    llvm::append_range(inputs, part.inputs);
    llvm::append_range(outputs, part.outputs);
  }
  spec.inPlace = std::move(inPlace);
  // Parts have their own.
  spec.schedule.columnParts = 1;
  ValueRange results =
      cache.launch(builder, op, spec, inputs, outputs,
                   [&](TileBuilder &b, ArrayRef<Value> args) {
                     GroupBuilder(b, args, parts).build(b.programId(0), 0, 0);
                   });
  SmallVector<SmallVector<Value>> groups;
  for (const LaunchPart &part : parts) {
    groups.emplace_back(results.take_front(part.outputs.size()));
    results = results.drop_front(part.outputs.size());
  }
  return groups;
}
