//===- Environment.cpp - what a run ran on --------------------------------===//

#include "runtime/Train/Environment.h"
#include "lib/Support/Files.h"
#include "lib/Support/Json.h"
#include "lib/Support/Text.h"
#include "runtime/Train/RunDirectory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

namespace nsa {

ProcessMemory processMemory() {
  ProcessMemory memory;
  if (Result<std::string> text = readFile("/proc/self/statm")) {
    // Total pages, then resident pages.
    char *rest = nullptr;
    std::strtoull(text->c_str(), &rest, 10);
    memory.resident =
        std::strtoull(rest, nullptr, 10) * uint64_t(::sysconf(_SC_PAGESIZE));
  }
  struct rusage usage;
  if (::getrusage(RUSAGE_SELF, &usage) == 0)
    memory.peak = uint64_t(usage.ru_maxrss) * 1024;
  return memory;
}

static std::string mebibytes(uint64_t bytes) {
  return formatted("%.1f", double(bytes) / double(1 << 20));
}

std::vector<std::string> describeMemory(const MemoryUse &use) {
  if (use.planned.empty())
    return {};
  uint64_t planned = use.plannedBytes();
  std::string line = "memory: " + mebibytes(planned) + " MiB planned (";
  for (const auto &[name, bytes] : use.planned)
    line += (line.back() == '(' ? "" : ", ") + name + " " + mebibytes(bytes);
  line += "), " + mebibytes(use.allocated) + " MiB allocated";
  if (use.inUse == 0)
    return {line};
  line += ", " + mebibytes(use.inUse) +
          " MiB of the GPU in use above the bare context";
  if (use.connections > 0)
    line += ", " + mebibytes(use.connections) + " of them to reach other ranks";
  planned += use.connections;
  uint64_t allowed = std::max(planned / 50, uint64_t(256) << 20);
  uint64_t distance =
      use.inUse > planned ? use.inUse - planned : planned - use.inUse;
  if (distance <= allowed)
    return {line};
  return {line, "warning: that is " + mebibytes(distance) +
                    " MiB from the plan, more than 2 % or 256 MiB; does "
                    "something else use this GPU?"};
}

/// The value of the first line of a /proc file that starts with `key`.
static std::string procValue(const char *path, const std::string &key) {
  Result<std::string> text = readFile(path);
  size_t at = text ? text->find(key) : std::string::npos;
  if (at == std::string::npos)
    return "";
  size_t begin = text->find_first_not_of(" \t:", at + key.size());
  size_t end = text->find('\n', at);
  return begin < end ? text->substr(begin, end - begin) : "";
}

std::string describeEnvironment(
    const std::vector<std::pair<std::string, std::string>> &facts) {
  nlohmann::ordered_json json;
  struct utsname system;
  if (::uname(&system) == 0) {
    json["host"] = system.nodename;
    json["system"] = std::string(system.sysname) + " " + system.release + " " +
                     system.machine;
  }
  json["cpu"] = procValue("/proc/cpuinfo", "model name");
  json["processors"] = std::thread::hardware_concurrency();
  json["memory"] = procValue("/proc/meminfo", "MemTotal");
  json["pid"] = ::getpid();
  std::error_code code;
  json["cwd"] = std::filesystem::current_path(code).string();
  json["started"] = isoTime(wallClock());
  for (const auto &[key, value] : facts)
    json[key] = value;
  return jsonText(json, 2) + "\n";
}

std::string describeTensors(const Model &model) {
  std::string text;
  std::map<std::string, uint64_t> bytes;
  for (const TensorView &tensor : model.tensors()) {
    text += tensor.name + ": ";
    for (uint64_t extent : tensor.shape)
      text += std::to_string(extent) + "x";
    text += std::string(typeName(tensor.type)) + " " + roleName(tensor.role) +
            (tensor.decay ? " decay" : "") + "\n";
    bytes[roleName(tensor.role)] += tensor.bytes;
  }
  for (const ActivationClass &kind : model.activations())
    text += kind.name + ": " + std::to_string(kind.elements) + "x" +
            typeName(kind.type) + " activation" +
            (kind.backward ? " (backward)" : "") + ", " +
            std::to_string(kind.arrays) +
            (kind.arrays == 1 ? " array\n" : " arrays\n");
  for (const auto &[role, total] : bytes)
    text += "# " + role + ": " + std::to_string(total) + " bytes\n";
  return text;
}

} // namespace nsa
