//===- SelectSchedule.cpp - measured ways to cut kernels ------------------===//

#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/NSA/FusedAttention.h"
#include "mlir/AsmParser/AsmParser.h"
#include "passes/Kernels/NSA/GatheredAttention.h"
#include "passes/Kernels/NSA/SelectedForms.h"
#include "passes/Kernels/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_SELECTSCHEDULE
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

/// The order is that of predicted time: work per copy first, then registers.
/// Accumulators of gradients of keys take (dk + dv) / 2 registers of a thread
/// whatever the tile, twice as many with several heads in a group: only fewer
/// columns help. Each part multiplies all scores again.
///
/// What a program of `select` spills is a value or two, before the registers of
/// a producer are reallocated. The gradient of keys of 28 / 4 heads of 128 and
/// 32,768 tokens spills one, and takes 1.7 times as long in parts.
///
/// Kernels with their schedules; a number is the least width of their heads.
static constexpr StringLiteral table = R"(
forward
  default
  queries = 128, keys = 64, min_blocks = 1
  queries = 64, keys = 64, min_blocks = 1
  queries = 64, keys = 32, min_blocks = 1
  queries = 64, keys = 16, min_blocks = 1
  queries = 64, keys = 32, column_parts = 2, min_blocks = 1
  128: queries = 64, keys = 16, column_parts = 4, min_blocks = 1
  queries = 16, keys = 16, column_parts = 4, min_blocks = 1
rotary_forward
  default
  queries = 128, keys = 64, min_blocks = 1
  queries = 64, keys = 64, min_blocks = 1
  queries = 64, keys = 32, min_blocks = 1
  queries = 64, keys = 16, min_blocks = 1
  queries = 16, keys = 16, min_blocks = 1
query_grad
  default
  queries = 64, keys = 64, min_blocks = 1
  queries = 64, keys = 32, min_blocks = 1
  queries = 64, keys = 16, min_blocks = 1
  queries = 64, keys = 32, column_parts = 2, min_blocks = 1
  128: queries = 64, keys = 16, column_parts = 4, min_blocks = 1
  queries = 16, keys = 16, column_parts = 4, min_blocks = 1
key_value_grad
  default
  queries = 64, keys = 64, min_blocks = 1
  queries = 32, keys = 64, min_blocks = 1
  queries = 64, keys = 64, column_parts = 2, min_blocks = 1
  queries = 32, keys = 64, column_parts = 2, min_blocks = 1
  128: queries = 32, keys = 64, column_parts = 4, min_blocks = 1
  queries = 16, keys = 64, column_parts = 4, min_blocks = 1
  queries = 16, keys = 16, column_parts = 4, min_blocks = 1
selected_forward, selected_query_grad
  form = masks
  form = masks, queries = 64, min_blocks = 1
  form = masks, queries = 64, selected_keys = 32, min_blocks = 1
  form = masks, queries = 64, selected_keys = 16, min_blocks = 1
  form = masks, queries = 64, selected_keys = 32, column_parts = 2, min_blocks = 1
  form = masks, queries = 16, selected_keys = 16, column_parts = 4, min_blocks = 1
  form = unions
  form = unions, min_blocks = 1
  form = unions, selected_keys = 32, min_blocks = 1
  form = unions, selected_keys = 32, column_parts = 2, min_blocks = 1
  form = unions, selected_keys = 16, column_parts = 4, min_blocks = 1
  form = gathered
  form = gathered, min_blocks = 1
  form = gathered, selected_keys = 32, min_blocks = 1
  form = gathered, column_parts = 2, min_blocks = 1
  form = gathered, gathered_queries = 16, selected_keys = 16, column_parts = 2, min_blocks = 1
  form = gathered, gathered_queries = 1, selected_keys = 16, column_parts = 4, min_blocks = 1
selected_forward
  default
  min_blocks = 1
  selected_keys = 32, min_blocks = 1
  selected_keys = 16, min_blocks = 1
  selected_queries = 4, selected_keys = 32, min_blocks = 1
  selected_queries = 1, selected_keys = 32, min_blocks = 1
  selected_queries = 1, selected_keys = 32, column_parts = 2, min_blocks = 1
  selected_queries = 1, selected_keys = 16, column_parts = 4, min_blocks = 1
  144: selected_queries = 1, selected_keys = 16, column_parts = 8, min_blocks = 1
selected_query_grad
  default
  min_blocks = 1
  selected_keys = 32, min_blocks = 1
  selected_keys = 16, min_blocks = 1
  selected_queries = 4, selected_keys = 32, min_blocks = 1
  selected_queries = 1, selected_keys = 32, min_blocks = 1
  selected_queries = 1, selected_keys = 16, min_blocks = 1
  selected_queries = 1, selected_keys = 32, column_parts = 2, min_blocks = 1
  selected_queries = 1, selected_keys = 16, column_parts = 2, min_blocks = 1
  selected_queries = 1, selected_keys = 16, column_parts = 4, min_blocks = 1
  144: selected_queries = 1, selected_keys = 16, column_parts = 2, min_blocks = 1, spills = 128
selected_key_value_grad
  form = masks
  form = masks, queries = 32, min_blocks = 1
  form = masks, queries = 64, column_parts = 2, min_blocks = 1
  form = masks, queries = 32, column_parts = 2, min_blocks = 1
  form = masks, queries = 32, column_parts = 4, min_blocks = 1
  form = masks, queries = 16, selected_keys = 16, column_parts = 4, min_blocks = 1
  producer = 2
  default
  gathered_queries = 16, min_blocks = 1
  gathered_queries = 8
  gathered_queries = 8, min_blocks = 1
  128: gathered_queries = 8, min_blocks = 1, spills = 32
  192: gathered_queries = 8, selected_keys = 64, column_parts = 2, min_blocks = 1
  192: gathered_queries = 4, selected_keys = 64, column_parts = 2, min_blocks = 1
  gathered_queries = 16, column_parts = 2, min_blocks = 1
  gathered_queries = 8, column_parts = 2, min_blocks = 1
  gathered_queries = 4, column_parts = 4, min_blocks = 1
  144: gathered_queries = 1, selected_keys = 64, column_parts = 4, min_blocks = 1
  gathered_queries = 1, column_parts = 4, min_blocks = 1
  144: gathered_queries = 1, selected_keys = 64, column_parts = 8, min_blocks = 1
  144: gathered_queries = 1, selected_keys = 16, column_parts = 8, min_blocks = 1
  144: gathered_queries = 4, column_parts = 4, min_blocks = 1, spills = 128
  144: gathered_queries = 1, selected_keys = 16, column_parts = 8, min_blocks = 1, spills = 128
select
  default
  spills = 32
  queries = 64, blocks = 16
  queries = 64, blocks = 8
  queries = 64, blocks = 4
  queries = 64, blocks = 1
  queries = 32, blocks = 8
  queries = 16, blocks = 4
  queries = 16, blocks = 1
)";

//===----------------------------------------------------------------------===//
// Lists or masks
//===----------------------------------------------------------------------===//

namespace {
/// Up to how many times as many pairs as count a kernel with masks is faster
/// than the one with lists.
struct Limits {
  double forward, queryGrad, keyValueGrad;
};
} // namespace

/// Measured on an H100 with bf16, blocks of 64 tokens of which 16 are selected
/// and groups of 6 and of 16 heads; milliseconds with
/// lists / with masks, all kernels that only one form needs included. These
/// selections agree little more than chance. In training they agree more: at
/// 8,192 tokens, lists then take 0.43 and 0.62 ms forward and for dq:
///
///   width  tokens  pairs  forward        dq             dk and dv
///   64     2,048   1.36   0.270 / 0.172  0.448 / 0.277  0.314 / 0.201
///          4,096   2.35   0.449 / 0.287  0.633 / 0.408  0.389 / 0.376
///          8,192   4.38   0.565 / 0.518  0.768 / 0.666  0.457 / 0.730
///   128    2,048   1.36   0.366 / 0.389  0.803 / 0.596  0.870 / 0.656
///          4,096   2.35   0.567 / 0.623  0.998 / 0.887  0.912 / 1.27
///          8,192   4.38   1.36 / 2.13    2.24 / 2.84    1.41 / 3.33
///
/// Of shorter sequences, masks take 0.74 of the time with lists at width 64
/// forward and backward (0.94 in groups of 4 forward), at width 128 0.93 of
/// that backward and 1.08 forward: see docs/performance.md. Unions of the few
/// queries of large groups are faster than masks of 128 columns for dq.
static Limits getLimits(const AttentionShape &shape) {
  int64_t width = shape.keyWidth + shape.valueWidth;
  bool isShort = int64_t(shape.tokens) < 2048;
  if (width <= 128)
    return {3.0, 2.7, 2.4};
  if (width <= 256)
    return {isShort ? 0 : 1.2, shape.group() < 16 ? 2.4 : 1.5, 1.5};
  return {};
}

/// The more heads a group has, the fewer queries fill a warpgroup, and the
/// smaller is their union. Measured on an H200 with recorded selections, of
/// which those at random may be 5 % slower: see docs/performance.md. In long
/// sequences these have little in common, so that lists stay where the heads of
/// a group fill the 16 rows of an M-tile.
static void chooseUnions(SelectedForms &forms,
                         const SelectedAttention &selected) {
  const AttentionShape &shape = selected.shape;
  if (!SelectedAttention::isLong(shape, selected.selectBlock, selected.count) ||
      !selected.fitsUnions())
    return;
  constexpr int64_t longest = 16384, rows = SelectedAttention::kWarpRows;
  int64_t group = shape.group(), width = shape.keyWidth + shape.valueWidth;
  bool fillsRows = rows - rows / std::min(group, rows) * group < 2;
  bool isShort = int64_t(shape.tokens) <= longest;
  bool pays = isShort || !fillsRows || (group == 8 && width > 128);
  if (width <= 256 && group >= 2 && group < 16 &&
      (pays || (group == 4 && width <= 128)))
    forms.forward = SelectionForm::Unions;
  if (width > 256 ? group >= 8 : group >= 3 && (pays || group >= 16))
    forms.queryGrad = SelectionForm::Unions;
}

/// The forms that are faster.
static SelectedForms chooseForms(const SelectedAttention &selected,
                                 MachineAttr machine) {
  SelectedForms forms;
  // The gradient of keys gathers queries where it has lists.
  if (GatheredAttention::isFaster(selected) &&
      GatheredAttention::fits(selected))
    forms.forward = forms.queryGrad = SelectionForm::Gathered;
  const AttentionShape &shape = selected.shape;
  constexpr int64_t shortest = 512;
  bool isMeasured = machine.getWarpgroupRows() != 0 &&
                    shape.elementBits == 16 && shape.batch.isConstant() &&
                    shape.tokens.isConstant() &&
                    int64_t(shape.tokens) >= shortest &&
                    (selected.keyTile == 64 || selected.selectBlock == 64);
  if (!isMeasured)
    return forms;
  auto causal = CausalAttr::get(machine.getContext());
  auto count = [&](VisibilityAttrInterface visibility) {
    return static_cast<double>(visibility.countPairs(
        int64_t(shape.tokens), int64_t(shape.keys), selected.count));
  };
  chooseUnions(forms, selected);
  double pairs = count(causal) / count(selected.visibility);
  auto choose = [&](SelectionForm &form, double limit) {
    if (pairs <= limit)
      form = SelectionForm::Masks;
  };
  Limits limits = getLimits(shape);
  choose(forms.forward, limits.forward);
  choose(forms.queryGrad, limits.queryGrad);
  choose(forms.keyValueGrad, limits.keyValueGrad);
  return forms;
}

/// Whether dk and dv of lists are faster where warps of a producer gather the
/// queries, each a box of the heads of its group. Measured on an H200,
/// milliseconds without / with it, without gates; other lengths and trained
/// selections are alike (docs/performance.md):
///
///   width  group  tokens     dk and dv
///   128    16     8,192      1.107 / 1.007
///          8      2 x 8,192  1.094 / 0.976
///          6      2 x 8,192  0.505 / 0.443
///          4      2 x 8,192  1.158 / 1.039
///          3      2 x 8,192  0.980 / 0.860
///          2      2 x 8,192  0.658 / 0.590
///   64     16     2 x 8,192  0.645 / 0.594
///          8      2 x 8,192  0.624 / 0.596
///          6      2 x 8,192  0.299 / 0.302
///          4      2 x 8,192  0.639 / 0.656
///
/// Boxes have rows of 128 bytes, tiles have whole queries, and no more than two
/// programs of a multiprocessor have registers for.
static bool isFasterWithProducer(const SelectedAttention &selected,
                                 MachineAttr machine) {
  const AttentionShape &shape = selected.shape;
  constexpr int64_t boxWidth = 64, mostWidth = 256;
  bool isNarrow = std::min(shape.keyWidth, shape.valueWidth) <= boxWidth;
  return shape.elementBits == 16 && shape.group() >= (isNarrow ? 8 : 2) &&
         selected.ownKeyTile == machine.getWarpgroupRows() &&
         selected.gatherRows == selected.gatherTile * shape.group() &&
         selected.gatherRows <= machine.getWarpgroupRows() &&
         shape.keyWidth % boxWidth == 0 && shape.valueWidth % boxWidth == 0 &&
         shape.keyWidth + shape.valueWidth <= mostWidth;
}

bool nsa::gathersQueries(AttentionOp op) {
  constexpr auto kernel = AttentionKernel::SelectedForward;
  MachineAttr machine = MachineAttr::of(op);
  if (!hasIndices(op) || !machine.isParallel())
    return false;
  SelectedAttention selected(op, machine);
  return getForm(getSchedules(op, kernel),
                 chooseForms(selected, machine).forward, kernel,
                 selected) == SelectionForm::Gathered;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
using Kernel = AttentionKernel;

struct Row {
  Kernel kernel;
  /// For heads of at least this width.
  int64_t narrowest;
  ScheduleAttr schedule;
};

struct SelectSchedule : nsa::impl::SelectScheduleBase<SelectSchedule> {
  void runOnOperation() override;

private:
  void addAttention(AttentionOp op);
  void addGradients(AttentionBackwardOp op);
  void add(Kernel kernel, const AttentionShape &shape,
           SelectionForm form = SelectionForm::Lists, int64_t gathered = 0,
           bool hasProducer = false);
  SelectionForm addSelected(Kernel kernel, const SelectedAttention &selected,
                            SelectionForm form);
  ArrayAttr getGiven(Kernel kernel) const;
  void addGiven(Operation *part, DictionaryAttr own, bool replaces);

  MachineAttr machine;
  SmallVector<Row> rows;
  /// Of one operation.
  NamedAttrList lists;
  /// What the user says for the module.
  DictionaryAttr ofModule;
};
} // namespace

static SmallVector<Row> parseTable(MLIRContext *context) {
  SmallVector<Row> rows;
  SmallVector<StringRef> lines;
  table.split(lines, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  SmallVector<StringRef> kernels;
  for (StringRef line : lines) {
    if (!line.consume_front("  ")) {
      kernels.clear();
      line.split(kernels, ", ");
      continue;
    }
    int64_t narrowest = 0;
    if (!line.consumeInteger(10, narrowest))
      line.consume_front(": ");
    std::string text = line == "default" ? "" : ("<" + line + ">").str();
    auto schedule =
        cast<ScheduleAttr>(parseAttribute("#nsa.schedule" + text, context));
    for (StringRef kernel : kernels)
      rows.push_back({*symbolizeAttentionKernel(kernel), narrowest, schedule});
  }
  return rows;
}

/// A schedule where what is left out of it depends on the group; `gathered` are
/// the queries that fill a warpgroup.
static ScheduleAttr fitTo(ScheduleAttr row, int64_t group, int64_t gathered,
                          MachineAttr machine) {
  int64_t queries = row.getSelectedQueries(), keys = row.getSelectedKeys();
  // Rows of a program of lists are to fill M-tiles.
  if (queries != 0)
    queries = std::max(queries, machine.getLeastQueries(group));
  if (row.getForm() == SelectionForm::Gathered && keys == 0)
    keys = 64;
  if (int64_t own = row.getGatheredQueries())
    gathered = own;
  return ScheduleAttr::get(row.getContext(), row.getForm(), row.getQueries(),
                           row.getKeys(), queries, keys, gathered,
                           row.getGatheredHeads(), row.getBlocks(),
                           row.getColumnParts(), row.getMinBlocks(),
                           row.getProducer(), row.getSpills());
}

/// Whether a user says nothing but the form, so that the rest is chosen.
static bool saysOnly(ArrayAttr given, SelectionForm form) {
  std::string text =
      ("#nsa.schedule<form = " + stringifySelectionForm(form) + ">").str();
  return given.size() == 1 &&
         given[0] == parseAttribute(text, given.getContext());
}

/// What a user says of a kernel, or null.
ArrayAttr SelectSchedule::getGiven(Kernel kernel) const {
  StringRef name = stringifyAttentionKernel(kernel);
  Attribute own = lists.get(name);
  return cast_or_null<ArrayAttr>(own || !ofModule ? own : ofModule.get(name));
}

/// Kernels of what is fused have one list, not one for each part.
void SelectSchedule::addGiven(Operation *part, DictionaryAttr own,
                              bool replaces) {
  for (NamedAttribute each : own) {
    Attribute other = lists.set(each.getName(), each.getValue());
    if (replaces || !other || other == each.getValue())
      continue;
    part->emitOpError("has the schedules ")
        << each.getValue() << " of " << each.getName()
        << ", but what it is fused with has " << other;
    signalPassFailure();
  }
}

/// Adds the schedules of the form that a user says, or else of `form`. Returns
/// it.
SelectionForm SelectSchedule::addSelected(Kernel kernel,
                                          const SelectedAttention &selected,
                                          SelectionForm form) {
  form = getForm(getGiven(kernel), form, kernel, selected);
  add(kernel, selected.shape, form,
      form == SelectionForm::Gathered
          ? GatheredAttention::getMostQueries(selected)
          : 0,
      isFasterWithProducer(selected, machine));
  return form;
}

void SelectSchedule::add(Kernel kernel, const AttentionShape &shape,
                         SelectionForm form, int64_t gathered,
                         bool hasProducer) {
  ArrayAttr given = getGiven(kernel);
  if (given && !saysOnly(given, form))
    return;
  // What belongs to rows has the tiles of lists.
  Kernel own = kernel == Kernel::QueryRows ? Kernel::SelectedQueryGrad : kernel;
  SmallVector<Attribute> list;
  for (const Row &row : rows) {
    if (row.kernel != own || row.schedule.getForm() != form ||
        std::max(shape.keyWidth, shape.valueWidth) < row.narrowest ||
        (row.schedule.getProducer() != 0 && !hasProducer))
      continue;
    list.push_back(fitTo(row.schedule, shape.group(), gathered, machine));
  }
  lists.set(stringifyAttentionKernel(kernel),
            ArrayAttr::get(&getContext(), list));
}

void SelectSchedule::addAttention(AttentionOp op) {
  AttentionShape shape = getShapeOf(op);
  if (!hasIndices(op))
    return add(Kernel::Forward, shape);
  SelectedAttention selected(op, machine);
  SelectionForm form = chooseForms(selected, machine).forward;
  // What is fused is one launch.
  bool isFused = isa<FusedOp>(op->getParentOp());
  if (isFused && form == SelectionForm::Gathered)
    form = SelectionForm::Lists;
  form = addSelected(Kernel::SelectedForward, selected, form);
  if (!isFused || form != SelectionForm::Gathered)
    return;
  op.emitOpError("is to gather queries, which takes several launches, in an "
                 "nsa.fused, which is one");
  signalPassFailure();
}

void SelectSchedule::addGradients(AttentionBackwardOp op) {
  AttentionShape shape = getShapeOf(op);
  if (!hasIndices(op)) {
    add(Kernel::QueryGrad, shape);
    return add(Kernel::KeyValueGrad, shape);
  }
  SelectedAttention selected(op, machine);
  SelectedForms forms = chooseForms(selected, machine);
  addSelected(Kernel::SelectedKeyValueGrad, selected, forms.keyValueGrad);
  if (addSelected(Kernel::SelectedQueryGrad, selected, forms.queryGrad) ==
      SelectionForm::Gathered)
    add(Kernel::QueryRows, shape);
}

void SelectSchedule::runOnOperation() {
  machine = MachineAttr::of(getOperation());
  if (!machine.isParallel())
    return;
  rows = parseTable(&getContext());
  ofModule = getOperation()->getAttrOfType<DictionaryAttr>(kSchedulesAttr);
  getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isa_and_present<FunctionOpInterface>(op->getParentOp()))
      return WalkResult::advance();
    lists.clear();
    // Of what is fused, what its parts say unless it does so itself.
    op->walk([&](Operation *part) {
      if (auto own = part->getAttrOfType<DictionaryAttr>(kSchedulesAttr))
        addGiven(part, own, /*replaces=*/part == op);
    });
    if (auto select = dyn_cast<SelectOp>(op))
      add(Kernel::Select,
          getShapeOf(select, select.getKey(), select.getCompressed()));
    if (auto rotary = dyn_cast<RotaryAttentionOp>(op))
      add(Kernel::RotaryForward, getShapeOf(rotary));
    op->walk([&](AttentionOp branch) { addAttention(branch); });
    op->walk([&](AttentionBackwardOp branch) { addGradients(branch); });
    if (!lists.empty())
      op->setAttr(kSchedulesAttr, lists.getDictionary(&getContext()));
    return WalkResult::skip();
  });
}
