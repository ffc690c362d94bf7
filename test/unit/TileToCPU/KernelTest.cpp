//===- KernelTest.cpp - compiled kernels against their meaning ------------===//

#include "test/unit/TileToCPU/KernelTest.h"
#include "dialects/Interfaces/RowLayout.h"
#include "lib/Support/Float16.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"
#include "test/unit/TileToCPU/Interpreter.h"
#include "llvm/Support/Alignment.h"
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace nsa;
using namespace nsa::test;

namespace {
/// An argument's memory between two guard zones, and between its rows.
class Memory {
public:
  Memory(MemRefType type, ArrayRef<double> elements)
      : type(type.getElementType()), count(elements.size()),
        layout(*getRowLayout(type)), span(getElementSpan(type)),
        bytes(span * size() + 2 * guard + 64, fill) {
    auto address = reinterpret_cast<uintptr_t>(bytes.data()) + guard;
    base = bytes.data() + guard +
           llvm::offsetToAlignment(address, llvm::Align(64));
    for (size_t i = 0; i < count; ++i)
      write(i, elements[i]);
  }

  char *data() { return base; }
  /// From the first element to behind the last one.
  uint64_t spanBytes() const { return span * size(); }

  double read(size_t i) const {
    uint32_t bits = 0;
    std::memcpy(&bits, base + place(i), size());
    if (type.isInteger(32))
      return static_cast<int32_t>(bits);
    if (type.isBF16())
      bits <<= 16;
    if (type.isF16())
      return f16ToFloat(static_cast<uint16_t>(bits));
    float number;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }

  bool isGuardIntact() const {
    auto isFill = [](char c) { return c == fill; };
    const char *begin = bytes.data(), *first = base;
    const char *end = begin + bytes.size();
    bool intact = std::all_of(begin, first, isFill) &&
                  std::all_of(first + span * size(), end, isFill);
    // Behind each row but the last one.
    for (size_t i = layout.width; i < count; i += layout.width)
      intact &=
          std::all_of(first + place(i - 1) + size(), first + place(i), isFill);
    return intact;
  }

private:
  static constexpr size_t guard = 256;
  static constexpr char fill = 0x5a;

  size_t size() const { return type.getIntOrFloatBitWidth() / 8; }
  /// Of element `i`, in bytes.
  size_t place(size_t i) const {
    return layout.width == 0
               ? 0
               : (i / layout.width * layout.pitch + i % layout.width) * size();
  }
  void write(size_t i, double element) {
    float number = static_cast<float>(element);
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    if (type.isInteger(32))
      bits = static_cast<uint32_t>(static_cast<int32_t>(element));
    if (type.isBF16())
      bits >>= 16;
    if (type.isF16())
      bits = floatToF16(number);
    std::memcpy(base + place(i), &bits, size());
  }

  Type type;
  size_t count;
  RowLayout layout;
  size_t span;
  std::vector<char> bytes;
  char *base;
};
} // namespace

KernelTest::KernelTest() {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect,
                  tile::TileDialect>();
  registerTargetDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
}

static MemRefType parseType(MLIRContext *context, const std::string &text) {
  auto [dense, pitch] = StringRef(text).split('/');
  SmallVector<StringRef> parts;
  dense.split(parts, 'x');
  SmallVector<int64_t> shape;
  for (StringRef part : ArrayRef(parts).drop_back())
    shape.push_back(std::stoll(part.str()));
  StringRef element = parts.back();
  Builder builder(context);
  Type type = element == "f32"    ? Type(builder.getF32Type())
              : element == "bf16" ? Type(builder.getBF16Type())
              : element == "f16"  ? Type(builder.getF16Type())
                                  : builder.getI32Type();
  if (pitch.empty())
    return MemRefType::get(shape, type);
  return getRowsType(shape, type, {shape.back(), std::stoll(pitch.str())});
}

static std::vector<double> makeData(MemRefType type, std::mt19937 &random) {
  std::vector<double> data(type.getNumElements());
  for (double &element : data) {
    double fraction = static_cast<double>(random() % (1 << 20)) / (1 << 20);
    element = static_cast<float>(2 * fraction - 1);
    if (type.getElementType().isInteger(32))
      element = std::floor(fraction * 199) - 99;
    if (isa<FloatType>(type.getElementType()))
      element = roundTo(type.getElementType(), element);
  }
  return data;
}

static void compareTensors(const std::vector<double> &want, const Memory &got,
                           Type type, double tolerance, unsigned argument) {
  double largest = 1e-30;
  for (double element : want)
    if (std::isfinite(element))
      largest = std::max(largest, std::fabs(element));
  for (size_t i = 0; i < want.size(); ++i) {
    // What is beyond a type is infinite in it.
    double x = isa<FloatType>(type) ? roundTo(type, want[i]) : want[i];
    double y = got.read(i);
    bool same = x == y || (std::isnan(x) && std::isnan(y));
    double unit = type.isF32() ? 0 : type.isBF16() ? 1.0 / 128 : 1.0 / 1024;
    double allowed = type.isInteger()
                         ? 0
                         : std::max(std::fabs(x) * unit, tolerance * largest);
    ASSERT_TRUE(same || std::fabs(x - y) <= allowed)
        << "argument " << argument << ", element " << i << ": " << y
        << " instead of " << x;
  }
}

void KernelTest::check(const KernelCase &kernelCase) {
  auto module =
      OwningOpRef<ModuleOp>(ModuleOp::create(UnknownLoc::get(&context)));
  SmallVector<Type> inputs, outputs;
  for (const std::string &text : kernelCase.inputs)
    inputs.push_back(parseType(&context, text));
  for (const std::string &text : kernelCase.outputs)
    outputs.push_back(parseType(&context, text));
  tile::KernelOp kernel = tile::createKernel(
      *module, module->getLoc(), "kernel", inputs, outputs, kernelCase.grid,
      [&](tile::TileBuilder &b, ArrayRef<Value> args) {
        kernelCase.body(b, args);
      });
  ASSERT_TRUE(succeeded(verify(*module)));

  std::vector<std::vector<double>> data;
  std::vector<Memory> memory;
  for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
    auto given = kernelCase.data.find(i);
    data.push_back(given == kernelCase.data.end()
                       ? makeData(cast<MemRefType>(type), random)
                       : given->second);
    for (double &element : data.back())
      element = static_cast<float>(element);
    memory.emplace_back(cast<MemRefType>(type), data.back());
  }
  SmallVector<Type> types(kernel.getArgumentTypes());
  Interpreter(kernel, data).run();

  std::string text;
  llvm::raw_string_ostream(text) << *kernel;
  SCOPED_TRACE(text);
  std::vector<KernelArgument> arguments;
  arguments.reserve(memory.size());
  for (Memory &argument : memory)
    arguments.push_back({argument.data(), argument.spanBytes(),
                         arguments.size() >= kernelCase.inputs.size()});
  runOnTarget(*module, kernelCase, arguments);
  if (HasFailure())
    return;
  for (unsigned i = 0; i < memory.size(); ++i) {
    EXPECT_TRUE(memory[i].isGuardIntact()) << "around argument " << i;
    compareTensors(data[i], memory[i],
                   cast<MemRefType>(types[i]).getElementType(),
                   kernelCase.tolerance, i);
  }
}
