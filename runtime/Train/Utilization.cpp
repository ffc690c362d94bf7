//===- Utilization.cpp - how much of a device a step uses -----------------===//

#include "runtime/Train/Utilization.h"

#include <cctype>
#include <utility>

/// Whether `text` has `words`, not as a part of others: an A4000 is no A40.
static bool hasWords(std::string_view text, std::string_view words) {
  auto isInside = [&](size_t at) {
    return at < text.size() && std::isalnum((unsigned char)text[at]);
  };
  for (size_t at = 0; (at = text.find(words, at)) != text.npos; ++at)
    if ((at == 0 || !isInside(at - 1)) && !isInside(at + words.size()))
      return true;
  return false;
}

std::optional<double> nsa::findPeakFlops(std::string_view gpu) {
  // Variants come before the name that theirs begin with.
  static constexpr std::pair<std::string_view, double> peaks[] = {
      {"H100 PCIe", 756e12},   {"H100 NVL", 835e12},   {"H100", 989e12},
      {"H200", 989e12},        {"GH200", 989e12},      {"H800", 989e12},
      {"A100", 312e12},        {"A800", 312e12},       {"A40", 149.7e12},
      {"A30", 165e12},         {"A10G", 70e12},        {"A10", 125e12},
      {"RTX A6000", 154.8e12}, {"L40S", 362e12},       {"L40", 181e12},
      {"L4", 121e12},          {"RTX 4090", 165.2e12}, {"RTX 3090 Ti", 80e12},
      {"RTX 3090", 71e12},     {"sm_90a", 989e12},     {"sm_90", 989e12},
      {"sm_89", 165.2e12},     {"sm_86", 71e12},       {"sm_80", 312e12}};
  for (const auto &[name, flops] : peaks)
    if (hasWords(gpu, name))
      return flops;
  return std::nullopt;
}
