//===- UtilizationTest.cpp - MFU and running means ------------------------===//

#include "runtime/Train/Utilization.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace nsa;

namespace {

TEST(Utilization, GPUNames_FindTheirPeaks) {
  EXPECT_EQ(findPeakFlops("NVIDIA H100 80GB HBM3, CUDA 12.8"), 989e12);
  EXPECT_EQ(findPeakFlops("NVIDIA H100 PCIe, CUDA 12.8"), 756e12);
  EXPECT_EQ(findPeakFlops("NVIDIA H200"), 989e12);
  EXPECT_EQ(findPeakFlops("sm_90a"), 989e12);
  EXPECT_EQ(findPeakFlops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(findPeakFlops("NVIDIA L40S"), 362e12);
  EXPECT_EQ(findPeakFlops("NVIDIA GeForce RTX 3090 Ti"), 80e12);
  EXPECT_EQ(findPeakFlops("NVIDIA GeForce RTX 3090, CUDA 12.8"), 71e12);
}

TEST(Utilization, NamesThatContainOthers_FindNothing) {
  for (const char *name :
       {"", "NVIDIA RTX A4000", "NVIDIA RTX A1000", "NVIDIA XH100"})
    EXPECT_FALSE(findPeakFlops(name)) << name;
}

TEST(Utilization, StepsInATime_ArePartOfThePeak) {
  Utilization utilization{/*flops=*/200, /*peak=*/1000};
  EXPECT_DOUBLE_EQ(*utilization.of(3, 2), 0.3);
  EXPECT_FALSE(utilization.of(3, 0));
  EXPECT_FALSE((Utilization{200, 0}).of(3, 2)) << "no peak is known";
  EXPECT_FALSE((Utilization{0, 1000}).of(3, 2)) << "nothing was counted";
}

TEST(RunningMean, MoreValuesThanItKeeps_ForgetsTheFirst) {
  RunningMean mean(3);
  EXPECT_TRUE(std::isnan(mean.mean()));
  mean.add(8);
  EXPECT_EQ(mean.mean(), 8);
  for (double value : {1, 2, 6})
    mean.add(value);
  EXPECT_EQ(mean.mean(), 3);
}

} // namespace
