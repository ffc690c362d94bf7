//===- Nccl.cpp - NCCL, opened at run time --------------------------------===//

#include "runtime/CUDA/Nccl.h"
#include "runtime/CPU/SharedLibrary.h"

#include <cstring>

using namespace nsa;
using namespace nsa::cuda;

namespace {
// Of nccl.h.
constexpr int kFloat32 = 7, kBFloat16 = 9, kAverage = 4;

/// ncclUniqueId.
struct UniqueId {
  char bytes[128];
};
} // namespace

struct Nccl::Functions {
  int (*GetVersion)(int *version);
  int (*GetUniqueId)(UniqueId *id);
  int (*CommInitRank)(void **communicator, int ranks, UniqueId id, int rank);
  int (*CommDestroy)(void *communicator);
  int (*CommGetAsyncError)(void *communicator, int *result);
  const char *(*GetErrorString)(int result);
  const char *(*GetLastError)(void *communicator);
  // Addresses of the GPU are numbers here and pointers there, of one size.
  int (*AllReduce)(DevicePtr from, DevicePtr to, size_t count, int type,
                   int operation, void *communicator, Stream stream);
  int (*ReduceScatter)(DevicePtr from, DevicePtr to, size_t count, int type,
                       int operation, void *communicator, Stream stream);
  int (*AllGather)(DevicePtr from, DevicePtr to, size_t count, int type,
                   void *communicator, Stream stream);
};

Nccl::Nccl() : functions(std::make_unique<Functions>()) {}

Nccl::~Nccl() {
  if (communicator)
    functions->CommDestroy(communicator);
}

Result<std::unique_ptr<Nccl>> Nccl::open(const std::string &library) {
  NSA_ASSIGN_OR_RETURN(
      SharedLibrary opened,
      SharedLibrary::open(
          "NCCL", library, {"libnccl.so.2", "libnccl.so"},
          "the package libnccl2 of NVIDIA and nvidia-nccl-cu13 of PyPI"));
  std::unique_ptr<Nccl> nccl(new Nccl);
  Functions &f = *nccl->functions;
  opened.find(f.GetVersion, "ncclGetVersion");
  opened.find(f.GetUniqueId, "ncclGetUniqueId");
  opened.find(f.CommInitRank, "ncclCommInitRank");
  opened.find(f.CommDestroy, "ncclCommDestroy");
  opened.find(f.CommGetAsyncError, "ncclCommGetAsyncError");
  opened.find(f.GetErrorString, "ncclGetErrorString");
  opened.find(f.GetLastError, "ncclGetLastError");
  opened.find(f.AllReduce, "ncclAllReduce");
  opened.find(f.ReduceScatter, "ncclReduceScatter");
  opened.find(f.AllGather, "ncclAllGather");
  NSA_RETURN_IF_ERROR(opened.checkFound("NCCL"));
  int version = 0;
  NSA_RETURN_IF_ERROR(nccl->check(f.GetVersion(&version), "ncclGetVersion"));
  nccl->name = "NCCL " + std::to_string(version / 10000) + "." +
               std::to_string(version / 100 % 100) + "." +
               std::to_string(version % 100);
  return nccl;
}

Status Nccl::check(int result, const char *call) const {
  if (result == 0)
    return {};
  std::string text =
      std::string(call) + ": " + functions->GetErrorString(result);
  const char *last = functions->GetLastError(communicator);
  if (last && *last)
    text += std::string(" (") + last + ")";
  return Error{text};
}

Result<std::string> Nccl::makeId() {
  UniqueId id;
  NSA_RETURN_IF_ERROR(check(functions->GetUniqueId(&id), "ncclGetUniqueId"));
  return std::string(id.bytes, sizeof id.bytes);
}

Status Nccl::connect(const std::string &id, int rank, int size) {
  UniqueId name;
  if (id.size() != sizeof name.bytes)
    return Error{"an id of NCCL has " + std::to_string(sizeof name.bytes) +
                 " bytes, this one has " + std::to_string(id.size())};
  std::memcpy(name.bytes, id.data(), sizeof name.bytes);
  this->rank = rank;
  this->size = size;
  return check(functions->CommInitRank(&communicator, size, name, rank),
               "ncclCommInitRank");
}

Status Nccl::run(CollectiveKind kind, DevicePtr data, uint64_t count,
                 DataType type, Stream stream) {
  int element = type == DataType::F32 ? kFloat32 : kBFloat16;
  uint64_t own = count / uint64_t(size);
  DevicePtr part = data + uint64_t(rank) * own * elementBytes(type);
  switch (kind) {
  case CollectiveKind::AllReduce:
    return check(functions->AllReduce(data, data, count, element, kAverage,
                                      communicator, stream),
                 "ncclAllReduce");
  case CollectiveKind::ReduceScatter:
    return check(functions->ReduceScatter(data, part, own, element, kAverage,
                                          communicator, stream),
                 "ncclReduceScatter");
  case CollectiveKind::AllGather:
    return check(
        functions->AllGather(part, data, own, element, communicator, stream),
        "ncclAllGather");
  }
  return Error{"a collective of another kind"};
}

Status Nccl::health() {
  int result = 0;
  NSA_RETURN_IF_ERROR(check(functions->CommGetAsyncError(communicator, &result),
                            "ncclCommGetAsyncError"));
  return check(result, "NCCL");
}
