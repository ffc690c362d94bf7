//===- CheckpointWriter.cpp - saving beside training ----------------------===//

#include "runtime/Train/CheckpointWriter.h"
#include "runtime/Distributed/SignalBlockedThread.h"
#include "runtime/Train/CheckpointLayout.h"

#include <cassert>
#include <cstring>

using namespace nsa;

/// Of a tensor and what lies after it: tensors begin as in a program.
static uint64_t paddedBytes(const TensorView &tensor) {
  constexpr uint64_t alignment = 64;
  return (tensor.bytes + alignment - 1) / alignment * alignment;
}

Result<std::unique_ptr<Snapshot>>
Snapshot::take(const Model &model, PageMemory &memory, int rank, bool copies) {
  auto snapshot = std::make_unique<Snapshot>();
  snapshot->numSharing = model.sharingRanks();
  if (snapshot->numSharing > 0) {
    NSA_ASSIGN_OR_RETURN(snapshot->ranges, model.stateRanges(rank));
  }
  uint64_t bytes = 0;
  for (const TensorView &tensor : model.tensors()) {
    std::string file = checkpoint::fileOf(tensor, model, rank);
    if (file.empty() || (rank != 0 && !checkpoint::isRankFile(file, rank)))
      continue;
    snapshot->views.push_back(tensor);
    bytes += tensor.sharded ? 0 : paddedBytes(tensor);
  }
  copies = copies && !model.hostIsCopy();
  if (copies && memory.size() < bytes) {
    NSA_ASSIGN_OR_RETURN(memory, PageMemory::allocate(bytes));
  }
  uint64_t offset = 0;
  for (TensorView &view : snapshot->views) {
    // It is put together of the ranks' parts, while the checkpoint is saved.
    if (view.sharded)
      continue;
    NSA_RETURN_IF_ERROR(model.toHost(view));
    if (!copies)
      continue;
    std::memcpy(memory.data() + offset, view.data, view.bytes);
    view.data = memory.data() + offset;
    offset += paddedBytes(view);
  }
  return snapshot;
}

Status
CheckpointWriter::start(const Model &model,
                        std::function<SaveResult(const TensorSet &)> save,
                        int rank, bool copies) {
  assert(!isBusy() && "one save at a time");
  NSA_ASSIGN_OR_RETURN(snapshot, Snapshot::take(model, memory, rank, copies));
  goOn(std::move(save));
  return {};
}

void CheckpointWriter::goOn(std::function<SaveResult(const TensorSet &)> save) {
  assert(!isBusy() && snapshot && "one save at a time, of a snapshot");
  busy = true;
  done = false;
  thread = startSignalBlockedThread([this, save = std::move(save)] {
    result = save(*snapshot);
    done = true;
  });
}

void CheckpointWriter::join() {
  if (thread.joinable())
    thread.join();
}

std::optional<SaveResult> CheckpointWriter::wait(bool keepSnapshot) {
  if (!busy)
    return std::nullopt;
  join();
  busy = false;
  if (!keepSnapshot)
    snapshot.reset();
  return std::move(result);
}
