//===- CPUFeatures.cpp - what this processor can do -----------------------===//

#include "runtime/CPU/CPUFeatures.h"
#include "lib/Support/Files.h"

#include <algorithm>
#include <sched.h>
#include <sstream>

using namespace nsa;

std::set<std::string> nsa::parseCPUFlags(std::string_view cpuinfo) {
  size_t begin = cpuinfo.find("\nflags");
  begin = begin == std::string_view::npos ? begin : cpuinfo.find(':', begin);
  if (begin == std::string_view::npos)
    return {};
  size_t end = std::min(cpuinfo.find('\n', begin), cpuinfo.size());
  std::istringstream words(std::string(cpuinfo.substr(begin + 1, end - begin)));
  std::set<std::string> flags;
  for (std::string word; words >> word;)
    flags.insert(word);
  return flags;
}

std::set<std::string> nsa::hostCPUFlags() {
  Result<std::string> cpuinfo = readFile("/proc/cpuinfo");
  return cpuinfo ? parseCPUFlags(*cpuinfo) : std::set<std::string>();
}

bool nsa::hasFeature(const std::set<std::string> &flags,
                     std::string_view feature) {
  // Where Linux does not call a feature what LLVM calls it.
  static const std::pair<std::string_view, std::string_view> spellings[] = {
      {"64bit", "lm"},
      {"avx512bf16", "avx512_bf16"},
      {"avx512bitalg", "avx512_bitalg"},
      {"avx512fp16", "avx512_fp16"},
      {"avx512vbmi2", "avx512_vbmi2"},
      {"avx512vnni", "avx512_vnni"},
      {"avx512vpopcntdq", "avx512_vpopcntdq"},
      {"avxvnni", "avx_vnni"},
      {"bmi", "bmi1"},
      {"lzcnt", "abm"},
      {"sahf", "lahf_lm"},
      {"sse3", "pni"},
  };
  std::string flag(feature);
  for (const auto &[llvm, linux] : spellings)
    if (feature == llvm)
      flag = std::string(linux);
  std::replace(flag.begin(), flag.end(), '.', '_');
  std::replace(flag.begin(), flag.end(), '-', '_');
  return flags.count(flag) != 0;
}

int nsa::availableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0)
    return 1;
  return std::max(1, CPU_COUNT(&set));
}
