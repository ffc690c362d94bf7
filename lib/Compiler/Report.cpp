//===- Report.cpp - what the commands of a program do ---------------------===//

#include "lib/Compiler/Report.h"
#include "dialects/RT/RTOps.h"
#include "lib/Target/Artifact/ArtifactWriter.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace nsa;
using llvm::left_justify;
using llvm::right_justify;

//===----------------------------------------------------------------------===//
// Commands
//===----------------------------------------------------------------------===//

static uint64_t getBytes(rt::CommandOpInterface command) {
  SmallVector<Value> accesses;
  command.getReads(accesses);
  command.getWrites(accesses);
  uint64_t bytes = 0;
  for (Value value : accesses)
    bytes += rt::getByteSize(cast<MemRefType>(value.getType()));
  return bytes;
}

/// A kernel carries what its operation said about the work of one launch.
static void describeLaunch(rt::LaunchOp launch, const SymbolTable &symbols,
                           CommandReport &report) {
  report.call = launch.getKernel().str();
  Operation *kernel = symbols.lookup(launch.getKernel());
  if (auto flops = kernel->getAttrOfType<IntegerAttr>("flops"))
    report.flops = flops.getValue().getZExtValue();
  if (auto assembled = dyn_cast<rt::KernelOp>(kernel))
    report.registers = assembled.getRegisters();
}

static void describeGemm(rt::GemmOp gemm, CommandReport &report) {
  rt::GemmOp::Sizes sizes = gemm.getSizes();
  report.call = llvm::formatv(
      "sgemm_{0}{1} {2}x{3}x{4}", gemm.getTransposeLhs() ? 't' : 'n',
      gemm.getTransposeRhs() ? 't' : 'n', sizes.m, sizes.n, sizes.k);
  if (gemm.getBatch() > 1)
    report.call += " x " + std::to_string(gemm.getBatch());
  report.flops =
      uint64_t(2) * sizes.m * sizes.n * sizes.k * uint64_t(gemm.getBatch());
}

std::vector<CommandReport> nsa::describeCommands(ModuleOp module,
                                                 const LayerMap &layers) {
  SymbolTable symbols(module);
  std::vector<CommandReport> table;
  for (auto entry : module.getOps<rt::EntryOp>())
    for (auto [number, command] : llvm::enumerate(rt::getCommands(entry))) {
      CommandReport report;
      report.entry = entry.getSymName().str();
      report.number = number;
      report.kind = command->getName().stripDialect().str();
      report.bytes = getBytes(command);
      report.location = formatLocation(command.getLoc());
      CommandOrigin origin = layers.find(command.getLoc());
      report.layer = origin.layer;
      report.backward = origin.backward;
      llvm::TypeSwitch<Operation *>(command)
          .Case([&](rt::LaunchOp op) { describeLaunch(op, symbols, report); })
          .Case([&](rt::GemmOp op) { describeGemm(op, report); })
          .Default([&](Operation *) { report.flops = 0; });
      table.push_back(std::move(report));
    }
  return table;
}

//===----------------------------------------------------------------------===//
// Commands per layer
//===----------------------------------------------------------------------===//

std::vector<LayerCommands>
nsa::countLayerCommands(const CompileReport &report) {
  struct Count {
    unsigned forward = 0, backward = 0;
  };
  llvm::MapVector<StringRef, llvm::MapVector<unsigned, Count>> entries;
  for (const CommandReport &command : report.table)
    if (command.layer) {
      Count &count = entries[command.entry][*command.layer];
      ++(command.backward ? count.backward : count.forward);
    }
  std::vector<LayerCommands> result;
  for (const auto &[entry, layers] : entries) {
    LayerCommands sum;
    sum.entry = entry.str();
    sum.layers = layers.size();
    sum.leastForward = layers.front().second.forward;
    sum.leastBackward = layers.front().second.backward;
    for (const auto &[layer, count] : layers) {
      sum.forward = std::max(sum.forward, count.forward);
      sum.backward = std::max(sum.backward, count.backward);
      sum.leastForward = std::min(sum.leastForward, count.forward);
      sum.leastBackward = std::min(sum.leastBackward, count.backward);
    }
    result.push_back(std::move(sum));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

namespace {
struct Sum {
  uint64_t commands = 0, flops = 0, bytes = 0;
  /// Launches whose floating-point operations are unknown.
  uint64_t uncounted = 0;
};
} // namespace

static std::string formatIntensity(uint64_t flops, uint64_t bytes) {
  return bytes ? llvm::formatv("{0:f2}", double(flops) / double(bytes)).str()
               : std::string("-");
}

static std::string formatRange(unsigned least, unsigned most) {
  return least == most ? std::to_string(most)
                       : std::to_string(least) + "-" + std::to_string(most);
}

static void printLayers(llvm::raw_ostream &os, const CompileReport &report) {
  std::vector<LayerCommands> entries = countLayerCommands(report);
  if (entries.empty())
    return;
  os << "commands per layer  layers  forward  backward\n";
  for (const LayerCommands &entry : entries)
    os << left_justify(entry.entry, 18)
       << llvm::formatv(" {0,7} {1,8} {2,9}\n", entry.layers,
                        formatRange(entry.leastForward, entry.forward),
                        formatRange(entry.leastBackward, entry.backward));
  os << '\n';
}

/// What a command costs in flops on a processor that computes 8 while it moves
/// one byte.
static uint64_t getCost(const CommandReport &command) {
  constexpr uint64_t flopsPerByte = 8;
  return std::max(command.flops.value_or(0), flopsPerByte * command.bytes);
}

/// The commands of each entry, the most expensive first.
static std::vector<CommandReport> sortByCost(const CompileReport &report) {
  llvm::StringMap<unsigned> entries;
  for (const CommandReport &command : report.table)
    entries.try_emplace(command.entry, entries.size());
  std::vector<CommandReport> sorted = report.table;
  llvm::sort(sorted, [&](const CommandReport &a, const CommandReport &b) {
    return std::tuple(entries[a.entry], getCost(b), a.number) <
           std::tuple(entries[b.entry], getCost(a), b.number);
  });
  return sorted;
}

static void printCommands(llvm::raw_ostream &os, const CompileReport &report) {
  size_t entryWidth = 5, callWidth = 4;
  for (const CommandReport &command : report.table) {
    entryWidth = std::max(entryWidth, command.entry.size());
    callWidth = std::max(callWidth, command.call.size());
  }
  auto print = [&](StringRef entry, StringRef number, StringRef kind,
                   StringRef call, StringRef flops, StringRef bytes,
                   StringRef intensity, StringRef registers, StringRef source) {
    os << left_justify(entry, entryWidth) << ' ' << right_justify(number, 5)
       << "  " << left_justify(kind, 10) << ' ' << left_justify(call, callWidth)
       << ' ' << right_justify(flops, 15) << ' ' << right_justify(bytes, 13)
       << ' ' << right_justify(intensity, 10) << ' '
       << right_justify(registers, 9) << "  " << source << '\n';
  };
  print("entry", "#", "kind", "call", "flops", "bytes", "flops/byte",
        "registers", "source");
  for (const CommandReport &command : sortByCost(report))
    print(command.entry, std::to_string(command.number), command.kind,
          command.call.empty() ? "-" : command.call,
          command.flops ? std::to_string(*command.flops) : "-",
          std::to_string(command.bytes),
          command.flops ? formatIntensity(*command.flops, command.bytes) : "-",
          command.registers ? std::to_string(*command.registers) : "n/a",
          command.location);
}

static void printSums(llvm::raw_ostream &os, const CompileReport &report) {
  llvm::MapVector<std::pair<StringRef, StringRef>, Sum> sums;
  for (const CommandReport &command : report.table)
    for (StringRef kind : {StringRef(command.kind), StringRef("all")}) {
      Sum &sum = sums[{command.entry, kind}];
      ++sum.commands;
      sum.flops += command.flops.value_or(0);
      sum.bytes += command.bytes;
      sum.uncounted += !command.flops;
    }
  os << "\nentry        kind         commands            flops           bytes "
        "flops/byte\n";
  for (const auto &[key, sum] : sums)
    os << left_justify(key.first, 12) << ' ' << left_justify(key.second, 10)
       << llvm::formatv(" {0,10} {1,16} {2,15} {3,10}", sum.commands, sum.flops,
                        sum.bytes, formatIntensity(sum.flops, sum.bytes))
       << (sum.uncounted
               ? llvm::formatv("  ({0} launches not counted in flops)",
                               sum.uncounted)
                     .str()
               : std::string())
       << '\n';
}

std::string nsa::formatCommands(const CompileReport &report) {
  std::string text;
  llvm::raw_string_ostream os(text);
  printLayers(os, report);
  printCommands(os, report);
  printSums(os, report);
  return text;
}
