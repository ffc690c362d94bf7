//===- AssemblerTest.cpp - what ptxas reports -----------------------------===//

#include "lib/Target/CUDA/Assembler.h"
#include "test/unit/Expect.h"

#include <gtest/gtest.h>

using namespace nsa;

TEST(Assembler, ResourcesAndWarnings_AreRead) {
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
  EXPECT_TRUE(contains(assembly.warnings[0], "C7512"));
}

// As ptxas 12.8 prints them: the function is named in the message, which comes
// before those of all functions.
TEST(Assembler, SerialisedWgmma_BelongsToItsKernel) {
  Assembly assembly;
  parseAssemblerLog(
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async "
      "instructions are serialized due to insufficient register resources for "
      "the wgmma pipeline in function 'second'\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Used 32 registers, used 1 barriers\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
      "ptxas info    : Used 168 registers, used 1 barriers\n"
      "ptxas warning : (C7420) something else in function 'first'\n"
      "ptxas warning : (C75201) something else in function 'first'\n"
      "ptxas info    : Compiling entry function 'third' for 'sm_90a'\n"
      "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async "
      "instructions are serialized due to ill formed pipeline stage in the "
      "function 'third'\n"
      "ptxas warning : Value of threads per SM for entry fourth is out of "
      "range\n",
      assembly);
  EXPECT_FALSE(assembly.kernels["first"].isSerialised);
  EXPECT_TRUE(assembly.kernels["second"].isSerialised);
  EXPECT_TRUE(assembly.kernels["third"].isSerialised);
  EXPECT_EQ(assembly.kernels["second"].registers, 168u);
  EXPECT_EQ(assembly.warnings.size(), 5u);
}

TEST(Assembler, AnyMessageOfThatHundred_CountsAsSerialised) {
  for (const char *code : {"C7500", "C7508", "C7520", "C7599"}) {
    Assembly assembly;
    parseAssemblerLog(
        std::string("ptxas info    : (") + code +
            ") something new in function 'second'\n"
            "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
            "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n",
        assembly);
    EXPECT_FALSE(assembly.kernels["first"].isSerialised) << code;
    EXPECT_TRUE(assembly.kernels["second"].isSerialised) << code;
    EXPECT_EQ(assembly.warnings.size(), 1u) << code;
  }
}

// Registers that are not handed over are told without a name.
TEST(Assembler, MessageWithoutAName_MayBeOfAnyKernel) {
  Assembly assembly;
  parseAssemblerLog(
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' "
      "ignored "
      "to maintain minimum register requirements.\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n",
      assembly);
  EXPECT_TRUE(assembly.kernels["first"].isSerialised);
  EXPECT_TRUE(assembly.kernels["second"].isSerialised);
}

TEST(Assembler, KernelsWithSetmaxnreg_StartWithMaxnreg) {
  Assembly assembly;
  assembly.kernels["ring"].registers = 128;
  EXPECT_FALSE(checkLaunchRegisters(assembly, {{"ring", 128}}));
  llvm::Error wrong = checkLaunchRegisters(assembly, {{"ring", 168}});
  ASSERT_TRUE(bool(wrong));
  EXPECT_TRUE(contains(llvm::toString(std::move(wrong)),
                       "@ring 128 registers at launch instead of 168"));
}

TEST(Assembler, NoAssembler_IsAnError) {
  llvm::Expected<Assembly> assembly =
      assemble("/nowhere/ptxas", "", *findCUDAChip("sm_90a"), 1,
               [](const std::string &) {});
  ASSERT_FALSE(assembly);
  EXPECT_TRUE(contains(llvm::toString(assembly.takeError()), "/nowhere/ptxas"));
}
