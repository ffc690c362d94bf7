//===- SampleTextTest.cpp - texts that the model writes in training -------===//

#include "runtime/Train/SampleText.h"
#include "test/unit/Expect.h"
#include "test/unit/Train/BigramModel.h"

#include <gtest/gtest.h>

using namespace nsa;

namespace {

bool always() { return true; }

/// A model of bytes whose samples go on by `decode` if it has a context.
struct Sampler {
  explicit Sampler(int64_t context = 0) {
    if (context)
      model.addDecode(context);
    EXPECT_TRUE(model.run("init"));
    Result<TrainBinding> bound = TrainBinding::create(model);
    EXPECT_TRUE(bound.ok()) << bound.message();
    binding = *bound;
    options.count = 30;
    options.prompt = "ab";
    options.tokens = {'a', 'b'};
  }

  SampleText operator()(const std::function<bool()> &keepGoing = always) {
    Result<SampleText> made =
        generate(model, binding, bytes, options, keepGoing);
    EXPECT_TRUE(made.ok()) << made.message();
    return *made;
  }
  Result<std::string> check() { return checkSample(binding, options); }

  BigramModel model{1, 8, 256};
  TrainBinding binding;
  const Tokenizer bytes = Tokenizer::ofBytes();
  SampleOptions options;
};

TEST(SampleText, Seed_DecidesTheText) {
  Sampler sample;
  sample.options.seed = 1;
  std::string text = sample().text;
  EXPECT_EQ(text.size(), 32u);
  EXPECT_EQ(text.substr(0, 2), "ab");
  EXPECT_EQ(sample().text, text);
  sample.options.seed = 2;
  EXPECT_NE(sample().text, text);
  int left = 5;
  EXPECT_EQ(sample([&] { return left-- > 0; }).text.size(), 7u);
  sample.options.tokens.clear();
  EXPECT_FALSE(generate(sample.model, sample.binding, sample.bytes,
                        sample.options, always)
                   .ok());
}

TEST(SampleText, EndOfDocuments_EndsTheText) {
  Sampler sample;
  std::string text = sample().text;
  sample.options.end = static_cast<unsigned char>(text[12]);
  EXPECT_EQ(sample().text, text.substr(0, text.find(text[12], 2)));
}

TEST(SampleText, Decode_GivesTheTextOfForwardATokenATime) {
  Sampler whole, cached(40);
  EXPECT_EQ(cached().text, whole().text);
  EXPECT_EQ(std::count(cached.model.calls.begin(), cached.model.calls.end(),
                       "decode"),
            2 + 30 - 1);
}

TEST(SampleText, ContextFull_EndsTheText) {
  Sampler sample(10);
  SampleText made = sample();
  EXPECT_TRUE(made.isFull);
  // The last token is drawn from the logits of a full context.
  EXPECT_EQ(made.text.size(), 11u);
  EXPECT_FALSE(Sampler(31)().isFull);
}

TEST(SampleText, ProgramTooSmall_IsSaidBeforeTraining) {
  EXPECT_EQ(*Sampler().check(),
            "each token of a sample takes the time of a whole sequence: "
            "nsa-compile --sample-context=32 makes an artefact that decodes "
            "it");
  Sampler none;
  none.binding.forwardTokens = nullptr;
  EXPECT_EQ(none.check().message(),
            "train.sample_bytes is 30, the artefact has no entry that "
            "generates: nsa-compile --sample-context=32 makes an artefact that "
            "does");
  EXPECT_EQ(*Sampler(32).check(), "");
  EXPECT_EQ(*Sampler(31).check(),
            "samples end after 31 tokens: nsa-compile --sample-context=32 "
            "makes an artefact whose samples are complete");
  EXPECT_EQ(Sampler(1).check().message(),
            "train.sample_prompt has 2 tokens, the artefact's samples have at "
            "most 1 tokens: nsa-compile --sample-context=32 makes an artefact "
            "that takes it");
}

TEST(SampleText, NoEntryGenerates_VocabularyIsThatOfTheConfiguration) {
  BigramModel model(1, 8, 256);
  model.hasSamples = false;
  EXPECT_EQ(TrainBinding::create(model).message(),
            "the artefact cannot be trained: it has neither an entry "
            "'forward' nor the configuration of its model, one of which says "
            "what tokens there are");
  model.knownVocab = 256;
  TrainBinding binding = take(TrainBinding::create(model));
  EXPECT_EQ(binding.vocab, 256);
  EXPECT_FALSE(binding.samples());
}

TEST(SampleText, Context_HoldsSequenceAndText) {
  TrainConfig train;
  train.seqLen = 64;
  train.sampleBytes = 0;
  EXPECT_EQ(getSampleContext(train), 0);
  train.sampleBytes = 20;
  train.samplePrompt = "";
  EXPECT_EQ(getSampleContext(train), 64);
  train.sampleBytes = 100;
  EXPECT_EQ(getSampleContext(train), 101);
  train.samplePrompt = "The ";
  EXPECT_EQ(getSampleContext(train), 104);
}

} // namespace
