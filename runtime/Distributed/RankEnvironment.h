//===- RankEnvironment.h - which rank a process is --------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_RANKENVIRONMENT_H
#define NSA_RUNTIME_DISTRIBUTED_RANKENVIRONMENT_H

#include "lib/Support/Process.h"
#include "nsa/Support/Result.h"

#include <cstdint>
#include <string>

namespace nsa {

/// A process among those of a run.
struct RankEnvironment {
  int rank = 0;
  int size = 1;
  /// Among those of this machine.
  int localRank = 0;
  int localSize = 1;
  /// Where rank 0 serves the store.
  std::string address = "127.0.0.1";
  uint16_t port = 29500;
  /// The variable that said so, such as RANK; empty for a process alone.
  std::string source;
};

/// Reads the variables of torchrun and `nsa-train --nproc` (RANK, WORLD_SIZE,
/// LOCAL_RANK, LOCAL_WORLD_SIZE), of Open MPI (OMPI_COMM_WORLD_*), of MPICH and
/// Intel MPI (PMI_*, MPI_LOCAL*) or of a step of srun (SLURM_*), in this order,
/// and MASTER_ADDR and MASTER_PORT. A process without them is alone. Several
/// machines need MASTER_ADDR; of srun's, the first is taken without it. Errors
/// name the variable.
///
/// Where torchrun's agent serves a store of its own at MASTER_PORT
/// (TORCHELASTIC_USE_AGENT_STORE), ours is at the next port.
Result<RankEnvironment> readRankEnvironment(const Variables &variables);

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_RANKENVIRONMENT_H
