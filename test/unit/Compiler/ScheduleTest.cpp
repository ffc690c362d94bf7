//===- ScheduleTest.cpp - which schedule a kernel takes -------------------===//

#include "passes/Kernels/Schedule.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "dialects/NSA/NSAOps.h"
#include "dialects/Tile/TileOps.h"
#include "lib/Compiler/Registration.h"
#include "passes/Kernels/KernelCache.h"
#include "passes/Kernels/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace nsa;

namespace {

/// A window of `length` tokens; `module` is an attribute of its module.
std::string windowText(int64_t length, const std::string &module = "") {
  std::string x = "tensor<1x" + std::to_string(length) + "x4x64xbf16>";
  std::string lse = "tensor<1x4x" + std::to_string(length) + "xf32>";
  return "module attributes {" + module + "} {\nfunc.func @main(%q: " + x +
         ") -> " + x +
         " {\n  %o, %lse = nsa.window_attention %q, %q, %q {window = 64 : "
         "i64} : (" +
         x + ", " + x + ", " + x + ") -> (" + x + ", " + lse +
         ")\n  return %o : " + x + "\n}\n}";
}

/// Selected blocks of `length` tokens and `group` heads, forward and backward.
std::string selectedText(int64_t length, int64_t group,
                         const std::string &module) {
  std::string tokens = std::to_string(length), heads = std::to_string(group);
  return "!q = tensor<1x" + tokens + "x" + heads + "x64xbf16>\n!k = tensor<1x" +
         tokens + "x1x64xbf16>\n!lse = tensor<1x" + heads + "x" + tokens +
         "xf32>\n!list = tensor<1x1x" + tokens +
         "x1xi32>\nmodule attributes {" + module + R"mlir(} {
func.func @main(%q: !q, %k: !k, %i: !list) -> (!q, !k, !k) {
  %o, %lse = nsa.selected_attention %q, %k, %k, %i {select_block = 64 : i64}
      : (!q, !k, !k, !list) -> (!q, !lse)
  %dq, %dk, %dv = nsa.selected_attention_backward %o, %q, %k, %k, %o, %lse, %i
      {select_block = 64 : i64}
      : (!q, !q, !k, !k, !q, !lse, !list) -> (!q, !k, !k)
  return %dq, %dk, %dv : !q, !k, !k
}
})mlir";
}

class ScheduleTest : public testing::Test {
protected:
  ScheduleTest() {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  /// The kernel that the only operation of a module becomes.
  tile::KernelOp convert(const std::string &text, int64_t mmaRows) {
    module = parseSourceString<ModuleOp>(text, &context);
    PassManager manager(&context);
    manager.addPass(createSetMachine({mmaRows}));
    manager.addPass(createSelectSchedule());
    manager.addPass(createConvertToTile());
    EXPECT_TRUE(module && succeeded(manager.run(*module)));
    return *module->getOps<tile::KernelOp>().begin();
  }
  static std::string nameOf(tile::KernelOp kernel) {
    return kernel->getAttrOfType<DictionaryAttr>(kScheduleAttr)
        .getAs<StringAttr>("kernel")
        .str();
  }
  static int64_t numberOf(tile::KernelOp kernel) {
    return kernel->getAttrOfType<DictionaryAttr>(kScheduleAttr)
        .getAs<IntegerAttr>("number")
        .getInt();
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

} // namespace

TEST_F(ScheduleTest, Kernel_NothingRefused_TakesTheFirst) {
  tile::KernelOp kernel = convert(windowText(2048), 64);
  EXPECT_EQ(numberOf(kernel), 0);
  EXPECT_FALSE(kernel->hasAttr(kLastScheduleAttr));
}

TEST_F(ScheduleTest, Kernel_SomeRefused_TakesTheNext) {
  std::string name = nameOf(convert(windowText(2048), 64));
  std::string refused = "nsa.refused_schedules = {\"" + name + "\" = 2}";
  EXPECT_EQ(numberOf(convert(windowText(2048, refused), 64)), 2);
}

TEST_F(ScheduleTest, Kernel_AllRefused_TakesTheLast) {
  tile::KernelOp kernel =
      convert(windowText(2048, "nsa.refused_schedules = {any = 99}"), 64);
  EXPECT_TRUE(kernel->hasAttr(kLastScheduleAttr));
}

TEST_F(ScheduleTest, Kernel_OfACPU_HasNoChoice) {
  EXPECT_FALSE(convert(windowText(256), 0)->hasAttr(kScheduleAttr));
}

TEST_F(ScheduleTest, Kernels_OfAboutTheSameLength_ShareAnswers) {
  auto nameFor = [&](int64_t length) {
    return nameOf(convert(windowText(length), 64));
  };
  EXPECT_EQ(nameFor(4096), nameFor(8192));
  EXPECT_NE(nameFor(2048), nameFor(8192));
}

TEST_F(ScheduleTest, Kernel_OfOneMoreAbsentOperand_KeepsItsName) {
  context.allowUnregisteredDialects();
  auto nameFor = [&](const std::string &groups) {
    module = parseSourceString<ModuleOp>(
        R"mlir(func.func @main(%x: tensor<1x64x4x16xf32>) {
  "test.attention"(%x) <{operandSegmentSizes = array<i32: )mlir" +
            groups +
            R"mlir(>}> {nsa.schedules = {forward =
      [#nsa.schedule<queries = 64>, #nsa.schedule<queries = 32>]}}
      : (tensor<1x64x4x16xf32>) -> ()
  return
})mlir",
        &context);
    Operation &op = (*module->getOps<func::FuncOp>().begin()).front().front();
    return KernelCache(*module)
        .choose(&op, "", 64, AttentionKernel::Forward)
        .kernel;
  };
  EXPECT_EQ(nameFor("1, 0"), nameFor("1, 0, 0"));
  EXPECT_NE(nameFor("1, 0"), nameFor("0, 1"));
}

TEST_F(ScheduleTest, Kernels_OfFewTokens_MultiplyOnTensorCores) {
  for (int64_t mmaRows : {64, 16})
    for (int64_t length : {1, 3})
      for (int64_t group : {1, 5})
        for (int64_t number = 0; number < 14; ++number) {
          std::string refused =
              "nsa.refused_schedules = {any = " + std::to_string(number) + "}";
          convert(selectedText(length, group, refused), mmaRows);
          module->walk([&](tile::DotOp dot) {
            EXPECT_GE(dot.getType().getRows(), 8)
                << dot->getParentOfType<tile::KernelOp>().getSymName().str()
                << ", schedule " << number;
          });
        }
}

TEST_F(ScheduleTest, Schedules_OfListsOfBlocks_FillAnMTile) {
  for (int64_t group = 1; group <= 32; ++group) {
    module =
        parseSourceString<ModuleOp>(selectedText(4096, group, ""), &context);
    PassManager manager(&context);
    manager.addPass(createSetMachine({64}));
    manager.addPass(createSelectSchedule());
    ASSERT_TRUE(module && succeeded(manager.run(*module)));
    module->walk([&](AttentionOp op) {
      for (auto schedule : getSchedules(op, AttentionKernel::SelectedForward)
                               .getAsRange<ScheduleAttr>())
        if (schedule.getSelectedQueries() != 0)
          EXPECT_GE(schedule.getSelectedQueries() * group, 16) << group;
    });
  }
}
