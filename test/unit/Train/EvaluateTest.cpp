//===- EvaluateTest.cpp - validation loss ---------------------------------===//

#include "runtime/Train/Evaluate.h"
#include "lib/Support/Text.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"
#include "test/unit/Train/BigramModel.h"

using namespace nsa;

namespace {

TEST(Evaluate, PartialBatch_IsWeighed) {
  TempDir dir;
  std::vector<uint16_t> tokens(41);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = uint16_t((i * i + i / 3) % 4);
  SplitWriter writer(dir.str(), "val", 100);
  ASSERT_TRUE(writer.append(tokens.data(), tokens.size()));
  SplitInfo split{tokens.size(), 1, *writer.finish()};
  TokenStream stream = take(TokenStream::open(dir.str(), split, 4));
  ValidationWindows windows = take(ValidationWindows::create(stream, 4));
  ASSERT_EQ(windows.size(), 10u);
  double whole = 0;
  Ranks alone;
  for (uint64_t batch : {1, 3, 7}) {
    BigramModel model(batch, 4, 4);
    ASSERT_TRUE(model.run("init"));
    TrainBinding binding = take(TrainBinding::create(model));
    EvalResult result = take(
        evaluate(model, binding, windows, windows.choose(10), alone, "test"));
    EXPECT_EQ(result.tokens, 40u);
    if (batch == 1)
      whole = result.loss;
    EXPECT_NEAR(result.loss, whole, 1e-6);
    EXPECT_FALSE(evaluate(model, binding, windows, {}, alone, "test").ok());
  }
}

TEST(Text, Printable_KeepsTextAndHidesTheRest) {
  EXPECT_EQ(printable("a\tb\nc\x1b[31m\r"), "a\tb\nc?[31m?");
  EXPECT_EQ(printable("caf\xC3\xA9 \xC3"), "caf\xC3\xA9 ?");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(shortest(0.05), "0.05");
  EXPECT_EQ(shortest(5.5f), "5.5");
}

} // namespace
