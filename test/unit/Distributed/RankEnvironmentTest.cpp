//===- RankEnvironmentTest.cpp - which rank a process is ------------------===//

#include "runtime/Distributed/RankEnvironment.h"

#include <gtest/gtest.h>
#include <map>

using namespace nsa;

namespace {

Result<RankEnvironment>
find(const std::map<std::string, std::string> &variables) {
  return readRankEnvironment([&](const std::string &name) {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt
                                    : std::optional(found->second);
  });
}

TEST(RankEnvironment, ProcessAlone_IsRank0Of1) {
  Result<RankEnvironment> environment = find({{"MASTER_PORT", "1"}});
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->rank, 0);
  EXPECT_EQ(environment->size, 1);
}

TEST(RankEnvironment, VariablesOfTorchrun_AreRead) {
  Result<RankEnvironment> environment = find({{"RANK", "5"},
                                              {"WORLD_SIZE", "8"},
                                              {"LOCAL_RANK", "1"},
                                              {"LOCAL_WORLD_SIZE", "4"},
                                              {"MASTER_ADDR", "node0"},
                                              {"MASTER_PORT", "1234"}});
  ASSERT_TRUE(environment.ok()) << environment.message();
  EXPECT_EQ(environment->rank, 5);
  EXPECT_EQ(environment->size, 8);
  EXPECT_EQ(environment->localRank, 1);
  EXPECT_EQ(environment->localSize, 4);
  EXPECT_EQ(environment->address, "node0");
  EXPECT_EQ(environment->port, 1234);
  environment = find({{"RANK", "0"},
                      {"WORLD_SIZE", "1"},
                      {"MASTER_PORT", "1234"},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(environment.ok());
  EXPECT_EQ(environment->port, 1235);
}

TEST(RankEnvironment, VariablesOfMpirunAndSrun_AreRead) {
  Result<RankEnvironment> environment =
      find({{"OMPI_COMM_WORLD_RANK", "1"},
            {"OMPI_COMM_WORLD_SIZE", "2"},
            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(environment.ok()) << environment.message();
  EXPECT_EQ(environment->rank, 1);
  EXPECT_EQ(environment->localSize, 2);
  EXPECT_EQ(environment->address, "127.0.0.1");
  environment = find({{"PMI_RANK", "3"},
                      {"PMI_SIZE", "4"},
                      {"MPI_LOCALRANKID", "1"},
                      {"MPI_LOCALNRANKS", "2"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_PROCID", "0"},
                      {"MASTER_ADDR", "10.0.0.1"}});
  ASSERT_TRUE(environment.ok()) << environment.message();
  EXPECT_EQ(environment->rank, 3);
  EXPECT_EQ(environment->localRank, 1);
}

/// A rank of a step of seven on four machines.
std::map<std::string, std::string> makeStep(const std::string &tasks,
                                            const std::string &nodes) {
  return {{"SLURM_PROCID", "4"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", tasks},
          {"SLURM_STEP_NODELIST", nodes}};
}

TEST(RankEnvironment, StepsOfSeveralMachines_AreRead) {
  Result<RankEnvironment> environment =
      find(makeStep("2(x3),1", "gpu[07-09,12],login"));
  ASSERT_TRUE(environment.ok()) << environment.message();
  EXPECT_EQ(environment->rank, 4);
  EXPECT_EQ(environment->size, 7);
  EXPECT_EQ(environment->localSize, 2);
  EXPECT_EQ(environment->address, "gpu07");
  EXPECT_EQ(find(makeStep("3,1,2,1", "a,b,c,d"))->address, "a");
  EXPECT_EQ(find(makeStep("3,1,2,1", "a,b,c,d"))->localSize, 2);
  EXPECT_EQ(find(makeStep("3(x2),1(x2)", "r[1-2]n[3-4]-ib"))->localSize, 1);
  EXPECT_EQ(find(makeStep("2(x4)", "r[1-2]n[3-4]-ib"))->address, "r1n3-ib");
  std::map<std::string, std::string> named = makeStep("2(x4)", "a,b,c,d");
  named["MASTER_ADDR"] = "c";
  EXPECT_EQ(find(named)->address, "c");
  // Slurm's PMI knows no machines.
  named["PMI_RANK"] = "4";
  named["PMI_SIZE"] = "7";
  EXPECT_EQ(find(named)->source, "SLURM_PROCID");
  for (const char *wrong : {"", "x", "2", "2(x", "2(x)", "2(x1)3", "0(x9)"})
    EXPECT_FALSE(find(makeStep(wrong, "a,b,c,d")).ok()) << wrong;
}

TEST(RankEnvironment, BatchScript_IsNoStep) {
  Result<RankEnvironment> environment = find(
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}});
  ASSERT_TRUE(environment.ok()) << environment.message();
  EXPECT_EQ(environment->size, 1);
}

TEST(RankEnvironment, WrongVariables_AreNamed) {
  auto message = [](const std::map<std::string, std::string> &variables) {
    Result<RankEnvironment> environment = find(variables);
    return environment ? "nothing" : environment.message();
  };
  EXPECT_EQ(message({{"RANK", "0"}}), "WORLD_SIZE is not set");
  EXPECT_EQ(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "RANK is '2', expected a number from 0 to 1");
  EXPECT_EQ(message({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
            "RANK is 'x', expected a number from 0 to 1");
  EXPECT_EQ(
      message({{"RANK", "0"},
               {"WORLD_SIZE", "4"},
               {"LOCAL_WORLD_SIZE", "2"},
               {"LOCAL_RANK", "0"}}),
      "MASTER_ADDR is not set, but only 2 of 4 ranks are on this machine");
  EXPECT_EQ(message({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), "nothing");
  EXPECT_EQ(message({{"PMI_RANK", "0"}}), "PMI_SIZE is not set");
  EXPECT_EQ(message(makeStep("2(x4)", "")),
            "MASTER_ADDR is not set, but only 2 of 7 ranks are on this "
            "machine");
}

} // namespace
