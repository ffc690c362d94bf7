//===- KernelLibrary.cpp - the artefact's machine code --------------------===//

#include "runtime/CPU/KernelLibrary.h"
#include "lib/Support/Files.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace nsa;

/// Checks what the loader takes for granted: that the file is what it claims
/// and that no segment ends past its end.
static Status checkElf(const uint8_t *data, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header)
    return Error{"its binary is too small for a shared object"};
  std::memcpy(&header, data, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return Error{"its binary is not a 64-bit ELF shared object"};
#if defined(__x86_64__)
  constexpr unsigned machine = EM_X86_64;
#else
  constexpr unsigned machine = EM_NONE;
#endif
  if (header.e_machine != machine)
    return Error{"its binary is for the ELF machine " +
                 std::to_string(header.e_machine) + ", this machine is " +
                 std::to_string(machine)};
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    uint64_t offset = header.e_phoff + i * sizeof segment;
    if (header.e_phoff > size || offset > size ||
        size - offset < sizeof segment)
      return Error{"its binary is truncated"};
    std::memcpy(&segment, data + offset, sizeof segment);
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)
      return Error{"its binary is truncated"};
  }
  return {};
}

Result<KernelLibrary> KernelLibrary::load(const void *data, size_t size) {
  NSA_RETURN_IF_ERROR(checkElf(static_cast<const uint8_t *>(data), size));
  KernelLibrary library;
  library.fd = ::memfd_create("nsa-kernels", MFD_CLOEXEC);
  if (library.fd < 0)
    return systemError("cannot create a file in memory for", "kernels");
  const char *next = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t written = ::write(library.fd, next, size);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return systemError("cannot write to memory the", "kernels");
    next += written;
    size -= size_t(written);
  }
  // The descriptor stays open as long as the library: the loader knows
  // libraries by path, and the number must not come to mean another file.
  std::string path = "/proc/self/fd/" + std::to_string(library.fd);
  library.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle)
    return Error{std::string("its binary cannot be loaded: ") + ::dlerror()};
  return library;
}

KernelLibrary::KernelLibrary(KernelLibrary &&other) noexcept
    : handle(std::exchange(other.handle, nullptr)),
      fd(std::exchange(other.fd, -1)) {}

KernelLibrary &KernelLibrary::operator=(KernelLibrary &&other) noexcept {
  std::swap(handle, other.handle);
  std::swap(fd, other.fd);
  return *this;
}

KernelLibrary::~KernelLibrary() {
  if (handle)
    ::dlclose(handle);
  if (fd >= 0)
    ::close(fd);
}

KernelFunction KernelLibrary::find(const std::string &symbol) const {
  return reinterpret_cast<KernelFunction>(::dlsym(handle, symbol.c_str()));
}
