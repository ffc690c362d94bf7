//===- KernelChecks.cpp - the arguments of a kernel -----------------------===//

#include "runtime/Core/KernelChecks.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Artifact/TensorMap.h"

#include <algorithm>

using namespace nsa;
using artifact::Kernel;

static std::string num(uint64_t value) { return std::to_string(value); }

static Status checkTypesAndSizes(const Kernel &kernel) {
  if (const auto *types = kernel.argument_types()) {
    if (types->size() != kernel.arguments())
      return Error{"it has " + num(types->size()) + " argument types for " +
                   num(kernel.arguments()) + " arguments"};
    for (DataType type : *types)
      if (type > DataType::MAX)
        return Error{"unknown argument type " + num(uint64_t(type))};
  }
  if (const auto *bytes = kernel.argument_bytes()) {
    if (!isAligned(*bytes))
      return Error{"its list of argument sizes is misaligned in the file"};
    if (bytes->size() != kernel.arguments())
      return Error{"it has " + num(bytes->size()) + " argument sizes for " +
                   num(kernel.arguments()) + " arguments"};
  }
  return {};
}

static Status checkRows(const Kernel &kernel) {
  const auto *rows = kernel.argument_rows();
  if (!rows)
    return {};
  if (!kernel.argument_types() || !kernel.argument_bytes())
    return Error{"it has rows of arguments, but not their types and sizes"};
  if (!isAligned(*rows))
    return Error{"its list of rows is misaligned in the file"};
  if (rows->size() != kernel.arguments())
    return Error{"it has rows of " + num(rows->size()) + " arguments for " +
                 num(kernel.arguments()) + " arguments"};
  for (unsigned i = 0; i < rows->size(); ++i) {
    uint64_t width = rows->Get(i)->width(), pitch = rows->Get(i)->pitch();
    uint64_t elements = kernel.argument_bytes()->Get(i) /
                        elementBytes(kernel.argument_types()->Get(i));
    bool isEmpty = elements == 0 && width <= pitch;
    if (!isEmpty && (width == 0 || width > pitch || width > elements ||
                     (elements - width) % pitch != 0))
      return Error{"argument " + num(i) + " of " + num(elements) +
                   " elements cannot be rows of " + num(width) +
                   " elements at a distance of " + num(pitch)};
  }
  return {};
}

/// Whether a map, whose argument exists, is one that the hardware can have and
/// describes memory of that argument alone. With extents of a call the argument
/// may be empty: nothing is copied of it.
static Status checkMap(const Kernel &kernel, const artifact::TensorMap &map) {
  if (!isAligned(*map.extents()) || !isAligned(*map.strides()))
    return Error{"its extents or strides are misaligned in the file"};
  DataType type = kernel.argument_types()->Get(map.argument());
  if (!isFloat(type) && type != DataType::I32)
    return Error{"argument " + num(map.argument()) + " has elements of type " +
                 typeName(type) + ", which is none of f32, bf16, f16 and i32"};
  if (kernel.takes_extents() && isEmptyTensorMap(*map.extents()) &&
      kernel.argument_bytes()->Get(map.argument()) == 0)
    return {};
  std::string mistake =
      findTensorMapMistake(*map.extents(), *map.strides(), *map.box(),
                           map.swizzle(), elementBytes(type));
  if (!mistake.empty())
    return Error{mistake};
  uint64_t described =
      tensorMapSpan(*map.extents(), *map.strides(), elementBytes(type));
  uint64_t bytes = kernel.argument_bytes()->Get(map.argument());
  if (described > bytes)
    return Error{"describes " + num(described) + " bytes of argument " +
                 num(map.argument()) + ", which has " + num(bytes)};
  return {};
}

static Status checkMaps(const Kernel &kernel, bool isCPU) {
  const auto *maps = kernel.tensor_maps();
  if (!maps || maps->size() == 0)
    return {};
  if (isCPU)
    return Error{"it has " + num(maps->size()) +
                 " tensor maps, but is for the target 'cpu'"};
  if (!kernel.argument_types() || !kernel.argument_bytes())
    return Error{"it has tensor maps, but not the types and sizes of its "
                 "arguments"};
  for (unsigned i = 0; i < maps->size(); ++i) {
    const artifact::TensorMap &map = *maps->Get(i);
    std::string what = "tensor map " + num(i) + ": ";
    if (map.argument() >= kernel.arguments())
      return Error{what + "is of argument " + num(map.argument()) +
                   ", but there are " + num(kernel.arguments())};
    if (Status status = checkMap(kernel, map); !status)
      return Error{what + status.message()};
  }
  return {};
}

/// Whether each names an input that can hold what it says.
static Status checkSelections(const Kernel &kernel) {
  const auto *selections = kernel.selections();
  if (!selections || selections->size() == 0)
    return {};
  if (!kernel.argument_types() || !kernel.argument_bytes())
    return Error{"it has numbers of blocks, but not the types and sizes of its "
                 "arguments"};
  if (!isAligned(*selections))
    return Error{"its list of selections is misaligned in the file"};
  for (const artifact::Selection *selection : *selections) {
    unsigned argument = selection->argument();
    if (argument >= kernel.arguments() - kernel.outputs())
      return Error{"input " + num(argument) +
                   " holds numbers of blocks, but there are " +
                   num(kernel.arguments() - kernel.outputs()) + " inputs"};
    uint64_t tokens = selection->tokens(), count = selection->count();
    uint64_t elements = kernel.argument_bytes()->Get(argument) / 4;
    // No product of two numbers that may overflow. Nothing holds all numbers of
    // no tokens.
    bool isWhole = tokens == 0 ? elements == 0
                               : count != 0 && elements % count == 0 &&
                                     elements / count % tokens == 0;
    bool fits = kernel.argument_types()->Get(argument) == DataType::I32 &&
                count != 0 && selection->block() != 0 && isWhole;
    if (!fits)
      return Error{"input " + num(argument) + " of " + num(elements) +
                   " elements cannot hold " + num(count) +
                   " numbers of blocks of " + num(selection->block()) +
                   " tokens for each of " + num(tokens) + " tokens"};
  }
  return {};
}

Status nsa::checkArguments(const Kernel &kernel, bool isCPU) {
  NSA_RETURN_IF_ERROR(checkTypesAndSizes(kernel));
  NSA_RETURN_IF_ERROR(checkRows(kernel));
  NSA_RETURN_IF_ERROR(checkMaps(kernel, isCPU));
  return checkSelections(kernel);
}

/// Whether the TMA unit reads or writes the argument.
static bool isMapped(const Kernel &kernel, unsigned argument) {
  const auto *maps = kernel.tensor_maps();
  return maps && std::any_of(maps->begin(), maps->end(), [&](const auto *map) {
           return map->argument() == argument;
         });
}

uint64_t nsa::operandAlignment(const Kernel &kernel, unsigned argument) {
  const auto *rows = kernel.argument_rows();
  if (!rows || rows->Get(argument)->width() == rows->Get(argument)->pitch())
    return artifact::sliceAlignment;
  // Columns of a matrix begin anywhere.
  uint64_t bytes = elementBytes(kernel.argument_types()->Get(argument));
  return isMapped(kernel, argument) ? std::max(bytes, tensorMapAlignment)
                                    : bytes;
}
