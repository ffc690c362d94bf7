//===- Dump.cpp - artefacts as text ---------------------------------------===//

#include "runtime/Core/Dump.h"
#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"
#include "runtime/Core/Describe.h"

#include <algorithm>
#include <map>
#include <set>

using namespace nsa;
using artifact::Slice;

static std::string num(uint64_t value) { return std::to_string(value); }

static std::string padLeft(const std::string &text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

static std::string padRight(const std::string &text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

/// A string between quotes, on one line whatever its bytes are.
static std::string quoted(const std::string &text) {
  static const char digits[] = "0123456789ABCDEF";
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\' || c < ' ' || c == 0x7F) {
      out += '\\';
      out += digits[c >> 4];
      out += digits[c & 15];
    } else {
      out += char(c);
    }
  }
  return out + "\"";
}

/// Numbers with something between them: "64x1x64".
template <typename T>
static std::string joined(const flatbuffers::Vector<T> &numbers,
                          const char *between) {
  std::string text;
  for (T number : numbers)
    text += (text.empty() ? "" : between) + num(number);
  return text;
}

static std::string typeText(DataType type,
                            const flatbuffers::Vector<uint64_t> &shape) {
  return std::string(typeName(type)) + "[" + joined(shape, "x") + "]";
}

static std::string gridText(const artifact::Kernel &kernel) {
  return num(kernel.grid_x()) + "x" + num(kernel.grid_y()) + "x" +
         num(kernel.grid_z());
}

namespace {

/// Writes the parts of one artefact to a string.
class Dumper {
public:
  explicit Dumper(const Artifact &artifact);

  std::string run(const DumpOptions &options);

private:
  void line(const std::string &text) { out += text + "\n"; }
  void dumpHeader();
  void dumpSegments();
  void dumpTensors();
  void dumpEntries();
  void dumpEntry(const artifact::Entry &entry);
  void dumpKernels();
  void dumpMemory();
  void dumpRoles();
  void dumpArena(unsigned entry);

  /// "%name" for a whole named tensor, else "arena[offset:end]".
  std::string text(const Slice &slice) const;
  std::string names(const flatbuffers::Vector<uint32_t> &tensors) const;
  std::string operands(const artifact::Command &command) const;
  std::string operands(const artifact::Launch &launch) const;
  std::string operands(const artifact::Gemm &gemm) const;

  const Artifact &source;
  const artifact::Artifact &root;
  /// Named tensors by segment, offset and size.
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, std::string> named;
  std::string out;
};

} // namespace

Dumper::Dumper(const Artifact &artifact)
    : source(artifact), root(artifact.root()) {
  for (const artifact::Tensor *tensor : *root.tensors()) {
    const Slice &slice = *tensor->slice();
    named.emplace(
        std::make_tuple(slice.segment(), slice.offset(), slice.size()),
        tensor->name()->str());
  }
}

std::string Dumper::text(const Slice &slice) const {
  auto found = named.find({slice.segment(), slice.offset(), slice.size()});
  if (found != named.end())
    return "%" + found->second;
  return std::string(
             segmentName(root.segments()->Get(slice.segment())->kind())) +
         "[" + num(slice.offset()) + ":" + num(slice.offset() + slice.size()) +
         "]";
}

std::string Dumper::names(const flatbuffers::Vector<uint32_t> &tensors) const {
  std::string text;
  for (uint32_t tensor : tensors)
    text += (text.empty() ? "%" : ", %") +
            root.tensors()->Get(tensor)->name()->str();
  return "(" + text + ")";
}

//===----------------------------------------------------------------------===//
// The program
//===----------------------------------------------------------------------===//

void Dumper::dumpHeader() {
  line("artefact: format " + num(source.version()) + ", " +
       num(source.fileBytes()) + " bytes, hash " + toHex(source.hash()) +
       ", identity " + toHex(source.identity()));
  line("producer: " + quoted(root.producer()->str()));
  std::string features;
  if (root.cpu_features())
    for (const flatbuffers::String *feature : *root.cpu_features())
      features += (features.empty() ? "" : ", ") + feature->str();
  line("target: " + root.target()->str() +
       (root.cpu() ? ", " + root.cpu()->str() : "") +
       (features.empty() ? "" : " (" + features + ")"));
  if (const artifact::Extents *extents = root.extents())
    for (unsigned i = 0; i < extents->names()->size(); ++i)
      line("extent: " + extents->names()->Get(i)->str() + ", " +
           num((extents->given() ? extents->values()
                                 : extents->representatives())
                   ->Get(i)) +
           (extents->given() ? "" : " stands for it"));
  for (const artifact::Binary *binary : *root.binaries())
    line("binary: " + binary->format()->str() + ", " +
         num(binary->data()->size()) + " bytes");
  if (root.options())
    for (const artifact::Option *option : *root.options())
      line("option: " + option->key()->str() + " = " +
           quoted(option->value()->str()));
  if (root.model_config())
    line("model config: " + quoted(root.model_config()->str()));
}

void Dumper::dumpSegments() {
  line("\nsegments:");
  for (unsigned i = 0; i < root.segments()->size(); ++i) {
    const artifact::Segment &segment = *root.segments()->Get(i);
    line("  " + num(i) + " " + segmentName(segment.kind()) + ": " +
         num(segment.size()) + " bytes");
  }
}

static std::string initText(const artifact::Tensor &tensor) {
  switch (tensor.init()) {
  case artifact::InitKind::None:
    return "";
  case artifact::InitKind::Constant:
    return ", init constant " + shortest(tensor.value());
  case artifact::InitKind::Normal:
    return ", init normal " + shortest(tensor.value());
  case artifact::InitKind::Rotary:
    return ", init rotary " + shortest(tensor.value());
  case artifact::InitKind::Frequencies: {
    std::string text;
    for (double frequency : *tensor.frequencies())
      text += " " + shortest(frequency);
    return ", init " + shortest(tensor.value()) + " times frequencies" + text;
  }
  }
  return "";
}

void Dumper::dumpTensors() {
  line("\ntensors:");
  for (const artifact::Tensor *tensor : *root.tensors()) {
    const Slice &slice = *tensor->slice();
    line("  %" + tensor->name()->str() + ": " +
         typeText(tensor->type(), *tensor->shape()) + " " +
         roleName(tensor->role()) + ", " +
         segmentName(root.segments()->Get(slice.segment())->kind()) + "[" +
         num(slice.offset()) + ":" + num(slice.offset() + slice.size()) + "]" +
         initText(*tensor) + (tensor->decay() ? ", decay" : ""));
  }
}

std::string Dumper::operands(const artifact::Launch &launch) const {
  const artifact::Kernel &kernel = *root.kernels()->Get(launch.kernel());
  unsigned inputs = kernel.arguments() - kernel.outputs();
  std::string ins, outs;
  for (unsigned i = 0; i < kernel.arguments(); ++i) {
    std::string &list = i < inputs ? ins : outs;
    list += (list.empty() ? "" : ", ") + text(*launch.operands()->Get(i));
  }
  return ins + (ins.empty() ? "-> " : " -> ") + outs;
}

std::string Dumper::operands(const artifact::Gemm &gemm) const {
  std::string line =
      std::string(typeName(gemm.lhs_type())) + " " + text(*gemm.lhs()) +
      (gemm.transpose_lhs() ? "^T" : "") + ", " + typeName(gemm.rhs_type()) +
      " " + text(*gemm.rhs()) + (gemm.transpose_rhs() ? "^T" : "") + " -> " +
      typeName(gemm.out_type()) + " " + text(*gemm.out());
  if (gemm.alpha() != 1)
    line += ", alpha " + shortest(gemm.alpha());
  if (gemm.beta() != 0)
    line += ", beta " + shortest(gemm.beta());
  if (gemm.addend())
    line += " of " + text(*gemm.addend());
  if (gemm.workspace() && gemm.workspace()->size() > 0)
    line += ", " + text(*gemm.workspace());
  return line;
}

std::string Dumper::operands(const artifact::Command &command) const {
  if (const auto *launch = command.action_as_Launch())
    return operands(*launch);
  if (const auto *gemm = command.action_as_Gemm())
    return operands(*gemm);
  if (const auto *fill = command.action_as_Fill())
    return std::string(typeName(fill->type())) + " " + shortest(fill->value()) +
           " -> " + text(*fill->out());
  if (const auto *copy = command.action_as_Copy())
    return text(*copy->source()) + " -> " + text(*copy->out());
  if (const auto *start = command.action_as_CollectiveStart())
    return std::string(typeName(start->type())) + " " + text(*start->memory()) +
           (start->rows() ? ", rows " + text(*start->rows()) : "") +
           (start->grouped() ? ", grouped" : "");
  if (const auto *done = command.action_as_CollectiveDone())
    return text(*done->memory());
  const auto &tensor =
      *root.tensors()->Get(command.action_as_Initialize()->tensor());
  return "-> %" + tensor.name()->str();
}

void Dumper::dumpEntry(const artifact::Entry &entry) {
  line("\nentry @" + entry.name()->str() + names(*entry.inputs()) + " -> " +
       names(*entry.outputs()) + ": " + num(entry.commands()->size()) +
       " commands, arena peak " + num(entry.arena_peak()) + " bytes");
  size_t digits = num(entry.commands()->size()).size();
  for (unsigned i = 0; i < entry.commands()->size(); ++i) {
    const artifact::Command &command = *entry.commands()->Get(i);
    // The operands of initialize are its title.
    std::string title = command.action_as_Initialize()
                            ? "initialize"
                            : commandTitle(root, command);
    line("  " + padLeft(num(i), digits) + " " + title + " " +
         operands(command) + " loc(" + quoted(commandLocation(root, command)) +
         ")");
  }
}

void Dumper::dumpEntries() {
  for (const artifact::Entry *entry : *root.entries())
    dumpEntry(*entry);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static bool isHost(const artifact::Segment &segment) {
  return segment.kind() == artifact::SegmentKind::Host;
}

void Dumper::dumpRoles() {
  // The optimizer's state, apart from other state.
  std::map<std::pair<TensorRole, bool>, std::pair<uint64_t, uint64_t>> roles;
  for (const artifact::Tensor *tensor : *root.tensors()) {
    // Of weights that lie on the host there are parts besides.
    if (isHost(*root.segments()->Get(tensor->slice()->segment())))
      continue;
    bool isWeight = training::isGathered(tensor->name()->string_view()) ||
                    (tensor->state() &&
                     tensor->state()->string_view() == training::weightState);
    auto &[count, bytes] = isWeight ? roles[{TensorRole::Parameter, true}]
                                    : roles[{tensor->role(), !tensor->state()}];
    ++count;
    bytes += tensor->slice()->size();
  }
  for (const auto &[kind, sum] : roles)
    line("  " + padRight(kind.second ? roleName(kind.first) : "optimizer", 10) +
         padLeft(num(sum.second), 14) + " bytes in " + num(sum.first) +
         (sum.first == 1 ? " tensor" : " tensors"));
}

/// The bytes alive at each command of an entry.
static std::vector<uint64_t>
liveBytes(const std::vector<const artifact::Buffer *> &buffers,
          size_t commands) {
  // Differences first: what begins and what ends at each command.
  std::vector<uint64_t> live(commands + 1, 0);
  for (const artifact::Buffer *buffer : buffers) {
    live[buffer->first()] += buffer->slice()->size();
    live[buffer->last() + 1] -= buffer->slice()->size();
  }
  for (size_t i = 1; i < live.size(); ++i)
    live[i] += live[i - 1];
  live.pop_back();
  return live;
}

/// One character for each of a few ranges of commands; '#' where the buffer
/// lives.
static std::string lifeline(const artifact::Buffer &buffer, size_t commands) {
  size_t columns = std::min<size_t>(commands, 48);
  std::string text(columns, '.');
  for (size_t i = 0; i < columns; ++i) {
    size_t begin = i * commands / columns, end = (i + 1) * commands / columns;
    if (buffer.first() < end && buffer.last() >= begin)
      text[i] = '#';
  }
  return "|" + text + "|";
}

void Dumper::dumpArena(unsigned index) {
  const artifact::Entry &entry = *root.entries()->Get(index);
  std::vector<const artifact::Buffer *> buffers;
  if (root.buffers())
    for (const artifact::Buffer *buffer : *root.buffers())
      if (buffer->entry() == index)
        buffers.push_back(buffer);
  // Buffers are in the order of the file: the address is the last key.
  std::sort(buffers.begin(), buffers.end(), [](const auto *a, const auto *b) {
    return std::make_tuple(a->slice()->offset(), a->first(), a) <
           std::make_tuple(b->slice()->offset(), b->first(), b);
  });
  line("\nentry @" + entry.name()->str() + ": arena peak " +
       num(entry.arena_peak()) + " bytes, " + num(buffers.size()) +
       (buffers.size() == 1 ? " buffer" : " buffers"));
  if (buffers.empty())
    return;
  size_t commands = entry.commands()->size();
  std::vector<uint64_t> live = liveBytes(buffers, commands);
  size_t fullest =
      size_t(std::max_element(live.begin(), live.end()) - live.begin());
  line("  most alive: " + num(live[fullest]) + " bytes at command " +
       num(fullest));
  line("        offset          size      commands  life");
  for (const artifact::Buffer *buffer : buffers)
    line("  " + padLeft(num(buffer->slice()->offset()), 12) +
         padLeft(num(buffer->slice()->size()), 14) +
         padLeft(num(buffer->first()) + ".." + num(buffer->last()), 14) + "  " +
         lifeline(*buffer, commands) + " " +
         quoted(root.locations()->Get(buffer->location())->str()));
}

void Dumper::dumpMemory() {
  line("memory:");
  uint64_t total = 0;
  for (const artifact::Segment *segment : *root.segments()) {
    total += isHost(*segment) ? 0 : segment->size();
    line("  " + padRight(segmentName(segment->kind()), 10) +
         padLeft(num(segment->size()), 14) + " bytes");
  }
  line("  " + padRight("total", 10) + padLeft(num(total), 14) + " bytes");
  line("\ntensors by role:");
  dumpRoles();
  for (unsigned i = 0; i < root.entries()->size(); ++i)
    dumpArena(i);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Where the launches of a kernel come from: the first location by name, and
/// how many others there are.
static std::string placesText(const std::vector<std::string> &places) {
  std::set<std::string> different(places.begin(), places.end());
  if (different.empty())
    return "";
  std::string text = ", from " + quoted(places.front());
  if (different.size() > 1)
    text += " and " + num(different.size() - 1) + " more";
  return text;
}

/// What a launch on a GPU takes; nothing on the CPU.
static std::string gpuText(const artifact::Kernel &kernel) {
  if (kernel.threads() == 0)
    return "";
  return ", " + num(kernel.threads()) + " threads, " +
         num(kernel.shared_bytes()) + " bytes shared, " +
         num(kernel.registers()) + " registers, " + num(kernel.spill_bytes()) +
         " bytes of spills";
}

static std::string mapText(const artifact::Kernel &kernel,
                           const artifact::TensorMap &map) {
  DataType type = kernel.argument_types()->Get(map.argument());
  return "tensor map of argument " + num(map.argument()) + ": " +
         typeText(type, *map.extents()) + ", strides [" +
         joined(*map.strides(), ", ") + "], box " + joined(*map.box(), "x") +
         ", swizzle " + num(map.swizzle());
}

void Dumper::dumpKernels() {
  std::map<uint32_t, std::vector<std::string>> launches;
  for (const artifact::Entry *entry : *root.entries())
    for (const artifact::Command *command : *entry->commands())
      if (const auto *launch = command->action_as_Launch())
        launches[launch->kernel()].push_back(commandLocation(root, *command));
  line("kernels:");
  for (unsigned i = 0; i < root.kernels()->size(); ++i) {
    const artifact::Kernel &kernel = *root.kernels()->Get(i);
    line("  @" + kernel.name()->str() + ": grid " + gridText(kernel) + ", " +
         num(kernel.arguments() - kernel.outputs()) + " in, " +
         num(kernel.outputs()) + " out, stack " + num(kernel.stack_bytes()) +
         " bytes, " + num(kernel.flops()) + " flops, " + num(kernel.bytes()) +
         " bytes, launches " + num(launches[i].size()) + gpuText(kernel) +
         ", symbol " + kernel.symbol()->str() + placesText(launches[i]));
    if (const auto *maps = kernel.tensor_maps())
      for (const artifact::TensorMap *map : *maps)
        line("    " + mapText(kernel, *map));
    if (const auto *selections = kernel.selections())
      for (const artifact::Selection *selection : *selections)
        line("    argument " + num(selection->argument()) + " holds " +
             num(selection->count()) + " numbers of blocks of " +
             num(selection->block()) + " tokens for each of " +
             num(selection->tokens()) + " tokens");
  }
}

std::string Dumper::run(const DumpOptions &options) {
  auto separate = [&] {
    if (!out.empty())
      out += "\n";
  };
  if (options.program) {
    dumpHeader();
    dumpSegments();
    dumpTensors();
    dumpEntries();
  }
  if (options.memory) {
    separate();
    dumpMemory();
  }
  if (options.kernels) {
    separate();
    dumpKernels();
  }
  return std::move(out);
}

std::string nsa::dumpArtifact(const Artifact &artifact,
                              const DumpOptions &options) {
  return Dumper(artifact).run(options);
}
