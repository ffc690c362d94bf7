//===- RankEnvironment.cpp - which rank a process is ----------------------===//

#include "runtime/Distributed/RankEnvironment.h"
#include "lib/Support/Text.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace nsa {

namespace {

/// The names of a launcher's variables.
struct Names {
  const char *rank, *size, *localRank, *localSize;
  /// A variable that is set only where this way has started the process.
  const char *sign;
};

/// A batch script of Slurm has SLURM_PROCID too, but is no step. Inside a step,
/// Slurm's own PMI gives no local ranks, and what mpiexec starts there has
/// SLURM_PROCID of its helper: MPI_LOCALRANKID tells these apart.
constexpr Names knownNames[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     "SLURM_STEP_ID"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK"}};

constexpr int maxRanks = 1 << 16;

} // namespace

/// The value of a variable between two numbers; `otherwise` if it is not set.
static Result<int> readNumber(const Variables &variables, const char *name,
                              int least, int most,
                              std::optional<int> otherwise) {
  std::optional<std::string> text = variables(name);
  if (!text && otherwise)
    return *otherwise;
  if (!text)
    return Error{std::string(name) + " is not set"};
  int value = 0;
  const char *end = text->data() + text->size();
  std::from_chars_result parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least ||
      value > most)
    return Error{std::string(name) + " is " + quote(*text) +
                 ", expected a number from " + std::to_string(least) + " to " +
                 std::to_string(most)};
  return value;
}

/// The first way that has started this process; null if none has.
static const Names *findNames(const Variables &variables) {
  for (const Names &names : knownNames)
    if (variables(names.sign))
      return &names;
  return nullptr;
}

/// The tasks of one machine, from Slurm's list for all, such as "2(x3),1".
static std::optional<int> findTasksOfNode(std::string_view list, int node) {
  auto readNumber = [&]() -> int {
    int value = 0;
    auto [end, code] =
        std::from_chars(list.data(), list.data() + list.size(), value);
    list.remove_prefix(end - list.data());
    return code == std::errc() ? value : 0;
  };
  while (!list.empty()) {
    int tasks = readNumber(), times = 1;
    if (list.substr(0, 2) == "(x") {
      list.remove_prefix(2);
      times = readNumber();
      list.remove_prefix(std::min<size_t>(list.size(), 1));
    }
    if (tasks < 1 || times < 1)
      return std::nullopt;
    if (node < times)
      return tasks;
    node -= times;
    if (!list.empty() && list.front() != ',')
      return std::nullopt;
    list.remove_prefix(std::min<size_t>(list.size(), 1));
  }
  return std::nullopt;
}

/// The first name of Slurm's list of machines: "n03" of "n[03-05,9],m1".
static std::string findFirstNode(std::string_view list) {
  std::string name;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      name += list[i];
      continue;
    }
    size_t end = std::min(list.find(']', i), list.size());
    size_t number = std::min(list.find_first_of("-,]", i), list.size());
    name += list.substr(i + 1, number - i - 1);
    i = end;
  }
  return name;
}

/// Reads srun's variables about this machine and that of rank 0.
static Status readStep(const Variables &variables,
                       RankEnvironment &environment) {
  NSA_ASSIGN_OR_RETURN(int node,
                       readNumber(variables, "SLURM_NODEID", 0, maxRanks, 0));
  std::string list = variables("SLURM_STEP_TASKS_PER_NODE").value_or("");
  std::optional<int> tasks = findTasksOfNode(list, node);
  if (!tasks)
    return Error{"SLURM_STEP_TASKS_PER_NODE is " + quote(list) +
                 ", expected the tasks of node " + std::to_string(node) +
                 ", as in '2(x3),1'"};
  environment.localSize = *tasks;
  if (environment.localSize < environment.size)
    environment.address =
        findFirstNode(variables("SLURM_STEP_NODELIST").value_or(""));
  return {};
}

Result<RankEnvironment> readRankEnvironment(const Variables &variables) {
  RankEnvironment environment;
  const Names *names = findNames(variables);
  if (!names)
    return environment;
  environment.source = names->rank;
  auto read = [&](const char *name, int least, int most,
                  std::optional<int> otherwise = std::nullopt) {
    return readNumber(variables, name, least, most, otherwise);
  };
  NSA_ASSIGN_OR_RETURN(environment.size, read(names->size, 1, maxRanks));
  NSA_ASSIGN_OR_RETURN(environment.rank,
                       read(names->rank, 0, environment.size - 1));
  std::string nearby = environment.address;
  if (names->localSize) {
    NSA_ASSIGN_OR_RETURN(environment.localSize,
                         read(names->localSize, 1, maxRanks, environment.size));
  } else {
    NSA_RETURN_IF_ERROR(readStep(variables, environment));
  }
  environment.localSize = std::min(environment.localSize, environment.size);
  NSA_ASSIGN_OR_RETURN(environment.localRank,
                       read(names->localRank, 0, environment.localSize - 1,
                            environment.rank % environment.localSize));
  if (std::optional<std::string> address = variables("MASTER_ADDR"))
    environment.address = *address;
  else if (environment.localSize < environment.size &&
           (environment.address.empty() || environment.address == nearby))
    return Error{"MASTER_ADDR is not set, but only " +
                 std::to_string(environment.localSize) + " of " +
                 std::to_string(environment.size) +
                 " ranks are on this machine"};
  NSA_ASSIGN_OR_RETURN(int port,
                       read("MASTER_PORT", 1, 65534, environment.port));
  std::optional<std::string> agent = variables("TORCHELASTIC_USE_AGENT_STORE");
  bool isTaken = agent && (*agent == "True" || *agent == "1");
  environment.port = uint16_t(port + (isTaken ? 1 : 0));
  return environment;
}

} // namespace nsa
