//===- KernelLibrary.cpp - the artefact's machine code --------------------===//
//
// Objects are linked where they are mapped: constants, then code on pages of
// its own, then a jump to each function of this process that kernels may call,
// which may lie further away than a call reaches.
//
//===----------------------------------------------------------------------===//

#include "runtime/CPU/KernelLibrary.h"
#include "lib/Support/Text.h"

#include <ar.h>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <sys/mman.h>
#include <vector>

using namespace nsa;
using Bytes = std::string_view;

static constexpr uint64_t pageBytes = 4096;
// How fast a kernel is does not depend on what lies before it.
static constexpr uint64_t cacheLineBytes = 64;
// Code and constants reach each other with 32 bits.
static constexpr uint64_t mostBytes = uint64_t(1) << 31;

namespace {

struct Import {
  Bytes name;
  void *address;
};

struct Section {
  Elf64_Shdr header;
  Bytes contents;
  /// Where it lies in the memory of the library.
  uint64_t place = 0;

  bool isCode() const { return header.sh_flags & SHF_EXECINSTR; }
  bool isMapped() const {
    return header.sh_type == SHT_PROGBITS &&
           (header.sh_flags & (SHF_ALLOC | SHF_WRITE)) == SHF_ALLOC;
  }
};

using Object = std::vector<Section>;

class Linker {
public:
  Status add(Bytes archive);
  /// Puts everything into memory, which is read-only or code after that.
  Result<PageMemory> map();
  /// The objects with the addresses at which they were mapped.
  std::vector<DebugObject> describe() const;
  /// The addresses of all functions that others may call.
  Result<std::map<std::string, KernelFunction>> findKernels() const;

private:
  Status addObject(Bytes bytes);
  Status layOut();
  void writeJumps();
  Status relocate(const Object &object, const Section &relocations);
  /// Where a symbol of a table of the object lies.
  Result<char *> find(const Object &object, const Section &table,
                      const Elf64_Sym &symbol) const;

  std::vector<Object> objects;
  /// The files that they were read from.
  std::vector<Bytes> files;
  char *memory = nullptr;
  /// Where code begins, then jumps, and the end.
  uint64_t code = 0, jumps = 0, end = 0;
};

} // namespace

static const Import imports[] = {
    {"memcpy", reinterpret_cast<void *>(&std::memcpy)},
    {"memmove", reinterpret_cast<void *>(&std::memmove)},
    {"memset", reinterpret_cast<void *>(&std::memset)}};
// jmp *0(%rip), and the address that this reads.
static constexpr uint8_t jump[6] = {0xFF, 0x25, 0, 0, 0, 0};
static constexpr uint64_t jumpBytes = 16;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static Error truncated() { return Error{"its binary is truncated"}; }

static uint64_t alignTo(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// The bytes at an offset; nothing where there are not so many.
static std::optional<Bytes> slice(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    return std::nullopt;
  return bytes.substr(offset, size);
}

/// The structure at an offset, whatever its alignment.
template <typename T>
static bool read(Bytes bytes, uint64_t offset, T &value) {
  std::optional<Bytes> found = slice(bytes, offset, sizeof value);
  if (found)
    found->copy(reinterpret_cast<char *>(&value), sizeof value);
  return found.has_value();
}

/// The text from an offset to the next zero.
static Bytes readName(Bytes names, uint64_t offset) {
  Bytes rest = names.substr(std::min<uint64_t>(offset, names.size()));
  return rest.substr(0, rest.find('\0'));
}

Status Linker::add(Bytes archive) {
  if (archive.substr(0, SARMAG) != ARMAG)
    return Error{"its binary is not an archive of objects"};
  for (uint64_t at = SARMAG; at < archive.size();) {
    ar_hdr header;
    if (!read(archive, at, header))
      return truncated();
    std::string digits(header.ar_size, sizeof header.ar_size);
    uint64_t size = std::strtoull(digits.c_str(), nullptr, 10);
    at += sizeof header;
    std::optional<Bytes> contents = slice(archive, at, size);
    if (!contents)
      return truncated();
    at += size + size % 2;
    // A name with a slash and no number is that of a table of the archive.
    if (header.ar_name[0] == '/' && !std::isdigit(header.ar_name[1]))
      continue;
    NSA_RETURN_IF_ERROR(addObject(*contents));
  }
  return {};
}

Status Linker::addObject(Bytes bytes) {
  Elf64_Ehdr header;
  if (!read(bytes, 0, header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL ||
      header.e_machine != EM_X86_64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return Error{"its binary has what is no ELF object for x86-64"};
  files.push_back(bytes);
  Object &object = objects.emplace_back();
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Section &section = object.emplace_back();
    if (!read(bytes, header.e_shoff + i * sizeof section.header,
              section.header))
      return truncated();
    if (section.header.sh_type == SHT_NOBITS)
      continue;
    std::optional<Bytes> contents =
        slice(bytes, section.header.sh_offset, section.header.sh_size);
    if (!contents)
      return truncated();
    section.contents = *contents;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Linking
//===----------------------------------------------------------------------===//

Status Linker::layOut() {
  for (bool isCode : {false, true}) {
    end = alignTo(end, pageBytes);
    code = end;
    for (Object &object : objects)
      for (Section &section : object) {
        if (!section.isMapped() || section.isCode() != isCode)
          continue;
        uint64_t alignment =
            std::max<uint64_t>(section.header.sh_addralign, cacheLineBytes);
        if (alignment > pageBytes || (alignment & (alignment - 1)) != 0)
          return Error{"its binary has a section with the alignment " +
                       std::to_string(alignment) + ", at most " +
                       std::to_string(pageBytes) + " is possible"};
        section.place = alignTo(end, alignment);
        end = section.place + section.contents.size();
      }
  }
  jumps = alignTo(end, jumpBytes);
  end = jumps + std::size(imports) * jumpBytes;
  if (end > mostBytes)
    return Error{"its code and constants need " + std::to_string(end) +
                 " bytes, at most " + std::to_string(mostBytes) +
                 " are possible"};
  return {};
}

void Linker::writeJumps() {
  char *next = memory + jumps;
  for (const Import &import : imports) {
    std::memcpy(next, jump, sizeof jump);
    std::memcpy(next + sizeof jump, static_cast<const void *>(&import.address),
                sizeof import.address);
    next += jumpBytes;
  }
}

Result<char *> Linker::find(const Object &object, const Section &table,
                            const Elf64_Sym &symbol) const {
  if (symbol.st_shndx == SHN_UNDEF) {
    Bytes names = table.header.sh_link < object.size()
                      ? object[table.header.sh_link].contents
                      : Bytes();
    Bytes name = readName(names, symbol.st_name);
    for (size_t i = 0; i < std::size(imports); ++i)
      if (imports[i].name == name)
        return memory + jumps + i * jumpBytes;
    return Error{"its binary needs the symbol " + quote(std::string(name)) +
                 ", which kernels have not"};
  }
  if (symbol.st_shndx >= object.size() || !object[symbol.st_shndx].isMapped() ||
      symbol.st_value > object[symbol.st_shndx].contents.size())
    return Error{"its binary refers to what is neither code nor constants"};
  return memory + object[symbol.st_shndx].place + symbol.st_value;
}

Status Linker::relocate(const Object &object, const Section &relocations) {
  const Elf64_Shdr &header = relocations.header;
  if (header.sh_info >= object.size() || header.sh_link >= object.size())
    return truncated();
  const Section &target = object[header.sh_info],
                &symbols = object[header.sh_link];
  if (!target.isMapped())
    return {};
  Elf64_Rela relocation;
  for (uint64_t at = 0; read(relocations.contents, at, relocation);
       at += sizeof relocation) {
    uint64_t type = ELF64_R_TYPE(relocation.r_info);
    if (type != R_X86_64_PC32 && type != R_X86_64_PLT32 &&
        type != R_X86_64_PC64)
      return Error{"its binary has a relocation of the type " +
                   std::to_string(type) +
                   ", which is not relative to where it lies"};
    Elf64_Sym symbol;
    uint64_t bytes = type == R_X86_64_PC64 ? 8 : 4;
    if (!slice(target.contents, relocation.r_offset, bytes) ||
        !read(symbols.contents, ELF64_R_SYM(relocation.r_info) * sizeof symbol,
              symbol))
      return truncated();
    NSA_ASSIGN_OR_RETURN(char *to, find(object, symbols, symbol));
    char *place = memory + target.place + relocation.r_offset;
    int64_t distance = to - place + relocation.r_addend;
    std::memcpy(place, &distance, bytes);
  }
  return {};
}

Result<PageMemory> Linker::map() {
  NSA_RETURN_IF_ERROR(layOut());
  NSA_ASSIGN_OR_RETURN(PageMemory pages, PageMemory::allocate(end));
  memory = pages.data();
  for (const Object &object : objects)
    for (const Section &section : object)
      if (section.isMapped() && !section.contents.empty())
        std::memcpy(memory + section.place, section.contents.data(),
                    section.contents.size());
  writeJumps();
  for (const Object &object : objects)
    for (const Section &section : object)
      if (section.header.sh_type == SHT_RELA)
        NSA_RETURN_IF_ERROR(relocate(object, section));
  if (::mprotect(memory, code, PROT_READ) != 0 ||
      ::mprotect(memory + code, end - code, PROT_READ | PROT_EXEC) != 0)
    return Error{std::string("its code cannot be made executable: ") +
                 std::strerror(errno)};
  return pages;
}

std::vector<DebugObject> Linker::describe() const {
  std::vector<DebugObject> described;
  for (size_t i = 0; i < objects.size(); ++i) {
    std::string file(files[i]);
    Elf64_Ehdr header;
    read(file, 0, header);
    for (size_t j = 0; j < objects[i].size(); ++j) {
      Elf64_Shdr section = objects[i][j].header;
      if (objects[i][j].isMapped())
        section.sh_addr =
            reinterpret_cast<uint64_t>(memory) + objects[i][j].place;
      std::memcpy(file.data() + header.e_shoff + j * sizeof section, &section,
                  sizeof section);
    }
    described.emplace_back(std::move(file));
  }
  return described;
}

Result<std::map<std::string, KernelFunction>> Linker::findKernels() const {
  std::map<std::string, KernelFunction> kernels;
  for (const Object &object : objects)
    for (const Section &table : object) {
      if (table.header.sh_type != SHT_SYMTAB ||
          table.header.sh_link >= object.size())
        continue;
      Elf64_Sym symbol;
      for (uint64_t at = 0; read(table.contents, at, symbol);
           at += sizeof symbol) {
        if (symbol.st_shndx == SHN_UNDEF ||
            ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
            ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL)
          continue;
        NSA_ASSIGN_OR_RETURN(char *address, find(object, table, symbol));
        Bytes name =
            readName(object[table.header.sh_link].contents, symbol.st_name);
        kernels[std::string(name)] = reinterpret_cast<KernelFunction>(address);
      }
    }
  return kernels;
}

Result<KernelLibrary> KernelLibrary::load(std::string_view archive) {
  Linker linker;
  NSA_RETURN_IF_ERROR(linker.add(archive));
  KernelLibrary library;
  NSA_ASSIGN_OR_RETURN(library.memory, linker.map());
  NSA_ASSIGN_OR_RETURN(library.kernels, linker.findKernels());
  library.debugObjects = linker.describe();
  return library;
}
