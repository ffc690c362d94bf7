//===- GlooReducer.cpp - reductions by Gloo -------------------------------===//

#include "lib/Support/Float16.h"
#include "runtime/Distributed/Reducer.h"

#include <cstring>
#include <exception>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <stdexcept>

using namespace nsa;

namespace {

/// Our store as Gloo wants it. Its errors are exceptions.
class GlooStore final : public gloo::rendezvous::Store {
public:
  explicit GlooStore(ProcessGroup &keys) : keys(keys) {}

  void set(const std::string &key, const std::vector<char> &data) override {
    if (Status status = keys.set("gloo/" + key, {data.data(), data.size()});
        !status)
      throw std::runtime_error(status.message());
  }
  std::vector<char> get(const std::string &key) override {
    Result<std::string> value = keys.get("gloo/" + key);
    if (!value)
      throw std::runtime_error(value.message());
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string> &names) override {
    for (const std::string &name : names)
      get(name);
  }
  void wait(const std::vector<std::string> &names,
            const std::chrono::milliseconds &) override {
    wait(names);
  }

private:
  ProcessGroup &keys;
};

/// Sums of 16-bit numbers, each rounded.
template <float (*ToFloat)(uint16_t), uint16_t (*FromFloat)(float)>
void sumHalves(void *out, const void *a, const void *b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    static_cast<uint16_t *>(out)[i] =
        FromFloat(ToFloat(static_cast<const uint16_t *>(a)[i]) +
                  ToFloat(static_cast<const uint16_t *>(b)[i]));
}

/// The ring algorithm: every element is summed in the order of the ranks of its
/// part of the ring, and then sent to all.
class GlooReducer final : public Reducer {
public:
  explicit GlooReducer(const ReducerOptions &options) {
    gloo::transport::tcp::attr attributes(options.address.c_str());
    device = gloo::transport::tcp::CreateDevice(attributes);
    ProcessGroup &group = *options.group;
    auto made =
        std::make_shared<gloo::rendezvous::Context>(group.rank(), group.size());
    made->setTimeout(group.timeout());
    GlooStore store(group);
    made->connectFullMesh(store, device);
    context = made;
  }

  Status sum(void *data, int64_t count, DataType type) override {
    try {
      gloo::AllreduceOptions options(context);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      if (type == DataType::F32) {
        options.setOutput(static_cast<float *>(data), size_t(count));
        options.setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, size_t)>(
                &gloo::sum<float>));
      } else {
        options.setOutput(static_cast<uint16_t *>(data), size_t(count));
        options.setReduceFunction(type == DataType::F16
                                      ? &sumHalves<f16ToFloat, floatToF16>
                                      : &sumHalves<bf16ToFloat, floatToBF16>);
      }
      gloo::allreduce(options);
    } catch (const std::exception &exception) {
      return Error{firstLine(exception.what())};
    }
    return {};
  }

  Status gather(void *data, int64_t bytes) override {
    try {
      size_t part = size_t(bytes) / size_t(context->size);
      gloo::AllgatherOptions options(context);
      options.setInput(
          static_cast<uint8_t *>(data) + part * size_t(context->rank), part);
      options.setOutput(static_cast<uint8_t *>(data), size_t(bytes));
      gloo::allgather(options);
    } catch (const std::exception &exception) {
      return Error{firstLine(exception.what())};
    }
    return {};
  }

  /// Without the position in Gloo's source that its messages begin with.
  static std::string firstLine(const char *text) {
    std::string line(text, std::strcspn(text, "\n"));
    size_t end = line.find("] ");
    return line[0] == '[' && end != std::string::npos ? line.substr(end + 2)
                                                      : line;
  }

private:
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::Context> context;
};

} // namespace

extern "C" __attribute__((visibility("default"))) Reducer *
nsaCreateReducer(const char *version, const ReducerOptions &options,
                 std::string &error) {
  if (std::strcmp(version, reducerVersion) != 0) {
    error = std::string("the plug-in for Gloo is of version ") +
            reducerVersion + ", the trainer of version " + version;
    return nullptr;
  }
  try {
    return new GlooReducer(options);
  } catch (const std::exception &exception) {
    error =
        "cannot connect the ranks: " + GlooReducer::firstLine(exception.what());
    return nullptr;
  }
}
