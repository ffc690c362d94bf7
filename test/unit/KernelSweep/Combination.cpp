//===- Combination.cpp - shapes to try kernels on -------------------------===//

#include "test/unit/KernelSweep/Combination.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <numeric>
#include <random>
#include <sstream>
#include <tuple>

using namespace nsa;
using namespace nsa::test;

/// The mnemonic of a kind of compression.
static const char *nameOf(Phi phi) {
  switch (phi) {
  case Phi::Mean:
    return "mean";
  case Phi::Linear:
    return "linear";
  case Phi::Mlp:
    return "mlp";
  }
  return "";
}

reference::Arithmetic Combination::arithmetic() const {
  return element == DataType::F32    ? reference::Arithmetic::F32
         : element == DataType::BF16 ? reference::Arithmetic::BF16
                                     : reference::Arithmetic::F16;
}

std::string Combination::describe() const {
  std::ostringstream out;
  out << "B=" << batch << " S=" << sequence << " Hkv=" << kvHeads
      << " G=" << group << " dk=" << dk << " dv=" << dv << " n=" << count
      << " w=" << window << " l=" << l << " d=" << d << " l'=" << lSel << ' '
      << typeName(element) << ' ' << nameOf(phi)
      << (positions ? " with positions" : "") << " logits=" << logits
      << " gating=" << gating << (gateBias ? " with bias" : "");
  for (const std::string &size : tileSizes)
    out << " tile=" << size;
  out << " seed=" << seed;
  return out.str();
}

std::optional<Combination>
nsa::test::parseCombination(const std::string &text) {
  Combination c;
  c.gateBias = text.find("with bias") != std::string::npos;
  c.positions = text.find("with positions") != std::string::npos;
  const std::pair<const char *, int64_t *> sizes[] = {
      {"B", &c.batch}, {"S", &c.sequence}, {"Hkv", &c.kvHeads},
      {"G", &c.group}, {"dk", &c.dk},      {"dv", &c.dv},
      {"n", &c.count}, {"w", &c.window},   {"l", &c.l},
      {"d", &c.d},     {"l'", &c.lSel}};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t equals = word.find('=');
    std::string key = word.substr(0, equals);
    std::string value = equals < word.size() ? word.substr(equals + 1) : "";
    bool known = key == "with" || key == "bias" || key == "positions";
    for (auto [name, size] : sizes)
      if (key == name) {
        *size = std::strtoll(value.c_str(), nullptr, 10);
        known = true;
      }
    for (Phi phi : {Phi::Mean, Phi::Linear, Phi::Mlp})
      if (key == nameOf(phi)) {
        c.phi = phi;
        known = true;
      }
    for (DataType element : {DataType::F32, DataType::BF16, DataType::F16})
      if (key == typeName(element)) {
        c.element = element;
        known = true;
      }
    if (key == "gating")
      c.gating = value;
    else if (key == "tile")
      c.tileSizes.push_back(value);
    else if (key == "logits")
      c.logits = std::strtod(value.c_str(), nullptr);
    else if (key == "seed")
      c.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (!known)
      return std::nullopt;
  }
  return c;
}

//===----------------------------------------------------------------------===//
// The spread
//===----------------------------------------------------------------------===//

namespace {

/// Deals the values of a list in random order, all of them before any again.
template <typename T>
class Deck {
public:
  Deck(std::vector<T> values, std::mt19937_64 &random)
      : values(std::move(values)), random(random) {}

  T draw() {
    if (next % values.size() == 0)
      std::shuffle(values.begin(), values.end(), random);
    return values[next++ % values.size()];
  }

private:
  std::vector<T> values;
  std::mt19937_64 &random;
  size_t next = 0;
};

struct Blocks {
  int64_t l, d, lSel;
};
struct Widths {
  int64_t dk, dv;
};

} // namespace

/// Multiplications of the most expensive attention.
static double cost(const Combination &c) {
  double keys = std::min({c.window, c.sequence});
  keys = std::max<double>(keys, std::min(c.count * c.lSel, c.sequence));
  keys = std::max<double>(keys, c.compressed() / 2);
  double pairs = static_cast<double>(c.batch * c.heads() * c.sequence) * keys;
  return pairs * static_cast<double>(c.dk + c.dv);
}

/// Makes a combination that costs too much smaller, sequence length last.
static void shrink(Combination &c, double budget) {
  if (cost(c) > budget)
    c.batch = c.kvHeads = 1;
  if (cost(c) > budget)
    c.dk = c.dv = 16;
  while (cost(c) > budget && c.group > 1)
    c.group /= 2;
  if (cost(c) > budget)
    c.window = std::min<int64_t>(c.window, 512);
  while (cost(c) > budget && c.sequence > 1)
    c.sequence /= 2;
}

size_t nsa::test::sweepCount(size_t full, size_t sample) {
  if (const char *text = std::getenv("NSA_SWEEP_COUNT"))
    return std::strtoull(text, nullptr, 10);
  const char *suite = std::getenv("NSA_TEST_SUITE");
  return suite && std::string(suite) == "full" ? full : sample;
}

std::vector<Combination> nsa::test::withManyBlocks() {
  std::vector<Combination> list;
  for (const char *text :
       {"B=1 S=131 Hkv=2 G=16 dk=64 dv=64 n=2 w=16 l=16 d=8 l'=16 bf16 mean "
        "logits=1 gating=sigmoid with bias seed=11",
        "B=1 S=230 Hkv=1 G=8 dk=128 dv=128 n=3 w=32 l=16 d=8 l'=32 bf16 mean "
        "logits=10000 gating=softmax seed=12",
        "B=2 S=200 Hkv=1 G=4 dk=64 dv=32 n=2 w=16 l=8 d=4 l'=16 f16 mean "
        "logits=1 gating=given seed=13",
        "B=1 S=97 Hkv=1 G=16 dk=16 dv=16 n=2 w=16 l=8 d=4 l'=8 bf16 mean "
        "logits=1 gating=given seed=14",
        "B=1 S=131 Hkv=1 G=8 dk=32 dv=32 n=2 w=16 l=16 d=8 l'=16 f32 mean "
        "logits=1 gating=sigmoid seed=15",
        // Queries whose rows leave gaps in slabs of 16.
        "B=1 S=133 Hkv=2 G=6 dk=64 dv=64 n=2 w=16 l=16 d=8 l'=16 bf16 mean "
        "logits=1 gating=sigmoid with bias seed=17",
        "B=1 S=99 Hkv=1 G=12 dk=32 dv=64 n=2 w=16 l=8 d=4 l'=16 f16 mean "
        "logits=1 gating=softmax with bias seed=18",
        // Programs of the window have all heads of a group.
        "B=1 S=150 Hkv=2 G=4 dk=64 dv=64 n=2 w=140 l=16 d=8 l'=16 bf16 mean "
        "logits=1 gating=sigmoid seed=21"}) {
    std::optional<Combination> c = parseCombination(text);
    assert(c && "an unknown word");
    list.push_back(*c);
  }
  return list;
}

std::vector<Combination> nsa::test::spread(size_t count, uint64_t seed,
                                           double budget) {
  std::mt19937_64 random(seed);
  Deck<int64_t> sequences({1,   15,   16,   31,   32,   33,   47,  48,
                           63,  64,   65,   127,  128,  129,  511, 512,
                           513, 1023, 1024, 1025, 2047, 2048, 4097},
                          random);
  Deck<int64_t> groups({1, 2, 3, 4, 5, 6, 8, 12, 16, 32}, random);
  Deck<Widths> widths({{16, 16}, {64, 64}, {128, 128}, {192, 128}, {64, 128}},
                      random);
  Deck<int64_t> counts({1, 3, 4, 16, 80}, random);
  Deck<int64_t> windows({1, 64, 512, 5000}, random);
  Deck<Blocks> blocks({{32, 16, 64},
                       {16, 16, 16},
                       {32, 32, 64},
                       {64, 16, 64},
                       {16, 8, 48},
                       {8, 4, 16}},
                      random);
  Deck<double> logits({1.0, 1.0, 1.0, 4.0, 1e4, 0.0}, random);
  Deck<int> flags({0, 1, 2, 3}, random);
  Deck<std::pair<Phi, bool>> phis({{Phi::Mean, false},
                                   {Phi::Linear, false},
                                   {Phi::Linear, true},
                                   {Phi::Mlp, false},
                                   {Phi::Mlp, true}},
                                  random);
  std::vector<Combination> result;
  for (size_t i = 0; i < count; ++i) {
    Combination c;
    c.sequence = sequences.draw();
    c.group = groups.draw();
    Widths width = widths.draw();
    c.dk = width.dk;
    c.dv = width.dv;
    c.count = counts.draw();
    c.window = windows.draw();
    Blocks block = blocks.draw();
    c.l = block.l;
    c.d = block.d;
    c.lSel = block.lSel;
    c.logits = logits.draw();
    int flag = flags.draw();
    c.batch = 1 + (flag & 1);
    c.kvHeads = 1 + ((flag >> 1) & 1);
    std::tie(c.phi, c.positions) = phis.draw();
    if (i % 3 == 2)
      c.element = i % 2 ? DataType::F16 : DataType::BF16;
    c.seed = random();
    shrink(c, budget);
    result.push_back(c);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

namespace {

/// A named tensor of the module.
struct Named {
  std::string name, type;
};

/// Writes functions whose arguments and results are named tensors.
class ModuleWriter {
public:
  ModuleWriter(const Combination &c, const std::vector<std::string> &only)
      : c(c), only(only) {
    element = typeName(c.element);
    q = tensor({c.batch, c.sequence, c.heads(), c.dk}, element);
    k = tensor({c.batch, c.sequence, c.kvHeads, c.dk}, element);
    v = tensor({c.batch, c.sequence, c.kvHeads, c.dv}, element);
    kc = tensor({c.batch, c.compressed(), c.kvHeads, c.dk}, element);
    vc = tensor({c.batch, c.compressed(), c.kvHeads, c.dv}, element);
    o = tensor({c.batch, c.sequence, c.heads(), c.dv}, element);
    lse = tensor({c.batch, c.heads(), c.sequence}, "f32");
    indices = tensor({c.batch, c.kvHeads, c.sequence, c.count}, "i32");
    gates = tensor({c.batch, c.sequence, c.heads(), 3}, "f32");
    table = {"table", tensor({c.sequence, c.dk / 2, 2}, "f32")};
  }

  std::string write();

private:
  static std::string tensor(const std::vector<int64_t> &shape,
                            const std::string &element) {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + element + ">";
  }

  static std::string attribute(const std::string &key, int64_t value) {
    return key + " = " + std::to_string(value) + " : i64";
  }

  /// Writes where a function begins, whose arguments are %a0, %a1 and so on.
  void begin(const std::string &name, const std::vector<Named> &in,
             const std::vector<Named> &out);
  /// The parameters of `#nsa.compressed`.
  std::string blocks() const {
    return "block = " + std::to_string(c.l) +
           ", stride = " + std::to_string(c.d);
  }
  /// A function of one op: `%results = op %arguments clause {attributes}`.
  /// `lastSign` stands in front of the last argument.
  void single(const std::string &name, const std::string &op,
              const std::vector<Named> &in, const std::vector<Named> &out,
              const std::string &attributes, const std::string &lastSign = ", ",
              const std::string &clause = "");
  void compression(const std::string &suffix, const std::string &x,
                   const std::string &y, int64_t width);
  void attention(const std::string &branch, const std::string &op,
                 const std::string &key, const std::string &value,
                 const std::string &attributes, bool withIndices);
  void causal();
  void full();
  void gated();
  void rotation();
  void compressedAndRotated();

  bool wants(const std::string &entry) const {
    return only.empty() ||
           std::find(only.begin(), only.end(), entry) != only.end();
  }

  const Combination &c;
  const std::vector<std::string> &only;
  std::string element, q, k, v, kc, vc, o, lse, indices, gates;
  /// Angles of every position.
  Named table;
  std::ostringstream text;
};

} // namespace

static std::string joinTypes(const std::vector<Named> &list) {
  std::string text;
  for (const Named &named : list)
    text += (text.empty() ? "" : ", ") + named.type;
  return text;
}

void ModuleWriter::begin(const std::string &name, const std::vector<Named> &in,
                         const std::vector<Named> &out) {
  text << "func.func @" << name << "(";
  for (size_t i = 0; i < in.size(); ++i)
    text << (i ? ", " : "") << "%a" << i << ": " << in[i].type
         << " {nn.name = \"" << in[i].name << "\", nn.role = \"input\"}";
  text << ")\n    -> (";
  for (size_t i = 0; i < out.size(); ++i)
    text << (i ? ", " : "") << out[i].type << " {nn.name = \"" << out[i].name
         << "\"}";
  text << ") {\n";
}

void ModuleWriter::single(const std::string &name, const std::string &op,
                          const std::vector<Named> &in,
                          const std::vector<Named> &out,
                          const std::string &attributes,
                          const std::string &lastSign,
                          const std::string &clause) {
  if (!wants(name))
    return;
  begin(name, in, out);
  std::string operands, values;
  for (size_t i = 0; i < in.size(); ++i)
    operands += (i == 0               ? ""
                 : i + 1 == in.size() ? lastSign
                                      : ", ") +
                "%a" + std::to_string(i);
  for (size_t i = 0; i < out.size(); ++i)
    values += (i ? ", %r" : "%r") + std::to_string(i);
  text << "  " << values << " = " << op << " " << operands << clause << " {"
       << attributes << "}\n      : (" << joinTypes(in) << ") -> ("
       << joinTypes(out) << ")\n  return " << values << " : " << joinTypes(out)
       << "\n}\n";
}

void ModuleWriter::compression(const std::string &suffix, const std::string &x,
                               const std::string &y, int64_t width) {
  std::string attributes =
      attribute("block", c.l) + ", " + attribute("stride", c.d);
  std::string kind = std::string(" ") + nameOf(c.phi);
  std::vector<Named> in = {{"x_" + suffix, x}};
  std::vector<Named> backIn = {{"dy_" + suffix, y}, {"x_" + suffix, x}};
  std::vector<Named> backOut = {{"dx_" + suffix, x}};
  auto parameter = [&](const char *name, int64_t rows) {
    std::vector<int64_t> shape = {c.kvHeads, rows, width};
    in.push_back({name + suffix, tensor(shape, element)});
    backIn.push_back(in.back());
    backOut.push_back({"d" + (name + suffix), tensor(shape, "f32")});
  };
  if (c.phi != Phi::Mean)
    parameter("w_", c.l * width);
  if (c.phi == Phi::Mlp)
    parameter("w2_", width);
  if (c.positions)
    parameter("p_", c.l);
  single("compress_" + suffix, "nsa.compress" + kind, in, {{"y_" + suffix, y}},
         attributes);
  single("compress_" + suffix + "_backward", "nsa.compress_backward" + kind,
         backIn, backOut, attributes);
}

void ModuleWriter::attention(const std::string &branch, const std::string &op,
                             const std::string &key, const std::string &value,
                             const std::string &attributes, bool withIndices) {
  auto name = [&](const char *part) { return branch + "." + part; };
  std::vector<Named> in = {{"q", q}, {name("k"), key}, {name("v"), value}};
  std::vector<Named> back = {{"do", o},         {"q", q},
                             {name("k"), key},  {name("v"), value},
                             {name("o_in"), o}, {name("lse_in"), lse}};
  if (withIndices) {
    in.push_back({"indices_in", indices});
    back.push_back({"indices_in", indices});
  }
  single(branch, "nsa." + op, in, {{name("o"), o}, {name("lse"), lse}},
         attributes);
  single(branch + "_backward", "nsa." + op + "_backward", back,
         {{name("dq"), q}, {name("dk"), key}, {name("dv"), value}}, attributes);
}

/// Attention to all tokens so far, and its gradient.
void ModuleWriter::causal() {
  auto write = [&](const std::string &name, const std::string &op,
                   const std::vector<Named> &in,
                   const std::vector<Named> &out) {
    if (!wants(name))
      return;
    begin(name, in, out);
    text << "  %r:" << out.size() << " = nsa." << op << " ";
    for (size_t i = 0; i < in.size(); ++i)
      text << (i ? ", %a" : "%a") << i;
    text << " visible(#nsa.causal) : " << joinTypes(in) << "\n  return ";
    for (size_t i = 0; i < out.size(); ++i)
      text << (i ? ", %r#" : "%r#") << i;
    text << " : " << joinTypes(out) << "\n}\n";
  };
  write("causal", "attention", {{"q", q}, {"causal.k", k}, {"causal.v", v}},
        {{"causal.o", o}, {"causal.lse", lse}});
  write("causal_backward", "attention_backward",
        {{"do", o},
         {"q", q},
         {"causal.k", k},
         {"causal.v", v},
         {"causal.o_in", o},
         {"causal.lse_in", lse}},
        {{"causal.dq", q}, {"causal.dk", k}, {"causal.dv", v}});
}

void ModuleWriter::full() {
  if (!wants("full"))
    return;
  std::string blocks =
      attribute("block", c.l) + ", " + attribute("stride", c.d);
  std::string cut = attribute("select_block", c.lSel);
  begin("full",
        {{"q", q},
         {"cmp.x", k},
         {"cmp.y", v},
         {"slc.k", k},
         {"slc.v", v},
         {"win.k", k},
         {"win.v", v},
         {"gates", gates}},
        {{"full.o", o}});
  text << "  %kc = nsa.compress mean %a1 {" << blocks << "} : (" << k << ") -> "
       << kc << "\n"
       << "  %vc = nsa.compress mean %a2 {" << blocks << "} : (" << v << ") -> "
       << vc << "\n"
       << "  %oc, %lc = nsa.compressed_attention %a0, %kc, %vc {" << blocks
       << "} : (" << q << ", " << kc << ", " << vc << ") -> (" << o << ", "
       << lse << ")\n"
       << "  %i = nsa.select %a0, %kc, %lc {" << blocks << ", " << cut << ", "
       << attribute("count", c.count) << "} : (" << q << ", " << kc << ", "
       << lse << ") -> " << indices << "\n"
       << "  %os, %ls = nsa.selected_attention %a0, %a3, %a4, %i {" << cut
       << "} : (" << q << ", " << k << ", " << v << ", " << indices << ") -> ("
       << o << ", " << lse << ")\n"
       << "  %ow, %lw = nsa.window_attention %a0, %a5, %a6 {"
       << attribute("window", c.window) << "} : (" << q << ", " << k << ", "
       << v << ") -> (" << o << ", " << lse << ")\n"
       << "  %o = nsa.combine %a7, %oc, %os, %ow : (" << gates << ", " << o
       << ", " << o << ", " << o << ") -> " << o << "\n  return %o : " << o
       << "\n}\n";
}

/// The fused operations. Names are those of the separate ones where the value
/// is the same.
void ModuleWriter::gated() {
  if (only.empty())
    return;
  bool given = c.gating == "given";
  std::vector<Named> gating = {
      {given ? "gates" : "logits",
       given ? gates : tensor({c.batch, c.sequence, 3 * c.heads()}, element)}};
  std::vector<Named> gatingGrads = {
      {given ? "dgates" : "dlogits", gating[0].type}};
  if (!given && c.gateBias) {
    gating.push_back({"bias", tensor({3 * c.heads()}, "f32")});
    gatingGrads.push_back({"dbias", gating[1].type});
  }
  std::string branches = "#nsa.selected<block = " + std::to_string(c.lSel) +
                         ">, #nsa.window<" + std::to_string(c.window) + ">)";
  std::vector<Named> in = {{"q", q},
                           {"oc", o},
                           {"slc.k", k},
                           {"slc.v", v},
                           {"indices_in", indices},
                           {"win.k", k},
                           {"win.v", v}};
  in.insert(in.end(), gating.begin(), gating.end());
  single("gated", "nsa.gated_attention " + c.gating, in,
         {{"gated.o", o},
          {"slc.o", o},
          {"slc.lse", lse},
          {"win.o", o},
          {"win.lse", lse}},
         "keep", ", ", " visible(" + branches);
  std::vector<Named> back = {{"do", o},
                             {"q", q},
                             {"cmp.k", kc},
                             {"cmp.v", vc},
                             {"oc", o},
                             {"cmp.lse_in", lse},
                             {"slc.k", k},
                             {"slc.v", v},
                             {"os", o},
                             {"slc.lse_in", lse},
                             {"indices_in", indices},
                             {"win.k", k},
                             {"win.v", v},
                             {"ow", o},
                             {"win.lse_in", lse}};
  back.insert(back.end(), gating.begin(), gating.end());
  std::vector<Named> grads = {{"dq", q},     {"cmp.dk", kc}, {"cmp.dv", vc},
                              {"slc.dk", k}, {"slc.dv", v},  {"win.dk", k},
                              {"win.dv", v}};
  grads.insert(grads.end(), gatingGrads.begin(), gatingGrads.end());
  std::string clause =
      " visible(#nsa.compressed<" + blocks() + ">, " + branches;
  single("gated_backward", "nsa.gated_attention_backward " + c.gating, back,
         grads, "", ", ", clause);
  for (Named &grad : grads)
    grad.name = "turned." + grad.name;
  back.push_back(table);
  single("gated_backward_turned", "nsa.gated_attention_backward " + c.gating,
         back, grads, "rotate_tokens", " rotary ", clause);
}

/// Keys and values are compressed by a launch that may have more to do.
void ModuleWriter::compressedAndRotated() {
  if (!wants("compressed_and_rotated"))
    return;
  std::string blocks =
      attribute("block", c.l) + ", " + attribute("stride", c.d);
  std::vector<Named> out = {{"whole.kc", kc}, {"whole.vc", vc},
                            {"whole.o", o},   {"whole.lse", lse},
                            {"whole.q", q},   {"whole.win.k", k}};
  begin("compressed_and_rotated",
        {{"slc.k", k}, {"slc.v", v}, {"q", q}, {"win.k", k}, table}, out);
  text << "  %kc, %vc = nsa.compress_key_value mean %a0, %a1 rotary %a4 {"
       << blocks << "} : (" << k << ", " << v << ", " << table.type << ") -> ("
       << kc << ", " << vc << ")\n"
       << "  %o, %lse, %qr, %kr = nsa.rotary_attention %a2, %kc, "
          "%vc, %a3 rotary %a4 visible(#nsa.compressed<"
       << this->blocks() << ">) : (" << q << ", " << kc << ", " << vc << ", "
       << k << ", " << table.type << ") -> (" << o << ", " << lse << ", " << q
       << ", " << k
       << ")\n  return %kc, %vc, %o, %lse, %qr, %kr : " << joinTypes(out)
       << "\n}\n";
}

void ModuleWriter::rotation() {
  if (only.empty())
    return;
  single("rotary_attention", "nsa.rotary_attention",
         {{"q", q},
          {"cmp.k", kc},
          {"cmp.v", vc},
          {"slc.k", k},
          {"win.k", k},
          table},
         {{"rotary.o", o},
          {"rotary.lse", lse},
          {"rotary.q", q},
          {"rotary.slc.k", k},
          {"rotary.win.k", k}},
         "", " rotary ", " visible(#nsa.compressed<" + blocks() + ">)");
  compressedAndRotated();
  single("rotate_q", "nn.rotary", {{"q", q}, table}, {{"rotated.q", q}}, "");
  single("rotate_k", "nn.rotary", {{"slc.k", k}, table}, {{"rotated.k", k}},
         "");
  single("turn_q", "nn.rotary", {{"grad.q", q}, table}, {{"apart.q", q}},
         "inverse");
  single("turn_k", "nn.rotary", {{"grad.k", k}, table}, {{"apart.k", k}},
         "inverse");
  single("turn_kc", "nn.rotary", {{"grad.kc", kc}, table}, {{"apart.kc", kc}},
         "inverse, " + attribute("stride", c.d));
}

std::string ModuleWriter::write() {
  compression("k", k, kc, c.dk);
  compression("v", v, vc, c.dv);
  std::string blocks =
      attribute("block", c.l) + ", " + attribute("stride", c.d);
  std::string cut = attribute("select_block", c.lSel);
  attention("cmp", "compressed_attention", kc, vc, blocks, false);
  single("select", "nsa.select", {{"q", q}, {"cmp.k", kc}, {"cmp.lse_in", lse}},
         {{"indices", indices}},
         blocks + ", " + cut + ", " + attribute("count", c.count) + ", " +
             attribute("local", c.local));
  single("statistics", "nsa.selection_statistics", {{"chosen", indices}},
         {{"y", tensor({3}, "f32")}}, cut);
  attention("slc", "selected_attention", k, v, cut, true);
  attention("win", "window_attention", k, v, attribute("window", c.window),
            false);
  causal();
  std::vector<Named> branches = {
      {"gates", gates}, {"oc", o}, {"os", o}, {"ow", o}};
  single("combine", "nsa.combine", branches, {{"o", o}}, "");
  branches.insert(branches.begin(), {"do", o});
  single("combine_backward", "nsa.combine_backward", branches,
         {{"dgates", gates}, {"doc", o}, {"dos", o}, {"dow", o}}, "");
  full();
  gated();
  rotation();
  return text.str();
}

std::vector<std::string> nsa::test::rotationEntries() {
  return {"compressed_and_rotated",
          "rotary_attention",
          "cmp",
          "rotate_q",
          "rotate_k",
          "turn_q",
          "turn_k",
          "turn_kc",
          "gated_backward",
          "gated_backward_turned"};
}

std::string nsa::test::moduleText(const Combination &combination,
                                  const std::vector<std::string> &only) {
  return ModuleWriter(combination, only).write();
}
