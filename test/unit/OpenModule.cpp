//===- OpenModule.cpp - modules with `?`, and with numbers ----------------===//

#include "test/unit/OpenModule.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace nsa;
using namespace nsa::test;

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// Puts sizes in the place of letters in types.
static std::string fill(const OpenModule &module, const std::string &text,
                        std::optional<Shape> shape) {
  std::string filled;
  for (size_t i = 0; i < text.size(); ++i) {
    bool isLetter = i + 1 < text.size() && text[i + 1] == 'x' && i > 0 &&
                    (text[i - 1] == '<' || text[i - 1] == 'x');
    char c = isLetter ? text[i] : ' ';
    if (c != 'B' && c != 'T' && c != 'N') {
      filled += text[i];
      continue;
    }
    if (!shape) {
      filled += '?';
      continue;
    }
    uint64_t length = shape->sequence;
    uint64_t blocks =
        length < module.block ? 0 : (length - module.block) / module.stride + 1;
    filled += std::to_string(c == 'B'   ? shape->batch
                             : c == 'T' ? length
                                        : blocks);
  }
  return filled;
}

std::string OpenModule::text(std::optional<Shape> shape) const {
  std::string text = "func.func @f(", types, values;
  for (const Named &one : in) {
    bool isVariable = std::find(by.begin(), by.end(), one.name) != by.end();
    text += (text.back() == '(' ? "%" : ", %") + one.name + ": " + one.type +
            " {nn.name = \"" + one.name + "\"" +
            (isVariable ? ", nn.differentiate" : "") + "}";
  }
  text += ") -> (";
  for (const Named &one : out) {
    bool isFirst = text.back() == '(';
    text += (isFirst ? "" : ", ") + one.type + " {nn.name = \"" + one.name +
            "_out\"" + (isFirst && !by.empty() ? ", nn.objective" : "") + "}";
    types += (types.empty() ? "" : ", ") + one.type;
    values += (values.empty() ? "%" : ", %") + one.name;
  }
  text += ") {\n" + body + "  return " + values + " : " + types + "\n}\n";
  return fill(*this, text, shape);
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

OpenTypes::OpenTypes(int group, int width, const std::string &element) {
  std::string heads = std::to_string(2 * group);
  std::string rest = "x" + std::to_string(width) + "x" + element + ">";
  q = "tensor<BxTx" + heads + rest;
  k = "tensor<BxTx2" + rest;
  compressed = "tensor<BxNx2" + rest;
  lse = "tensor<Bx" + heads + "xTxf32>";
  gates = "tensor<BxTx" + heads + "x3xf32>";
  indices = "tensor<Bx2xTx4xi32>";
}

OpenModule nsa::test::openAttention(const OpenTypes &types,
                                    const std::string &visibility) {
  return {{{"q", types.q}, {"k", types.k}, {"v", types.k}},
          {{"o", types.q}, {"lse", types.lse}},
          "  %o, %lse = nsa.attention %q, %k, %v visible(" + visibility +
              ") : " + types.q + ", " + types.k + ", " + types.k + "\n"};
}

OpenModule nsa::test::openBranches(const OpenTypes &types,
                                   std::vector<std::string> by) {
  const std::string &q = types.q, &k = types.k, &lse = types.lse;
  const std::string &kc = types.compressed;
  std::string blocks = "{block = 8 : i64, stride = 4 : i64}";
  std::string compress = " " + blocks + " : (" + k + ") -> " + kc + "\n";
  std::string qkv = q + ", " + k + ", " + k;
  OpenModule module = {
      {{"q", q}, {"k", k}, {"v", k}, {"gates", types.gates}},
      {{"z", q}},
      "  %kc = nsa.compress mean %k" + compress +
          "  %vc = nsa.compress mean %v" + compress +
          "  %oc, %lc = nsa.compressed_attention %q, %kc, %vc " + blocks +
          " : (" + q + ", " + kc + ", " + kc + ") -> (" + q + ", " + lse +
          ")\n  %i = nsa.select %q, %kc, %lc {block = 8 : i64, stride = "
          "4 : i64, select_block = 16 : i64, count = 4 : i64} : (" +
          q + ", " + kc + ", " + lse + ") -> " + types.indices +
          "\n  %os, %ls = nsa.selected_attention %q, %k, %v, %i "
          "{select_block = 16 : i64} : (" +
          qkv + ", " + types.indices + ") -> (" + q + ", " + lse +
          ")\n  %ow, %lw = nsa.window_attention %q, %k, %v {window = 32 : "
          "i64} : (" +
          qkv + ") -> (" + q + ", " + lse +
          ")\n  %o = nsa.combine %gates, %oc, %os, %ow : (" + types.gates +
          ", " + q + ", " + q + ", " + q + ") -> " + q +
          "\n  %z = nn.silu %o : (" + q + ") -> " + q + "\n"};
  module.by = std::move(by);
  return module;
}

/// Replaces each of the places of `from` in `text`, of which there are some.
static void replaceAll(std::string &text, const std::string &from,
                       const std::string &to) {
  size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

OpenModule nsa::test::openRotaryBranches(const OpenTypes &types, int width,
                                         std::vector<std::string> by) {
  OpenModule module = openBranches(types, std::move(by));
  std::string table = "tensor<Tx" + std::to_string(width / 2) + "x2xf32>";
  auto rotate = [&](const std::string &name, const std::string &type,
                    const std::string &clause) {
    return "  %" + name + "r = nn.rotary %" + name + ", %table" + clause +
           " : (" + type + ", " + table + ") -> " + type + "\n";
  };
  std::string &body = module.body;
  replaceAll(body, "attention %q, %kc", "attention %qr, %kcr");
  replaceAll(body, "select %q, %kc", "select %qr, %kcr");
  replaceAll(body, "attention %q, %k", "attention %qr, %kr");
  size_t values = body.find("  %vc");
  body.insert(values, rotate("kc", types.compressed, " {stride = 4 : i64}"));
  body = rotate("q", types.q, "") + rotate("k", types.k, "") + body;
  module.in.push_back({"table", table});
  return module;
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

/// Values that depend on the name alone, and on the place in the shape.
static Tensor makeInput(const TensorView &view) {
  std::mt19937_64 random(std::hash<std::string>()(view.name));
  std::normal_distribution<double> normal;
  Tensor value(std::vector<int64_t>(view.shape.begin(), view.shape.end()));
  for (double &x : value.data)
    x = roundTo(view.type, normal(random));
  return value;
}

static void setInputs(CompiledModule &module) {
  for (const TensorView &view : module.getProgram().tensors())
    if (view.role == TensorRole::Input)
      module.set(view.name, makeInput(view));
}

static CompilerOptions getOptions(const OpenCheck &check) {
  CompilerOptions options;
  options.target = check.target;
  options.tileSizes = check.tiles;
  options.selectedForm = check.selectedForm;
  options.allowSlowPaths = {"all"};
  return options;
}

Result<Artifact> nsa::test::compileOpen(const OpenModule &module,
                                        const OpenCheck &check) {
  Result<CompiledArtifact> compiled =
      (check.compile ? check.compile : compileHere)(module.text(),
                                                    getOptions(check));
  if (!compiled)
    return compiled.takeError();
  return Artifact::fromBytes(compiled->bytes.data(), compiled->bytes.size());
}

static Result<CompiledModule> loadFixed(const OpenModule &module, Shape shape,
                                        const OpenCheck &check) {
  CompilerOptions options = getOptions(check);
  options.tileSizes.insert(options.tileSizes.end(), check.fixedTiles.begin(),
                           check.fixedTiles.end());
  return CompiledModule::load(module.text(shape), options,
                              CompiledModule::poisoned(), check.compile);
}

static void expectAlike(const std::string &name, const Tensor &own,
                        const Tensor &fixed, double tolerance) {
  if (tolerance == 0) {
    EXPECT_TRUE(isSame(own, fixed)) << name;
    return;
  }
  ASSERT_EQ(own.shape, fixed.shape) << name;
  // Inputs are about 1.
  double most = 1, difference = 0;
  for (size_t i = 0; i < own.data.size(); ++i) {
    if (own.data[i] == fixed.data[i])
      continue;
    most = std::max(most, std::abs(fixed.data[i]));
    difference = std::max(difference, std::abs(own.data[i] - fixed.data[i]));
  }
  EXPECT_LE(difference, tolerance * most) << name;
}

static void checkShape(const OpenModule &module, const Artifact &open,
                       Shape shape, const OpenCheck &check) {
  Result<Artifact> artifact = open.withExtents({shape.batch, shape.sequence});
  ASSERT_TRUE(bool(artifact)) << artifact.message();
  Result<CompiledModule> own = CompiledModule::load(*artifact);
  ASSERT_TRUE(bool(own)) << own.message();
  Result<CompiledModule> fixed = loadFixed(module, shape, check);
  ASSERT_TRUE(bool(fixed)) << fixed.message() << module.text(shape);
  setInputs(*own);
  setInputs(*fixed);
  own->run("f");
  fixed->run("f");
  for (const TensorView &view : fixed->getProgram().tensors())
    if (view.role == TensorRole::Output)
      expectAlike(view.name, own->get(view.name), fixed->get(view.name),
                  check.tolerance);
}

void nsa::test::checkOpen(const OpenModule &module, const OpenCheck &check) {
  Result<Artifact> open = compileOpen(module, check);
  ASSERT_TRUE(bool(open)) << open.message() << "\n" << module.text();
  ASSERT_TRUE(open->needsExtents());
  for (Shape shape : check.shapes) {
    SCOPED_TRACE(check.target + ", batch " + std::to_string(shape.batch) +
                 ", sequence " + std::to_string(shape.sequence));
    checkShape(module, *open, shape, check);
    if (testing::Test::HasFailure())
      return;
  }
}

void nsa::test::checkEmpty(const OpenModule &module, const OpenCheck &check,
                           const std::string &name) {
  Result<Artifact> open = compileOpen(module, check);
  ASSERT_TRUE(bool(open)) << open.message();
  for (Shape shape : {Shape{0, 5}, Shape{3, 0}}) {
    Result<Artifact> artifact =
        open->withExtents({shape.batch, shape.sequence});
    ASSERT_TRUE(bool(artifact)) << artifact.message();
    Result<CompiledModule> own = CompiledModule::load(*artifact);
    ASSERT_TRUE(bool(own)) << own.message();
    own->run("f");
    EXPECT_TRUE(own->get(name).data.empty());
  }
}
