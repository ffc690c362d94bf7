//===- ArtifactChecks.cpp - the meaning of an artefact --------------------===//

#include "runtime/Core/ArtifactChecks.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Format.h"
#include "runtime/Core/ArtifactChecker.h"

#include <cmath>

using namespace nsa;
using namespace nsa::artifact;

namespace {

/// More than any machine has, and small enough that sums of a few sizes fit.
constexpr uint64_t maxSegmentBytes = uint64_t(1) << 48;

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

} // namespace

bool artifact::holds(DataType type, double value) {
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
