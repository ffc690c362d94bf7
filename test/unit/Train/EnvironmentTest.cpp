//===- EnvironmentTest.cpp - what a run says of its machine ---------------===//

#include "runtime/Train/Environment.h"
#include "test/unit/Expect.h"

#include <gtest/gtest.h>

using namespace nsa;

static constexpr uint64_t MiB = 1 << 20;

TEST(Environment, Memory_IsShownBySegment) {
  EXPECT_TRUE(describeMemory({}).empty());
  MemoryUse use;
  use.planned = {{"persistent", 3 * MiB}, {"arena", MiB / 2}};
  use.allocated = 7 * MiB / 2;
  EXPECT_EQ(describeMemory(use),
            std::vector<std::string>{
                "memory: 3.5 MiB planned (persistent 3.0, arena 0.5), 3.5 MiB "
                "allocated"});
}

TEST(Environment, MemoryFarFromThePlan_IsAWarning) {
  MemoryUse use;
  use.planned = {{"arena", 1000 * MiB}};
  use.allocated = 1000 * MiB;
  for (auto [inUse, lines] :
       {std::pair(1256 * MiB, 1), std::pair(1257 * MiB, 2),
        std::pair(744 * MiB, 1), std::pair(743 * MiB, 2)}) {
    use.inUse = uint64_t(inUse);
    EXPECT_EQ(describeMemory(use).size(), size_t(lines)) << inUse;
  }
  // 2 % of a large plan is more than 256 MiB.
  use.planned = {{"arena", 40000 * MiB}};
  use.inUse = 40800 * MiB;
  EXPECT_EQ(describeMemory(use).size(), 1u);
  use.inUse = 40801 * MiB;
  ASSERT_EQ(describeMemory(use).size(), 2u);
  EXPECT_EQ(describeMemory(use)[1].rfind("warning: that is 801.0 MiB", 0), 0u);
  // What connects GPUs is in no plan.
  use.connections = 600 * MiB;
  ASSERT_EQ(describeMemory(use).size(), 1u);
  EXPECT_TRUE(
      contains(describeMemory(use)[0], ", 600.0 of them to reach other ranks"));
}
