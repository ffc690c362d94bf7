//===- ForeignArrays.cpp - arrays of other libraries ----------------------===//

#include "lib/Python/ForeignArrays.h"
#include "lib/Python/DLPack.h"
#include "lib/Python/Errors.h"
#include "lib/Support/Text.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace py = pybind11;

using namespace nsa;

std::string ArrayUse::about() const {
  return "entry " + quote(*entry) + ": argument " + quote(*argument);
}

[[noreturn]] static void fail(const ArrayUse &use, const std::string &text) {
  throw PythonError(kInputError, use.about() + " " + text);
}

[[noreturn]] static void failType(const ArrayUse &use,
                                  const std::string &found) {
  fail(use, "is " + found + ", expected " + typeName(use.expected));
}

/// Strides in elements; no array has others that kernels could use.
static std::vector<int64_t> toElements(const ArrayUse &use,
                                       const std::vector<int64_t> &bytes,
                                       int64_t elementSize) {
  std::vector<int64_t> strides;
  for (int64_t stride : bytes) {
    if (stride % elementSize != 0)
      fail(use, "has a stride of " + std::to_string(stride) +
                    " bytes, expected a multiple of the " +
                    std::to_string(elementSize) + " of an element");
    strides.push_back(stride / elementSize);
  }
  return strides;
}

//===----------------------------------------------------------------------===//
// NumPy
//===----------------------------------------------------------------------===//

/// Elements of `size` bytes by the letter of NumPy's kinds.
static std::optional<DataType> findType(char kind, int64_t size) {
  if (kind == 'f' && size == 4)
    return DataType::F32;
  if (kind == 'f' && size == 2)
    return DataType::F16;
  if (kind == 'u' && size == 2)
    return DataType::BF16;
  if (kind == 'i' && size == 4)
    return DataType::I32;
  if (kind == 'i' && size == 8)
    return DataType::I64;
  if (kind == 'u' && size == 1)
    return DataType::U8;
  return std::nullopt;
}

static DataType typeOf(const ArrayUse &use, const py::dtype &dtype) {
  std::optional<DataType> type = findType(dtype.kind(), dtype.itemsize());
  if (type && dtype.byteorder() != '>')
    return *type;
  std::string text = py::str(py::handle(dtype));
  if (text != "bfloat16")
    failType(use, text);
  return DataType::BF16;
}

static HeldArray viewNumpy(const py::array &value, const ArrayUse &use) {
  Array array;
  array.type = typeOf(use, value.dtype());
  array.data = const_cast<void *>(value.data());
  array.shape.assign(value.shape(), value.shape() + value.ndim());
  array.strides = toElements(
      use, {value.strides(), value.strides() + value.ndim()}, value.itemsize());
  array.isReadOnly = !value.writeable();
  return {std::move(array), value};
}

//===----------------------------------------------------------------------===//
// DLPack
//===----------------------------------------------------------------------===//

static DataType typeOf(const ArrayUse &use, dlpack::DataTypeCode type) {
  static const char *const names[] = {"int",    "uint",    "float",
                                      "opaque", "bfloat",  "complex",
                                      "bool",   "float8?", "float8?"};
  static const char kinds[] = {'i', 'u', 'f'};
  std::optional<DataType> found;
  if (type.code == dlpack::kBFloat && type.bits == 16)
    found = DataType::BF16;
  else if (type.code <= dlpack::kFloat && type.bits % 8 == 0)
    found = findType(kinds[type.code], type.bits / 8);
  if (found && type.lanes == 1)
    return *found;
  std::string code = type.code < std::size(names)
                         ? names[type.code]
                         : "type " + std::to_string(type.code) + " of ";
  failType(use, code + std::to_string(type.bits) +
                    (type.lanes == 1 ? "" : "x" + std::to_string(type.lanes)));
}

static Device deviceOf(const ArrayUse &use, const dlpack::Tensor &tensor) {
  switch (tensor.deviceType) {
  case dlpack::kCPU:
  case dlpack::kCUDAHost:
    return {};
  case dlpack::kCUDA:
  case dlpack::kCUDAManaged:
    return {Device::Kind::CUDA, tensor.deviceNumber};
  default:
    fail(use, "lies on a device of DLPack's type " +
                  std::to_string(tensor.deviceType) +
                  ", expected 1 (cpu) or 2 (cuda)");
  }
}

/// The capsule of an array. What is written is asked for with a version, which
/// says whether it may be written; older libraries know none.
static py::object exportCapsule(py::handle value, const ArrayUse &use) {
  py::dict options;
  try {
    auto device = value.attr("__dlpack_device__")().cast<py::tuple>();
    // By the array API standard, 1 is the default stream.
    if (device[0].cast<int>() == dlpack::kCUDA)
      options["stream"] = use.stream ? use.stream : 1;
    if (use.isWritten) {
      try {
        return value.attr("__dlpack__")(**options, py::arg("max_version") =
                                                       py::make_tuple(1, 0));
      } catch (py::error_already_set &error) {
        if (!error.matches(PyExc_TypeError))
          throw;
      }
    }
    return value.attr("__dlpack__")(**options);
  } catch (py::error_already_set &error) {
    raiseFrom(error, kInputError,
              use.about() + " cannot be had by DLPack: " +
                  py::str(error.value()).cast<std::string>());
  }
}

static HeldArray viewDLPack(py::handle value, const ArrayUse &use) {
  py::object capsule = exportCapsule(value, use);
  const dlpack::Tensor *tensor = nullptr;
  bool isReadOnly = false;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    tensor = &static_cast<dlpack::Managed *>(
                  PyCapsule_GetPointer(capsule.ptr(), "dltensor"))
                  ->tensor;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    auto *managed = static_cast<dlpack::ManagedVersioned *>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->major != 1)
      fail(use, "comes by DLPack " + std::to_string(managed->major) +
                    ", expected version 1");
    tensor = &managed->tensor;
    isReadOnly = managed->flags & dlpack::kReadOnly;
  } else {
    fail(use, "has a method __dlpack__ that gives no capsule of DLPack");
  }
  Array array;
  array.type = typeOf(use, tensor->type);
  array.device = deviceOf(use, *tensor);
  array.data = static_cast<char *>(tensor->data) + tensor->byteOffset;
  array.shape.assign(tensor->shape, tensor->shape + tensor->rank);
  if (tensor->strides)
    array.strides.assign(tensor->strides, tensor->strides + tensor->rank);
  array.isReadOnly = isReadOnly;
  // A capsule that no consumer has renamed frees the memory.
  return {std::move(array), std::move(capsule)};
}

//===----------------------------------------------------------------------===//
// PyTorch
//===----------------------------------------------------------------------===//

/// The class torch.Tensor; none while PyTorch is not imported.
static py::handle findTensorClass() {
  static py::handle tensor;
  if (!tensor) {
    PyObject *modules = PyImport_GetModuleDict();
    if (PyObject *torch = PyDict_GetItemString(modules, "torch"))
      // It lives as long as the interpreter.
      tensor = py::getattr(torch, "Tensor", py::none()).release();
  }
  return tensor;
}

/// By the address of a torch.dtype, of which there is one for each type.
static DataType typeOfTensor(const ArrayUse &use, py::handle dtype) {
  static std::vector<std::pair<PyObject *, std::optional<DataType>>> known;
  for (const auto &[object, type] : known)
    if (object == dtype.ptr() && type)
      return *type;
  static const std::pair<const char *, DataType> names[] = {
      {"torch.float32", DataType::F32}, {"torch.bfloat16", DataType::BF16},
      {"torch.float16", DataType::F16}, {"torch.int32", DataType::I32},
      {"torch.int64", DataType::I64},   {"torch.uint8", DataType::U8},
      {"torch.uint16", DataType::BF16}};
  auto text = py::str(dtype).cast<std::string>();
  for (const auto &[name, type] : names)
    if (text == name) {
      known.emplace_back(dtype.inc_ref().ptr(), type);
      return type;
    }
  failType(use, text);
}

static std::vector<int64_t> toNumbers(const py::tuple &values) {
  std::vector<int64_t> numbers;
  numbers.reserve(values.size());
  for (py::handle value : values)
    numbers.push_back(PyLong_AsLongLong(value.ptr()));
  return numbers;
}

namespace {

/// Names of attributes of a tensor, made once.
struct TensorNames {
  static PyObject *intern(const char *name) {
    return PyUnicode_InternFromString(name);
  }
  PyObject *dataPtr = intern("data_ptr"), *device = intern("get_device"),
           *dtype = intern("dtype"), *isCPU = intern("is_cpu"),
           *isCUDA = intern("is_cuda"), *isNeg = intern("is_neg"),
           *isSparse = intern("is_sparse"), *shape = intern("shape"),
           *requiresGrad = intern("requires_grad"), *stride = intern("stride");

  static const TensorNames &get() {
    static const TensorNames names;
    return names;
  }
};

} // namespace

static py::object take(PyObject *made) {
  if (!made)
    throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

static py::object member(py::handle value, PyObject *name) {
  return take(PyObject_GetAttr(value.ptr(), name));
}

static bool has(py::handle value, PyObject *name) {
  return member(value, name).ptr() == Py_True;
}

static py::object callMethod(py::handle value, PyObject *name) {
  return take(PyObject_CallMethodNoArgs(value.ptr(), name));
}

/// Without DLPack, whose calls take longer than small kernels run.
static HeldArray viewTensor(py::handle value, const ArrayUse &use) {
  const TensorNames &names = TensorNames::get();
  if (has(value, names.requiresGrad))
    fail(use, "requires a gradient, which this call does not record; expected "
              "a tensor without: detach() gives one");
  Array array;
  array.type = typeOfTensor(use, member(value, names.dtype));
  array.shape = toNumbers(member(value, names.shape));
  array.strides = toNumbers(callMethod(value, names.stride));
  array.data = PyLong_AsVoidPtr(callMethod(value, names.dataPtr).ptr());
  if (has(value, names.isCUDA)) {
    py::object number = callMethod(value, names.device);
    array.device = {Device::Kind::CUDA, number.cast<int>()};
  }
  return {std::move(array), py::reinterpret_borrow<py::object>(value)};
}

/// Whether it is a dense tensor of PyTorch itself in the memory of the CPU or a
/// CUDA GPU; for others, DLPack decides.
static bool isPlainTensor(py::handle value) {
  py::handle tensor = findTensorClass();
  if (!tensor || py::type::handle_of(value).ptr() != tensor.ptr())
    return false;
  const TensorNames &names = TensorNames::get();
  return (has(value, names.isCUDA) || has(value, names.isCPU)) &&
         !has(value, names.isSparse) &&
         callMethod(value, names.isNeg).ptr() != Py_True;
}

//===----------------------------------------------------------------------===//
// The CUDA array interface
//===----------------------------------------------------------------------===//

static HeldArray viewInterface(py::handle value, const ArrayUse &use,
                               ProducerStream &producer) {
  try {
    py::dict interface = value.attr("__cuda_array_interface__");
    auto kind = interface["typestr"].cast<std::string>();
    int64_t size = kind.size() > 2 ? std::stoll(kind.substr(2)) : 0;
    std::optional<DataType> type = findType(kind[1], size);
    if (!type || kind[0] == '>')
      failType(use, kind);
    auto data = interface["data"].cast<std::pair<uint64_t, bool>>();
    Array array;
    array.type = *type;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so it is given.
    array.data = reinterpret_cast<void *>(data.first);
    array.isReadOnly = data.second;
    array.shape = interface["shape"].cast<std::vector<int64_t>>();
    if (interface.contains("strides") && !interface["strides"].is_none())
      array.strides = toElements(
          use, interface["strides"].cast<std::vector<int64_t>>(), size);
    array.device = {Device::Kind::CUDA, use.gpu};
    if (py::hasattr(value, "device") && py::hasattr(value.attr("device"), "id"))
      array.device.number = value.attr("device").attr("id").cast<int>();
    if (interface.contains("stream") && !interface["stream"].is_none())
      producer = interface["stream"].cast<uint64_t>();
    return {std::move(array), py::reinterpret_borrow<py::object>(value)};
  } catch (py::error_already_set &error) {
    raiseFrom(error, kInputError,
              use.about() + " has a wrong __cuda_array_interface__: " +
                  py::str(error.value()).cast<std::string>());
  } catch (const py::cast_error &) {
    fail(use, "has a __cuda_array_interface__ with a member of another type");
  }
}

HeldArray nsa::viewArray(py::handle value, const ArrayUse &use,
                         ProducerStream &producer) {
  if (py::isinstance<py::array>(value))
    return viewNumpy(py::reinterpret_borrow<py::array>(value), use);
  if (isPlainTensor(value))
    return viewTensor(value, use);
  if (py::hasattr(value, "__dlpack__"))
    return viewDLPack(value, use);
  if (py::hasattr(value, "__cuda_array_interface__"))
    return viewInterface(value, use, producer);
  if (py::hasattr(value, "__array_interface__") ||
      PyObject_CheckBuffer(value.ptr()))
    if (auto array = py::array::ensure(value))
      return viewNumpy(array, use);
  PyErr_Clear();
  fail(use,
       "is a " +
           py::str(py::type::of(value).attr("__name__")).cast<std::string>() +
           ", expected an array: one of NumPy, or with DLPack, the array "
           "interface or the CUDA array interface");
}
