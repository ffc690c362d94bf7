//===- Nccl.cpp - NCCL, opened at run time --------------------------------===//

#include "runtime/CUDA/Nccl.h"
#include "runtime/CPU/SharedLibrary.h"

#include <climits>
#include <cstring>

using namespace nsa;
using namespace nsa::cuda;

namespace {
// Of nccl.h.
constexpr int kFloat16 = 6, kFloat32 = 7, kBFloat16 = 9, kSum = 0, kAverage = 4;

/// ncclUniqueId.
struct UniqueId {
  char bytes[128];
};

/// The beginning of ncclConfig_t, as of 2.17; later versions take the rest as
/// undefined.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21700;
  int blocking = INT_MIN, clusterSize = INT_MIN, leastBlocks = INT_MIN,
      mostBlocks = INT_MIN;
  const char *network = nullptr;
};

/// Thread blocks of reductions of gradients, and of gathers of parameters,
/// which run beside backward and forward: each block takes a multiprocessor
/// from these. NCCL would take 16 or 24, for a rate that nothing waits for;
/// with 4 some would be waited for (docs/distributed.md). NCCL_MAX_CTAS
/// overrides it.
constexpr int kMostBlocks = 8;

int typeOf(DataType type) {
  return type == DataType::F32    ? kFloat32
         : type == DataType::BF16 ? kBFloat16
                                  : kFloat16;
}
} // namespace

struct Nccl::Functions {
  int (*GetVersion)(int *version);
  int (*GetUniqueId)(UniqueId *id);
  int (*CommInitRankConfig)(void **communicator, int ranks, UniqueId id,
                            int rank, Config *config);
  int (*CommSplit)(void *communicator, int color, int key, void **made,
                   Config *config);
  int (*CommDestroy)(void *communicator);
  int (*GroupStart)();
  int (*GroupEnd)();
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
  for (void *made : {sharers[0], sharers[1], communicator})
    if (made)
      functions->CommDestroy(made);
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
  opened.find(f.CommInitRankConfig, "ncclCommInitRankConfig");
  opened.find(f.CommSplit, "ncclCommSplit");
  opened.find(f.CommDestroy, "ncclCommDestroy");
  opened.find(f.GroupStart, "ncclGroupStart");
  opened.find(f.GroupEnd, "ncclGroupEnd");
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

Status Nccl::connect(const std::string &id, int rank, int size,
                     int sequenceRanks) {
  UniqueId name;
  if (id.size() != sizeof name.bytes)
    return Error{"an id of NCCL has " + std::to_string(sizeof name.bytes) +
                 " bytes, this one has " + std::to_string(id.size())};
  std::memcpy(name.bytes, id.data(), sizeof name.bytes);
  this->rank = rank;
  this->size = size;
  this->sequenceRanks = sequenceRanks;
  Config few;
  few.mostBlocks = kMostBlocks;
  NSA_RETURN_IF_ERROR(check(
      functions->CommInitRankConfig(&communicator, size, name, rank, &few),
      "ncclCommInitRankConfig"));
  if (sequenceRanks == 1)
    return {};
  // Attention waits for sequences. Without a config they would have few blocks.
  Config all;
  int own = rank % sequenceRanks;
  for (int half : {0, 1})
    NSA_RETURN_IF_ERROR(
        check(functions->CommSplit(communicator, rank / sequenceRanks,
                                   half ? sequenceRanks - 1 - own : own,
                                   &sharers[half], &all),
              "ncclCommSplit"));
  return {};
}

/// One launch of NCCL's kernel for each communicator.
Status Nccl::run(const std::vector<Collective> &group, Stream stream) {
  NSA_RETURN_IF_ERROR(check(functions->GroupStart(), "ncclGroupStart"));
  int failed = 0;
  for (const Collective &collective : group)
    if (failed == 0)
      failed = run(collective, stream);
  int ended = functions->GroupEnd();
  return check(failed ? failed : ended, collectiveName(group.front().kind));
}

int Nccl::run(const Collective &collective, Stream stream) {
  DevicePtr data = collective.data;
  int type = typeOf(collective.type);
  uint64_t own = collective.count / uint64_t(size);
  DevicePtr part = data + uint64_t(rank) * own * elementBytes(collective.type);
  switch (collective.kind) {
  case CollectiveKind::AllReduce:
    return functions->AllReduce(data, data, collective.count, type, kAverage,
                                communicator, stream);
  case CollectiveKind::ReduceScatter:
    return functions->ReduceScatter(data, part, own, type, kAverage,
                                    communicator, stream);
  case CollectiveKind::AllGather:
    return functions->AllGather(part, data, own, type, communicator, stream);
  case CollectiveKind::GatherSequence:
  case CollectiveKind::ReduceScatterSequence:
    break;
  }
  return runOnSequences(collective, stream);
}

/// Each half of a sequence is a collective of its own.
int Nccl::runOnSequences(const Collective &collective, Stream stream) {
  const Functions &f = *functions;
  int type = typeOf(collective.type);
  uint64_t halves = 2 * collective.sequences, ranks = uint64_t(sequenceRanks);
  uint64_t chunk = collective.count / (halves * ranks);
  uint64_t bytes = chunk * elementBytes(collective.type);
  int failed = 0;
  for (uint64_t half = 0; half < halves && failed == 0; ++half) {
    DevicePtr all = collective.data + half * ranks * bytes;
    DevicePtr row = collective.rows + (half + 1) * collective.rowBytes - bytes;
    void *among = sharers[half % 2];
    failed = collective.kind == CollectiveKind::GatherSequence
                 ? f.AllGather(row, all, chunk, type, among, stream)
                 : f.ReduceScatter(all, row, chunk, type, kSum, among, stream);
  }
  return failed;
}

Status Nccl::health() {
  for (void *made : {communicator, sharers[0], sharers[1]}) {
    int result = 0;
    if (!made)
      continue;
    NSA_RETURN_IF_ERROR(check(functions->CommGetAsyncError(made, &result),
                              "ncclCommGetAsyncError"));
    NSA_RETURN_IF_ERROR(check(result, "NCCL"));
  }
  return {};
}
