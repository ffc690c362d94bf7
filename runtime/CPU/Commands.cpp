//===- Commands.cpp - running commands on the processor -------------------===//

#include "runtime/CPU/Commands.h"
#include "runtime/CPU/Convert.h"
#include "runtime/CPU/Initialize.h"

#include <algorithm>
#include <cstring>

using namespace nsa;

namespace {

/// Calls `body(begin, end)` over 0..count-1 in pieces of `step`.
template <typename Body>
void forPieces(ThreadPool &pool, int64_t count, int64_t step,
               const Body &body) {
  pool.parallelFor((count + step - 1) / step, [&](int64_t begin, int64_t end) {
    body(begin * step, std::min(end * step, count));
  });
}

/// One overload per kind of command.
struct Runner {
  const Blas *blas;
  ThreadPool &pool;

  void operator()(const LaunchCommand &command) const {
    pool.parallelFor(command.programs, [&](int64_t begin, int64_t end) {
      command.kernel(command.arguments.data(), begin, end);
    });
  }

  void operator()(const GemmCommand &command) const {
    runGemm(command, *blas, pool);
  }

  void operator()(const FillCommand &command) const {
    forPieces(pool, command.count, 1 << 16, [&](int64_t begin, int64_t end) {
      fill(command.type, command.value, command.out, begin, end);
    });
  }

  void operator()(const CopyCommand &command) const {
    for (const CopyBytes &range : command.ranges)
      forPieces(pool, int64_t(range.count), 1 << 18,
                [&](int64_t begin, int64_t end) {
                  std::memcpy(command.out + range.outOffset + begin,
                              command.source + range.sourceOffset + begin,
                              size_t(end - begin));
                });
  }

  void operator()(const InitializeCommand &command) const {
    forPieces(pool, command.count, 1 << 12, [&](int64_t begin, int64_t end) {
      initializeTensor(*command.tensor, command.seed, command.out, begin, end);
    });
  }

  void operator()(const StartCollectiveCommand &) const {}
  void operator()(const FinishCollectiveCommand &) const {}
};

} // namespace

void nsa::runAction(const Action &action, const Blas *blas, ThreadPool &pool) {
  std::visit(Runner{blas, pool}, action);
}
