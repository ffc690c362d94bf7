//===- Session.cpp - entries called with arrays ---------------------------===//

#include "nsa/Runtime/Session.h"
#include "lib/Support/Fork.h"
#include "lib/Support/Suggest.h"
#include "lib/Support/Text.h"
#include "nsa/Artifact/TrainingContract.h"

#include <algorithm>
#include <cstdint>

using namespace nsa;

std::string Device::text() const {
  return kind == Kind::CPU ? "cpu" : "cuda:" + std::to_string(number);
}

/// "(2, 128)".
template <typename T>
static std::string tuple(const std::vector<T> &values) {
  std::string text = "(";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? ", " : "") + std::to_string(values[i]);
  return text + (values.size() == 1 ? ",)" : ")");
}

//===----------------------------------------------------------------------===//
// One array
//===----------------------------------------------------------------------===//

/// Of dense row-major elements.
static std::vector<int64_t> denseStrides(const std::vector<uint64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * int64_t(std::max<uint64_t>(shape[i], 1));
  return strides;
}

/// Whether elements lie as `dense` says; strides of a dimension with one
/// element mean nothing.
static bool isDense(const Array &array, const std::vector<int64_t> &dense) {
  if (array.strides.empty())
    return true;
  for (size_t i = 0; i < dense.size(); ++i)
    if (array.shape[i] > 1 && array.strides[i] != dense[i])
      return false;
  return true;
}

/// What is wrong with an array for a tensor, to follow "argument 'q' "; empty
/// if nothing is.
static std::string findMismatch(const TensorView &tensor, const Array &array,
                                const Device &device, bool isWritten) {
  if (array.type != tensor.type)
    return std::string("is ") + typeName(array.type) + ", expected " +
           typeName(tensor.type);
  if (!std::equal(array.shape.begin(), array.shape.end(), tensor.shape.begin(),
                  tensor.shape.end(), [](int64_t a, uint64_t b) {
                    return a >= 0 && uint64_t(a) == b;
                  }))
    return "has shape " + tuple(array.shape) + ", expected " +
           tuple(tensor.shape);
  if (!(array.device == device))
    return "lies on " + array.device.text() + ", expected " + device.text();
  if (tensor.bytes == 0)
    return "";
  std::vector<int64_t> dense = denseStrides(tensor.shape);
  if (!isDense(array, dense))
    return "has strides " + tuple(array.strides) + " in elements, expected " +
           tuple(dense);
  uint64_t alignment = device.kind == Device::Kind::CPU
                           ? elementBytes(tensor.type)
                           : gpuArrayAlignment;
  auto address = reinterpret_cast<uint64_t>(array.data);
  if (!address)
    return "has no memory";
  if (address % alignment != 0)
    return "begins " + std::to_string(address % alignment) +
           " bytes past a multiple of " + std::to_string(alignment) +
           " bytes, expected 0";
  if (isWritten && array.isReadOnly)
    return "is read-only, expected an array that can be written";
  return "";
}

//===----------------------------------------------------------------------===//
// All arguments
//===----------------------------------------------------------------------===//

namespace {

/// A tensor of an entry, and how it is used.
struct Slot {
  const TensorView *tensor;
  unsigned index;
  bool isInput = false, isOutput = false;
  const Array *array = nullptr;
};

} // namespace

static std::vector<Slot> slotsOf(const Program &program,
                                 const EntryInfo &entry) {
  std::vector<Slot> slots;
  auto slot = [&](unsigned index) -> Slot & {
    for (Slot &known : slots)
      if (known.index == index)
        return known;
    return slots.emplace_back(Slot{&program.tensors()[index], index});
  };
  for (unsigned index : entry.inputs)
    slot(index).isInput = true;
  for (unsigned index : entry.outputs)
    slot(index).isOutput = true;
  return slots;
}

/// The slot of an argument, or an error that lists the names.
static Result<Slot *> findSlot(const EntryInfo &entry, std::vector<Slot> &slots,
                               const std::string &name) {
  for (Slot &slot : slots)
    if (slot.tensor->name == name)
      return &slot;
  std::vector<std::string> names;
  names.reserve(slots.size());
  for (const Slot &slot : slots)
    names.push_back(slot.tensor->name);
  std::string list;
  for (const std::string &known : names)
    list += (list.empty() ? "" : ", ") + known;
  return Error{"entry " + quote(entry.name) + " has no argument " +
               quote(name) + suggestion(name, names) + "; it has " + list};
}

/// Two arrays of which one is written must not overlap.
static Status checkOverlap(const EntryInfo &entry,
                           const std::vector<Slot> &slots) {
  for (const Slot &written : slots) {
    if (!written.isOutput || !written.array)
      continue;
    const char *begin = static_cast<const char *>(written.array->data);
    for (const Slot &other : slots) {
      if (&other == &written || !other.array)
        continue;
      const char *start = static_cast<const char *>(other.array->data);
      if (begin < start + other.tensor->bytes &&
          start < begin + written.tensor->bytes)
        return Error{"entry " + quote(entry.name) + ": argument " +
                     quote(written.tensor->name) +
                     " is written and shares memory with argument " +
                     quote(other.tensor->name)};
    }
  }
  return {};
}

bool Session::isNeeded(const TensorView &input) const {
  return input.role == TensorRole::Input ||
         ((input.role == TensorRole::Parameter ||
           input.role == TensorRole::Constant) &&
          !loaded.findEntry(training::initEntry));
}

Result<std::vector<Binding>>
Session::bind(const EntryInfo &entry,
              const std::vector<Argument> &arguments) const {
  std::vector<Slot> slots = slotsOf(loaded, entry);
  for (const Argument &argument : arguments) {
    NSA_ASSIGN_OR_RETURN(Slot * found, findSlot(entry, slots, argument.name));
    Slot &slot = *found;
    std::string about =
        "entry " + quote(entry.name) + ": argument " + quote(argument.name);
    if (slot.array)
      return Error{about + " is given twice"};
    if (std::string text =
            findMismatch(*slot.tensor, argument.array, place, slot.isOutput);
        !text.empty())
      return Error{about + " " + text};
    slot.array = &argument.array;
  }
  std::string missing;
  for (const Slot &slot : slots)
    if (slot.isInput && !slot.array && isNeeded(*slot.tensor))
      missing += (missing.empty() ? "" : ", ") + slot.tensor->name + " (" +
                 typeName(slot.tensor->type) + " " + tuple(slot.tensor->shape) +
                 ")";
  if (!missing.empty())
    return Error{"entry " + quote(entry.name) + " needs " + missing};
  NSA_RETURN_IF_ERROR(checkOverlap(entry, slots));
  std::vector<Binding> bindings;
  for (const Slot &slot : slots)
    if (slot.array && slot.tensor->bytes != 0)
      bindings.push_back({slot.index, slot.array->data});
  return bindings;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<Session>>
Session::create(const Artifact &artifact, const RuntimeOptions &options) {
  NSA_ASSIGN_OR_RETURN(Program program, Program::create(artifact, options));
  bool isCPU = artifact->target()->string_view() == artifact::cpuTarget;
  Device device = isCPU ? Device() : Device{Device::Kind::CUDA, options.device};
  return std::unique_ptr<Session>(new Session(std::move(program), device));
}

Session::Session(Program program, Device device)
    : loaded(std::move(program)), place(device), generation(forkGeneration()) {}

Status Session::checkProcess() const {
  if (place.kind == Device::Kind::CPU || generation == forkGeneration())
    return {};
  return Error{loaded.artifact().name() +
               ": was loaded on a GPU by the process that this one was forked "
               "from, and works only there; load it here, in a process that "
               "was started by 'spawn'"};
}

Status Session::run(const EntryInfo &entry,
                    const std::vector<Binding> &bindings,
                    std::optional<uint64_t> stream,
                    const std::vector<uint64_t> &producers, void *scratch) {
  NoFork noFork;
  std::lock_guard<std::mutex> lock(mutex);
  NSA_RETURN_IF_ERROR(checkProcess());
  NSA_RETURN_IF_ERROR(loaded.bind(entry, bindings, scratch));
  if (stream && producers.empty() && loaded.canEnqueue())
    return loaded.enqueue(entry, *stream);
  for (uint64_t producer : producers)
    NSA_RETURN_IF_ERROR(loaded.waitFor(producer));
  // Without a stream, what wrote the arrays is on the default one.
  NSA_RETURN_IF_ERROR(loaded.waitFor(stream.value_or(0)));
  if (!stream)
    return loaded.run(entry);
  Status started = loaded.start(entry);
  // Whatever has been started uses the caller's memory.
  Status released = loaded.release(*stream);
  return started ? released : started;
}

Status Session::call(const EntryInfo &entry,
                     const std::vector<Argument> &arguments,
                     std::optional<uint64_t> stream) {
  Result<std::vector<Binding>> bindings = bind(entry, arguments);
  return bindings ? run(entry, *bindings, stream)
                  : Status(bindings.takeError());
}

Status Session::call(std::string_view entry,
                     const std::vector<Argument> &arguments,
                     std::optional<uint64_t> stream) {
  Result<const EntryInfo *> info = loaded.entry(entry);
  return info ? call(**info, arguments, stream) : Status(info.takeError());
}

Status Session::use(const EntryInfo *entry,
                    const std::function<Status(Program &)> &action) {
  NoFork noFork;
  std::lock_guard<std::mutex> lock(mutex);
  NSA_RETURN_IF_ERROR(checkProcess());
  if (entry)
    NSA_RETURN_IF_ERROR(loaded.bind(*entry, {}));
  return action(loaded);
}
