//===- ArtifactChecks.cpp - the meaning of an artefact --------------------===//

#include "runtime/Core/ArtifactChecks.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Artifact/GemmWorkspace.h"
#include "runtime/Core/Bindings.h"
#include "runtime/Core/KernelChecks.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <set>

using namespace nsa;
using namespace nsa::artifact;

namespace {

/// More than any machine has, and small enough that sums of a few sizes fit.
constexpr uint64_t maxSegmentBytes = uint64_t(1) << 48;

std::string num(uint64_t value) { return std::to_string(value); }

/// a * b, or nothing when it does not fit.
std::optional<uint64_t> multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    return std::nullopt;
  return product;
}

/// The product of `factors`, or nothing when it does not fit. A zero wins over
/// an overflow.
template <typename Range>
std::optional<uint64_t> multiplyAll(const Range &factors) {
  uint64_t product = 1;
  bool overflow = false;
  for (uint64_t factor : factors) {
    if (factor == 0)
      return 0;
    overflow |= __builtin_mul_overflow(product, factor, &product);
  }
  if (overflow)
    return std::nullopt;
  return product;
}

/// Whether an element of `type` can hold `value`. Floats round.
bool holds(DataType type, double value) {
  auto within = [&](double low, double high) {
    return value >= low && value < high && std::trunc(value) == value;
  };
  switch (type) {
  case DataType::I32:
    return within(-0x1p31, 0x1p31);
  case DataType::I64:
    return within(-0x1p63, 0x1p63);
  case DataType::U8:
    return within(0, 0x1p8);
  default:
    return true;
  }
}

bool overlap(const Slice &a, const Slice &b) {
  return a.segment() == b.segment() && a.size() > 0 && b.size() > 0 &&
         a.offset() < b.offset() + b.size() &&
         b.offset() < a.offset() + a.size();
}

/// Walks an artefact and keeps the first complaint. Every check returns
/// whether it passed.
class Checker {
public:
  explicit Checker(const artifact::Artifact &root) : root(root) {}

  Status run();

private:
  bool fail(const std::string &message) {
    if (error.empty())
      error = context + message;
    return false;
  }

  bool checkName(const flatbuffers::String *name, const char *what);
  bool checkUnique(std::set<std::string> &seen, const flatbuffers::String *name,
                   const char *what);
  template <typename T>
  bool checkAligned(const flatbuffers::Vector<T> &vector, const char *what);
  bool checkSlice(const Slice &slice, const std::string &what,
                  uint64_t alignment);
  bool checkSize(const Slice &slice, std::optional<uint64_t> size,
                 const std::string &what);
  bool checkSegment(const Segment &segment);
  bool checkTensor(const Tensor &tensor);
  bool checkInit(const Tensor &tensor);
  bool checkKernel(const Kernel &kernel);
  bool isHost(const Slice &slice) const {
    return root.segments()->Get(slice.segment())->kind() == SegmentKind::Host;
  }
  bool checkPlace(const Command &command);
  bool checkEntry(const Entry &entry);
  bool checkIndices(const flatbuffers::Vector<uint32_t> &indices,
                    const char *what);
  bool checkCommand(const Command &command);
  bool check(const Launch &launch);
  bool check(const Gemm &gemm);
  bool check(const Fill &fill);
  bool checkChunks(const Slice &memory, uint64_t sequences,
                   uint64_t elementSize);
  bool checkChunks(const Copy &copy, const Slice &whole, const Slice &own);
  bool check(const Copy &copy);
  bool check(const Initialize &initialize);
  bool check(const CollectiveStart &start);
  bool checkReductions(const Entry &entry);
  bool checkBuffer(const Buffer &buffer);
  bool checkSegments();
  /// Checks what has names, each its own.
  template <typename T>
  bool checkAll(const flatbuffers::Vector<flatbuffers::Offset<T>> &all,
                const std::string &what, bool (Checker::*check)(const T &));
  bool checkExtents();
  bool checkRest();

  const artifact::Artifact &root;
  /// Where the walk is, for messages: "entry 'step', command 3: ".
  std::string context;
  std::string error;
};

} // namespace

bool Checker::checkName(const flatbuffers::String *name, const char *what) {
  if (name->size() == 0)
    return fail(std::string(what) + " has an empty name");
  for (uint8_t c : *name)
    if (c <= ' ' || c > '~')
      return fail("the name of " + std::string(what) + " has the byte " +
                  num(c) + ", which is not a printable character");
  return true;
}

bool Checker::checkUnique(std::set<std::string> &seen,
                          const flatbuffers::String *name, const char *what) {
  if (!checkName(name, what))
    return false;
  return seen.insert(name->str()).second ||
         fail("two " + std::string(what) + "s are called " +
              quote(name->str()));
}

template <typename T>
bool Checker::checkAligned(const flatbuffers::Vector<T> &vector,
                           const char *what) {
  return isAligned(vector) ||
         fail(std::string(what) + " is misaligned in the file");
}

bool Checker::checkSlice(const Slice &slice, const std::string &what,
                         uint64_t alignment) {
  if (slice.segment() >= root.segments()->size())
    return fail(what + " lies in segment " + num(slice.segment()) +
                ", but there are " + num(root.segments()->size()));
  uint64_t limit = root.segments()->Get(slice.segment())->size();
  if (slice.offset() > limit || slice.size() > limit - slice.offset())
    return fail(what + " has " + num(slice.size()) + " bytes at offset " +
                num(slice.offset()) + " of segment " + num(slice.segment()) +
                ", which has " + num(limit));
  if (slice.offset() % alignment != 0)
    return fail(what + " begins at offset " + num(slice.offset()) +
                ", which is not a multiple of " + num(alignment));
  return true;
}

bool Checker::checkSize(const Slice &slice, std::optional<uint64_t> size,
                        const std::string &what) {
  if (!size)
    return fail(what + " has a size that does not fit into 64 bits");
  return slice.size() == *size || fail(what + " has " + num(slice.size()) +
                                       " bytes, expected " + num(*size));
}

bool Checker::checkSegment(const Segment &segment) {
  if (segment.kind() > SegmentKind::MAX)
    return fail("unknown kind " + num(uint64_t(segment.kind())));
  uint32_t alignment = segment.alignment();
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > 4096)
    return fail("alignment " + num(alignment) +
                " is not a power of two up to 4096");
  if (segment.size() > maxSegmentBytes)
    return fail(num(segment.size()) + " bytes are over the limit of " +
                num(maxSegmentBytes));
  return true;
}

bool Checker::checkInit(const Tensor &tensor) {
  if (tensor.init() > InitKind::MAX)
    return fail("unknown init " + num(uint64_t(tensor.init())));
  if (tensor.init() == InitKind::None)
    return true;
  if (!std::isfinite(tensor.value()))
    return fail("its initial value is not finite");
  if (tensor.init() == InitKind::Constant &&
      !holds(tensor.type(), tensor.value()))
    return fail("its initial value does not fit into " +
                std::string(typeName(tensor.type())));
  if (tensor.init() == InitKind::Normal && !isFloat(tensor.type()))
    return fail("a normal distribution needs a float type, not " +
                std::string(typeName(tensor.type())));
  if (tensor.init() != InitKind::Rotary &&
      tensor.init() != InitKind::Frequencies)
    return true;
  const auto &shape = *tensor.shape();
  if (tensor.type() != DataType::F32 || shape.size() != 3 || shape.Get(2) != 2)
    return fail("a rotary table is f32 of shape [L, D/2, 2]");
  if (tensor.value() <= 0)
    return fail(tensor.init() == InitKind::Rotary
                    ? "the base of a rotary table is positive"
                    : "the amplitude of a rotary table is positive");
  if (tensor.init() == InitKind::Rotary)
    return true;
  const auto *frequencies = tensor.frequencies();
  if (!frequencies || frequencies->size() != shape.Get(1))
    return fail("a rotary table of " + num(shape.Get(1)) + " pairs has " +
                num(frequencies ? frequencies->size() : 0) + " frequencies");
  for (double frequency : *frequencies)
    if (!std::isfinite(frequency))
      return fail("a frequency is not finite");
  return true;
}

bool Checker::checkTensor(const Tensor &tensor) {
  if (tensor.type() > DataType::MAX)
    return fail("unknown element type " + num(uint64_t(tensor.type())));
  if (tensor.role() > TensorRole::MAX)
    return fail("unknown role " + num(uint64_t(tensor.role())));
  if (tensor.state() && tensor.role() != TensorRole::State)
    return fail("what the optimizer keeps is a state, not " +
                std::string(roleName(tensor.role())));
  if (!checkAligned(*tensor.shape(), "its shape"))
    return false;
  std::optional<uint64_t> size = multiplyAll(*tensor.shape());
  if (size)
    size = multiply(*size, elementBytes(tensor.type()));
  if (!checkSlice(*tensor.slice(), "its slice", sliceAlignment) ||
      !checkSize(*tensor.slice(), size, "its slice"))
    return false;
  SegmentKind kind = root.segments()->Get(tensor.slice()->segment())->kind();
  if (kind != SegmentKind::Persistent && kind != SegmentKind::IO &&
      kind != SegmentKind::Host)
    return fail("a named tensor lies in a persistent, io or host segment");
  if (kind == SegmentKind::Host && tensor.role() != TensorRole::Parameter)
    return fail("only parameters lie in a host segment");
  return checkInit(tensor);
}

bool Checker::checkKernel(const Kernel &kernel) {
  if (!checkName(kernel.symbol(), "a symbol"))
    return false;
  const uint64_t grid[] = {kernel.grid_x(), kernel.grid_y(), kernel.grid_z()};
  std::optional<uint64_t> programs = multiplyAll(grid);
  if (!programs || *programs > uint64_t(INT64_MAX))
    return fail("its grid has more than 2^63 programs");
  if (kernel.outputs() > kernel.arguments())
    return fail("it has " + num(kernel.outputs()) + " outputs, but " +
                num(kernel.arguments()) + " arguments");
  if (kernel.stack_bytes() > maxKernelStack)
    return fail("it needs " + num(kernel.stack_bytes()) +
                " bytes of stack, the limit is " + num(maxKernelStack));
  bool isCPU = root.target()->string_view() == artifact::cpuTarget;
  Status status = checkArguments(kernel, isCPU);
  return status.ok() || fail(status.message());
}

bool Checker::check(const Launch &launch) {
  if (launch.kernel() >= root.kernels()->size())
    return fail("launches kernel " + num(launch.kernel()) + ", but there are " +
                num(root.kernels()->size()));
  if (!checkAligned(*launch.operands(), "its list of operands"))
    return false;
  const Kernel &kernel = *root.kernels()->Get(launch.kernel());
  if (launch.operands()->size() != kernel.arguments())
    return fail("passes " + num(launch.operands()->size()) +
                " operands to kernel " + quote(kernel.name()->str()) +
                ", which takes " + num(kernel.arguments()));
  for (unsigned i = 0; i < launch.operands()->size(); ++i) {
    const Slice &slice = *launch.operands()->Get(i);
    std::string what = "operand " + num(i);
    if (!checkSlice(slice, what, operandAlignment(kernel, i)))
      return false;
    if (const auto *bytes = kernel.argument_bytes())
      if (!checkSize(slice, bytes->Get(i), what))
        return false;
  }
  return true;
}

bool Checker::check(const Gemm &gemm) {
  const uint64_t limit = INT_MAX;
  if (gemm.m() > limit || gemm.n() > limit || gemm.k() > limit)
    return fail("gemm of " + num(gemm.m()) + "x" + num(gemm.n()) + "x" +
                num(gemm.k()) + ": a size is over " + num(limit));
  if (gemm.batch() == 0 || gemm.batch() > limit)
    return fail("gemm of a batch of " + num(gemm.batch()) +
                ", which is not from 1 to " + num(limit));
  struct Operand {
    const char *name;
    const Slice *slice;
    DataType type;
    uint64_t rows, columns;
  };
  const Operand operands[] = {
      {"addend", gemm.addend(), gemm.out_type(), gemm.m(), gemm.n()},
      {"lhs", gemm.lhs(), gemm.lhs_type(), gemm.m(), gemm.k()},
      {"rhs", gemm.rhs(), gemm.rhs_type(), gemm.k(), gemm.n()},
      {"out", gemm.out(), gemm.out_type(), gemm.m(), gemm.n()}};
  for (const Operand &operand : operands) {
    if (!operand.slice)
      continue;
    if (operand.type > DataType::MAX || !isFloat(operand.type))
      return fail(std::string("gemm ") + operand.name +
                  " is not a float tensor");
    // The sizes are below 2^31, so a matrix fits; a batch may not.
    uint64_t matrix =
        operand.rows * operand.columns * elementBytes(operand.type);
    if (matrix > UINT64_MAX / gemm.batch())
      return fail(std::string("gemm ") + operand.name + " is over 2^64 bytes");
    uint64_t size = matrix * gemm.batch();
    std::string what = std::string("gemm ") + operand.name;
    if (!checkSlice(*operand.slice, what, sliceAlignment) ||
        !checkSize(*operand.slice, size, what))
      return false;
  }
  if (overlap(*gemm.out(), *gemm.lhs()) || overlap(*gemm.out(), *gemm.rhs()))
    return fail("gemm out overlaps an operand");
  if (gemm.addend() && overlap(*gemm.out(), *gemm.addend()))
    return fail("gemm out overlaps the addend");
  GemmWorkspace layout =
      gemmWorkspace(gemm.m(), gemm.n(), gemm.k(), gemm.lhs_type(),
                    gemm.rhs_type(), gemm.out_type(), gemm.batch());
  if (gemm.workspace() &&
      !checkSlice(*gemm.workspace(), "gemm workspace", sliceAlignment))
    return false;
  // On a GPU it is the library's, which takes what there is.
  bool isCPU = root.target()->string_view() == artifact::cpuTarget;
  uint64_t needed = isCPU ? layout.bytes : 0;
  uint64_t size = gemm.workspace() ? gemm.workspace()->size() : 0;
  if (size < needed)
    return fail("gemm has " + num(size) + " bytes of workspace, it needs " +
                num(needed));
  for (const Operand &operand : operands)
    if (size > 0 && operand.slice && overlap(*gemm.workspace(), *operand.slice))
      return fail(std::string("gemm workspace overlaps ") + operand.name);
  return true;
}

bool Checker::check(const Fill &fill) {
  if (fill.type() > DataType::MAX)
    return fail("unknown element type " + num(uint64_t(fill.type())));
  if (!holds(fill.type(), fill.value()))
    return fail("fills " + std::string(typeName(fill.type())) +
                " with a value that does not fit");
  uint64_t bytes = elementBytes(fill.type());
  if (!checkSlice(*fill.out(), "fill out", bytes))
    return false;
  return fill.out()->size() % bytes == 0 ||
         fail("fill out has " + num(fill.out()->size()) +
              " bytes, which is not a multiple of " + num(bytes));
}

/// Each of `sequences` has two chunks of each rank, all of as many elements.
bool Checker::checkChunks(const Slice &memory, uint64_t sequences,
                          uint64_t elementSize) {
  if (sequences == 0)
    return true;
  uint64_t ranks = root.sequence_ranks(), size = memory.size();
  uint64_t least = 2 * ranks * elementSize;
  if (ranks < 2 || size == 0 || size % least != 0 ||
      size / least % sequences != 0)
    return fail("has chunks of " + num(size) + " bytes of " + num(sequences) +
                " sequences for " + num(ranks) + " ranks");
  return true;
}

/// Rows of `own` bytes, two of each sequence, and the memory that they are of.
bool Checker::checkChunks(const Copy &copy, const Slice &whole,
                          const Slice &own) {
  using artifact::ChunkPattern;
  if (copy.pattern() > ChunkPattern::MAX || copy.part() == CopyPart::None)
    return fail("unknown pattern of chunks " + num(uint64_t(copy.pattern())));
  uint64_t sequences = copy.sequences(), halo = copy.halo();
  uint64_t ranks = root.sequence_ranks();
  uint64_t row = own.size() / 2 / sequences;
  bool hasHalo = copy.pattern() != ChunkPattern::Chunks;
  // Sequences are no more than bytes, and halos no longer than rows.
  bool fits = ranks > 1 && row > 0 && row * 2 * sequences == own.size() &&
              (halo != 0) == hasHalo && halo <= row;
  if (fits && copy.pattern() == ChunkPattern::Own)
    fits = whole.size() == own.size() + 2 * sequences * halo;
  else if (fits)
    fits = whole.size() % (2 * ranks) == 0 &&
           whole.size() / (2 * ranks) == sequences * (hasHalo ? halo : row);
  return (fits || fail("has chunks of " + num(own.size()) + " bytes of " +
                       num(whole.size()) + ", of " + num(sequences) +
                       " sequences for " + num(ranks) + " ranks")) &&
         checkSlice(*copy.source(), "copy source", 1) &&
         checkSlice(*copy.out(), "copy out", 1) &&
         (!overlap(*copy.source(), *copy.out()) ||
          fail("copy out overlaps its source"));
}

bool Checker::check(const Copy &copy) {
  if (copy.part() > CopyPart::MAX)
    return fail("unknown part of a copy " + num(uint64_t(copy.part())));
  const Slice &whole =
      copy.part() == CopyPart::Out ? *copy.out() : *copy.source();
  const Slice &own =
      copy.part() == CopyPart::Out ? *copy.source() : *copy.out();
  if (copy.sequences() != 0)
    return checkChunks(copy, whole, own);
  uint64_t ranks = copy.part() == CopyPart::None ? 1 : root.ranks();
  if (ranks == 0)
    return fail("copies a rank's part of a program for any number of ranks");
  return checkSlice(*copy.source(), "copy source", 1) &&
         checkSlice(*copy.out(), "copy out", 1) &&
         (whole.size() % ranks == 0 ||
          fail("copies a part of " + num(whole.size()) + " bytes, which " +
               num(ranks) + " ranks do not divide")) &&
         checkSize(own, whole.size() / ranks,
                   &own == copy.out() ? "copy out" : "copy source") &&
         (!overlap(*copy.source(), *copy.out()) ||
          fail("copy out overlaps its source"));
}

bool Checker::check(const Initialize &initialize) {
  if (initialize.tensor() >= root.tensors()->size())
    return fail("initialises tensor " + num(initialize.tensor()) +
                ", but there are " + num(root.tensors()->size()));
  const Tensor &tensor = *root.tensors()->Get(initialize.tensor());
  return tensor.init() != InitKind::None ||
         fail("initialises tensor " + quote(tensor.name()->str()) +
              ", which has no initial value");
}

bool Checker::check(const CollectiveStart &start) {
  if (start.type() != DataType::F32 && start.type() != DataType::BF16 &&
      start.type() != DataType::F16)
    return fail("reduces elements of type " + num(uint64_t(start.type())) +
                ", which is none of f32, bf16 and f16");
  if (start.kind() > CollectiveKind::MAX)
    return fail("unknown collective " + num(uint64_t(start.kind())));
  const Slice &memory = *start.memory();
  if (isOfSequences(start.kind()) != (start.sequences() != 0))
    return fail("is of " + num(start.sequences()) + " sequences, a " +
                collectiveName(start.kind()));
  if (!checkChunks(memory, start.sequences(), elementBytes(start.type())))
    return false;
  uint64_t ranks =
      start.kind() == CollectiveKind::AllReduce || start.sequences()
          ? 1
          : root.ranks();
  if (ranks == 0 || memory.size() / elementBytes(start.type()) % ranks != 0)
    return fail("has parts of " + num(memory.size()) + " bytes for " +
                num(ranks) + " ranks");
  return checkSlice(memory, "reduced memory", sliceAlignment) &&
         (memory.size() % elementBytes(start.type()) == 0 ||
          fail("reduces " + num(memory.size()) +
               " bytes, which is not a multiple of " +
               num(elementBytes(start.type()))));
}

bool Checker::checkCommand(const Command &command) {
  if (command.location() >= root.locations()->size())
    return fail("has location " + num(command.location()) + ", but there are " +
                num(root.locations()->size()));
  switch (command.action_type()) {
  case Action::Launch:
    return check(*command.action_as_Launch());
  case Action::Gemm:
    return check(*command.action_as_Gemm());
  case Action::Fill:
    return check(*command.action_as_Fill());
  case Action::Copy:
    return check(*command.action_as_Copy());
  case Action::Initialize:
    return check(*command.action_as_Initialize());
  case Action::CollectiveStart:
    return check(*command.action_as_CollectiveStart());
  case Action::CollectiveDone:
    return checkSlice(*command.action_as_CollectiveDone()->memory(),
                      "reduced memory", sliceAlignment);
  case Action::NONE:
    break;
  }
  return fail("unknown action " + num(uint64_t(command.action_type())));
}

/// What lies on the host is initialized, and parts are copied from there.
bool Checker::checkPlace(const Command &command) {
  if (command.action_as_Initialize())
    return true;
  for (const Slice *slice : slicesOf(root, command)) {
    const auto *copy = command.action_as_Copy();
    if (isHost(*slice) && !(copy && slice == copy->source() &&
                            copy->part() == artifact::CopyPart::Source))
      return fail("uses memory of the host");
  }
  return true;
}

bool Checker::checkIndices(const flatbuffers::Vector<uint32_t> &indices,
                           const char *what) {
  std::set<uint32_t> seen;
  for (uint32_t index : indices) {
    if (index >= root.tensors()->size())
      return fail(std::string(what) + " is tensor " + num(index) +
                  ", but there are " + num(root.tensors()->size()));
    if (isHost(*root.tensors()->Get(index)->slice()))
      return fail(std::string(what) + " is tensor " + num(index) +
                  ", which lies on the host");
    if (!seen.insert(index).second)
      return fail(std::string(what) + " " +
                  quote(root.tensors()->Get(index)->name()->str()) +
                  " is listed twice");
  }
  return true;
}

/// Every reduction ends once, and those in progress are of different memory.
bool Checker::checkReductions(const Entry &entry) {
  std::vector<const Slice *> running;
  for (const Command *command : *entry.commands()) {
    if (const auto *start = command->action_as_CollectiveStart()) {
      for (const Slice *other : running)
        if (overlap(*other, *start->memory()))
          return fail("starts to reduce memory that is being reduced");
      running.push_back(start->memory());
    }
    const auto *done = command->action_as_CollectiveDone();
    if (!done)
      continue;
    auto isSame = [&](const Slice *slice) {
      return slice->segment() == done->memory()->segment() &&
             slice->offset() == done->memory()->offset() &&
             slice->size() == done->memory()->size();
    };
    auto found = std::find_if(running.begin(), running.end(), isSame);
    if (found == running.end())
      return fail("ends a reduction that did not start");
    running.erase(found);
  }
  return running.empty() ||
         fail("has " + num(running.size()) + " reductions that do not end");
}

bool Checker::checkEntry(const Entry &entry) {
  if (!checkIndices(*entry.inputs(), "an input") ||
      !checkIndices(*entry.outputs(), "an output"))
    return false;
  std::string outer = context;
  for (unsigned i = 0; i < entry.commands()->size(); ++i) {
    context = outer.substr(0, outer.size() - 2) + ", command " + num(i) + ": ";
    const Command &command = *entry.commands()->Get(i);
    if (!checkCommand(command) || !checkPlace(command))
      return false;
  }
  context = outer;
  return checkReductions(entry);
}

bool Checker::checkBuffer(const Buffer &buffer) {
  if (buffer.entry() >= root.entries()->size())
    return fail("belongs to entry " + num(buffer.entry()) + ", but there are " +
                num(root.entries()->size()));
  uint64_t commands = root.entries()->Get(buffer.entry())->commands()->size();
  if (buffer.first() > buffer.last() || buffer.last() >= commands)
    return fail("lives from command " + num(buffer.first()) + " to " +
                num(buffer.last()) + ", but there are " + num(commands));
  if (buffer.location() >= root.locations()->size())
    return fail("has location " + num(buffer.location()) + ", but there are " +
                num(root.locations()->size()));
  return checkSlice(*buffer.slice(), "its slice", 1);
}

bool Checker::checkSegments() {
  for (unsigned i = 0; i < root.segments()->size(); ++i) {
    context = "segment " + num(i) + ": ";
    if (!checkSegment(*root.segments()->Get(i)))
      return false;
  }
  context.clear();
  return true;
}

template <typename T>
bool Checker::checkAll(const flatbuffers::Vector<flatbuffers::Offset<T>> &all,
                       const std::string &what,
                       bool (Checker::*check)(const T &)) {
  std::set<std::string> names;
  for (const T *one : all) {
    if (!checkUnique(names, one->name(), what.c_str()))
      return false;
    context = what + " " + quote(one->name()->str()) + ": ";
    if (!(this->*check)(*one))
      return false;
    context.clear();
  }
  return true;
}

/// Whether each number follows from earlier ones. The fields are looked for
/// when they change.
bool Checker::checkExtents() {
  const Extents *extents = root.extents();
  for (const Kernel *kernel : *root.kernels())
    if (kernel->takes_extents() && !extents)
      return fail("kernel " + quote(kernel->name()->str()) +
                  " takes extents, but there are none");
  if (!extents)
    return true;
  context = "extents: ";
  std::set<std::string> seen;
  for (const flatbuffers::String *name : *extents->names())
    if (!checkUnique(seen, name, "extent"))
      return false;
  uint64_t count = extents->names()->size();
  if (!checkAligned(*extents->representatives(), "the list of numbers") ||
      !checkAligned(*extents->values(), "the list of values") ||
      !checkAligned(*extents->steps(), "the list of steps"))
    return false;
  if (extents->representatives()->size() != count ||
      extents->values()->size() != count)
    return fail("there are " + num(count) + " names, " +
                num(extents->representatives()->size()) + " numbers and " +
                num(extents->values()->size()) + " values");
  auto isEarlier = [&](int64_t place) {
    return place >= 0 && uint64_t(place) < count;
  };
  for (const ExtentStep *step : *extents->steps()) {
    bool isConstant = step->op() == ExtentOp::Constant;
    if (step->op() > ExtentOp::MAX ||
        (!isConstant && (!isEarlier(step->lhs()) || !isEarlier(step->rhs()))))
      return fail("number " + num(count) + " follows from no earlier ones");
    ++count;
  }
  for (const ExtentUse *use : *extents->uses())
    if (use->field() > ExtentField::MAX || !isEarlier(use->number()))
      return fail("a field becomes number " + num(use->number()) + " of " +
                  num(count));
  for (uint32_t place : *extents->limited())
    if (!isEarlier(place))
      return fail("number " + num(place) + " of " + num(count) +
                  " has a limit");
  context.clear();
  return true;
}

bool Checker::checkRest() {
  if (!checkName(root.target(), "the target") ||
      (root.cpu() && !checkName(root.cpu(), "the cpu")))
    return false;
  constexpr uint32_t mostRanks = 1024;
  if (root.sequence_ranks() < 1 || root.sequence_ranks() > mostRanks)
    return fail("sequences of " + num(root.sequence_ranks()) +
                " ranks, expected 1 to " + num(mostRanks));
  if (const auto *features = root.cpu_features())
    for (const flatbuffers::String *feature : *features)
      if (!checkName(feature, "a cpu feature"))
        return false;
  if (const auto *options = root.options())
    for (const Option *option : *options)
      if (!checkName(option->key(), "an option"))
        return false;
  for (const Binary *binary : *root.binaries())
    if (!checkName(binary->format(), "a binary's format"))
      return false;
  const auto *buffers = root.buffers();
  for (unsigned i = 0; buffers && i < buffers->size(); ++i) {
    context = "buffer " + num(i) + ": ";
    if (!checkBuffer(*buffers->Get(i)))
      return false;
  }
  context.clear();
  return true;
}

Status Checker::run() {
  if (checkSegments() &&
      checkAll(*root.tensors(), "tensor", &Checker::checkTensor) &&
      checkAll(*root.kernels(), "kernel", &Checker::checkKernel) &&
      checkAll(*root.entries(), "entry", &Checker::checkEntry) &&
      checkExtents() && checkRest())
    return {};
  return Error{error};
}

Status nsa::checkArtifact(const artifact::Artifact &root) {
  return Checker(root).run();
}
