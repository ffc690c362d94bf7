//===- EvaluateTest.cpp - validation loss and samples ---------------------===//

#include "runtime/Train/Evaluate.h"
#include "lib/Support/Text.h"
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
  Result<TokenStream> stream = TokenStream::open(dir.str(), split, 4);
  ASSERT_TRUE(stream.ok());
  Result<ValidationWindows> windows = ValidationWindows::create(*stream, 4);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 10u);
  double whole = 0;
  Ranks alone;
  for (uint64_t batch : {1, 3, 7}) {
    BigramModel model(batch, 4, 4);
    ASSERT_TRUE(model.run("init"));
    Result<TrainBinding> binding = TrainBinding::create(model);
    ASSERT_TRUE(binding.ok()) << binding.message();
    Result<EvalResult> result =
        evaluate(model, *binding, *windows, windows->choose(10), alone, "test");
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->tokens, 40u);
    if (batch == 1)
      whole = result->loss;
    EXPECT_NEAR(result->loss, whole, 1e-6);
    EXPECT_FALSE(evaluate(model, *binding, *windows, {}, alone, "test").ok());
  }
}

TEST(Generate, TemperatureAndRank_DecideTheChoice) {
  std::vector<float> logits = {0.0f, 3.0f, 1.0f, 3.0f};
  SampleOptions options;
  options.temperature = 0;
  EXPECT_EQ(chooseToken(logits, options, 0.9), 1);
  options.forbidden = 1;
  EXPECT_EQ(chooseToken(logits, options, 0.9), 3);
  options.forbidden = -1;
  options.temperature = 1;
  options.topK = 2;
  EXPECT_EQ(chooseToken(logits, options, 0.49), 1);
  EXPECT_EQ(chooseToken(logits, options, 0.51), 3);
  options.topK = 0;
  EXPECT_EQ(chooseToken(logits, options, 0.0), 1);
  EXPECT_EQ(chooseToken(logits, options, 0.99999999), 0);
  options.topK = 100;
  EXPECT_EQ(chooseToken(logits, options, 0.0), 1);
}

TEST(Generate, Sample_IsAFunctionOfSeedAndStream) {
  BigramModel model(1, 8, 256);
  ASSERT_TRUE(model.run("init"));
  Result<TrainBinding> binding = TrainBinding::create(model);
  ASSERT_TRUE(binding.ok());
  const Tokenizer bytes = Tokenizer::ofBytes();
  SampleOptions options;
  options.count = 30;
  options.prompt = "ab";
  options.forbidden = 0;
  auto sample = [&](uint64_t seed, uint64_t stream) {
    options.seed = seed;
    options.stream = stream;
    Result<std::string> text =
        generate(model, *binding, bytes, options, [] { return true; });
    EXPECT_TRUE(text.ok());
    return *text;
  };
  std::string text = sample(1, 0);
  EXPECT_EQ(text.size(), 32u);
  EXPECT_EQ(text.substr(0, 2), "ab");
  EXPECT_EQ(text.find('\0'), std::string::npos);
  EXPECT_EQ(sample(1, 0), text);
  EXPECT_NE(sample(1, 1), text);
  EXPECT_NE(sample(2, 0), text);
  int left = 5;
  EXPECT_EQ(
      generate(model, *binding, bytes, options, [&] { return left-- > 0; })
          ->size(),
      7u);
  options.prompt = "";
  EXPECT_FALSE(
      generate(model, *binding, bytes, options, [] { return true; }).ok());
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
