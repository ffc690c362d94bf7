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
#include "nsa/Compiler/Compiler.h"
#include "passes/Analysis/ArenaPacker.h"
#include "test/unit/Compiler/SmallModel.h"
#include "llvm/ADT/MapVector.h"

#include <gtest/gtest.h>
#include <random>
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

/// The number of reads of a parameter or optimizer state after its update.
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
              tensor.getState())
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

/// The buffers of an entry with the first and the last command that touches
/// each, counted here.
std::vector<std::pair<rt::BufferOp, ArenaBuffer>>
listBuffers(rt::EntryOp entry) {
  llvm::MapVector<Operation *, ArenaBuffer> found;
  uint32_t number = 0;
  for (rt::CommandOpInterface command : rt::getCommands(entry)) {
    SmallVector<Value> touched;
    command.getReads(touched);
    command.getWrites(touched);
    for (Value value : touched)
      if (auto buffer =
              rt::getMemoryRoot(value).getDefiningOp<rt::BufferOp>()) {
        uint64_t bytes = buffer.getSliceAttr().getSize();
        auto [at, isNew] = found.insert({buffer, {bytes, number, number}});
        at->second.last = number;
      }
    ++number;
  }
  std::vector<std::pair<rt::BufferOp, ArenaBuffer>> buffers;
  for (auto &[op, buffer] : found)
    buffers.emplace_back(cast<rt::BufferOp>(op), buffer);
  return buffers;
}

/// Buffers that are alive together share no byte and lie in the arena; it is at
/// most 10 % larger than what is alive at once.
void expectTightPlan(rt::EntryOp entry) {
  auto buffers = listBuffers(entry);
  std::vector<ArenaBuffer> sizes;
  uint64_t end = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto [op, buffer] = buffers[i];
    uint64_t begin = op.getSliceAttr().getOffset();
    EXPECT_EQ(buffer.size,
              rt::getByteSize(cast<MemRefType>(op.getMemory().getType())));
    for (size_t j = 0; j < i; ++j) {
      uint64_t other = buffers[j].first.getSliceAttr().getOffset();
      if (buffer.overlapsInTime(buffers[j].second))
        EXPECT_TRUE(begin + buffer.size <= other ||
                    other + buffers[j].second.size <= begin)
            << "buffers " << j << " and " << i << " overlap";
    }
    end = std::max(end, begin + buffer.size);
    sizes.push_back(buffer);
  }
  ASSERT_TRUE(entry.getArenaPeak());
  EXPECT_LE(end, uint64_t(*entry.getArenaPeak()));
  uint64_t bound = getPeakLiveBytes(sizes, 64);
  EXPECT_LE(double(*entry.getArenaPeak()), 1.10 * double(bound));
}

class Plan : public testing::Test {
protected:
  Plan() {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  OwningOpRef<ModuleOp> plan(const std::vector<std::string> &overrides,
                             const CompilerOptions &options) {
    Result<std::string> text =
        compileTo("plan", modelText(overrides), "model.mlir", options);
    if (!text.ok()) {
      ADD_FAILURE() << text.message();
      return {};
    }
    return parseSourceString<ModuleOp>(*text, &context);
  }

  /// Every property of the plan of one model.
  void expectGoodPlan(const std::vector<std::string> &overrides,
                      const CompilerOptions &options) {
    OwningOpRef<ModuleOp> module = plan(overrides, options);
    ASSERT_TRUE(module);
    unsigned entries = 0;
    for (auto entry : module->getOps<rt::EntryOp>()) {
      SCOPED_TRACE("entry " + entry.getSymName().str());
      EXPECT_EQ(countStaleReads(entry), 0u);
      EXPECT_EQ(countReadsAfterUpdate(entry), 0u);
      expectTightPlan(entry);
      ++entries;
    }
    EXPECT_EQ(entries, 6u);
  }

  MLIRContext context;
};

/// A model and options drawn at random.
struct RandomCase {
  explicit RandomCase(uint64_t seed) : random(seed) {
    for (const char *key : {"model.n_layers", "nsa.n_sel", "train.micro_batch"})
      set(key, {"1", "2", "3", "4"});
    set("train.batch_size", {"12"});
    set("train.seq_len", {"1", "7", "33", "70", "128", "200"});
    set("model.dim", {"8", "32", "72"});
    set("model.n_kv_groups", {"1", "2", "4"});
    set("model.d_v", {"4", "8", "16"});
    set("model.attention", {"nsa", "nsa", "window"});
    set("model.mlp", {"silu", "swiglu"});
    set("nsa.phi", {"mean", "linear"});
    set("nsa.gate", {"sigmoid", "softmax"});
    options.precision = pick({"fp32", "bf16"});
    options.recompute = pick({"none", "cheap", "block"});
    options.fuse = random() % 3 != 0;
    if (options.recompute != "none" && random() % 2)
      options.recomputeBudget = 1;
  }

  std::string text() const {
    std::string text = options.precision + ", recompute " + options.recompute +
                       (options.fuse ? "" : ", not fused");
    for (const std::string &override : overrides)
      text += ", " + override;
    return text;
  }

  std::vector<std::string> overrides;
  CompilerOptions options;

private:
  std::string pick(std::vector<std::string> values) {
    return values[random() % values.size()];
  }
  void set(const std::string &key, const std::vector<std::string> &values) {
    overrides.push_back(key + "=" + pick(values));
  }

  std::mt19937_64 random;
};

} // namespace

TEST_F(Plan, NoBuffer_IsReusedBeforeItsLastReader) {
  struct Case {
    std::vector<std::string> overrides;
    std::string precision = "fp32", recompute = "none";
    bool fuse = true;
  };
  const Case cases[] = {
      {{}},
      {{}, "bf16"},
      {{}, "fp32", "none", false},
      {{"model.attention=window"}},
      {{"nsa.phi=linear", "nsa.gate=softmax", "model.mlp=swiglu"}, "bf16"},
      {{"model.n_layers=5"}, "fp32", "block"},
      {{"model.n_layers=3"}, "bf16", "cheap"}};
  for (const Case &each : cases) {
    CompilerOptions options;
    options.precision = each.precision;
    options.recompute = each.recompute;
    options.fuse = each.fuse;
    expectGoodPlan(each.overrides, options);
  }
}

/// Random models, compiled with random options: 8, or 60 in the full suite.
TEST_F(Plan, RandomModels_ShareNoLiveByteAndStayNearTheLowerBound) {
  const char *suite = std::getenv("NSA_TEST_SUITE");
  bool full = suite && std::string(suite) == "full";
  for (uint64_t i = 0; i < (full ? 60 : 8); ++i) {
    RandomCase random(testSeed() + i);
    SCOPED_TRACE("seed " + std::to_string(testSeed() + i) + ": " +
                 random.text());
    expectGoodPlan(random.overrides, random.options);
    if (HasFailure())
      return;
  }
}

TEST_F(Plan, PlanWithoutRegardToLifetimes_IsNoticed) {
  OwningOpRef<ModuleOp> module = plan({}, CompilerOptions());
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
