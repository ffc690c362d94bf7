//===- EntryChecks.cpp - the entries of an artefact and their commands ----===//

#include "lib/Support/Text.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Artifact/GemmWorkspace.h"
#include "runtime/Core/ArtifactChecker.h"
#include "runtime/Core/Bindings.h"

#include <algorithm>
#include <climits>

using namespace nsa;
using namespace nsa::artifact;

static bool overlap(const Slice &a, const Slice &b) {
  return a.segment() == b.segment() && a.size() > 0 && b.size() > 0 &&
         a.offset() < b.offset() + b.size() &&
         b.offset() < a.offset() + a.size();
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
  // Sequences are no more than bytes, and halos no longer than rows.
  bool fits = ranks > 1 && row > 0 && row * 2 * sequences == own.size() &&
              halo != 0 && halo <= row;
  if (fits && copy.pattern() == ChunkPattern::Own)
    fits = whole.size() == own.size() + 2 * sequences * halo;
  else if (fits)
    fits = whole.size() % (2 * ranks) == 0 &&
           whole.size() / (2 * ranks) == sequences * halo;
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
  const Slice *rows = start.rows();
  if (isOfSequences(start.kind()) != (rows != nullptr))
    return fail((rows ? "has rows, a " : "has no rows, a ") +
                std::string(collectiveName(start.kind())));
  if (rows) {
    uint64_t chunks = memory.size() / root.sequence_ranks();
    if (!checkSlice(*rows, "rows", sliceAlignment))
      return false;
    uint64_t step = 2 * start.sequences() * elementBytes(start.type());
    if (rows->size() < chunks || rows->size() % step != 0)
      return fail("has " + num(rows->size()) + " bytes of rows, expected " +
                  num(chunks) + " or more in two rows of each sequence");
    if (overlap(*rows, memory))
      return fail("has rows that overlap the sequences");
  }
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

/// Whether one writes what the other one touches.
static bool conflict(const CollectiveStart &a, const CollectiveStart &b) {
  for (auto [writer, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    bool sums = writer->kind() == CollectiveKind::ReduceScatterSequence;
    const Slice &written = sums ? *writer->rows() : *writer->memory();
    if (overlap(written, *other->memory()) ||
        (other->rows() && overlap(written, *other->rows())))
      return true;
  }
  return false;
}

/// Every reduction ends once, and those in progress are of different memory.
/// Grouped ones begin together.
bool Checker::checkReductions(const Entry &entry) {
  std::vector<const CollectiveStart *> running;
  const CollectiveStart *grouped = nullptr;
  for (const Command *command : *entry.commands()) {
    const auto *start = command->action_as_CollectiveStart();
    if (grouped && (!start || start->kind() != grouped->kind()))
      return fail("groups a reduction with another command than the next start "
                  "of its kind");
    grouped = start && start->grouped() ? start : nullptr;
    if (start) {
      for (const CollectiveStart *other : running)
        if (conflict(*other, *start))
          return fail("starts to reduce memory that is being reduced");
      running.push_back(start);
    }
    const auto *done = command->action_as_CollectiveDone();
    if (!done)
      continue;
    auto isSame = [&](const CollectiveStart *started) {
      const Slice *slice = started->memory();
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
