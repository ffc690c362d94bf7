//===- CombinationText.cpp - the module of one combination ----------------===//

#include "test/unit/KernelSweep/Combination.h"

#include <algorithm>
#include <functional>
#include <sstream>

using namespace nsa;
using namespace nsa::test;

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
  /// `gate` writes what computes the gates from the arguments from `first` on,
  /// and returns their name.
  void gatedBackward(const std::vector<Named> &gating,
                     const std::function<std::string(int first)> &gate,
                     bool turned);
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

/// The branches with their gates and their sum, which fusion makes one
/// operation of, and their gradients. Names are those of the separate ones
/// where the value is the same.
void ModuleWriter::gated() {
  if (only.empty())
    return;
  bool given = c.gating == "given", hasBias = !given && c.gateBias;
  std::string logits =
      given ? gates : tensor({c.batch, c.sequence, 3 * c.heads()}, element);
  std::string biasType = tensor({3 * c.heads()}, "f32");
  std::vector<Named> gating = {{given ? "gates" : "logits", logits}};
  if (hasBias)
    gating.push_back({"bias", biasType});
  // The line that computes the gates from the arguments from `first` on, and
  // their name.
  auto gate = [&](int first) {
    std::string name = "%a" + std::to_string(first);
    if (given)
      return name;
    text << "  %g = nn.gate " << c.gating << " " << name;
    if (hasBias)
      text << ", %a" << first + 1;
    text << " : (" << joinTypes(gating) << ") -> " << gates << "\n";
    return std::string("%g");
  };
  if (wants("gated")) {
    std::vector<Named> in = {{"q", q},
                             {"oc", o},
                             {"slc.k", k},
                             {"slc.v", v},
                             {"indices_in", indices},
                             {"win.k", k},
                             {"win.v", v}};
    in.insert(in.end(), gating.begin(), gating.end());
    std::vector<Named> out = {{"gated.o", o},
                              {"slc.o", o},
                              {"slc.lse", lse},
                              {"win.o", o},
                              {"win.lse", lse}};
    begin("gated", in, out);
    text << "  %os, %ls = nsa.selected_attention %a0, %a2, %a3, %a4 {"
         << attribute("select_block", c.lSel) << "} : (" << q << ", " << k
         << ", " << v << ", " << indices << ") -> (" << o << ", " << lse
         << ")\n  %ow, %lw = nsa.window_attention %a0, %a5, %a6 {"
         << attribute("window", c.window) << "} : (" << q << ", " << k << ", "
         << v << ") -> (" << o << ", " << lse << ")\n";
    std::string name = gate(7);
    text << "  %o = nsa.combine " << name << ", %a1, %os, %ow : (" << gates
         << ", " << o << ", " << o << ", " << o << ") -> " << o
         << "\n  return %o, %os, %ls, %ow, %lw : " << joinTypes(out) << "\n}\n";
  }
  gatedBackward(gating, gate, /*turned=*/false);
  gatedBackward(gating, gate, /*turned=*/true);
}

void ModuleWriter::gatedBackward(
    const std::vector<Named> &gating,
    const std::function<std::string(int first)> &gate, bool turned) {
  std::string entry = turned ? "gated_backward_turned" : "gated_backward";
  if (!wants(entry))
    return;
  std::vector<Named> in = {{"do", o},
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
  in.insert(in.end(), gating.begin(), gating.end());
  std::vector<Named> out = {{"dq", q},     {"cmp.dk", kc}, {"cmp.dv", vc},
                            {"slc.dk", k}, {"slc.dv", v},  {"win.dk", k},
                            {"win.dv", v}};
  for (const Named &named : gating)
    out.push_back({"d" + named.name, named.type});
  std::string angles = "%a" + std::to_string(in.size());
  if (turned) {
    in.push_back(table);
    for (Named &grad : out)
      grad.name = "turned." + grad.name;
  }
  begin(entry, in, out);
  std::string name = gate(15);
  text << "  %dg, %dc, %ds, %dw = nsa.combine_backward %a0, " << name
       << ", %a4, %a8, %a13 : (" << o << ", " << gates << ", " << o << ", " << o
       << ", " << o << ") -> (" << gates << ", " << o << ", " << o << ", " << o
       << ")\n";
  auto branch = [&](const std::string &kind, const std::string &sign, int first,
                    const std::string &attributes, const std::string &key,
                    const std::string &value) {
    bool isSelected = kind == "selected";
    text << "  %dq" << sign << ", %dk" << sign << ", %dv" << sign << " = nsa."
         << kind << "_attention_backward %d" << sign << ", %a1";
    for (int i = 0; i < (isSelected ? 5 : 4); ++i)
      text << ", %a" << first + i;
    text << " {" << attributes << "} : (" << o << ", " << q << ", " << key
         << ", " << value << ", " << o << ", " << lse
         << (isSelected ? ", " + indices : "") << ") -> (" << q << ", " << key
         << ", " << value << ")\n";
  };
  branch("compressed", "c", 2,
         attribute("block", c.l) + ", " + attribute("stride", c.d), kc, vc);
  branch("selected", "s", 6, attribute("select_block", c.lSel), k, v);
  branch("window", "w", 11, attribute("window", c.window), k, v);
  text << "  %sum = nn.add %dqc, %dqs : (" << q << ", " << q << ") -> " << q
       << "\n  %dq = nn.add %sum, %dqw : (" << q << ", " << q << ") -> " << q
       << "\n";
  auto turn = [&](const std::string &grad, const std::string &type,
                  int64_t stride) {
    if (!turned)
      return grad;
    text << "  " << grad << "t = nn.rotary " << grad << ", " << angles
         << " {inverse, " << attribute("stride", stride) << "} : (" << type
         << ", " << table.type << ") -> " << type << "\n";
    return grad + "t";
  };
  std::string results = turn("%dq", q, 1);
  results += ", " + turn("%dkc", kc, c.d) + ", %dvc";
  results += ", " + turn("%dks", k, 1) + ", %dvs";
  results += ", " + turn("%dkw", k, 1) + ", %dvw";
  if (name == "%g") {
    text << "  %dz, %db = nn.gate_backward " << c.gating
         << " %dg, %g {logits_type = " << element << "} : (" << gates << ", "
         << gates << ") -> (" << gating[0].type << ", "
         << tensor({3 * c.heads()}, "f32") << ")\n";
    results += gating.size() > 1 ? ", %dz, %db" : ", %dz";
  } else {
    results += ", %dg";
  }
  text << "  return " << results << " : " << joinTypes(out) << "\n}\n";
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
  std::string text = ModuleWriter(combination, only).write();
  if (combination.refused == 0)
    return text;
  return "module attributes {nsa.refused_schedules = {any = " +
         std::to_string(combination.refused) + "}} {\n" + text + "}\n";
}
