//===- RunDirectoryTest.cpp - tables, halt files, console lines -----------===//

#include "runtime/Train/Console.h"
#include "runtime/Train/RunLog.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <nlohmann/json.hpp>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

// Log files were once empty because records stayed in a buffer.
TEST(RunDirectory, Records_AreOnDiskAtOnce) {
  TempDir dir;
  RunDirectory run = take(RunDirectory::create(dir.str(), "r", ""));
  RunLog log = take(RunLog::open(run, 0));
  EXPECT_EQ(dir.read("r/training.csv"), "step,loss,lr,grad_norm,toks_per_s\n");
  EXPECT_EQ(dir.read("r/val.csv"), "step,loss,ppl\n");
  ASSERT_TRUE(log.step({1, 5.5f, 1e-3, 0.25f, true, 100}, "step"));
  EXPECT_EQ(dir.read("r/training.csv"),
            "step,loss,lr,grad_norm,toks_per_s\n1,5.5,0.001,0.25,100.0\n");
  ASSERT_TRUE(log.validation(1, 0.0));
  EXPECT_EQ(dir.read("r/val.csv"), "step,loss,ppl\n1,0,1\n");
}

// A watchdog once saw no heartbeat: the file must parse line by line.
TEST(RunDirectory, Heartbeats_HaveTheKnownFields) {
  TempDir dir;
  Result<RunDirectory> run = RunDirectory::create(dir.str(), "r", "");
  Result<RunLog> log = RunLog::open(*run, 0);
  ASSERT_TRUE(log->logHeartbeat(0, "start"));
  ASSERT_TRUE(log->step({1, 5.5f, 1e-3, NAN, true, 100}, "step"));
  std::istringstream lines(dir.read("r/heartbeat_rank0.jsonl"));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    nlohmann::json entry = nlohmann::json::parse(line);
    for (const char *key :
         {"ts", "iso", "pid", "rank", "step", "msg", "memory"})
      EXPECT_TRUE(entry.contains(key)) << key;
    EXPECT_EQ(entry["step"], count);
    ++count;
    if (count == 2) {
      EXPECT_EQ(entry["loss"], 5.5);
      EXPECT_TRUE(entry["grad_norm"].is_null());
    }
  }
  EXPECT_EQ(count, 2);
}

// A process that was killed leaves half a line, to which the next one was
// glued.
TEST(RunDirectory, Heartbeats_BeginALineOfTheirOwn) {
  TempDir dir;
  dir.write("r/heartbeat_rank0.jsonl", "{\"step\":1}\n{\"st");
  Result<RunDirectory> run = RunDirectory::reopen(dir / "r");
  RunLog log = take(RunLog::open(*run, 1));
  ASSERT_TRUE(log.logHeartbeat(1, "start"));
  std::string text = dir.read("r/heartbeat_rank0.jsonl");
  EXPECT_EQ(text.rfind("{\"step\":1}\n{\"ts\":", 0), 0u) << text;
}

TEST(CsvLog, RowsAfterTheCheckpoint_AreDropped) {
  TempDir dir;
  dir.write("t.csv", "step,x\n1,a\n2,b\n3,c\n4,incompl");
  CsvLog log = take(CsvLog::open(dir / "t.csv", "step,x", 2));
  ASSERT_TRUE(log.append("3,new"));
  EXPECT_EQ(dir.read("t.csv"), "step,x\n1,a\n2,b\n3,new\n");
  EXPECT_FALSE(CsvLog::open(dir / "t.csv", "step,y", 2).ok());
  dir.write("t.csv", "step,x\nfoo,a\n");
  EXPECT_FALSE(CsvLog::open(dir / "t.csv", "step,x", 2).ok());
}

TEST(RunDirectory, Names_AreUnique) {
  TempDir dir;
  Result<RunDirectory> a = RunDirectory::create(dir / "runs", "", "smoke");
  Result<RunDirectory> b = RunDirectory::create(dir / "runs", "", "smoke");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->path(), b->path());
  EXPECT_NE(a->id(), b->id());
  ASSERT_TRUE(RunDirectory::create(dir.str(), "mine", "").ok());
  EXPECT_EQ(RunDirectory::create(dir.str(), "mine", "").message(),
            "'" + (dir / "mine") +
                "' exists and is no run (--run-name names another)");
  dir.write("mine/config.json", "{}");
  EXPECT_EQ(RunDirectory::create(dir.str(), "mine", "").message(),
            "the run '" + (dir / "mine") +
                "' exists (--resume continues it, --run-name names another)");
  EXPECT_TRUE(RunDirectory::reopen(dir / "mine").ok());
  EXPECT_FALSE(RunDirectory::reopen(dir / "other").ok());
}

// A stale .HALT once stopped the next run at step 1.
TEST(RunDirectory, HaltFilesOfOtherRuns_AreIgnored) {
  TempDir dir;
  dir.write("r/.HALT", "");
  fs::last_write_time(dir / "r/.HALT", fs::file_time_type::clock::now() -
                                           std::chrono::seconds(10));
  Result<RunDirectory> run = RunDirectory::reopen(dir / "r");
  ASSERT_TRUE(run.ok());
  HaltRequest request = run->checkHalt();
  EXPECT_FALSE(request.halt);
  EXPECT_TRUE(contains(request.ignored, "older than this run"));
  EXPECT_TRUE(run->checkHalt().ignored.empty()) << "reported once";

  dir.write("r/.HALT", "0123456789ab\n");
  run = RunDirectory::reopen(dir / "r");
  request = run->checkHalt();
  EXPECT_FALSE(request.halt);
  EXPECT_TRUE(contains(request.ignored, "for run '0123456789ab'"));

  dir.write("r/.HALT", run->id() + "\n");
  EXPECT_TRUE(run->checkHalt().halt);
  run->clearHalt();
  EXPECT_FALSE(fs::exists(dir / "r/.HALT"));
  EXPECT_FALSE(run->checkHalt().halt);
  dir.write("r/.HALT", "");
  fs::last_write_time(dir / "r/.HALT", fs::file_time_type::clock::now() +
                                           std::chrono::seconds(1));
  EXPECT_TRUE(run->checkHalt().halt);
}

TEST(Console, Lines_HaveTheKnownForm) {
  EXPECT_EQ(Console::format({20, 100, 5.6123, 2e-5, 785.2, 192}),
            "step 0020 | loss 5.6123 | lr 2.00e-05 | toks/s 785 | eta 03:12");
  EXPECT_EQ(Console::format(
                {20, 100, 5.6123, 2e-5, 785.2, 192, 5.70123, 8.2251, 0.3124}),
            "step 0020 | loss 5.6123 | lr 2.00e-05 | toks/s 785 | mean 5.7012 "
            "| bits/byte 8.2251 | mfu 31.2 % | eta 03:12");
  EXPECT_EQ(Console::duration(3725), "1:02:05");
  EXPECT_EQ(Console::duration(NAN), "--:--");
  // A line as wide as the terminal would not be redrawn in place.
  Progress half{5, 10, 1, 1e-3, 1, 1};
  std::string text(60, 'x');
  EXPECT_EQ(Console::withBar(text, half, 200),
            text + " | [##########..........]");
  EXPECT_EQ(Console::withBar(text, half, 80), text + " | [#######.......]");
  EXPECT_EQ(Console::withBar(text, half, 80).size(), 79u);
  EXPECT_EQ(Console::withBar(text, half, 68), text);
  EXPECT_EQ(Console::withBar(text, half, 40).size(), 39u);
  EXPECT_EQ(Console::bar(5, 10, 10), "[#####.....]");
  EXPECT_EQ(Console::bar(10, 10, 4), "[####]");
  EXPECT_EQ(Console::bar(0, 10, 4), "[....]");
}

} // namespace
