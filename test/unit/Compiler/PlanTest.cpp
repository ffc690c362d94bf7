//===- PlanTest.cpp - no buffer is reused before its last reader ----------===//
//
// Follows every byte of the arena through the planned commands of whole
// training steps, without a look at the live ranges that the planner noted.
//
//===----------------------------------------------------------------------===//

#include "dialects/RT/RTOps.h"
#include "lib/Compiler/Registration.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/Compiler/SmallModel.h"

#include <gtest/gtest.h>
#include <set>

using namespace mlir;
using namespace nsa;
using namespace nsa::test;

namespace {

/// Says which buffer wrote each 64 bytes of the arena last.
class ArenaOwners {
public:
  void write(rt::BufferOp buffer) {
    forEachLine(buffer, [&](Operation *&owner) { owner = buffer; });
  }
  bool holds(rt::BufferOp buffer) {
    bool whole = true;
    forEachLine(buffer, [&](Operation *&owner) { whole &= owner == buffer; });
    return whole;
  }

private:
  template <typename Body>
  void forEachLine(rt::BufferOp buffer, Body body) {
    uint64_t begin = buffer.getSliceAttr().getOffset();
    uint64_t end =
        begin + rt::getByteSize(cast<MemRefType>(buffer.getMemory().getType()));
    EXPECT_EQ(begin % 64, 0u);
    if (owners.size() < (end + 63) / 64)
      owners.resize((end + 63) / 64);
    for (uint64_t line = begin / 64; line < (end + 63) / 64; ++line)
      body(owners[line]);
  }

  std::vector<Operation *> owners;
};

/// The number of reads that do not see what the buffer's last writer wrote.
unsigned countStaleReads(rt::EntryOp entry) {
  ArenaOwners arena;
  unsigned stale = 0;
  for (rt::CommandOpInterface command : rt::getCommands(entry)) {
    SmallVector<Value> reads, writes;
    command.getReads(reads);
    command.getWrites(writes);
    for (Value value : reads)
      if (auto buffer = rt::getMemoryRoot(value).getDefiningOp<rt::BufferOp>())
        stale += !arena.holds(buffer);
    for (Value value : writes)
      if (auto buffer = rt::getMemoryRoot(value).getDefiningOp<rt::BufferOp>())
        arena.write(buffer);
    // An output may not take the place of an input or another output of the
    // same command, which may read and write in any order.
    for (Value value : writes)
      if (auto buffer = rt::getMemoryRoot(value).getDefiningOp<rt::BufferOp>())
        stale += !arena.holds(buffer);
    for (Value value : reads)
      if (auto buffer = rt::getMemoryRoot(value).getDefiningOp<rt::BufferOp>())
        stale += !arena.holds(buffer);
  }
  return stale;
}

/// The number of reads of a parameter or moment after its update.
unsigned countReadsAfterUpdate(rt::EntryOp entry) {
  std::set<std::string> updated;
  unsigned late = 0;
  for (rt::CommandOpInterface command : rt::getCommands(entry)) {
    auto forEachTensor = [&](SmallVectorImpl<Value> &values, auto body) {
      for (Value value : values)
        if (auto get = rt::getMemoryRoot(value).getDefiningOp<rt::GetOp>()) {
          auto tensor = SymbolTable::lookupNearestSymbolFrom<rt::TensorOp>(
              entry, get.getTensorAttr());
          if (tensor.getRole() == rt::TensorRole::Parameter ||
              tensor.getRole() == rt::TensorRole::Moment1 ||
              tensor.getRole() == rt::TensorRole::Moment2)
            body(get.getTensor().str());
        }
    };
    SmallVector<Value> reads, writes;
    command.getReads(reads);
    command.getWrites(writes);
    forEachTensor(
        reads, [&](const std::string &name) { late += updated.count(name); });
    forEachTensor(writes,
                  [&](const std::string &name) { updated.insert(name); });
  }
  return late;
}

class Plan : public testing::Test {
protected:
  Plan() {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  OwningOpRef<ModuleOp> plan(const std::vector<std::string> &overrides,
                             const std::string &precision) {
    CompilerOptions options;
    options.precision = precision;
    Result<std::string> text =
        compileTo("plan", modelText(overrides), "model.mlir", options);
    if (!text.ok()) {
      ADD_FAILURE() << text.message();
      return {};
    }
    return parseSourceString<ModuleOp>(*text, &context);
  }

  MLIRContext context;
};

} // namespace

TEST_F(Plan, Lesson21NoBufferIsReusedBeforeItsLastReader) {
  struct Case {
    std::vector<std::string> overrides;
    std::string precision;
  };
  const Case cases[] = {
      {{}, "fp32"},
      {{}, "bf16"},
      {{"model.attention=window"}, "fp32"},
      {{"nsa.phi=linear", "nsa.gate=softmax", "model.mlp=swiglu"}, "bf16"},
      {{"model.n_layers=5"}, "fp32"}};
  for (const Case &each : cases) {
    OwningOpRef<ModuleOp> module = plan(each.overrides, each.precision);
    ASSERT_TRUE(module);
    unsigned entries = 0;
    for (auto entry : module->getOps<rt::EntryOp>()) {
      EXPECT_EQ(countStaleReads(entry), 0u) << entry.getSymName().str();
      EXPECT_EQ(countReadsAfterUpdate(entry), 0u) << entry.getSymName().str();
      ++entries;
    }
    EXPECT_EQ(entries, 6u);
  }
}

TEST_F(Plan, Lesson21APlanWithoutRegardToLifetimesIsNoticed) {
  OwningOpRef<ModuleOp> module = plan({}, "fp32");
  ASSERT_TRUE(module);
  for (auto entry : module->getOps<rt::EntryOp>())
    for (auto buffer : entry.getOps<rt::BufferOp>()) {
      rt::SliceAttr slice = buffer.getSliceAttr();
      buffer.setSliceAttr(
          rt::SliceAttr::get(&context, slice.getSegment(), 0, slice.getSize()));
    }
  auto step = module->lookupSymbol<rt::EntryOp>("step");
  ASSERT_TRUE(step);
  EXPECT_GT(countStaleReads(step), 0u);
}
