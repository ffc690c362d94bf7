//===- RankPlace.cpp - which rank a process is ----------------------------===//

#include "runtime/Distributed/RankPlace.h"

#include <algorithm>
#include <charconv>

namespace nsa {

namespace {

/// What a way to start processes calls its variables.
struct Names {
  const char *rank, *size, *localRank, *localSize;
};

constexpr Names knownNames[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}};

constexpr int maxRanks = 1 << 16;

/// Reads numbers and remembers the first error.
class NumberReader {
public:
  explicit NumberReader(const Variables &variables) : variables(variables) {}

  /// The value of a variable between two numbers; `otherwise` if it is not set.
  int read(const char *name, int least, int most,
           std::optional<int> otherwise) {
    std::optional<std::string> text = variables(name);
    if (!text) {
      if (!otherwise)
        fail(std::string(name) + " is not set");
      return otherwise.value_or(least);
    }
    int value = 0;
    const char *end = text->data() + text->size();
    std::from_chars_result parsed = std::from_chars(text->data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || value < least ||
        value > most)
      fail(std::string(name) + " is '" + *text + "', expected a number from " +
           std::to_string(least) + " to " + std::to_string(most));
    return value;
  }

  void fail(const std::string &text) {
    if (message.empty())
      message = text;
  }

  std::string message;

private:
  const Variables &variables;
};

} // namespace

/// The first way that has said a rank; null if none has.
static const Names *findNames(const Variables &variables) {
  for (const Names &names : knownNames)
    if (variables(names.rank))
      return &names;
  return nullptr;
}

Result<RankPlace> findRank(const Variables &variables) {
  RankPlace place;
  const Names *names = findNames(variables);
  if (!names)
    return place;
  place.source = names->rank;
  NumberReader numbers(variables);
  place.size = numbers.read(names->size, 1, maxRanks, std::nullopt);
  place.rank =
      numbers.read(names->rank, 0, std::max(0, place.size - 1), std::nullopt);
  place.localSize = numbers.read(names->localSize, 1, maxRanks, place.size);
  place.localSize = std::min(place.localSize, place.size);
  place.localRank = numbers.read(names->localRank, 0, place.localSize - 1,
                                 place.rank % place.localSize);
  if (std::optional<std::string> address = variables("MASTER_ADDR"))
    place.address = *address;
  else if (place.localSize < place.size)
    numbers.fail("MASTER_ADDR is not set, but only " +
                 std::to_string(place.localSize) + " of " +
                 std::to_string(place.size) + " ranks are on this machine");
  int port = numbers.read("MASTER_PORT", 1, 65534, place.port);
  std::optional<std::string> agent = variables("TORCHELASTIC_USE_AGENT_STORE");
  bool isTaken = agent && (*agent == "True" || *agent == "1");
  place.port = uint16_t(port + (isTaken ? 1 : 0));
  if (!numbers.message.empty())
    return Error{numbers.message};
  return place;
}

} // namespace nsa
