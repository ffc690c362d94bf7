//===- Extents.cpp - a program for tensors of given extents ---------------===//
//
// Copies the artefact and changes the fields that follow from the extents. The
// result is checked like a file, whatever its numbers are.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Hash.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/Artifact.h"
#include "runtime/Core/ArtifactBytes.h"
#include "runtime/Core/Bindings.h"

#include <algorithm>
#include <climits>
#include <cstring>

using namespace nsa;
using artifact::ExtentField;
using artifact::ExtentOp;
using artifact::ExtentUse;
using artifact::FileHeader;

/// Extents are counted with 32 bits.
static constexpr uint64_t largestExtent = INT32_MAX;

static std::string num(uint64_t value) { return std::to_string(value); }

std::vector<std::string> Artifact::extentNames() const {
  std::vector<std::string> names;
  if (const artifact::Extents *extents = payload->extents())
    for (const flatbuffers::String *name : *extents->names())
      names.push_back(name->str());
  return names;
}

bool Artifact::needsExtents() const {
  return payload->extents() && !payload->extents()->given();
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// Rounds down; the divisor is positive.
static int64_t floorDivide(int64_t lhs, int64_t rhs) {
  return lhs / rhs - (lhs % rhs < 0 ? 1 : 0);
}

/// One step, or nothing where the result does not fit.
static std::optional<int64_t> compute(const artifact::ExtentStep &step,
                                      const std::vector<int64_t> &numbers) {
  if (step.op() == ExtentOp::Constant)
    return step.lhs();
  int64_t lhs = numbers[size_t(step.lhs())], rhs = numbers[size_t(step.rhs())];
  int64_t result = 0;
  switch (step.op()) {
  case ExtentOp::Add:
    if (__builtin_add_overflow(lhs, rhs, &result))
      return std::nullopt;
    return result;
  case ExtentOp::Multiply:
    if (__builtin_mul_overflow(lhs, rhs, &result))
      return std::nullopt;
    return result;
  case ExtentOp::FloorDivide:
    return rhs > 0 ? std::optional(floorDivide(lhs, rhs)) : std::nullopt;
  case ExtentOp::CeilDivide:
    return rhs > 0 && lhs > INT64_MIN ? std::optional(-floorDivide(-lhs, rhs))
                                      : std::nullopt;
  case ExtentOp::Maximum:
    return std::max(lhs, rhs);
  case ExtentOp::Constant:
    break;
  }
  return std::nullopt;
}

/// All numbers of the program.
static Result<std::vector<int64_t>>
computeAll(const artifact::Extents &extents,
           const std::vector<uint64_t> &values) {
  std::vector<int64_t> numbers(values.begin(), values.end());
  for (const artifact::ExtentStep *step : *extents.steps()) {
    std::optional<int64_t> number = compute(*step, numbers);
    if (!number)
      return Error{"a size does not fit into 64 bits"};
    numbers.push_back(*number);
  }
  for (uint32_t place : *extents.limited())
    if (numbers[place] > int64_t(largestExtent))
      return Error{"a kernel would count to " + std::to_string(numbers[place]) +
                   ", more than " + num(largestExtent)};
  for (const ExtentUse *use : *extents.uses())
    if (numbers[use->number()] < 0)
      return Error{"a size would be " + std::to_string(numbers[use->number()])};
  return numbers;
}

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

/// An element of a list, or null.
template <typename T>
static T *at(flatbuffers::Vector<flatbuffers::Offset<T>> *list,
             uint32_t index) {
  return list && index < list->size() ? list->GetMutableObject(index) : nullptr;
}
template <typename T>
static T *at(flatbuffers::Vector<const T *> *list, uint32_t index) {
  return list && index < list->size() ? const_cast<T *>(list->Get(index))
                                      : nullptr;
}

template <typename T>
static bool set(flatbuffers::Vector<T> *list, uint32_t index, uint64_t value) {
  if (!list || index >= list->size())
    return false;
  list->Mutate(index, T(value));
  return true;
}

/// Sets a member of a structure.
template <typename T>
static bool set(T *structure, void (T::*mutate)(uint64_t), uint64_t value) {
  if (structure)
    (structure->*mutate)(value);
  return structure;
}

/// Changes a field of an artefact in memory; whether it is there.
static bool setField(artifact::Artifact &root, const ExtentUse &use,
                     uint64_t value) {
  using namespace artifact;
  Segment *segment = at(root.mutable_segments(), use.table());
  Tensor *tensor = at(root.mutable_tensors(), use.table());
  Kernel *kernel = at(root.mutable_kernels(), use.table());
  Buffer *buffer = at(root.mutable_buffers(), use.table());
  Entry *entry = at(root.mutable_entries(), use.table());
  Command *command =
      entry ? at(entry->mutable_commands(), use.index()) : nullptr;
  auto mapOf = [&] { return at(kernel->mutable_tensor_maps(), use.index()); };
  auto setRows = [&](void (Rows::*mutate)(uint64_t)) {
    // Without the list all arguments are dense.
    auto *rows = kernel->mutable_argument_rows();
    return !rows || set(at(rows, use.index()), mutate, value);
  };
  auto setMemory = [&](void (Slice::*mutate)(uint64_t)) {
    std::vector<const Slice *> memory = slicesOf(root, *command);
    return use.part() < memory.size() &&
           set(const_cast<Slice *>(memory[use.part()]), mutate, value);
  };
  switch (use.field()) {
  case ExtentField::SegmentSize:
    return segment && segment->mutate_size(value);
  case ExtentField::TensorShape:
    return tensor && set(tensor->mutable_shape(), use.index(), value);
  case ExtentField::TensorOffset:
    return tensor && set(tensor->mutable_slice(), &Slice::mutate_offset, value);
  case ExtentField::TensorSize:
    return tensor && set(tensor->mutable_slice(), &Slice::mutate_size, value);
  case ExtentField::KernelGrid: {
    constexpr bool (Kernel::*axes[])(uint32_t) = {
        &Kernel::mutate_grid_x, &Kernel::mutate_grid_y, &Kernel::mutate_grid_z};
    return kernel && use.index() < std::size(axes) &&
           (kernel->*axes[use.index()])(uint32_t(value));
  }
  case ExtentField::KernelBytes:
    return kernel && kernel->mutate_bytes(value);
  case ExtentField::ArgumentBytes:
    return kernel && set(kernel->mutable_argument_bytes(), use.index(), value);
  case ExtentField::RowsWidth:
    return kernel && setRows(&Rows::mutate_width);
  case ExtentField::RowsPitch:
    return kernel && setRows(&Rows::mutate_pitch);
  case ExtentField::MapExtent:
    return kernel && mapOf() &&
           set(mapOf()->mutable_extents(), use.part(), value);
  case ExtentField::MapStride:
    return kernel && mapOf() &&
           set(mapOf()->mutable_strides(), use.part(), value);
  case ExtentField::SelectionTokens:
    return kernel && set(at(kernel->mutable_selections(), use.index()),
                         &Selection::mutate_tokens, value);
  case ExtentField::MemoryOffset:
    return command && setMemory(&Slice::mutate_offset);
  case ExtentField::MemorySize:
    return command && setMemory(&Slice::mutate_size);
  case ExtentField::GemmSize: {
    constexpr bool (Gemm::*sizes[])(uint64_t) = {
        &Gemm::mutate_m, &Gemm::mutate_n, &Gemm::mutate_k};
    return command && command->action_as_Gemm() &&
           use.part() < std::size(sizes) &&
           (static_cast<Gemm *>(command->mutable_action())->*sizes[use.part()])(
               value);
  }
  case ExtentField::BufferOffset:
    return buffer && set(buffer->mutable_slice(), &Slice::mutate_offset, value);
  case ExtentField::BufferSize:
    return buffer && set(buffer->mutable_slice(), &Slice::mutate_size, value);
  case ExtentField::ArenaPeak:
    return entry && entry->mutate_arena_peak(value);
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Artefacts
//===----------------------------------------------------------------------===//

static std::string describeExtents(
    const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>> &names,
    const std::vector<uint64_t> &values) {
  std::string text;
  for (unsigned i = 0; i < names.size(); ++i)
    text += (i ? ", " : "") + names[i]->str() + " " + num(values[i]);
  return text;
}

/// Whether a dimension of some tensor is the extent. Others are not asked for.
static bool isNamedByTensor(const artifact::Artifact &root, unsigned extent) {
  return std::any_of(root.extents()->uses()->begin(),
                     root.extents()->uses()->end(), [&](const ExtentUse *use) {
                       return use->field() == ExtentField::TensorShape &&
                              use->number() == extent;
                     });
}

Result<Artifact>
Artifact::withExtents(const std::vector<uint64_t> &values) const {
  auto fail = [&](const std::string &message) {
    return Error{label + ": " + message};
  };
  const artifact::Extents *extents = payload->extents();
  if (!extents)
    return fail("has no extents that are known at the call");
  if (!needsExtents())
    return fail("has been given its extents before");
  const auto &names = *extents->names();
  if (values.size() != names.size())
    return fail("is given " + num(values.size()) + " extents, but has " +
                num(names.size()));
  for (unsigned i = 0; i < names.size(); ++i)
    if (values[i] > largestExtent)
      return fail("extent " + quote(names[i]->str()) + " (" + num(values[i]) +
                  ") must be at most " + num(largestExtent));
  Result<std::vector<int64_t>> numbers = computeAll(*extents, values);
  if (!numbers)
    return fail(numbers.message() + " for " + describeExtents(names, values));
  size_t size = fileBytes();
  std::shared_ptr<uint8_t> copy = allocateBytes(size);
  if (!copy)
    return fail("no memory for " + num(size) + " bytes");
  std::memcpy(copy.get(), bytes.get(), size);
  artifact::Artifact &root =
      *artifact::GetMutableArtifact(copy.get() + sizeof header);
  for (const ExtentUse *use : *extents->uses())
    if (!setField(root, *use, uint64_t((*numbers)[use->number()])))
      return fail("has extents of a field that is not there");
  artifact::Extents &own = *root.mutable_extents();
  for (unsigned i = 0; i < values.size(); ++i)
    own.mutable_values()->Mutate(i, values[i]);
  std::vector<uint64_t> identity(values);
  identity.push_back(payload->identity());
  if (!own.mutate_given(true) ||
      !root.mutate_identity(
          hashBytes(identity.data(), identity.size() * sizeof identity[0])))
    return fail("has no field for given extents");
  FileHeader changed = header;
  changed.payloadHash =
      hashBytes(copy.get() + sizeof header, size - sizeof header);
  std::memcpy(copy.get(), &changed, sizeof changed);
  Result<Artifact> result = read(std::move(copy), size, label);
  if (!result)
    return Error{result.message() + " (for " + describeExtents(names, values) +
                 ")"};
  return result;
}

Result<Artifact> Artifact::withShapes(
    const std::map<std::string, std::vector<uint64_t>> &shapes) const {
  auto fail = [&](const std::string &message) {
    return Error{label + ": " + message};
  };
  const artifact::Extents *extents = payload->extents();
  if (!extents)
    return fail("has no extents that are known at the call");
  const auto &names = *extents->names();
  std::vector<uint64_t> values(names.size());
  std::vector<std::string> sources(names.size());
  for (const ExtentUse *use : *extents->uses()) {
    // Only dimensions that are an extent itself say what it is.
    if (use->field() != ExtentField::TensorShape ||
        use->number() >= names.size())
      continue;
    const artifact::Tensor &tensor = *payload->tensors()->Get(use->table());
    auto given = shapes.find(tensor.name()->str());
    if (given == shapes.end() || use->index() >= given->second.size())
      continue;
    uint64_t value = given->second[use->index()];
    std::string &source = sources[use->number()];
    if (!source.empty() && values[use->number()] != value)
      return fail(quote(names[use->number()]->str()) + " is " +
                  num(values[use->number()]) + " in " + source + ", but " +
                  num(value) + " in " + quote(given->first));
    values[use->number()] = value;
    source = quote(given->first);
  }
  for (unsigned i = 0; i < names.size(); ++i)
    if (sources[i].empty() && isNamedByTensor(*payload, i))
      return fail("no tensor says what the extent " + quote(names[i]->str()) +
                  " is");
  return withExtents(values);
}
