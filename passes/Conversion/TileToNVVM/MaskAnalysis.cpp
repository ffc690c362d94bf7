//===- MaskAnalysis.cpp - masks that are intervals of columns -------------===//

#include "passes/Conversion/TileToNVVM/MaskAnalysis.h"
#include "dialects/Interfaces/AttributeNames.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

namespace {
/// How a value of a map's body changes along a row.
enum class Course {
  Constant,
  /// An integer a * column + b.
  Affine,
  /// A truth value that holds in one interval of columns.
  Interval,
  Other
};

class Courses {
public:
  explicit Courses(MapOp map) : map(map) {}

  Course of(Value value) {
    if (auto known = courses.find(value); known != courses.end())
      return known->second;
    Course course = compute(value);
    courses.try_emplace(value, course);
    return course;
  }

private:
  Course compute(Value value) {
    if (value.getParentBlock() != &map.getBody().front())
      return Course::Constant;
    if (auto argument = dyn_cast<BlockArgument>(value))
      return ofInput(map.getInputs()[argument.getArgNumber()]);
    Operation *def = value.getDefiningOp();
    SmallVector<Course> operands =
        llvm::map_to_vector(def->getOperands(), [&](Value v) { return of(v); });
    if (llvm::all_of(operands, [](Course c) { return c == Course::Constant; }))
      return Course::Constant;
    auto areLinear = [&] {
      return llvm::all_of(operands, [](Course c) {
        return c == Course::Constant || c == Course::Affine;
      });
    };
    if (isa<arith::AddIOp, arith::SubIOp>(def) && areLinear())
      return Course::Affine;
    if (isa<arith::MulIOp>(def) && areLinear() &&
        llvm::is_contained(operands, Course::Constant))
      return Course::Affine;
    if (auto compare = dyn_cast<arith::CmpIOp>(def); compare && areLinear())
      return isSignedOrder(compare.getPredicate()) ? Course::Interval
                                                   : Course::Other;
    if (isa<arith::AndIOp>(def) && value.getType().isInteger(1) &&
        !llvm::is_contained(operands, Course::Other))
      return Course::Interval;
    return Course::Other;
  }

  static Course ofInput(Value input) {
    if (cast<TileType>(input.getType()).getCols() == 1)
      return Course::Constant;
    auto range = input.getDefiningOp<RangeOp>();
    return range && range.getAxis() == 1 ? Course::Affine : Course::Other;
  }

  static bool isSignedOrder(arith::CmpIPredicate predicate) {
    return predicate == arith::CmpIPredicate::slt ||
           predicate == arith::CmpIPredicate::sle ||
           predicate == arith::CmpIPredicate::sgt ||
           predicate == arith::CmpIPredicate::sge;
  }

  MapOp map;
  llvm::DenseMap<Value, Course> courses;
};
} // namespace

Masks nsa::cuda::findMasks(MapOp map) {
  Masks masks;
  Courses courses(map);
  Block &body = map.getBody().front();
  llvm::DenseSet<Operation *> needed;
  auto need = [&](auto &self, Value value) -> void {
    if (value.getParentBlock() != &body)
      return;
    Operation *def = value.getDefiningOp();
    if (!def)
      masks.arguments.insert(value);
    else if (needed.insert(def).second)
      for (Value operand : def->getOperands())
        self(self, operand);
  };
  for (auto select : body.getOps<arith::SelectOp>()) {
    Course course = courses.of(select.getCondition());
    if (course == Course::Interval ||
        (course == Course::Constant && select->hasAttr(nsa::kShortcutAttr))) {
      masks.selects.push_back(select);
      need(need, select.getCondition());
    }
  }
  for (Operation &op : body)
    if (needed.contains(&op))
      masks.operations.insert(&op);
  return masks;
}
