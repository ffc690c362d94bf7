//===- AssemblerTest.cpp - what ptxas reports -----------------------------===//

#include "lib/Target/CUDA/Assembler.h"

#include <gtest/gtest.h>

using namespace nsa;

TEST(Assembler, ResourcesAndWarningsAreRead) {
  Assembly assembly;
  parseAssemblerLog(
      "ptxas info    : 8 bytes gmem\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Function properties for first\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 1 barriers\n"
      "ptxas warning : (C7512) Potential Performance Loss: wgmma\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
      "ptxas info    : Function properties for second\n"
      "    48 bytes stack frame, 44 bytes spill stores, 52 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 0 barriers\n",
      assembly);
  ASSERT_EQ(assembly.kernels.size(), 2u);
  EXPECT_EQ(assembly.kernels["first"].registers, 32u);
  EXPECT_EQ(assembly.kernels["first"].stackBytes, 0u);
  EXPECT_EQ(assembly.kernels["second"].registers, 255u);
  EXPECT_EQ(assembly.kernels["second"].stackBytes, 48u);
  EXPECT_EQ(assembly.kernels["second"].spillStores, 44u);
  EXPECT_EQ(assembly.kernels["second"].spillLoads, 52u);
  ASSERT_EQ(assembly.warnings.size(), 1u);
  EXPECT_NE(assembly.warnings[0].find("C7512"), std::string::npos);
}

TEST(Assembler, AProgramThatIsNotThereIsAnError) {
  llvm::Expected<Assembly> assembly =
      assemble("/nowhere/ptxas", "", *findCUDAChip("sm_90a"), 1);
  ASSERT_FALSE(assembly);
  EXPECT_NE(llvm::toString(assembly.takeError()).find("/nowhere/ptxas"),
            std::string::npos);
}
