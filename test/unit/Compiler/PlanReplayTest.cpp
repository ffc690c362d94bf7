//===- PlanReplayTest.cpp - planned programs compute what they should -----===//
//
// Random programs on tensors are evaluated symbolically as they are generated,
// then turned into planned commands, which are replayed on symbolic memory: a
// word of memory is a hash of everything that it depends on. A buffer that is
// reused or updated in place too early shows as a wrong word.
//
//===----------------------------------------------------------------------===//

#include "dialects/RT/RTOps.h"
#include "lib/Compiler/Registration.h"
#include "passes/Conversion/TensorToRT/Passes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

#include "gtest/gtest.h"
#include <map>
#include <random>

using namespace mlir;
using namespace nsa;

namespace {

using Words = std::vector<uint64_t>;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

uint64_t hashText(llvm::StringRef text) {
  uint64_t hash = 0;
  for (char c : text)
    hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

Words makeWords(llvm::StringRef text, size_t count) {
  Words words(count);
  for (size_t i = 0; i < count; ++i)
    words[i] = mix(hashText(text), i);
  return words;
}

/// Word `element` of output `output` of an operation that reads `inputs`. An
/// elementwise one depends on its own element only.
uint64_t computeWord(llvm::StringRef name, size_t output, size_t element,
                     llvm::ArrayRef<llvm::ArrayRef<uint64_t>> inputs) {
  uint64_t hash = mix(mix(hashText(name), output), element);
  bool elementwise = name.starts_with("map");
  for (llvm::ArrayRef<uint64_t> input : inputs) {
    if (elementwise)
      hash = mix(hash, input[element]);
    else
      for (uint64_t word : input)
        hash = mix(hash, word);
  }
  return hash;
}

uint64_t fillWord(double value) { return mix(hashText("fill"), value); }

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

/// Four shapes: 4x4 and 8x4 matrices, and halves of their columns.
unsigned halfOf(unsigned shape) { return shape + 2; }
int rowsOf(unsigned shape) { return shape % 2 ? 8 : 4; }
int columnsOf(unsigned shape) { return shape < 2 ? 4 : 2; }
size_t wordsOf(unsigned shape) { return rowsOf(shape) * columnsOf(shape); }
std::string shapeText(unsigned shape, const char *container) {
  return llvm::formatv("{0}<1x{1}x{2}xf32>", container, rowsOf(shape),
                       columnsOf(shape));
}

/// "map" kernels load and store the same elements, "all" kernels read other
/// elements than they write.
std::string kernelText(llvm::StringRef kind, unsigned shape, unsigned inputs,
                       unsigned outputs) {
  std::string type = shapeText(shape, "memref"), text;
  llvm::raw_string_ostream os(text);
  std::string rows = llvm::formatv("!tile.tile<{0}x1xi32>", rowsOf(shape));
  std::string columns =
      llvm::formatv("!tile.tile<1x{0}xi32>", columnsOf(shape));
  std::string value =
      llvm::formatv("!tile.tile<{0}x{1}xf32>", rowsOf(shape), columnsOf(shape));
  os << "tile.kernel private @" << kind << shape << inputs << outputs << "(";
  for (unsigned i = 0; i < inputs + outputs; ++i)
    os << (i ? ", " : "") << "%a" << i << ": " << type;
  os << ") attributes {grid = array<i32: 1, 1, 1>, num_outputs = " << outputs
     << " : i32} {\n  %c0 = arith.constant 0 : i32\n"
     << "  %r = tile.range %c0 : " << rows << "\n"
     << "  %c = tile.range %c0 : " << columns << "\n"
     << "  %other = tile.range %c0 {step = -1 : i32} : " << columns << "\n";
  for (unsigned i = 0; i < inputs; ++i)
    os << "  %v" << i << " = tile.load %a" << i << "[%c0, %r, "
       << (kind == "map" ? "%c" : "%other") << "] : " << type << ", (i32, "
       << rows << ", " << columns << ") -> " << value << "\n";
  for (unsigned i = 0; i < outputs; ++i)
    os << "  tile.store %v0, %a" << inputs + i << "[%c0, %r, %c] : " << value
       << ", " << type << ", (i32, " << rows << ", " << columns << ")\n";
  os << "  tile.return\n}\n";
  return text;
}

struct TensorValue {
  std::string name;
  unsigned shape;
  Words words;
};

/// A random program with what it must leave in each named tensor.
class RandomProgram {
public:
  explicit RandomProgram(uint32_t seed) : random(seed) { generate(); }

  std::string text;
  std::map<std::string, Words> before, after;

private:
  unsigned pick(unsigned count) { return random() % count; }

  const TensorValue &pickValue(unsigned shape) {
    std::vector<const TensorValue *> candidates;
    for (const TensorValue &value : values)
      if (value.shape == shape)
        candidates.push_back(&value);
    // Mostly recent values, so that others die early.
    size_t reach =
        pick(3) ? std::min<size_t>(4, candidates.size()) : candidates.size();
    return *candidates[candidates.size() - 1 - pick(reach)];
  }

  std::string newName() { return "%" + std::to_string(numNames++); }

  void addArguments(llvm::raw_ostream &os) {
    for (unsigned i = 0; i < 8; ++i) {
      std::string name = (i < 4 ? "s" : "x") + std::to_string(i);
      unsigned shape = i < 6 ? i % 2 : halfOf(i % 2);
      Words words = makeWords(name, wordsOf(shape));
      values.push_back({"%" + name, shape, words});
      before[name] = words;
      if (i < 4)
        after[name] = words;
      os << (i ? ", " : "") << "%" << name << ": " << shapeText(shape, "tensor")
         << " {nn.name = \"" << name << "\", nn.role = \""
         << (i < 4 ? "state" : "input") << "\"}";
    }
  }

  void addLaunch(llvm::raw_ostream &os) {
    unsigned shape = pick(4), inputs = 1 + pick(3), outputs = 1 + pick(2);
    const char *kind = pick(3) ? "map" : "all";
    std::string kernel =
        llvm::formatv("{0}{1}{2}{3}", kind, shape, inputs, outputs);
    std::vector<Words> words;
    std::string operands;
    for (unsigned i = 0; i < inputs; ++i) {
      const TensorValue &value = pickValue(shape);
      words.push_back(value.words);
      operands += (i ? ", " : "") + value.name;
    }
    llvm::SmallVector<llvm::ArrayRef<uint64_t>> views(words.begin(),
                                                      words.end());
    std::string type = shapeText(shape, "tensor"), name = newName();
    os << "  " << name << ":" << outputs << " = tile.launch @" << kernel << "("
       << operands << ") : (";
    for (unsigned i = 0; i < inputs; ++i)
      os << (i ? ", " : "") << type;
    os << ") -> (";
    for (unsigned i = 0; i < outputs; ++i)
      os << (i ? ", " : "") << type;
    os << ")\n";
    for (unsigned i = 0; i < outputs; ++i) {
      Words result(wordsOf(shape));
      for (size_t e = 0; e < result.size(); ++e)
        result[e] = computeWord(kernel, i, e, views);
      values.push_back({name + "#" + std::to_string(i), shape, result});
    }
  }

  void addMatmul(llvm::raw_ostream &os) {
    unsigned shape = pick(2);
    TensorValue lhs = pickValue(shape), rhs = pickValue(0);
    Words result(wordsOf(shape));
    for (size_t e = 0; e < result.size(); ++e)
      result[e] = computeWord("gemm", 0, e, {lhs.words, rhs.words});
    std::string type = shapeText(shape, "tensor"), name = newName();
    os << "  " << name << " = nn.matmul " << lhs.name << ", " << rhs.name
       << " : (" << type << ", " << shapeText(0, "tensor") << ") -> " << type
       << "\n";
    values.push_back({name, shape, result});
  }

  void addFill(llvm::raw_ostream &os) {
    unsigned shape = pick(4), value = pick(9);
    std::string name = newName();
    os << "  " << name << " = nn.fill " << value
       << ".0 : " << shapeText(shape, "tensor") << "\n";
    values.push_back({name, shape, Words(wordsOf(shape), fillWord(value))});
  }

  void addViews(llvm::raw_ostream &os) {
    unsigned shape = pick(2);
    TensorValue value = pickValue(shape);
    std::string type = shapeText(shape, "tensor"), split = newName();
    std::string heads = llvm::formatv("tensor<1x{0}x2x2xf32>", rowsOf(shape));
    os << "  " << split << " = nn.split_heads " << value.name
       << " {heads = 2 : i64} : (" << type << ") -> " << heads << "\n";
    value.name = newName();
    os << "  " << value.name << " = nn.merge_heads " << split << " : (" << heads
       << ") -> " << type << "\n";
    values.push_back(value);
  }

  void addSplit(llvm::raw_ostream &os) {
    unsigned shape = pick(2), half = halfOf(shape);
    TensorValue value = pickValue(shape);
    std::string type = shapeText(half, "tensor"), name = newName();
    os << "  " << name << ":2 = nn.split " << value.name
       << " {sizes = array<i64: 2, 2>} : (" << shapeText(shape, "tensor")
       << ") -> (" << type << ", " << type << ")\n";
    for (size_t part : {0, 1}) {
      Words words;
      for (size_t e = 0; e < wordsOf(half); ++e)
        words.push_back(value.words[e / 2 * 4 + part * 2 + e % 2]);
      values.push_back({name + "#" + std::to_string(part), half, words});
    }
  }

  void addConcat(llvm::raw_ostream &os) {
    unsigned shape = pick(2), half = halfOf(shape);
    TensorValue left = pickValue(half), right = pickValue(half);
    std::string type = shapeText(half, "tensor"), name = newName();
    os << "  " << name << " = nn.concat " << left.name << ", " << right.name
       << " : (" << type << ", " << type << ") -> "
       << shapeText(shape, "tensor") << "\n";
    Words words;
    for (size_t e = 0; e < wordsOf(shape); ++e)
      words.push_back((e % 4 < 2 ? left : right).words[e / 4 * 2 + e % 2]);
    values.push_back({name, shape, words});
  }

  void generate() {
    llvm::raw_string_ostream os(text);
    for (const char *kind : {"map", "all"})
      for (unsigned shape : {0, 1, 2, 3})
        for (unsigned inputs : {1, 2, 3})
          for (unsigned outputs : {1, 2})
            os << kernelText(kind, shape, inputs, outputs);
    std::string body, results, types, operands;
    llvm::raw_string_ostream bodyStream(body);
    os << "func.func @f(";
    addArguments(os);
    for (unsigned i = 0, count = 3 + pick(30); i < count; ++i)
      switch (pick(12)) {
      case 0:
        addMatmul(bodyStream);
        break;
      case 1:
        addFill(bodyStream);
        break;
      case 2:
        addViews(bodyStream);
        break;
      case 3:
      case 4:
        addSplit(bodyStream);
        break;
      case 5:
      case 6:
        addConcat(bodyStream);
        break;
      default:
        addLaunch(bodyStream);
      }
    auto addResult = [&](unsigned shape, const std::string &attributes) {
      const TensorValue &value = pickValue(shape);
      const char *comma = results.empty() ? "" : ", ";
      results += comma + shapeText(shape, "tensor") + " {" + attributes + "}";
      operands += comma + value.name;
      types += comma + shapeText(shape, "tensor");
      return value.words;
    };
    for (unsigned i = 0; i < 4; ++i)
      if (std::string name = "s" + std::to_string(i); pick(3))
        after[name] = addResult(i % 2, "nn.alias = \"" + name + "\"");
    for (unsigned i = 0, count = 1 + pick(4); i < count; ++i) {
      std::string name = "y" + std::to_string(i);
      after[name] = addResult(pick(4), "nn.name = \"" + name + "\"");
    }
    os << ")\n    -> (" << results << ") {\n"
       << body << "  return " << operands << " : " << types << "\n}\n";
  }

  std::mt19937 random;
  std::vector<TensorValue> values;
  unsigned numNames = 0;
};

//===----------------------------------------------------------------------===//
// Replay
//===----------------------------------------------------------------------===//

/// Memory of a planned program, one word for four bytes.
class Replay {
public:
  explicit Replay(ModuleOp module) {
    for (auto segment : module.getOps<rt::SegmentOp>())
      segments[segment.getSymName()] = Words(segment.getSize() / 4, 0xdead);
    for (auto tensor : module.getOps<rt::TensorOp>())
      tensors[tensor.getSymName()] = tensor;
  }

  MutableArrayRef<uint64_t> at(rt::SliceAttr slice) {
    MutableArrayRef<uint64_t> words = segments[slice.getSegment().getValue()];
    return words.slice(slice.getOffset() / 4, slice.getSize() / 4);
  }
  MutableArrayRef<uint64_t> at(llvm::StringRef tensor) {
    return at(*tensors[tensor].getSlice());
  }
  /// The words of a value in order, wherever they are.
  using Places = std::vector<uint64_t *>;
  Places at(Value value) {
    auto type = cast<MemRefType>(value.getType());
    RowLayout layout = *getRowLayout(type);
    uint64_t *first =
        atRoot(rt::getMemoryRoot(value)).data() + rt::getByteOffset(value) / 4;
    Places places;
    for (int64_t e = 0; e < type.getNumElements(); ++e)
      places.push_back(first + e / layout.width * layout.pitch +
                       e % layout.width);
    return places;
  }

  /// Runs one command word by word, so that what it overwrites while it reads
  /// is lost.
  void run(rt::CommandOpInterface command) {
    if (auto fill = dyn_cast<rt::FillOp>(*command)) {
      for (uint64_t *word : at(fill.getOut()))
        *word = fillWord(fill.getValue().convertToDouble());
    } else if (isa<rt::CollectiveStartOp, rt::CollectiveDoneOp>(*command)) {
      // The mean over one rank is what there was.
      return;
    } else if (auto copy = dyn_cast<rt::CopyOp>(*command)) {
      move(copy.getSource(), copy.getOut());
    } else if (auto gemm = dyn_cast<rt::GemmOp>(*command)) {
      std::vector<Places> inputs = {at(gemm.getLhs()), at(gemm.getRhs())};
      if (gemm.getAddend())
        inputs.push_back(at(gemm.getAddend()));
      compute("gemm", inputs, {at(gemm.getOut())});
    } else if (auto launch = dyn_cast<rt::LaunchOp>(*command)) {
      if (launch.getKernel().starts_with("copy_"))
        return move(launch.getInputs()[0], launch.getOutputs()[0]);
      std::vector<Places> inputs, outputs;
      for (Value input : launch.getInputs()) {
        inputs.push_back(at(input));
        numParts += isPart(input);
      }
      for (Value output : launch.getOutputs()) {
        outputs.push_back(at(output));
        bool isShared = llvm::is_contained(inputs, outputs.back());
        numShared += isShared;
        numParts += isPart(output);
        numSharedParts += isShared && isPart(output);
      }
      // The version of a kernel for other layouts computes the same.
      compute(launch.getKernel().split("_a").first, inputs, outputs);
    } else {
      ADD_FAILURE() << "unknown command";
    }
  }

  unsigned numShared = 0, numParts = 0, numSharedParts = 0;

private:
  static bool isPart(Value value) {
    return !cast<MemRefType>(value.getType()).getLayout().isIdentity();
  }

  MutableArrayRef<uint64_t> atRoot(Value root) {
    if (auto buffer = root.getDefiningOp<rt::BufferOp>())
      return at(*buffer.getSlice());
    if (auto view = root.getDefiningOp<rt::FlatViewOp>()) {
      auto first = cast<FlatSymbolRefAttr>(view.getTensors()[0]);
      rt::SliceAttr slice = *tensors[first.getValue()].getSlice();
      MutableArrayRef<uint64_t> words = segments[slice.getSegment().getValue()];
      return words.slice(slice.getOffset() / 4,
                         rt::getByteSize(view.getType()) / 4);
    }
    return at(root.getDefiningOp<rt::GetOp>().getTensor());
  }

  void move(Value source, Value target) {
    for (auto [from, to] : llvm::zip_equal(at(source), at(target)))
      *to = *from;
  }

  void compute(llvm::StringRef name, const std::vector<Places> &inputs,
               const std::vector<Places> &outputs) {
    for (size_t e = 0; e < outputs[0].size(); ++e) {
      std::vector<Words> read;
      for (const Places &input : inputs) {
        read.emplace_back();
        for (uint64_t *word : input)
          read.back().push_back(*word);
      }
      llvm::SmallVector<llvm::ArrayRef<uint64_t>> views(read.begin(),
                                                        read.end());
      Words words;
      for (size_t i = 0; i < outputs.size(); ++i)
        words.push_back(computeWord(name, i, e, views));
      for (auto [output, word] : llvm::zip_equal(outputs, words))
        *output[e] = word;
    }
  }

  std::map<llvm::StringRef, Words> segments;
  std::map<llvm::StringRef, rt::TensorOp> tensors;
};

class PlanReplay : public ::testing::Test {
protected:
  PlanReplay() {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.disableMultithreading();
  }

  OwningOpRef<ModuleOp> plan(const std::string &text) {
    auto module = parseSourceString<ModuleOp>(text, &context);
    if (!module)
      return {};
    PassManager manager(&context);
    manager.addPass(createBuffer());
    manager.addPass(createCanonicalizerPass());
    manager.addPass(createCSEPass());
    manager.addNestedPass<rt::EntryOp>(createSchedule());
    manager.addPass(createPlan());
    return succeeded(manager.run(*module)) ? std::move(module)
                                           : OwningOpRef<ModuleOp>();
  }

  MLIRContext context;
};

} // namespace

/// Lesson 21 in general: no value is lost before its last reader.
TEST_F(PlanReplay, NoBuffer_IsOverwrittenBeforeItsLastReader) {
  std::random_device entropy;
  unsigned numShared = 0, numParts = 0, numSharedParts = 0;
  for (int i = 0; i < 150; ++i) {
    uint32_t seed = entropy();
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed);
    OwningOpRef<ModuleOp> module = plan(program.text);
    ASSERT_TRUE(module) << program.text;
    Replay replay(*module);
    for (const auto &[name, words] : program.before)
      llvm::copy(words, replay.at(name).begin());
    auto entry = module->lookupSymbol<rt::EntryOp>("f");
    for (rt::CommandOpInterface command : rt::getCommands(entry))
      replay.run(command);
    for (const auto &[name, words] : program.after)
      ASSERT_TRUE(llvm::equal(replay.at(name), words))
          << "tensor " << name << " of\n"
          << program.text;
    numShared += replay.numShared;
    numParts += replay.numParts;
    numSharedParts += replay.numSharedParts;
  }
  EXPECT_GT(numShared, 0u) << "nothing was computed in place";
  EXPECT_GT(numParts, 0u) << "no kernel worked on parts";
  EXPECT_GT(numSharedParts, 0u) << "no part was updated in place";
}
