//===- ConfigTest.cpp - the strict configuration reader -------------------===//

#include "lib/Support/Config.h"
#include "lib/Support/Stages.h"
#include "lib/Support/Suggest.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <gtest/gtest.h>

using namespace nsa;

static std::string errorOf(const std::string &text,
                           const std::vector<std::string> &overrides = {}) {
  Result<RunConfig> config = parseConfig(text, "x.yaml", overrides);
  return config.ok() ? "accepted" : config.message();
}

TEST(Config, MissingKeys_KeepTheirDefaults) {
  RunConfig config =
      take(parseConfig("model:\n  dim: 64\n  mlp: swiglu\ntrain:\n  lr: 2e-4\n"
                       "  sample_prompt: \"a: b\"\n",
                       "x.yaml"));
  EXPECT_EQ(config.model.dim, 64);
  EXPECT_EQ(config.model.mlp, "swiglu");
  EXPECT_EQ(config.model.nLayers, 4);
  EXPECT_DOUBLE_EQ(config.train.lr, 2e-4);
  EXPECT_EQ(config.train.samplePrompt, "a: b");
}

TEST(Config, Errors_AreOneLineOfText) {
  EXPECT_EQ(errorOf("\"mo\\n\\edel\":\n  dim: 2\n"),
            "x.yaml:1:1: unknown section 'mo??del'; did you mean 'model'?");
  EXPECT_EQ(errorOf("model:\n  \"dim\\r\": 2\n"),
            "x.yaml:2:3: unknown key 'dim?' in 'model'; did you mean 'dim'?");
  EXPECT_EQ(errorOf("model:\n  dim: 64\n", {"model.mlp=\x1B[1m"}),
            "override 'model.mlp=?[1m': model.mlp must be one of silu, "
            "swiglu, gelu, geglu, relu2, not '?[1m'");
}

TEST(Config, EmptyFileOrFolder_IsAnError) {
  TempDir dir;
  dir.write("empty.yaml", "");
  EXPECT_EQ(loadConfig(dir / "empty.yaml").message(),
            dir / "empty.yaml:1:1: a configuration is a mapping of sections");
  EXPECT_EQ(loadConfig(dir.str()).message(),
            dir.str() + ": cannot read the configuration: Is a directory");
  EXPECT_EQ(loadConfig(dir / "none").message(),
            dir / "none: cannot read the configuration: "
                  "No such file or directory");
}

TEST(Config, Text_IsUTF8) {
  EXPECT_EQ(errorOf("model:\n  dim: 64\n", {"train.sample_prompt=a\xFF"}),
            "override 'train.sample_prompt=a?': train.sample_prompt must be "
            "UTF-8 text, not 'a?'");
  EXPECT_EQ(errorOf("train:\n  sample_prompt: gr\xC3\xBC\xC3\x9F\n"),
            "accepted");
  EXPECT_EQ(errorOf("train:\n  sample_prompt: \xC3\xBC\xFF\n"),
            "x.yaml:2:19: byte 0xFF is not UTF-8 text");
  EXPECT_EQ(errorOf(std::string("train:\n  lr: 1\0", 16)),
            "x.yaml:2:8: character 0x00 is not allowed");
}

/// The YAML library reads what it has freed after some explicit keys.
TEST(Config, ExplicitKeys_AreRefused) {
  EXPECT_EQ(errorOf("? :\n  dim: 7682\n n_kv_groups:_vp: \t? +:\t.ii"),
            "x.yaml:1:1: explicit keys ('?') are not supported");
  EXPECT_EQ(errorOf("model: {? dim: 3}"),
            "x.yaml:1:9: explicit keys ('?') are not supported");
  EXPECT_EQ(errorOf("train:\n  sample_prompt: \"why ? so\"\n"), "accepted");
}

/// The YAML library does not return from directives that it cannot read.
TEST(Config, Directives_AreRefused) {
  EXPECT_EQ(errorOf("%\x93"), "x.yaml:1:1: YAML directives are not supported");
  EXPECT_EQ(errorOf("model:\r\n%YAML 1.1\r\n---\n"),
            "x.yaml:2:1: YAML directives are not supported");
  EXPECT_EQ(errorOf("\xEF\xBB\xBF%TAG ! !\n"),
            "x.yaml:1:2: YAML directives are not supported");
  EXPECT_EQ(errorOf("# 100 %\nmodel:\n  dim: 64 # %\n"), "accepted");
}

/// A second document was once dropped in silence, and what stands for something
/// else was read as text.
TEST(Config, MoreThanOneMappingOfPlainValues_IsRefused) {
  EXPECT_EQ(errorOf("train:\n  lr: 0.1\n---\ntrain:\n  lr: 0.2\n"),
            "x.yaml:3:1: a second document ('---') is not supported");
  EXPECT_EQ(errorOf("# c\n---\ntrain:\n  lr: 0.1\n--- # more\n"),
            "x.yaml:5:1: a second document ('---') is not supported");
  EXPECT_EQ(errorOf("train:\n  lr: 0.1\n...\n# c\ntrain:\n"),
            "x.yaml:5:1: a second document ('---') is not supported");
  EXPECT_EQ(errorOf("# c\n---\ntrain:\n  lr: 0.1\n...\n"), "accepted");
  EXPECT_EQ(errorOf("train:\n  sample_prompt: &a x\n"),
            "x.yaml:2:21: anchors ('&') are not supported");
  EXPECT_EQ(errorOf("train:\n  sample_prompt: *a\n").substr(0, 9), "x.yaml:2:");
  EXPECT_TRUE(contains(errorOf("train:\n  sample_prompt: *a\n"), "alias"));
  EXPECT_EQ(errorOf("train:\n  sample_prompt: !!str x\n"),
            "x.yaml:2:24: tags ('!') are not supported");
  EXPECT_EQ(errorOf("train: &a\n  lr: 0.1\n"),
            "x.yaml:1:1: anchors ('&') are not supported");
  EXPECT_EQ(errorOf("!!map {train: {lr: 0.1}}\n"),
            "x.yaml:1:1: tags ('!') are not supported");
  EXPECT_EQ(errorOf("train:\n  sample_prompt: '*a & --- !x'\n"), "accepted");
}

TEST(Config, Layers_KindsAndCounts_AreThoseOfTheModel) {
  EXPECT_EQ(errorOf("model:\n  n_layers: 12\n"
                    "  layers: dense /nope, nsa*10, window:64/nope\n"),
            "accepted");
  EXPECT_EQ(errorOf("model:\n  n_layers: 12\n  layers: window:64\n"),
            "accepted");
  EXPECT_EQ(errorOf("model:\n  n_layers: 12\n  layers: dense*3\n"),
            "x.yaml:3:3: model.layers: kinds of 3 layers, but n_layers is 12");
  EXPECT_EQ(errorOf("model:\n  n_layers: 4\n  layers: dense, nsa*10, dense\n"),
            "x.yaml:3:3: model.layers: kinds of 12 layers, but n_layers is 4");
  EXPECT_EQ(errorOf("model:\n  n_layers: 1\n  layers: sparse\n"),
            "x.yaml:3:3: model.layers: unknown kind 'sparse' of a layer; "
            "expected nsa, "
            "dense, window or window:WIDTH, and /nope after it for no "
            "rotary embedding");
  EXPECT_EQ(errorOf("model:\n  n_layers: 1\n  layers: dense:8\n"),
            "x.yaml:3:3: model.layers: unknown kind 'dense:8' of a layer; "
            "expected nsa, "
            "dense, window or window:WIDTH, and /nope after it for no "
            "rotary embedding");
  EXPECT_EQ(errorOf("model:\n  n_layers: 1\n  layers: dense*0\n"),
            "x.yaml:3:3: model.layers: the count of layers '0' must be a "
            "number from 1 to "
            "1000");
  EXPECT_EQ(errorOf("model:\n  n_layers: 1\n  layers: 'window:'\n"),
            "x.yaml:3:3: model.layers: the width of a window '' must be a "
            "number from 1 to "
            "2147483647");
}

TEST(Config, Errors_NameFileLineAndColumn) {
  EXPECT_EQ(errorOf("model:\n  n_layer: 2\n"),
            "x.yaml:2:3: unknown key 'n_layer' in 'model'; did you mean "
            "'n_layers'?");
  EXPECT_EQ(errorOf("modle:\n  dim: 2\n"),
            "x.yaml:1:1: unknown section 'modle'; did you mean 'model'?");
  EXPECT_EQ(errorOf("model:\n  lr: 2\n"),
            "x.yaml:2:3: unknown key 'lr' in 'model'; it belongs to 'train'");
  EXPECT_EQ(errorOf("model:\n  dim: 2.5\n"),
            "x.yaml:2:8: model.dim must be an integer, not '2.5'");
  EXPECT_EQ(errorOf("model:\n  dim: \"64\"\n"),
            "x.yaml:2:8: model.dim must be a number, not the string '64'");
  EXPECT_EQ(errorOf("model:\n  dim: 0\n"),
            "x.yaml:2:8: model.dim (0) must be at least 1");
  EXPECT_EQ(errorOf("model:\n  dim: 8\n  dim: 9\n"),
            "x.yaml:3:3: duplicate key 'model.dim'");
  EXPECT_EQ(errorOf("train:\n  lr: .nan\n"),
            "x.yaml:2:7: train.lr must be a number, not '.nan'");
  EXPECT_EQ(errorOf("train:\n  lr: nan\n"),
            "x.yaml:2:7: train.lr must be finite, not 'nan'");
  EXPECT_EQ(
      errorOf("model:\n  mlp: swigul\n"),
      "x.yaml:2:8: model.mlp must be one of silu, swiglu, gelu, geglu, relu2, "
      "not 'swigul'; did you mean 'swiglu'?");
  EXPECT_EQ(errorOf("model:\n  dim: [1, 2]\n"),
            "x.yaml:2:3: model.dim must be a single value");
  EXPECT_EQ(errorOf("model:\n  dim:\n"), "x.yaml:2:3: model.dim has no value");
  EXPECT_EQ(errorOf(""),
            "x.yaml:1:1: a configuration is a mapping of sections");
}

TEST(Config, SyntaxErrors_HaveAPosition) {
  std::string message = errorOf("model:\n  dim: [1, 2\ntrain: {\n");
  EXPECT_EQ(message.rfind("x.yaml:", 0), 0u) << message;
}

TEST(Config, Conflicts_NameBothNumbersAndThePlace) {
  EXPECT_EQ(errorOf("nsa:\n  l: 32\n  d: 12\n"),
            "x.yaml:3:3: nsa.d: d (12) must divide l (32)");
  EXPECT_EQ(errorOf("model:\n  n_heads: 5\n  n_kv_groups: 2\n"),
            "x.yaml:3:3: model.n_kv_groups: n_kv_groups (2) must divide "
            "n_heads (5)");
  EXPECT_EQ(errorOf("model:\n  rope_base: 0.5\n"),
            "x.yaml:2:3: model.rope_base: rope_base (0.5) must be 0 or at "
            "least 1");
  EXPECT_EQ(errorOf("model:\n  d_k: 15\n"),
            "x.yaml:2:3: model.d_k: d_k (15) must be even for the rotary "
            "embedding");
  EXPECT_EQ(errorOf("model:\n  d_k: 15\n  rope_base: 0\n"), "accepted");
  EXPECT_EQ(errorOf("train:\n  lr_decay_steps: 5\n"),
            "x.yaml:2:3: train.lr_decay_steps: lr_decay_steps (5) has no "
            "effect with lr_schedule (cosine, the default)");
  EXPECT_EQ(errorOf("train:\n  steps: 10\n  warmup_steps: 6\n"
                    "  lr_schedule: wsd\n  lr_decay_steps: 5\n"),
            "x.yaml:5:3: train.lr_decay_steps: lr_decay_steps (5) and "
            "warmup_steps (6) must not exceed steps (10) together");
  EXPECT_EQ(errorOf("train:\n  batch_size: 8\n  micro_batch: 3\n"),
            "x.yaml:3:3: train.micro_batch: micro_batch (3) must divide "
            "batch_size (8)");
  EXPECT_EQ(errorOf("train:\n  batch_size: 8\n  micro_batch: 2\n"
                    "  accumulate_grad_batches: 2\n"),
            "x.yaml:4:3: train.accumulate_grad_batches: "
            "accumulate_grad_batches (2) must be batch_size / micro_batch (4)");
}

TEST(Config, Passes_OfAnotherBatchOfALaterLevel_AreDerived) {
  std::string text = "train:\n  batch_size: 8\n  micro_batch: 2\n"
                     "  accumulate_grad_batches: 4\n";
  auto passes = [&](const std::string &more,
                    const std::vector<std::string> &overrides) {
    Result<RunConfig> config = parseConfig(text + more, "x.yaml", overrides);
    return config ? config->train.accumulateGradBatches : -1;
  };
  EXPECT_EQ(passes("", {}), 4);
  EXPECT_EQ(passes("", {"train.batch_size=16"}), 0);
  EXPECT_EQ(passes("", {"train.micro_batch=8"}), 0);
  EXPECT_EQ(
      passes("stages:\n  - {steps: 100}\n  - {steps: 100, batch_size: 16}\n",
             {}),
      0);
  // What is given beside the batch has to agree.
  EXPECT_EQ(
      passes("", {"train.batch_size=16", "train.accumulate_grad_batches=4"}),
      -1);
  text.back() = '2';
  EXPECT_EQ(passes("\n", {"train.seq_len=64"}), -1);
}

TEST(Config, Stages_KeysThatAreNotGiven_AreThoseOfTheStageBefore) {
  RunConfig config = take(
      parseConfig("stages:\n"
                  "  - {steps: 100}\n"
                  "  - steps: 10\n    seq_len: 1024\n    micro_batch: 2\n"
                  "  - {steps: 5, rope_base: 5e5}\n"
                  "train: {lr: 1e-4}\n",
                  "x.yaml", {"train.batch_size=4", "train.micro_batch=4"}));
  EXPECT_EQ(config.train.steps, 115);
  EXPECT_EQ(config.train.seqLen, TrainConfig().seqLen);
  RunConfig last = withStage(config, 2);
  EXPECT_EQ(last.train.seqLen, 1024);
  EXPECT_EQ(last.train.microBatch, 2);
  EXPECT_EQ(last.train.batchSize, 4);
  EXPECT_EQ(last.model.ropeBase, 5e5);
  EXPECT_EQ(findStage(last, 100), 0u);
  EXPECT_EQ(findStage(last, 101), 1u);
  EXPECT_EQ(findStage(last, 200), 2u);
  // A stage is printed as the whole that it is a part of.
  for (const std::string &text :
       {printConfigYaml(last), printConfigJson(last)}) {
    RunConfig again = take(parseConfig(text, "y.yaml"));
    EXPECT_EQ(printConfigJson(again), printConfigJson(config));
  }
}

TEST(Config, Stages_WhatIsWrong_IsOneError) {
  EXPECT_EQ(errorOf("stages:\n  - {steps: 50, seq_len: 512}\n"
                    "  - {steps: 50, seq_len: 128}\n"),
            "x.yaml:1:1: stages: stage 2 has sequences of 128 tokens, shorter "
            "than those of stage 1 (512)");
  EXPECT_EQ(errorOf("stages: []\n"), "x.yaml:1:1: section 'stages' must be a "
                                     "list of stages, at least one");
  EXPECT_EQ(errorOf("stages:\n  - {seq_len: 128}\n"),
            "x.yaml:2:6: stage 1 has no steps");
  EXPECT_EQ(errorOf("stages:\n  - {steps: 0}\n"),
            "x.yaml:2:6: stage 1: train.steps (0) must be at least 1");
  EXPECT_EQ(errorOf("stages:\n  - {steps: 5, seqlen: 8}\n"),
            "x.yaml:2:16: unknown key 'seqlen' of stage 1; did you mean "
            "'seq_len'?");
  EXPECT_EQ(errorOf("stages:\n  - {steps: 5, steps: 8}\n"),
            "x.yaml:2:16: duplicate key 'steps' of stage 1");
  EXPECT_EQ(errorOf("stages:\n  - 5\n"),
            "x.yaml:1:1: stage 1 must be a mapping of keys to values");
  EXPECT_EQ(errorOf("train:\n  steps: 9\nstages:\n  - {steps: 100}\n"),
            "x.yaml:2:3: train.steps: steps (9) must be those of all stages "
            "together (100), or left out");
  EXPECT_EQ(errorOf("stages:\n  - {steps: 100}\n"
                    "  - {steps: 9, micro_batch: 3}\n"),
            "x.yaml:1:1: stages: stage 2: train.micro_batch: micro_batch (3) "
            "must divide batch_size (8)");
}

TEST(Config, RotaryEmbedding_WhatContradictsIsRefused) {
  auto errorWith = [](const std::string &keys) {
    std::string error = errorOf("model: {" + keys + "}\n");
    return error.substr(error.find(" model.") + 1);
  };
  EXPECT_EQ(errorWith("rope_dim: 15"),
            "model.rope_dim: rope_dim (15) must be even");
  EXPECT_EQ(errorWith("rope_dim: 34"),
            "model.rope_dim: rope_dim (34) must not exceed d_k (32, the "
            "default)");
  EXPECT_EQ(errorWith("rope_dim: 16, rope_base: 0"),
            "model.rope_dim: rope_dim (16) has no effect with rope_base (0.0)");
  EXPECT_EQ(errorWith("rope_factor: 2"),
            "model.rope_factor: rope_factor (2.0) has no effect with "
            "rope_scaling (none, the default)");
  EXPECT_EQ(errorWith("rope_scaling: yarn, rope_factor: 2"),
            "model.rope_scaling: rope_length (0, the default) must be at "
            "least 1 with rope_scaling (yarn)");
  EXPECT_EQ(errorWith("rope_scaling: llama3, rope_factor: 2"),
            "model.rope_scaling: rope_length (0, the default) must be at "
            "least 1 with rope_scaling (llama3)");
  std::string isLong = "rope_scaling: longrope, rope_factor: 2, rope_dim: 4, ";
  EXPECT_EQ(
      errorWith(isLong + "rope_length: 8, rope_divisors: '1, 2, 3'"),
      "model.rope_divisors: rope_divisors has 3 numbers, but rope_scaling "
      "(longrope) asks for 2");
  EXPECT_EQ(
      errorWith(isLong + "rope_length: 8, rope_divisors: '1, -2'"),
      "model.rope_divisors: ' -2' must begin with a number above 0, and a "
      "comma after it");
  EXPECT_EQ(
      errorWith("rope_divisors: '1'"),
      "model.rope_divisors: rope_divisors has 1 numbers, but rope_scaling "
      "(none, the default) asks for 0");
  EXPECT_EQ(errorWith("window_rope_base: 0.5"),
            "model.window_rope_base: window_rope_base (0.5) must be 0 or at "
            "least 1");
  EXPECT_EQ(errorWith("window_rope_base: 100, rope_base: 0"),
            "model.window_rope_base: window_rope_base (100.0) has no effect "
            "with rope_base (0.0)");
  EXPECT_EQ(errorWith("qk_norm_joint: true"),
            "model.qk_norm_joint: qk_norm_joint (true) has no effect with "
            "qk_norm (false, the default)");
  EXPECT_EQ(errorWith("rope_scaling: ntk, rope_factor: 2, rope_dim: 2"),
            "model.rope_scaling: rope_scaling (ntk) needs at least 4 rotated "
            "channels, there are 2");
  EXPECT_EQ(errorOf("model: {rope_dim: 16, rope_scaling: yarn, rope_factor: "
                    "4, rope_length: 2048}\n"),
            "accepted");
}

TEST(Config, Conflict_ValueIsADefault_IsNamedAsOne) {
  EXPECT_EQ(errorOf("model:\n  n_heads: 7\n"),
            "x.yaml:2:3: model.n_heads: n_kv_groups (2, the default) must "
            "divide n_heads (7)");
  EXPECT_EQ(errorOf("model:\n  n_kv_groups: 3\n"),
            "x.yaml:2:3: model.n_kv_groups: n_kv_groups (3) must divide "
            "n_heads (4, the default)");
  EXPECT_EQ(errorOf("nsa:\n  phi_pos: true\n  phi: mean\n"),
            "x.yaml:2:3: nsa.phi_pos: phi_pos (true) has no effect with phi "
            "(mean)");
  EXPECT_EQ(errorOf("train:\n  adam_eps: 1e-6\n", {"train.optimizer=lion"}),
            "x.yaml:2:3: train.adam_eps: adam_eps (1e-06) has no effect with "
            "optimizer (lion)");
  EXPECT_EQ(errorOf("model:\n  dim: 64\n", {"model.n_heads=7"}),
            "x.yaml: model.n_heads: n_kv_groups (2, the default) must divide "
            "n_heads (7)");
}

TEST(Config, OneStepOfALongerWarmUp_IsRefused_NamesStopAfter) {
  EXPECT_EQ(
      errorOf("train:\n  steps: 100\n  warmup_steps: 30\n", {"train.steps=1"}),
      "x.yaml:3:3: train.warmup_steps: warmup_steps (30) must not exceed "
      "steps (1); to train only 1 step of a longer schedule, leave steps "
      "as they are and run nsa-train --stop-after 1");
}

TEST(Config, LongValues_AreShortenedInErrors) {
  std::string longText(100000, 'x');
  for (const std::string &text :
       {"model:\n  dim: " + longText + "\n",
        "model:\n  mlp: \"" + longText + "\"\n",
        "model:\n  " + longText + ": 1\n", longText + ":\n  dim: 1\n", longText,
        "model:\n  dim: [" + longText + "\n"})
    EXPECT_LT(errorOf(text).size(), 600u) << errorOf(text);
  EXPECT_LT(errorOf("model:\n  dim: 64\n", {longText}).size(), 600u);
  EXPECT_LT(errorOf("model:\n  dim: 64\n", {"model.dim=" + longText}).size(),
            600u);
}

TEST(Config, Flags_AreTrueOrFalse) {
  Result<RunConfig> config =
      parseConfig("nsa:\n  phi: mlp\n  phi_pos: true\n", "x.yaml");
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_TRUE(config->nsa.phiPos);
  config = parseConfig(printConfigYaml(*config), "y.yaml");
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_TRUE(config->nsa.phiPos);
  EXPECT_EQ(errorOf("nsa:\n  phi_pos: yes\n"),
            "x.yaml:2:12: nsa.phi_pos must be true or false, not 'yes'");
  EXPECT_EQ(errorOf("nsa:\n  phi_pos: 'true'\n"),
            "x.yaml:2:12: nsa.phi_pos must be true or false, not the string "
            "'true'");
  EXPECT_EQ(errorOf("nsa:\n  phi: mean\n  phi_pos: true\n"),
            "x.yaml:3:3: nsa.phi_pos: phi_pos (true) has no effect with phi "
            "(mean)");
}

TEST(Config, Overrides_AreChecked) {
  RunConfig config =
      take(parseConfig("model:\n  dim: 64\n", "x.yaml", {"train.steps=7000"}));
  EXPECT_EQ(config.train.steps, 7000);
  EXPECT_EQ(errorOf("model:\n  dim: 64\n", {"train.step=7"}),
            "override 'train.step=7': unknown key 'step' in 'train'; did you "
            "mean 'steps'?");
  EXPECT_EQ(errorOf("model:\n  dim: 64\n", {"steps"}),
            "override 'steps': must have the form section.key=value");
}

TEST(Config, PrintedYaml_ReadsBackTheSame) {
  RunConfig config = take(parseConfig(
      "train:\n  sample_prompt: 'tab\t\"quote\" # no comment'\n  lr: 3e-4\n",
      "x.yaml"));
  RunConfig again = take(parseConfig(printConfigYaml(config), "y.yaml"));
  EXPECT_EQ(printConfigJson(config), printConfigJson(again));
  EXPECT_EQ(configHash(config), configHash(again));
}

/// A value other than the field's default that the field accepts, or nothing.
static std::string otherValue(const ConfigField &field) {
  RunConfig defaults;
  if (auto *access = std::get_if<ConfigField::IntAccess>(&field.access)) {
    int64_t value = (*access)(defaults);
    return std::to_string(value + 2 <= field.maximum ? value + 2 : value - 2);
  }
  if (auto *access = std::get_if<ConfigField::FloatAccess>(&field.access))
    return std::to_string((*access)(defaults) * 0.5 + 1e-4);
  if (auto *access = std::get_if<ConfigField::BoolAccess>(&field.access))
    return (*access)(defaults) ? "false" : "true";
  auto &access = std::get<ConfigField::StringAccess>(field.access);
  for (const std::string &choice : field.choices)
    if (choice != access(defaults))
      return choice;
  return field.choices.empty() ? "other" : "";
}

// Lesson 6: configuration keys that nothing read.
TEST(Config, Reference_IsTheDefaultConfigurationExplained) {
  std::string text = printConfigReference();
  RunConfig config = take(parseConfig(text, "reference.yaml"));
  EXPECT_EQ(printConfigYaml(config), printConfigYaml({}));
  for (const ConfigField &field : configSchema())
    EXPECT_TRUE(contains(text, "# " + field.help)) << field.path();
}

TEST(Config, EveryKey_ChangesTheResolvedConfigurationOrIsRefused) {
  const std::string base = printConfigJson(RunConfig());
  ASSERT_GT(configSchema().size(), 30u);
  for (const ConfigField &field : configSchema()) {
    std::string value = otherValue(field);
    if (value.empty()) {
      // One choice only: anything else is refused.
      EXPECT_NE(errorOf("", {field.path() + "=other"}), "accepted");
      continue;
    }
    Result<RunConfig> config =
        parseConfig("model: {}\n", "x.yaml", {field.path() + "=" + value});
    if (!config.ok()) {
      // A conflict with another key: it is refused by name.
      EXPECT_TRUE(failsWith(config, field.key));
      continue;
    }
    EXPECT_NE(printConfigJson(*config), base) << field.path();
  }
}

TEST(Suggest, MistypedWord_ClosestIsFound) {
  EXPECT_EQ(suggestion("decay", {"warmup_steps", "lr"}), "");
  for (const char *part : {"softcap", "soft_cap", "sofcap"})
    EXPECT_EQ(suggestion(part, {"attention_softcap", "logit_softcap"}),
              "; did you mean 'attention_softcap' or 'logit_softcap'?");
  EXPECT_EQ(suggestion("warmup_step", {"warmup_steps", "weight_decay"}),
            "; did you mean 'warmup_steps'?");
  EXPECT_EQ(editDistance("kitten", "sitting"), 3u);
}
