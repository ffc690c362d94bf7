//===- Session.h - entries called with arrays -------------------*- C++ -*-===//
//
// A program for any number of threads, whose entries are called with arrays of
// the caller by name. Arrays are neither copied nor kept: kernels read and
// write them where they lie.
//
//     Result<std::unique_ptr<Session>> session = Session::create(artifact, {});
//     Array q{data, DataType::BF16, {2, 128, 4, 64}};
//     Status status = (*session)->call("attention", {{"q", q}, ..., {"o", o}});
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_SESSION_H
#define NSA_RUNTIME_SESSION_H

#include "nsa/Runtime/Runtime.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Where an array lies.
struct Device {
  enum class Kind { CPU, CUDA };
  Kind kind = Kind::CPU;
  /// Of the GPU, from 0.
  int number = 0;

  bool operator==(const Device &other) const {
    return kind == other.kind && number == other.number;
  }
  /// "cpu" or "cuda:0".
  std::string text() const;
};

/// An array of the caller, who owns its memory.
struct Array {
  void *data = nullptr;
  DataType type = DataType::F32;
  std::vector<int64_t> shape;
  /// In elements, one for each dimension; empty for dense row-major memory.
  std::vector<int64_t> strides = {};
  Device device = {};
  bool isReadOnly = false;
};

/// An array for the input or output `name` of an entry.
struct Argument {
  std::string name;
  Array array;
};

/// A loaded program for any number of threads. Calls that use the program's
/// memory run one after the other.
class Session {
public:
  /// See Program::create.
  static Result<std::unique_ptr<Session>>
  create(const Artifact &artifact, const RuntimeOptions &options = {});

  /// Its description: tensors and entries. What it does is for `call` and
  /// `use`.
  const Program &program() const { return loaded; }

  /// Where arrays of its entries must lie.
  Device device() const { return place; }

  /// Runs an entry on arrays. Each input of the role input must be given, and
  /// each parameter and constant of a program without an entry `init`; an
  /// output or persistent tensor that is not given is the program's own.
  /// Without a stream it returns when all is written. On a GPU with a stream, a
  /// CUstream (0 for the default one), it returns at once: it reads what the
  /// stream has written before, and what is put there later finds the outputs.
  ///
  /// Fails, before anything runs, on a name that the entry does not have, and
  /// on an array of another type, shape or device, of other than dense
  /// row-major strides, at an address that kernels cannot use, that is
  /// read-only but written, or that overlaps one that is written. Errors name
  /// the argument, what it has and what is expected.
  Status call(const EntryInfo &entry, const std::vector<Argument> &arguments,
              std::optional<uint64_t> stream = std::nullopt);
  Status call(std::string_view entry, const std::vector<Argument> &arguments,
              std::optional<uint64_t> stream = std::nullopt);

  /// Whether a call must be given this input: the program's own memory holds
  /// nothing of use.
  bool isNeeded(const TensorView &input) const;

  /// `call` in two parts: checks the arguments, and runs an entry on what they
  /// are. On a GPU, what the streams `producers` have by now is waited for as
  /// well. `scratch` is for RuntimeOptions::externalMemory.
  Result<std::vector<Binding>>
  bind(const EntryInfo &entry, const std::vector<Argument> &arguments) const;
  Status run(const EntryInfo &entry, const std::vector<Binding> &bindings,
             std::optional<uint64_t> stream = std::nullopt,
             const std::vector<uint64_t> &producers = {},
             void *scratch = nullptr);

  /// Calls `action` with the program while no other thread uses it, and with no
  /// arrays in the place of the entry's tensors.
  Status use(const EntryInfo *entry,
             const std::function<Status(Program &)> &action);

private:
  Session(Program program, Device device);

  /// What is wrong with calls in a child of the process that loaded it.
  Status checkProcess() const;

  Program loaded;
  const Device place;
  const uint64_t generation;
  std::mutex mutex;
};

} // namespace nsa

#endif // NSA_RUNTIME_SESSION_H
