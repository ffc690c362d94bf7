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

namespace {
/// Changes fields of an artefact in memory. Each function returns whether the
/// field is there.
class Fields {
public:
  explicit Fields(artifact::Artifact &root) : root(root) {}

  bool set(const ExtentUse &use, uint64_t value);

private:
  template <typename T>
  static T *at(flatbuffers::Vector<flatbuffers::Offset<T>> *list,
               uint32_t index) {
    return list && index < list->size() ? list->GetMutableObject(index)
                                        : nullptr;
  }
  template <typename T>
  static bool setElement(flatbuffers::Vector<T> *list, uint32_t index,
                         uint64_t value) {
    if (!list || index >= list->size())
      return false;
    list->Mutate(index, T(value));
    return true;
  }
  static bool setPart(artifact::Slice *slice, bool isSize, uint64_t value) {
    if (!slice)
      return false;
    if (isSize)
      slice->mutate_size(value);
    else
      slice->mutate_offset(value);
    return true;
  }
  bool setGrid(artifact::Kernel &kernel, uint32_t axis, uint64_t value);
  bool setOfKernel(const ExtentUse &use, uint64_t value);
  bool setOfTensor(const ExtentUse &use, uint64_t value);
  bool setOfBuffer(const ExtentUse &use, uint64_t value);
  bool setOfEntry(const ExtentUse &use, uint64_t value);
  static artifact::Slice *getMemory(artifact::Command &command, uint32_t part);

  artifact::Artifact &root;
};
} // namespace

bool Fields::setGrid(artifact::Kernel &kernel, uint32_t axis, uint64_t value) {
  auto extent = uint32_t(value);
  switch (axis) {
  case 0:
    return kernel.mutate_grid_x(extent);
  case 1:
    return kernel.mutate_grid_y(extent);
  default:
    return axis == 2 && kernel.mutate_grid_z(extent);
  }
}

bool Fields::setOfKernel(const ExtentUse &use, uint64_t value) {
  artifact::Kernel *kernel = at(root.mutable_kernels(), use.table());
  if (!kernel)
    return false;
  switch (use.field()) {
  case ExtentField::KernelGrid:
    return setGrid(*kernel, use.index(), value);
  case ExtentField::KernelBytes:
    return kernel->mutate_bytes(value);
  case ExtentField::ArgumentBytes:
    return setElement(kernel->mutable_argument_bytes(), use.index(), value);
  case ExtentField::RowsWidth:
  case ExtentField::RowsPitch: {
    auto *rows = kernel->mutable_argument_rows();
    // Without the list all arguments are dense.
    if (!rows || use.index() >= rows->size())
      return !rows;
    auto *own = const_cast<artifact::Rows *>(rows->Get(use.index()));
    if (use.field() == ExtentField::RowsWidth)
      own->mutate_width(value);
    else
      own->mutate_pitch(value);
    return true;
  }
  case ExtentField::MapExtent:
  case ExtentField::MapStride: {
    artifact::TensorMap *map = at(kernel->mutable_tensor_maps(), use.index());
    return map && setElement(use.field() == ExtentField::MapExtent
                                 ? map->mutable_extents()
                                 : map->mutable_strides(),
                             use.part(), value);
  }
  default: {
    auto *selections = kernel->mutable_selections();
    if (!selections || use.index() >= selections->size())
      return false;
    const_cast<artifact::Selection *>(selections->Get(use.index()))
        ->mutate_tokens(value);
    return true;
  }
  }
}

bool Fields::setOfTensor(const ExtentUse &use, uint64_t value) {
  artifact::Tensor *tensor = at(root.mutable_tensors(), use.table());
  if (!tensor)
    return false;
  if (use.field() == ExtentField::TensorShape)
    return setElement(tensor->mutable_shape(), use.index(), value);
  return setPart(tensor->mutable_slice(),
                 use.field() == ExtentField::TensorSize, value);
}

bool Fields::setOfBuffer(const ExtentUse &use, uint64_t value) {
  artifact::Buffer *buffer = at(root.mutable_buffers(), use.table());
  return buffer && setPart(buffer->mutable_slice(),
                           use.field() == ExtentField::BufferSize, value);
}

artifact::Slice *Fields::getMemory(artifact::Command &command, uint32_t part) {
  auto choose = [part](std::initializer_list<artifact::Slice *> memory) {
    return part < memory.size() ? memory.begin()[part] : nullptr;
  };
  void *action = command.mutable_action();
  switch (command.action_type()) {
  case artifact::Action::Launch: {
    auto *operands =
        static_cast<artifact::Launch *>(action)->mutable_operands();
    return part < operands->size()
               ? const_cast<artifact::Slice *>(operands->Get(part))
               : nullptr;
  }
  case artifact::Action::Gemm: {
    auto *gemm = static_cast<artifact::Gemm *>(action);
    return choose({gemm->mutable_lhs(), gemm->mutable_rhs(),
                   gemm->mutable_out(), gemm->mutable_workspace()});
  }
  case artifact::Action::Fill:
    return choose({static_cast<artifact::Fill *>(action)->mutable_out()});
  case artifact::Action::Copy: {
    auto *copy = static_cast<artifact::Copy *>(action);
    return choose({copy->mutable_source(), copy->mutable_out()});
  }
  default:
    return nullptr;
  }
}

bool Fields::setOfEntry(const ExtentUse &use, uint64_t value) {
  artifact::Entry *entry = at(root.mutable_entries(), use.table());
  if (!entry)
    return false;
  if (use.field() == ExtentField::ArenaPeak)
    return entry->mutate_arena_peak(value);
  artifact::Command *command = at(entry->mutable_commands(), use.index());
  if (!command)
    return false;
  if (use.field() != ExtentField::GemmSize)
    return setPart(getMemory(*command, use.part()),
                   use.field() == ExtentField::MemorySize, value);
  if (command->action_type() != artifact::Action::Gemm)
    return false;
  auto *gemm = static_cast<artifact::Gemm *>(command->mutable_action());
  switch (use.part()) {
  case 0:
    return gemm->mutate_m(value);
  case 1:
    return gemm->mutate_n(value);
  default:
    return use.part() == 2 && gemm->mutate_k(value);
  }
}

bool Fields::set(const ExtentUse &use, uint64_t value) {
  switch (use.field()) {
  case ExtentField::SegmentSize: {
    artifact::Segment *segment = at(root.mutable_segments(), use.table());
    return segment && segment->mutate_size(value);
  }
  case ExtentField::TensorShape:
  case ExtentField::TensorOffset:
  case ExtentField::TensorSize:
    return setOfTensor(use, value);
  case ExtentField::BufferOffset:
  case ExtentField::BufferSize:
    return setOfBuffer(use, value);
  case ExtentField::MemoryOffset:
  case ExtentField::MemorySize:
  case ExtentField::GemmSize:
  case ExtentField::ArenaPeak:
    return setOfEntry(use, value);
  default:
    return setOfKernel(use, value);
  }
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
  Fields fields(root);
  for (const ExtentUse *use : *extents->uses())
    if (!fields.set(*use, uint64_t((*numbers)[use->number()])))
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
