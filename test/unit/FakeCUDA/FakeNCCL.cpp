//===- FakeNCCL.cpp - ranks that reduce in shared memory ------------------===//
//
// Stands in for libnccl.so.2 beside the GPU in host memory. Ranks are processes
// of one machine; a file in /dev/shm has a slot for the data of each. A
// reduction is done once all ranks have brought theirs.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Float16.h"
#include "test/unit/FakeCUDA/FakeCUDA.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

// The names are those of the library, and addresses there are numbers.
// NOLINTBEGIN(readability-identifier-naming,performance-no-int-to-ptr)

namespace {

constexpr int kMostRanks = 4;
constexpr size_t kPlaceBytes = size_t(64) << 20;

/// What ranks say when they split.
struct Split {
  std::atomic<int> joined;
  int colors[kMostRanks], keys[kMostRanks];
};

/// Of each rank, the reductions that it has brought data for, and has the means
/// of.
struct Shared {
  std::atomic<int> joined;
  std::atomic<uint64_t> brought[kMostRanks], taken[kMostRanks];
  Split splits[4];
};
static_assert(sizeof(Shared) <= 4096);

struct UniqueId {
  char file[128];
};

struct Communicator {
  int rank, size;
  Shared *shared;
  char *places;
  std::string file;
  uint64_t done = 0;
  bool hasBrought = false;
  int numSplits = 0;

  char *place(int of) const { return places + size_t(of) * kPlaceBytes; }
};

enum class Kind { Mean, MeanOfPart, SumOfPart, Gather };

/// `count` elements, those of all parts; one part is at `from` or goes `to`.
struct Reduction {
  Communicator *communicator;
  Kind kind;
  char *from, *to;
  size_t count;
  bool isHalf;

  size_t width() const { return isHalf ? 2 : 4; }
  size_t bytes() const { return count * width(); }
};

/// Element `i` of f32 or bf16 elements.
float get(const char *data, size_t i, bool isHalf) {
  return isHalf ? nsa::bf16ToFloat(reinterpret_cast<const uint16_t *>(data)[i])
                : reinterpret_cast<const float *>(data)[i];
}

bool all(const std::atomic<uint64_t> (&numbers)[kMostRanks], int size,
         uint64_t least) {
  for (int rank = 0; rank < size; ++rank)
    if (numbers[rank] < least)
      return false;
  return true;
}

bool reduce(void *argument) {
  auto &reduction = *static_cast<Reduction *>(argument);
  Communicator &c = *reduction.communicator;
  size_t bytes = reduction.bytes();
  if (!c.hasBrought) {
    // Others may read what lies there from the last time.
    if (!all(c.shared->taken, c.size, c.done))
      return false;
    std::memcpy(c.place(c.rank), reduction.from,
                reduction.kind == Kind::Gather ? bytes / size_t(c.size)
                                               : bytes);
    c.shared->brought[c.rank] = c.done + 1;
    c.hasBrought = true;
  }
  if (!all(c.shared->brought, c.size, c.done + 1))
    return false;
  size_t own = reduction.count / size_t(c.size);
  bool isPart =
      reduction.kind == Kind::MeanOfPart || reduction.kind == Kind::SumOfPart;
  size_t begin = isPart ? size_t(c.rank) * own : 0;
  size_t end = isPart ? begin + own : reduction.count;
  if (reduction.kind == Kind::Gather) {
    size_t part = own * reduction.width();
    for (int rank = 0; rank < c.size; ++rank)
      std::memcpy(reduction.to + size_t(rank) * part, c.place(rank), part);
    begin = end;
  } else if (isPart && reduction.to >= reduction.from &&
             reduction.to < reduction.from + bytes) {
    // In place, the other parts are undefined.
    std::memset(reduction.from, 0xff, bytes);
  }
  for (size_t i = begin; i < end; ++i) {
    float sum = 0;
    for (int rank = 0; rank < c.size; ++rank)
      sum += get(c.place(rank), i, reduction.isHalf);
    float mean = reduction.kind == Kind::SumOfPart ? sum : sum / float(c.size);
    if (reduction.isHalf)
      reinterpret_cast<uint16_t *>(reduction.to)[i - begin] =
          nsa::floatToBF16(mean);
    else
      reinterpret_cast<float *>(reduction.to)[i - begin] = mean;
  }
  c.hasBrought = false;
  c.shared->taken[c.rank] = ++c.done;
  return true;
}

/// They live as long as the process: a graph may have them.
std::vector<std::unique_ptr<Reduction>> reductions;

constexpr int kFloat32 = 7, kBFloat16 = 9, kSum = 0, kAverage = 4;

/// Memory of all ranks' parts.
int enqueue(void *handle, Kind kind, unsigned long long from,
            unsigned long long to, size_t count, int type) {
  if ((type != kFloat32 && type != kBFloat16) ||
      count * sizeof(float) > kPlaceBytes)
    return 4;
  reductions.push_back(std::make_unique<Reduction>(Reduction{
      static_cast<Communicator *>(handle), kind, reinterpret_cast<char *>(from),
      reinterpret_cast<char *>(to), count, type == kBFloat16}));
  fakeCUDAEnqueue(reduce, reductions.back().get());
  return 0;
}

/// Waits for the ranks that have the same file, which is there until all have.
int join(void **handle, const std::string &name, int rank, int size) {
  int file = ::open(name.c_str(), O_RDWR | O_CREAT, 0600);
  size_t bytes = 4096 + kMostRanks * kPlaceBytes;
  if (file < 0 || size > kMostRanks || ::ftruncate(file, off_t(bytes)) != 0)
    return 2;
  void *memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED)
    return 2;
  auto *shared = static_cast<Shared *>(memory);
  ++shared->joined;
  while (shared->joined < size)
    ::usleep(100);
  ::unlink(name.c_str());
  *handle = new Communicator{rank, size, shared,
                             static_cast<char *>(memory) + 4096, name};
  return 0;
}

} // namespace

extern "C" {

int ncclGetVersion(int *version) {
  *version = 22703;
  return 0;
}

int ncclGetUniqueId(UniqueId *id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->file, sizeof id->file, "/dev/shm/fake-nccl-%d",
                int(::getpid()));
  ::unlink(id->file);
  return 0;
}

int ncclCommInitRankConfig(void **handle, int size, UniqueId id, int rank,
                           void *) {
  return join(handle, id.file, rank, size);
}

int ncclCommSplit(void *handle, int color, int key, void **made, void *) {
  auto &c = *static_cast<Communicator *>(handle);
  Split &split = c.shared->splits[c.numSplits++];
  split.colors[c.rank] = color;
  split.keys[c.rank] = key;
  ++split.joined;
  while (split.joined < c.size)
    ::usleep(100);
  int size = 0, rank = 0;
  for (int other = 0; other < c.size; ++other) {
    if (split.colors[other] != color)
      continue;
    ++size;
    rank += split.keys[other] < key;
  }
  return join(made,
              c.file + "-" + std::to_string(c.numSplits) + "-" +
                  std::to_string(color),
              rank, size);
}

int ncclGroupStart() { return 0; }
int ncclGroupEnd() { return 0; }

int ncclCommDestroy(void *handle) {
  delete static_cast<Communicator *>(handle);
  return 0;
}

int ncclCommGetAsyncError(void *, int *result) {
  *result = 0;
  return 0;
}

const char *ncclGetErrorString(int) { return "wrong use of the fake"; }
const char *ncclGetLastError(void *) { return ""; }

int ncclAllReduce(unsigned long long from, unsigned long long to, size_t count,
                  int type, int operation, void *handle, void *) {
  if (from != to || operation != kAverage)
    return 4;
  return enqueue(handle, Kind::Mean, from, to, count, type);
}

int ncclReduceScatter(unsigned long long from, unsigned long long to,
                      size_t count, int type, int operation, void *handle,
                      void *) {
  auto &c = *static_cast<Communicator *>(handle);
  if (operation != kAverage && operation != kSum)
    return 4;
  return enqueue(handle, operation == kSum ? Kind::SumOfPart : Kind::MeanOfPart,
                 from, to, count * size_t(c.size), type);
}

int ncclAllGather(unsigned long long from, unsigned long long to, size_t count,
                  int type, void *handle, void *) {
  auto &c = *static_cast<Communicator *>(handle);
  return enqueue(handle, Kind::Gather, from, to, count * size_t(c.size), type);
}

} // extern "C"

// NOLINTEND(readability-identifier-naming,performance-no-int-to-ptr)
