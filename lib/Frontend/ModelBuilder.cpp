//===- ModelBuilder.cpp - a configuration to a decoder --------------------===//

#include "lib/Frontend/ModelBuilder.h"

#include "dialects/NN/NNActivations.h"
#include "dialects/NN/NNAttributes.h"
#include "dialects/NN/NNModuleOps.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "lib/Support/LayerKinds.h"
#include "nsa/Artifact/TrainingContract.h"
#include "llvm/Support/SaveAndRestore.h"

#include <cmath>

using namespace mlir;
using namespace nsa;

namespace {

/// Keys or values of the three branches, or of the window alone.
struct KeyValue {
  Value key, value;
};

/// The layers of one kind.
struct Kind {
  LayerKind attention;
  /// "nsa", "window_256".
  std::string name;
  SmallVector<int64_t> layers;
  /// Where the parameters of its attention are that other kinds do not have.
  nn::ScopeOp scope;
  /// The function of its attention.
  nn::FunctionOp function;
};

/// Writes the functions of a model. Parameters are declared where they are used
/// first: those that all layers have in the scope @layers, those of one of
/// several kinds in a scope of that kind.
class ModelBuilder {
public:
  ModelBuilder(MLIRContext *context, const RunConfig &config)
      : config(config), model(config.model), context(context), builder(context),
        loc(builder.getUnknownLoc()) {}

  OwningOpRef<ModuleOp> build(StringRef name);

private:
  // Declarations.
  SymbolRefAttr declare(StringRef name, ArrayRef<int64_t> shape,
                        nn::InitAttr init, bool decay = false,
                        bool frozen = false, ArrayRef<StringRef> dims = {});
  nn::InitAttr initial(nn::InitKind kind, double value) {
    return nn::InitAttr::get(context, kind, value);
  }
  SymbolRefAttr matrix(StringRef name, int64_t rows, int64_t columns,
                       double std) {
    nn::InitKind kind =
        std == 0.0 ? nn::InitKind::Constant : nn::InitKind::Normal;
    return declare(name, {rows, columns}, initial(kind, std), /*decay=*/true);
  }
  SymbolRefAttr vector(StringRef name, int64_t size, double value) {
    return declare(name, {size}, initial(nn::InitKind::Constant, value));
  }
  SymbolRefAttr rotaryTable();
  nn::RotaryAttr rotaryAttr();
  nn::FunctionOp function(StringRef name, ArrayRef<StringRef> argNames,
                          ArrayRef<Type> inputs);
  void finish(nn::FunctionOp function, ValueRange results);

  // Parts of the decoder; names are those of parameters.
  Value norm(Value x, const Twine &name);
  Value linear(Value x, const Twine &name, int64_t out, double std,
               int64_t heads = 0);
  Value project(Value x, const Twine &name, int64_t heads, int64_t width);
  Value key(Value x, StringRef branch) {
    return project(x, "attention." + branch + "key", model.nKvGroups, model.dK);
  }
  Value value(Value x, StringRef branch) {
    return project(x, "attention." + branch + "value", model.nKvGroups,
                   model.dV);
  }
  Value rotate(Value x, int64_t stride = 1);
  /// An attribute that is not there where the key is 0.
  FloatAttr ifSet(double number) {
    return number == 0 ? FloatAttr() : builder.getF64FloatAttr(number);
  }
  FloatAttr scale() { return ifSet(model.attentionScale); }
  FloatAttr softcap() { return ifSet(model.attentionSoftcap); }
  bool hasNormBefore() const { return model.norms != "after"; }
  Value normAfter(Value x, const Twine &name) {
    return model.norms == "before" ? x : norm(x, name);
  }
  RankedTensorType idsType() {
    return RankedTensorType::get({config.train.microBatch, config.train.seqLen},
                                 builder.getI32Type());
  }
  Value normHeads(Value x, const Twine &name);
  KeyValue project(Value x, StringRef branch);
  Value activate(Value x);
  Value compress(Value x, const Twine &name);
  nsa::AttentionOp attend(Value query, KeyValue kv,
                          VisibilityAttrInterface visibility,
                          Value indices = {});
  Value tokenAttention(Value query, Value x, const LayerKind &kind);
  Value sparseAttention(Value query, Value x);
  Value gates(Value logits);
  void attention(Kind &kind);
  void feedForward();
  Value repeat(Value x, const Kind &kind, int64_t begin, int64_t end);
  void train();
  void findKinds();
  nn::ScopeOp makeScope(StringRef name, ArrayRef<int64_t> layers);

  template <typename OpTy, typename... Args>
  Value create(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...)
        ->getResult(0);
  }
  RankedTensorType tensor(ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, builder.getF32Type());
  }
  RankedTensorType stream() {
    return tensor({config.train.microBatch, config.train.seqLen, model.dim});
  }
  void log(StringRef name, Value value) {
    nn::LogOp::create(builder, loc, name, value);
  }
  /// Of the projections to the residual stream; 0 is no random start.
  double residualStd() const {
    if (model.zeroInitOutput)
      return 0.0;
    return model.initStd / std::sqrt(2.0 * static_cast<double>(model.nLayers));
  }

  const RunConfig &config;
  const ModelConfig &model;
  MLIRContext *context;
  OpBuilder builder;
  Location loc;
  nn::ModelOp root;
  nn::ScopeOp layers;
  SmallVector<Kind> kinds;
  /// The kind of each layer, in `kinds`.
  SmallVector<size_t> kindOfLayer;
  /// In the function that is being written, where the document of each token
  /// begins; null where documents see each other.
  Value start;
  /// Where the parameters of the part that is being written are declared; null
  /// for those of the module.
  nn::ScopeOp scope;
  /// The attention of the layer that is being written.
  LayerKind layerKind;
};

} // namespace

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

SymbolRefAttr ModelBuilder::declare(StringRef name, ArrayRef<int64_t> shape,
                                    nn::InitAttr init, bool decay, bool frozen,
                                    ArrayRef<StringRef> dims) {
  OpBuilder::InsertionGuard guard(builder);
  auto symbol = FlatSymbolRefAttr::get(context, name);
  Operation *table = scope ? scope.getOperation() : root.getOperation();
  if (scope)
    builder.setInsertionPointToEnd(&scope.getBody().front());
  else
    builder.setInsertionPoint(layers);
  // Functions share what all layers have.
  if (!SymbolTable::lookupSymbolIn(table, symbol))
    nn::ParameterOp::create(builder, loc, name, tensor(shape),
                            dims.empty() ? ArrayAttr()
                                         : builder.getStrArrayAttr(dims),
                            init, decay, frozen, /*optimizer=*/StringAttr());
  if (!scope)
    return symbol;
  return SymbolRefAttr::get(context, scope.getSymName(), {symbol});
}

/// The scaling of the layer's rotary embedding; null if there is none.
nn::RotaryAttr ModelBuilder::rotaryAttr() {
  bool isOwn = layerKind.attention == "window" && model.windowRopeBase != 0;
  StringRef scaling = isOwn ? "none" : StringRef(model.ropeScaling);
  if (model.ropeDim == 0 && scaling == "none")
    return {};
  return nn::RotaryAttr::get(
      context, model.ropeDim, *nn::symbolizeRotaryScaling(scaling),
      scaling == "none" ? FloatAttr()
                        : builder.getF64FloatAttr(model.ropeFactor),
      isOwn ? 0 : model.ropeLength,
      scaling == "longrope"
          ? builder.getDenseF64ArrayAttr(*getRopeDivisors(model))
          : DenseF64ArrayAttr());
}

/// The angles of all positions, shared by every rotary embedding, or by those
/// of windows.
SymbolRefAttr ModelBuilder::rotaryTable() {
  llvm::SaveAndRestore<nn::ScopeOp> outside(scope, {});
  bool isOwn = layerKind.attention == "window" && model.windowRopeBase != 0;
  auto init = nn::InitAttr::get(context, nn::InitKind::Rotary,
                                isOwn ? model.windowRopeBase : model.ropeBase,
                                rotaryAttr());
  return declare(isOwn ? "window_rotary" : "rotary",
                 {config.train.seqLen, model.dK / 2, 2}, init,
                 /*decay=*/false, /*frozen=*/true, {nn::kSequenceDim, "", ""});
}

/// Begins a function; what follows is written into it.
nn::FunctionOp ModelBuilder::function(StringRef name,
                                      ArrayRef<StringRef> argNames,
                                      ArrayRef<Type> inputs) {
  builder.setInsertionPointToEnd(&root.getBody().front());
  auto op = nn::FunctionOp::create(
      builder, loc, name, builder.getFunctionType(inputs, {}),
      builder.getStrArrayAttr(argNames), /*arg_dims=*/ArrayAttr(),
      /*result_names=*/ArrayAttr(), /*train=*/false);
  Block &entry = op.getBody().emplaceBlock();
  entry.addArguments(inputs, SmallVector<Location>(inputs.size(), loc));
  builder.setInsertionPointToStart(&entry);
  return op;
}

void ModelBuilder::finish(nn::FunctionOp function, ValueRange results) {
  nn::ReturnOp::create(builder, loc, results);
  function.setFunctionType(builder.getFunctionType(
      function.getFunctionType().getInputs(), results.getTypes()));
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

Value ModelBuilder::norm(Value x, const Twine &name) {
  int64_t width = cast<RankedTensorType>(x.getType()).getShape().back();
  SymbolRefAttr weight =
      vector((name + ".weight").str(), width, model.normPlusOne ? 0.0 : 1.0);
  return create<nn::NormOp>(x.getType(), x, weight,
                            llvm::APFloat(model.normEps), model.normPlusOne);
}

Value ModelBuilder::linear(Value x, const Twine &name, int64_t out, double std,
                           int64_t heads) {
  auto type = cast<RankedTensorType>(x.getType());
  SymbolRefAttr weight =
      matrix((name + ".weight").str(), out, type.getShape().back(), std);
  SmallVector<int64_t> shape(type.getShape().drop_back());
  if (heads)
    llvm::append_values(shape, heads, out / heads);
  else
    shape.push_back(out);
  return create<nn::LinearOp>(tensor(shape), x, weight,
                              heads ? builder.getI64IntegerAttr(heads)
                                    : IntegerAttr());
}

/// The projection to heads of queries, keys or values.
Value ModelBuilder::project(Value x, const Twine &name, int64_t heads,
                            int64_t width) {
  if (!model.qkvBias)
    return linear(x, name, heads * width, model.initStd, heads);
  Value y = linear(x, name, heads * width, model.initStd);
  SymbolRefAttr symbol = vector((name + ".bias").str(), heads * width, 0.0);
  Value bias = create<nn::GetOp>(tensor({heads * width}), symbol);
  return create<nn::SplitHeadsOp>(create<nn::AddBiasOp>(y, bias), heads);
}

/// The keys of one branch, or of all that share them, and its values.
KeyValue ModelBuilder::project(Value x, StringRef branch) {
  KeyValue kv = {key(x, branch), value(x, branch)};
  kv.key = normHeads(kv.key, branch + "key_norm");
  return kv;
}

/// Norms of heads [B, T, H, D], each alone or all at once.
Value ModelBuilder::normHeads(Value x, const Twine &name) {
  if (!model.qkNorm)
    return x;
  std::string path = ("attention." + name).str();
  if (!model.qkNormJoint)
    return norm(x, path);
  Value joint = norm(create<nn::MergeHeadsOp>(x), path);
  int64_t heads = cast<RankedTensorType>(x.getType()).getDimSize(2);
  return create<nn::SplitHeadsOp>(joint, heads);
}

Value ModelBuilder::rotate(Value x, int64_t stride) {
  if (model.ropeBase == 0 || !layerKind.isRotated)
    return x;
  if (start) {
    SymbolRefAttr symbol = rotaryTable();
    Value table = create<nn::GetOp>(
        tensor({config.train.seqLen, model.dK / 2, 2}), symbol);
    return create<nn::RotaryOp>(x, table, start, /*at=*/Value(), stride,
                                /*inverse=*/false);
  }
  return create<nn::RopeOp>(x.getType(), x, rotaryTable(),
                            stride == 1 ? IntegerAttr()
                                        : builder.getI64IntegerAttr(stride));
}

Value ModelBuilder::compress(Value x, const Twine &name) {
  const NsaConfig &nsa = config.nsa;
  int64_t width = cast<RankedTensorType>(x.getType()).getShape().back();
  SmallVector<Value> parameters;
  auto add = [&](const Twine &part, int64_t rows, double std, bool decay) {
    SymbolRefAttr symbol =
        declare((name + part).str(), {model.nKvGroups, rows, width},
                initial(nn::InitKind::Normal, std), decay);
    parameters.push_back(
        create<nn::GetOp>(tensor({model.nKvGroups, rows, width}), symbol));
  };
  auto weight = [&](const Twine &part, int64_t rows, double gain) {
    add(part, rows, gain / std::sqrt(static_cast<double>(rows)),
        /*decay=*/true);
  };
  CompressionKind kind = *symbolizeCompressionKind(nsa.phi);
  // Random projections that keep the scale of a token.
  if (kind != CompressionKind::Mean)
    weight(".weight", nsa.l * width, 1.0);
  // SiLU halves small values.
  if (kind == CompressionKind::Mlp)
    weight(".output_weight", width, 2.0);
  if (nsa.phiPos)
    add(".positions", nsa.l, model.initStd, /*decay=*/false);
  return create<CompressOp>(kind, x, parameters, start,
                            CompressedAttr::get(context, nsa.l, nsa.d));
}

nsa::AttentionOp ModelBuilder::attend(Value query, KeyValue kv,
                                      VisibilityAttrInterface visibility,
                                      Value indices) {
  return AttentionOp::create(builder, loc, query, kv.key, kv.value, indices,
                             start, /*at=*/Value(), visibility, scale(),
                             softcap());
}

Value ModelBuilder::gates(Value logits) {
  bool softmax = config.nsa.gate == "softmax";
  // The gates of a token sum to about 1 at the start.
  double bias = softmax ? 0.0 : -std::log(2.0);
  SymbolRefAttr biases = vector("attention.gate.bias", model.nHeads * 3, bias);
  ArrayRef<int64_t> shape = cast<RankedTensorType>(logits.getType()).getShape();
  return create<nn::GatesOp>(tensor({shape[0], shape[1], model.nHeads, 3}),
                             softmax ? nn::GateActivation::Softmax
                                     : nn::GateActivation::Sigmoid,
                             logits, biases);
}

Value ModelBuilder::sparseAttention(Value query, Value x) {
  const NsaConfig &nsa = config.nsa;
  KeyValue cmp, slc, win;
  if (nsa.sharedKv) {
    cmp = slc = win = project(x, "");
  } else {
    // The projections become one matmul. First come those that are rotated as
    // they are, so that they are neighbours in it.
    slc.key = key(x, "selected.");
    win.key = key(x, "window.");
    cmp.key = key(x, "compressed.");
    cmp.value = value(x, "compressed.");
    slc.value = value(x, "selected.");
    win.value = value(x, "window.");
    cmp.key = normHeads(cmp.key, "compressed.key_norm");
    slc.key = normHeads(slc.key, "selected.key_norm");
    win.key = normHeads(win.key, "window.key_norm");
  }
  Value logits = linear(x, "attention.gate", model.nHeads * 3, model.initStd);

  query = rotate(query);
  // Keys are compressed first and rotated as rows at position i * d.
  cmp.key =
      rotate(compress(cmp.key, "attention.compressed.key_compression"), nsa.d);
  cmp.value = compress(cmp.value, "attention.compressed.value_compression");
  auto blocks = CompressedAttr::get(context, nsa.l, nsa.d);
  auto selection =
      SelectedAttr::get(context, nsa.lSel, nsa.nSel, nsa.nInitial, nsa.nLocal);
  AttentionOp compressed = attend(query, cmp, blocks);
  Value indices =
      create<SelectOp>(query, cmp.key, compressed.getLse(), start,
                       /*at=*/Value(), blocks, selection, scale(), softcap());
  log("attention.selected.statistics",
      create<SelectionStatisticsOp>(indices, start, /*at=*/Value(), nsa.lSel));
  slc.key = rotate(slc.key);
  AttentionOp selected = attend(query, slc, selection, indices);
  win.key = rotate(win.key);
  AttentionOp local = attend(query, win, WindowAttr::get(context, nsa.w));
  Value weights = gates(logits);
  log("attention.gate.statistics", create<GateStatisticsOp>(weights));
  return create<CombineOp>(weights,
                           ValueRange{compressed.getOutput(),
                                      selected.getOutput(), local.getOutput()});
}

/// Attention to tokens alone, of a window or of all so far.
Value ModelBuilder::tokenAttention(Value query, Value x,
                                   const LayerKind &kind) {
  bool isDense = kind.attention == "dense";
  StringRef branch = isDense ? "" : "window.";
  KeyValue kv = project(x, branch);
  kv.key = rotate(kv.key);
  query = rotate(query);
  if (isDense)
    return attend(query, kv, CausalAttr::get(context)).getOutput();
  return attend(query, kv, WindowAttr::get(context, kind.window)).getOutput();
}

void ModelBuilder::attention(Kind &kind) {
  std::string name = "attention";
  if (kinds.size() > 1)
    name += "." + kind.name;
  SmallVector<StringRef> names = {"x"};
  SmallVector<Type> types = {stream()};
  if (config.data.isolateDocuments) {
    names.push_back(training::startInput);
    types.push_back(idsType());
  }
  kind.function = function(name, names, types);
  Value x = builder.getBlock()->getArgument(0);
  if (config.data.isolateDocuments)
    start = builder.getBlock()->getArgument(1);
  scope = layers;
  layerKind = kind.attention;
  Value normed = hasNormBefore() ? norm(x, "attention.norm") : x;
  Value query = project(normed, "attention.query", model.nHeads, model.dK);
  query = normHeads(query, "query_norm");
  scope = kind.scope;
  Value mixed = kind.attention.attention == "nsa"
                    ? sparseAttention(query, normed)
                    : tokenAttention(query, normed, kind.attention);
  scope = layers;
  Value merged = create<nn::MergeHeadsOp>(mixed);
  Value output = linear(merged, "attention.output", model.dim, residualStd());
  output = normAfter(output, "attention.output_norm");
  finish(kind.function, create<nn::AddOp>(x, output));
}

/// The activation of a feed-forward layer without a gate.
Value ModelBuilder::activate(Value x) {
  if (model.mlp == "gelu")
    return create<nn::GeluOp>(x);
  if (model.mlp == "relu2")
    return create<nn::SquaredReluOp>(x);
  return create<nn::SiluOp>(x);
}

void ModelBuilder::feedForward() {
  nn::FunctionOp op = function("mlp", {"x"}, {stream()});
  Value x = builder.getBlock()->getArgument(0);
  Value normed = hasNormBefore() ? norm(x, "mlp.norm") : x;
  int64_t hidden = model.mlpDim ? model.mlpDim : 4 * model.dim;
  Value active;
  if (model.mlp == "swiglu" || model.mlp == "geglu") {
    Value gate = linear(normed, "mlp.gate", hidden, model.initStd);
    Value up = linear(normed, "mlp.up", hidden, model.initStd);
    active = model.mlp == "swiglu" ? create<nn::SwiGLUOp>(gate, up)
                                   : create<nn::GeGLUOp>(gate, up);
  } else {
    active = activate(linear(normed, "mlp.up", hidden, model.initStd));
  }
  Value output = linear(active, "mlp.down", model.dim, residualStd());
  output = normAfter(output, "mlp.output_norm");
  finish(op, create<nn::AddOp>(x, output));
}

/// The layers from `begin` to `end`, which are of one kind.
Value ModelBuilder::repeat(Value x, const Kind &kind, int64_t begin,
                           int64_t end) {
  OpBuilder::InsertionGuard guard(builder);
  SmallVector<Attribute> scopes = {FlatSymbolRefAttr::get(layers)};
  DenseI64ArrayAttr indices;
  if (kinds.size() > 1) {
    nn::ScopeOp own = kind.scope;
    scopes.insert(scopes.begin(), FlatSymbolRefAttr::get(own));
    indices =
        builder.getDenseI64ArrayAttr(llvm::to_vector(llvm::seq(begin, end)));
  }
  auto op = nn::RepeatOp::create(builder, loc, x.getType(),
                                 builder.getArrayAttr(scopes),
                                 builder.getStrArrayAttr({"h"}), indices, x);
  Block &body = op.getBody().emplaceBlock();
  Value h = body.addArgument(x.getType(), loc);
  builder.setInsertionPointToStart(&body);
  nn::FunctionOp attention = kind.function;
  SmallVector<Value> inputs = {h};
  if (start)
    inputs.push_back(start);
  h = nn::CallOp::create(builder, loc, h.getType(), attention.getSymName(),
                         inputs)
          .getResult(0);
  h = nn::CallOp::create(builder, loc, h.getType(), "mlp", h).getResult(0);
  nn::NextOp::create(builder, loc, h);
  return op.getResult(0);
}

/// The function from tokens to the loss.
void ModelBuilder::train() {
  SmallVector<StringRef> names = {training::tokensInput,
                                  training::targetsInput};
  if (config.data.isolateDocuments)
    names.push_back(training::startInput);
  nn::FunctionOp op =
      function("model", names, SmallVector<Type>(names.size(), idsType()));
  ArrayAttr dims = builder.getStrArrayAttr({nn::kBatchDim, nn::kSequenceDim});
  op.setArgDimsAttr(
      builder.getArrayAttr(SmallVector<Attribute>(names.size(), dims)));
  op.setTrain(true);
  op.setResultNamesAttr(
      builder.getStrArrayAttr({training::lossOutput, training::logitsOutput}));
  Block &entry = *builder.getBlock();
  start = config.data.isolateDocuments ? entry.getArgument(2) : Value();
  scope = {};
  Value x = create<nn::EmbedOp>(
      stream(), entry.getArgument(0),
      matrix("embedding.weight", model.vocabSize, model.dim, model.initStd));
  if (model.embeddingScale != 1)
    x = create<nn::ScaleOp>(x, llvm::APFloat(model.embeddingScale));
  auto numLayers = static_cast<int64_t>(kindOfLayer.size());
  for (int64_t begin = 0, end; begin < numLayers; begin = end) {
    for (end = begin + 1;
         end < numLayers && kindOfLayer[end] == kindOfLayer[begin]; ++end)
      ;
    x = repeat(x, kinds[kindOfLayer[begin]], begin, end);
  }
  Value logits =
      linear(norm(x, "norm"), model.tiedEmbeddings ? "embedding" : "head",
             model.vocabSize, model.initStd);
  if (model.logitSoftcap != 0)
    logits = create<nn::SoftcapOp>(logits, llvm::APFloat(model.logitSoftcap));
  Value loss = create<nn::CrossEntropyOp>(logits, entry.getArgument(1));
  finish(op, {loss, logits});
}

void ModelBuilder::findKinds() {
  Result<std::vector<LayerKind>> list = getLayerKinds(config);
  assert(list.ok() && "a configuration that was not validated");
  for (auto [index, layer] : llvm::enumerate(*list)) {
    std::string name = layer.attention;
    if (name == "window")
      name += "_" + std::to_string(layer.window);
    if (!layer.isRotated)
      name += "_nope";
    auto *kind = llvm::find_if(
        kinds, [&](const Kind &other) { return other.name == name; });
    if (kind == kinds.end()) {
      kinds.push_back({layer, name, {}, {}, {}});
      kind = &kinds.back();
    }
    kind->layers.push_back(static_cast<int64_t>(index));
    kindOfLayer.push_back(static_cast<size_t>(kind - kinds.begin()));
  }
}

nn::ScopeOp ModelBuilder::makeScope(StringRef name, ArrayRef<int64_t> indices) {
  constexpr StringRef prefix = "layers";
  auto op = nn::ScopeOp::create(builder, loc, name, indices,
                                name == prefix ? StringAttr()
                                               : builder.getStringAttr(prefix));
  op.getBody().emplaceBlock();
  return op;
}

OwningOpRef<ModuleOp> ModelBuilder::build(StringRef name) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  StringRef precision = config.runtime.precision;
  root = nn::ModelOp::create(
      builder, loc, name,
      precision == "fp32" ? StringAttr() : builder.getStringAttr(precision),
      getModelConfig(context, config));
  builder.setInsertionPointToEnd(&root.getBody().emplaceBlock());
  findKinds();
  layers = makeScope("layers",
                     llvm::to_vector(llvm::seq<int64_t>(0, model.nLayers)));
  for (Kind &kind : kinds)
    kind.scope = kinds.size() == 1 ? layers : makeScope(kind.name, kind.layers);
  for (Kind &kind : kinds)
    attention(kind);
  feedForward();
  train();
  return module;
}

OwningOpRef<ModuleOp> nsa::buildModel(MLIRContext *context,
                                      const RunConfig &config, StringRef name) {
  return ModelBuilder(context, config).build(name);
}
