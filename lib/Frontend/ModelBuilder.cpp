//===- ModelBuilder.cpp - a configuration to a decoder --------------------===//

#include "lib/Frontend/ModelBuilder.h"
#include "nsa/Artifact/TrainingContract.h"

#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "lib/Support/LayerKinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

using namespace mlir;
using namespace nsa;

namespace {

/// Keys or values of the three branches, or of the window alone.
struct KeyValue {
  Value key, value;
};

class ModelBuilder {
public:
  ModelBuilder(MLIRContext *context, const RunConfig &config)
      : config(config), model(config.model), context(context),
        builder(context) {}

  OwningOpRef<ModuleOp> build();

private:
  // Arguments of the function, added as the body needs them.
  Value argument(StringRef name, RankedTensorType type,
                 ArrayRef<NamedAttribute> attributes);
  Value input(StringRef name);
  Value matrix(const Twine &name, int64_t rows, int64_t columns, double std);
  Value vector(const Twine &name, int64_t size, double value);
  Value parameter(const Twine &name, ArrayRef<int64_t> shape, nn::InitKind kind,
                  double value, bool decay);
  Value rotaryTable();

  // Parts of the decoder.
  Value query(Value x, const std::string &name) {
    return heads(x, name + ".query", model.nHeads, model.dK);
  }
  Value key(Value x, const std::string &name) {
    return heads(x, name + ".key", model.nKvGroups, model.dK);
  }
  Value value(Value x, const std::string &name) {
    return heads(x, name + ".value", model.nKvGroups, model.dV);
  }
  Value norm(Value x, const Twine &name);
  Value linear(Value x, const Twine &name, int64_t out, double std);
  Value heads(Value x, const Twine &name, int64_t count, int64_t width);
  Value rotate(Value x, const Twine &name, int64_t stride = 1);
  Value compress(Value x, const Twine &name);
  Value attention(Value x, const std::string &name, const LayerKind &kind);
  Value window(Value query, KeyValue kv, const Twine &name, int64_t width);
  Value tokenAttention(Value x, const std::string &name, const LayerKind &kind);
  Value sparseAttention(Value x, const std::string &name);
  Value gates(Value logits, const std::string &name);
  Value feedForward(Value x, const std::string &name);
  Value layer(Value x, int64_t index, const LayerKind &kind);
  void setResults(Value loss, Value logits);

  Location loc(const Twine &name) {
    return NameLoc::get(builder.getStringAttr(name));
  }
  /// Creates an op at the named place and returns its first result.
  template <typename OpTy, typename... Args>
  Value create(const Twine &name, Args &&...args) {
    return OpTy::create(builder, loc(name), std::forward<Args>(args)...)
        ->getResult(0);
  }
  double residualStd() const {
    return model.initStd / std::sqrt(2.0 * static_cast<double>(model.nLayers));
  }

  const RunConfig &config;
  const ModelConfig &model;
  MLIRContext *context;
  OpBuilder builder;
  func::FuncOp function;
  /// Numbers for people, by name.
  SmallVector<std::pair<std::string, Value>> statistics;
  Value table;
};

} // namespace

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

Value ModelBuilder::argument(StringRef name, RankedTensorType type,
                             ArrayRef<NamedAttribute> attributes) {
  NamedAttrList list(attributes);
  list.set(nn::kNameAttr, builder.getStringAttr(name));
  unsigned index = function.getNumArguments();
  LogicalResult inserted = function.insertArgument(
      index, type, list.getDictionary(context), loc(name));
  assert(succeeded(inserted) && "func accepts arguments");
  (void)inserted;
  return function.getArgument(index);
}

Value ModelBuilder::input(StringRef name) {
  auto type = RankedTensorType::get(
      {config.train.microBatch, config.train.seqLen}, builder.getI32Type());
  return argument(
      name, type,
      {builder.getNamedAttr(nn::kRoleAttr, builder.getStringAttr("input")),
       builder.getNamedAttr(nn::kDimsAttr,
                            builder.getStrArrayAttr({"batch", "seq"}))});
}

Value ModelBuilder::parameter(const Twine &name, ArrayRef<int64_t> shape,
                              nn::InitKind kind, double value, bool decay) {
  SmallVector<NamedAttribute> attributes = {
      builder.getNamedAttr(nn::kRoleAttr, builder.getStringAttr("parameter")),
      builder.getNamedAttr(nn::kInitAttr,
                           nn::InitAttr::get(context, kind, value))};
  if (decay)
    attributes.push_back(
        builder.getNamedAttr(nn::kDecayAttr, builder.getUnitAttr()));
  return argument(name.str(),
                  RankedTensorType::get(shape, builder.getF32Type()),
                  attributes);
}

Value ModelBuilder::matrix(const Twine &name, int64_t rows, int64_t columns,
                           double std) {
  return parameter(name, {rows, columns}, nn::InitKind::Normal, std,
                   /*decay=*/true);
}

Value ModelBuilder::vector(const Twine &name, int64_t size, double value) {
  return parameter(name, {size}, nn::InitKind::Constant, value,
                   /*decay=*/false);
}

/// The angles of all positions, shared by every rotary embedding.
Value ModelBuilder::rotaryTable() {
  if (table)
    return table;
  auto type = RankedTensorType::get({config.train.seqLen, model.dK / 2, 2},
                                    builder.getF32Type());
  auto init = nn::InitAttr::get(context, nn::InitKind::Rotary, model.ropeBase);
  table = argument(
      "rotary", type,
      {builder.getNamedAttr(nn::kRoleAttr, builder.getStringAttr("constant")),
       builder.getNamedAttr(nn::kInitAttr, init),
       builder.getNamedAttr(nn::kDimsAttr,
                            builder.getStrArrayAttr({"seq", "", ""}))});
  return table;
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

Value ModelBuilder::norm(Value x, const Twine &name) {
  Value weight = vector(name + ".weight", model.dim, 1.0);
  return create<nn::RMSNormOp>(name, x, weight, llvm::APFloat(model.normEps));
}

Value ModelBuilder::linear(Value x, const Twine &name, int64_t out,
                           double std) {
  int64_t in = cast<RankedTensorType>(x.getType()).getShape().back();
  Value weight = matrix(name + ".weight", out, in, std);
  return create<nn::MatmulOp>(name, x, weight, /*accumulator=*/Value(),
                              /*transposeLhs=*/false, /*transposeRhs=*/true,
                              TypeAttr());
}

Value ModelBuilder::heads(Value x, const Twine &name, int64_t count,
                          int64_t width) {
  Value projected = linear(x, name, count * width, model.initStd);
  return create<nn::SplitHeadsOp>(name, projected, count);
}

Value ModelBuilder::rotate(Value x, const Twine &name, int64_t stride) {
  if (model.ropeBase == 0)
    return x;
  return create<nn::RotaryOp>(name, x, rotaryTable(), stride,
                              /*inverse=*/false);
}

Value ModelBuilder::compress(Value x, const Twine &name) {
  const NsaConfig &nsa = config.nsa;
  int64_t width = cast<RankedTensorType>(x.getType()).getShape().back();
  SmallVector<Value> parameters;
  auto weight = [&](const Twine &parameterName, int64_t rows, double gain) {
    double std = gain / std::sqrt(static_cast<double>(rows));
    parameters.push_back(parameter(parameterName,
                                   {model.nKvGroups, rows, width},
                                   nn::InitKind::Normal, std, /*decay=*/true));
  };
  CompressionKind kind = *symbolizeCompressionKind(nsa.phi);
  // Random projections that keep the scale of a token.
  if (kind != CompressionKind::Mean)
    weight(name + ".weight", nsa.l * width, 1.0);
  // SiLU halves small values.
  if (kind == CompressionKind::Mlp)
    weight(name + ".output_weight", width, 2.0);
  if (nsa.phiPos)
    parameters.push_back(
        parameter(name + ".positions", {model.nKvGroups, nsa.l, width},
                  nn::InitKind::Normal, model.initStd, /*decay=*/false));
  return create<CompressOp>(name, kind, x, parameters, nsa.l, nsa.d);
}

Value ModelBuilder::window(Value query, KeyValue kv, const Twine &name,
                           int64_t width) {
  auto visibility = WindowAttr::get(context, width);
  return create<AttentionOp>(name, query, kv.key, kv.value, /*indices=*/Value(),
                             visibility, FloatAttr());
}

Value ModelBuilder::gates(Value logits, const std::string &name) {
  bool softmax = config.nsa.gate == "softmax";
  // The gates of a token sum to about 1 at the start.
  double bias = softmax ? 0.0 : -std::log(2.0);
  Value biases = vector(name + ".bias", model.nHeads * 3, bias);
  return create<nn::GateOp>(
      name, softmax ? nn::GateActivation::Softmax : nn::GateActivation::Sigmoid,
      logits, biases);
}

Value ModelBuilder::sparseAttention(Value x, const std::string &name) {
  const NsaConfig &nsa = config.nsa;
  // The projections become one product. First come those that are rotated as
  // they are, so that they are neighbours in it.
  Value query = this->query(x, name);
  KeyValue cmp, slc, win;
  slc.key = key(x, name + ".selected");
  win.key = key(x, name + ".window");
  cmp.key = key(x, name + ".compressed");
  cmp.value = value(x, name + ".compressed");
  slc.value = value(x, name + ".selected");
  win.value = value(x, name + ".window");
  Value logits = linear(x, name + ".gate", model.nHeads * 3, model.initStd);

  query = rotate(query, name + ".query");
  // Keys are compressed first and rotated as rows at position i * d.
  std::string place = name + ".compressed";
  cmp.key = rotate(compress(cmp.key, place + ".key_compression"),
                   place + ".key_compression", nsa.d);
  cmp.value = compress(cmp.value, place + ".value_compression");
  auto compressed = AttentionOp::create(
      builder, loc(place), query, cmp.key, cmp.value,
      /*indices=*/Value(), CompressedAttr::get(context, nsa.l, nsa.d), {});

  place = name + ".selected";
  Value indices = create<SelectOp>(place, query, cmp.key, compressed.getLse(),
                                   nsa.l, nsa.d, nsa.lSel, nsa.nSel,
                                   nsa.nInitial, nsa.nLocal, FloatAttr());
  statistics.emplace_back(place + ".statistics", create<SelectionStatisticsOp>(
                                                     place, indices, nsa.lSel));
  slc.key = rotate(slc.key, place + ".key");
  Value selected = create<AttentionOp>(
      place, query, slc.key, slc.value, indices,
      SelectedAttr::get(context, nsa.lSel, nsa.nSel, nsa.nInitial, nsa.nLocal),
      FloatAttr());
  win.key = rotate(win.key, name + ".window.key");
  Value local = window(query, win, name + ".window", nsa.w);
  place = name + ".gate";
  Value weights = gates(logits, place);
  statistics.emplace_back(place + ".statistics",
                          create<GateStatisticsOp>(place, weights));
  return create<CombineOp>(name + ".combine", weights,
                           ValueRange{compressed.getOutput(), selected, local});
}

/// Attention to tokens alone, of a window or of all so far.
Value ModelBuilder::tokenAttention(Value x, const std::string &name,
                                   const LayerKind &kind) {
  bool isDense = kind.attention == "dense";
  std::string place = isDense ? name : name + ".window";
  Value query = this->query(x, name);
  KeyValue kv = {key(x, place), value(x, place)};
  kv.key = rotate(kv.key, place + ".key");
  query = rotate(query, name + ".query");
  if (!isDense)
    return window(query, kv, place, kind.window);
  return create<AttentionOp>(place, query, kv.key, kv.value,
                             /*indices=*/Value(), CausalAttr::get(context),
                             FloatAttr());
}

Value ModelBuilder::attention(Value x, const std::string &name,
                              const LayerKind &kind) {
  Value mixed = kind.attention == "nsa" ? sparseAttention(x, name)
                                        : tokenAttention(x, name, kind);
  Value merged = create<nn::MergeHeadsOp>(name, mixed);
  return linear(merged, name + ".output", model.dim, residualStd());
}

Value ModelBuilder::feedForward(Value x, const std::string &name) {
  int64_t hidden = model.mlpDim ? model.mlpDim : 4 * model.dim;
  Value active;
  if (model.mlp == "swiglu") {
    Value gate = linear(x, name + ".gate", hidden, model.initStd);
    Value up = linear(x, name + ".up", hidden, model.initStd);
    active = create<nn::SwiGLUOp>(name, gate, up);
  } else {
    active = create<nn::SiluOp>(name,
                                linear(x, name + ".up", hidden, model.initStd));
  }
  return linear(active, name + ".down", model.dim, residualStd());
}

Value ModelBuilder::layer(Value x, int64_t index, const LayerKind &kind) {
  std::string name = "layers." + std::to_string(index);
  std::string part = name + ".attention";
  x = create<nn::AddOp>(part, x,
                        attention(norm(x, part + ".norm"), part, kind));
  part = name + ".mlp";
  return create<nn::AddOp>(part, x, feedForward(norm(x, part + ".norm"), part));
}

OwningOpRef<ModuleOp> ModelBuilder::build() {
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc("model"));
  (*module)->setAttr(nn::kConfigAttr,
                     builder.getStringAttr(printModelJson(config)));
  builder.setInsertionPointToEnd(module->getBody());
  function = func::FuncOp::create(builder, loc("model"), "model",
                                  builder.getFunctionType({}, {}));
  function->setAttr(nn::kTrainAttr, builder.getUnitAttr());
  builder.setInsertionPointToStart(function.addEntryBlock());

  Value tokens = input(training::tokensInput);
  Value targets = input(training::targetsInput);
  Value embedding =
      matrix("embedding.weight", model.vocabSize, model.dim, model.initStd);
  Value x = create<nn::EmbeddingOp>("embedding", embedding, tokens);
  Result<std::vector<LayerKind>> kinds = getLayerKinds(config);
  assert(kinds.ok() && "a configuration that was not validated");
  for (auto [index, kind] : llvm::enumerate(*kinds))
    x = layer(x, index, kind);
  Value logits =
      linear(norm(x, "norm"), "head", model.vocabSize, model.initStd);
  Value loss = create<nn::CrossEntropyOp>("loss", logits, targets);

  setResults(loss, logits);
  return module;
}

/// Returns loss, logits and statistics, by name.
void ModelBuilder::setResults(Value loss, Value logits) {
  SmallVector<Value> results = {loss, logits};
  for (auto &[name, value] : statistics)
    results.push_back(value);
  func::ReturnOp::create(builder, loc("model"), results);
  function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                           ValueRange(results).getTypes()));
  function.setResultAttr(0, nn::kNameAttr,
                         builder.getStringAttr(training::lossOutput));
  function.setResultAttr(1, nn::kNameAttr,
                         builder.getStringAttr(training::logitsOutput));
  for (auto [index, statistic] : llvm::enumerate(statistics)) {
    function.setResultAttr(2 + index, nn::kNameAttr,
                           builder.getStringAttr(statistic.first));
    function.setResultAttr(2 + index, nn::kStatisticAttr,
                           builder.getUnitAttr());
  }
}

OwningOpRef<ModuleOp> nsa::buildModel(MLIRContext *context,
                                      const RunConfig &config) {
  return ModelBuilder(context, config).build();
}

int64_t nsa::countParameters(ModuleOp module) {
  int64_t count = 0;
  module.walk([&](func::FuncOp function) {
    for (BlockArgument argument : function.getArguments()) {
      auto role = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                        nn::kRoleAttr);
      if (role && role == "parameter")
        count += cast<RankedTensorType>(argument.getType()).getNumElements();
    }
  });
  return count;
}
