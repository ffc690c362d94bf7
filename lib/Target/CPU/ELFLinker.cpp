//===- ELFLinker.cpp - objects to a shared object -------------------------===//
//
// Three segments, as a loader maps them: tables and constants, code, and what
// the loader writes itself before it makes it read-only. All relocations within
// the file are resolved here; what is left are the addresses of imported
// functions, in a global offset table with a jump to each (a procedure linkage
// table without lazy binding).
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ELFLinker.h"
#include "lib/Target/CPU/ELFObject.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Object/ELFTypes.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace nsa;

using ELFT = object::ELF64LE;

static constexpr uint64_t pageBytes = 4096;
// Code and constants reach each other with 32 bits.
static constexpr uint64_t mostImageBytes = uint64_t(1) << 31;
// How fast a kernel is does not depend on what lies before it.
static constexpr uint64_t cacheLineBytes = 64;
// Entries of a jump, its address to be filled in, and of the offset table; the
// first three of the latter are the loader's.
static constexpr uint8_t jumpCode[16] = {0xFF, 0x25, 0,    0,    0,    0,
                                         0xCC, 0xCC, 0xCC, 0xCC, 0xCC, 0xCC,
                                         0xCC, 0xCC, 0xCC, 0xCC};
static constexpr uint64_t reservedEntries = 3;
static constexpr unsigned segmentCount = 6;
static constexpr unsigned dynamicCount = 13;
static constexpr StringLiteral libraryName = "nsa-kernels";

namespace {

/// A section of an object, by indices.
using SectionId = std::pair<uint32_t, uint32_t>;

struct Export {
  uint32_t object;
  const ObjectSymbol *symbol;
  SectionId section() const { return {object, *symbol->section}; }
};

/// What goes into the shared object.
struct LinkInput {
  std::vector<ELFObject> objects;
  MapVector<StringRef, Export> exports;
  SetVector<StringRef> imports;
  /// What the exports need, in the order of the objects.
  std::vector<SectionId> sections;

  Error addObjects(ArrayRef<SmallVector<char, 0>> from);
  Error findSections();
  const ObjectSection &section(SectionId id) const {
    return objects[id.first].sections[id.second];
  }

private:
  Error addReferences(SectionId id, SetVector<SectionId> &needed);
};

/// The sections of the shared object, as they lie in it.
enum OutputSection : unsigned {
  None,
  Symbols,
  HashTable,
  Names,
  Relocations,
  Constants,
  Code,
  Jumps,
  Dynamic,
  Offsets,
  SectionNames,
  SectionCount
};

class Writer {
public:
  explicit Writer(const LinkInput &input) : input(input) {}

  Expected<SmallVector<char, 0>> write();

private:
  void addSection(OutputSection section, StringRef name, uint32_t type,
                  uint64_t flags, uint64_t alignment, uint64_t bytes);
  void addInputSections(OutputSection section, StringRef name, bool isCode);
  void layOut();

  void writeSymbol(unsigned index, StringRef name, const Export *symbol);
  void writeSymbols();
  void writeJumps();
  void writeDynamic();
  void writeHeaders();
  Error writeInputSection(SectionId id);
  uint64_t addressOf(uint32_t object, const ObjectSymbol &symbol) const;

  template <typename T>
  void put(uint64_t offset, const T &value) {
    std::memcpy(image.data() + offset, &value, sizeof value);
  }

  const LinkInput &input;
  SmallVector<char, 0> image;
  std::array<ELFT::Shdr, SectionCount> headers = {};
  std::string sectionNames = std::string(1, '\0');
  std::string names = std::string(1, '\0');
  /// What an address is more than the offset in the file.
  uint64_t displacement = 0;
  DenseMap<SectionId, uint64_t> offsets;
  /// Of imports and exports.
  DenseMap<StringRef, uint64_t> addresses;
};

} // namespace

//===----------------------------------------------------------------------===//
// LinkInput
//===----------------------------------------------------------------------===//

Error LinkInput::addObjects(ArrayRef<SmallVector<char, 0>> from) {
  for (auto [number, bytes] : enumerate(from)) {
    Expected<ELFObject> object = readELFObject(bytes);
    if (!object)
      return createStringError("object " + Twine(number) + ": " +
                               toString(object.takeError()));
    objects.push_back(std::move(*object));
  }
  for (auto [number, object] : enumerate(objects))
    for (const ObjectSymbol &symbol : object.symbols) {
      if (!symbol.isExported)
        continue;
      auto [known, isNew] =
          exports.insert({symbol.name, Export{uint32_t(number), &symbol}});
      if (!isNew)
        return createStringError("objects " + Twine(known->second.object) +
                                 " and " + Twine(number) + " both define '" +
                                 symbol.name + "'");
    }
  if (exports.empty())
    return createStringError("no object exports a function");
  return Error::success();
}

Error LinkInput::findSections() {
  SetVector<SectionId> needed;
  for (const auto &[name, symbol] : exports)
    needed.insert(symbol.section());
  for (unsigned i = 0; i < needed.size(); ++i)
    if (Error error = addReferences(needed[i], needed))
      return error;
  sections.assign(needed.begin(), needed.end());
  sort(sections);
  return Error::success();
}

Error LinkInput::addReferences(SectionId id, SetVector<SectionId> &needed) {
  const ELFObject &object = objects[id.first];
  for (const ObjectRelocation &relocation : section(id).relocations) {
    const ObjectSymbol &symbol = object.symbols[relocation.symbol];
    if (symbol.section)
      needed.insert({id.first, *symbol.section});
    else if (!symbol.isUndefined || symbol.name.empty())
      return createStringError("object " + Twine(id.first) + ": section '" +
                               section(id).name + "' refers to the symbol '" +
                               symbol.name +
                               "', which is not in code or constants");
    else if (!exports.contains(symbol.name))
      imports.insert(symbol.name);
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

/// Makes room for a section at the end.
void Writer::addSection(OutputSection section, StringRef name, uint32_t type,
                        uint64_t flags, uint64_t alignment, uint64_t bytes) {
  uint64_t offset = alignTo(image.size(), alignment);
  image.resize(offset + bytes);
  ELFT::Shdr &header = headers[section];
  header.sh_name = sectionNames.size();
  header.sh_type = type;
  header.sh_flags = flags;
  header.sh_offset = offset;
  header.sh_addr = flags & ELF::SHF_ALLOC ? offset + displacement : 0;
  header.sh_size = bytes;
  header.sh_addralign = alignment;
  sectionNames += (name + StringRef("\0", 1)).str();
}

void Writer::addInputSections(OutputSection section, StringRef name,
                              bool isCode) {
  uint64_t bytes = 0, alignment = isCode ? cacheLineBytes : 1;
  for (SectionId id : input.sections) {
    const ObjectSection &from = input.section(id);
    if (from.isCode != isCode)
      continue;
    uint64_t own = std::max(from.alignment, isCode ? cacheLineBytes : 1);
    alignment = std::max(alignment, own);
    offsets[id] = alignTo(bytes, own);
    bytes = offsets[id] + from.contents.size();
  }
  addSection(section, name, ELF::SHT_PROGBITS,
             ELF::SHF_ALLOC | (isCode ? ELF::SHF_EXECINSTR : 0), alignment,
             bytes);
  for (SectionId id : input.sections)
    if (input.section(id).isCode == isCode)
      offsets[id] += headers[section].sh_offset;
  if (isCode)
    std::fill_n(image.begin() + headers[section].sh_offset, bytes, '\xCC');
}

void Writer::layOut() {
  uint64_t imports = input.imports.size();
  uint64_t symbols = 1 + imports + input.exports.size();
  names += (libraryName + StringRef("\0", 1)).str();
  uint64_t nameBytes = names.size();
  for (StringRef name : input.imports)
    nameBytes += name.size() + 1;
  for (const auto &[name, symbol] : input.exports)
    nameBytes += name.size() + 1;

  image.resize(sizeof(ELFT::Ehdr) + segmentCount * sizeof(ELFT::Phdr));
  addSection(Symbols, ".dynsym", ELF::SHT_DYNSYM, ELF::SHF_ALLOC, 8,
             symbols * sizeof(ELFT::Sym));
  // Two counts, a bucket for each symbol, and the chains.
  addSection(HashTable, ".hash", ELF::SHT_HASH, ELF::SHF_ALLOC, 8,
             4 * (2 + 2 * symbols));
  addSection(Names, ".dynstr", ELF::SHT_STRTAB, ELF::SHF_ALLOC, 1, nameBytes);
  addSection(Relocations, ".rela.plt", ELF::SHT_RELA,
             ELF::SHF_ALLOC | ELF::SHF_INFO_LINK, 8,
             imports * sizeof(ELFT::Rela));
  addInputSections(Constants, ".rodata", /*isCode=*/false);

  // A segment begins on the next page, at the same place in it: pages of the
  // file that two segments share are mapped twice, each as it is protected.
  displacement += pageBytes;
  addInputSections(Code, ".text", /*isCode=*/true);
  addSection(Jumps, ".plt", ELF::SHT_PROGBITS,
             ELF::SHF_ALLOC | ELF::SHF_EXECINSTR, sizeof jumpCode,
             imports * sizeof jumpCode);

  displacement += pageBytes;
  addSection(Dynamic, ".dynamic", ELF::SHT_DYNAMIC,
             ELF::SHF_ALLOC | ELF::SHF_WRITE, 8,
             dynamicCount * sizeof(ELFT::Dyn));
  addSection(Offsets, ".got.plt", ELF::SHT_PROGBITS,
             ELF::SHF_ALLOC | ELF::SHF_WRITE, 8,
             8 * (reservedEntries + imports));

  StringRef last = ".shstrtab";
  addSection(SectionNames, last, ELF::SHT_STRTAB, 0, 1,
             sectionNames.size() + last.size() + 1);
  image.resize(alignTo(image.size(), 8));
}

//===----------------------------------------------------------------------===//
// Contents
//===----------------------------------------------------------------------===//

static uint32_t hashName(StringRef name) {
  uint32_t hash = 0;
  for (unsigned char c : name) {
    hash = (hash << 4) + c;
    hash = (hash ^ ((hash >> 24) & 0xF0)) & 0x0FFFFFFF;
  }
  return hash;
}

/// Writes an entry of the symbol table, and its name.
void Writer::writeSymbol(unsigned index, StringRef name,
                         const Export *exported) {
  ELFT::Sym symbol = {};
  symbol.st_name = names.size();
  names += (name + StringRef("\0", 1)).str();
  symbol.setBindingAndType(ELF::STB_GLOBAL,
                           exported ? ELF::STT_FUNC : ELF::STT_NOTYPE);
  if (exported) {
    symbol.st_shndx = Code;
    symbol.st_value = addresses.lookup(name);
    symbol.st_size = exported->symbol->size;
  }
  put(headers[Symbols].sh_offset + index * sizeof symbol, symbol);
}

void Writer::writeSymbols() {
  unsigned count = headers[Symbols].sh_size / sizeof(ELFT::Sym);
  std::vector<support::ulittle32_t> table(2 + 2 * count);
  table[0] = count;
  table[1] = count;
  support::ulittle32_t *buckets = &table[2], *chains = buckets + count;
  unsigned index = 1;
  auto add = [&](StringRef name, const Export *symbol) {
    writeSymbol(index, name, symbol);
    support::ulittle32_t &bucket = buckets[hashName(name) % count];
    chains[index] = bucket;
    bucket = index++;
  };
  for (StringRef name : input.imports)
    add(name, nullptr);
  for (const auto &[name, symbol] : input.exports)
    add(name, &symbol);
  std::memcpy(image.data() + headers[HashTable].sh_offset, table.data(),
              table.size() * sizeof table[0]);
  copy(names, image.data() + headers[Names].sh_offset);
}

/// Writes a jump to each import through its entry of the offset table, and the
/// relocation of the entry.
void Writer::writeJumps() {
  put(headers[Offsets].sh_offset,
      support::ulittle64_t(headers[Dynamic].sh_addr));
  for (unsigned i = 0; i < input.imports.size(); ++i) {
    uint64_t entry = headers[Offsets].sh_addr + 8 * (reservedEntries + i);
    uint64_t jump = i * sizeof jumpCode;
    put(headers[Jumps].sh_offset + jump, jumpCode);
    // Relative to the end of the instruction, which has six bytes.
    put(headers[Jumps].sh_offset + jump + 2,
        support::ulittle32_t(entry - (headers[Jumps].sh_addr + jump + 6)));
    ELFT::Rela relocation = {};
    relocation.r_offset = entry;
    relocation.setSymbolAndType(1 + i, ELF::R_X86_64_JUMP_SLOT,
                                /*IsMips64EL=*/false);
    put(headers[Relocations].sh_offset + i * sizeof relocation, relocation);
  }
}

void Writer::writeDynamic() {
  std::pair<int64_t, uint64_t> entries[dynamicCount] = {
      // After the empty name.
      {ELF::DT_SONAME, 1},
      {ELF::DT_FLAGS, ELF::DF_BIND_NOW},
      {ELF::DT_FLAGS_1, ELF::DF_1_NOW},
      {ELF::DT_HASH, headers[HashTable].sh_addr},
      {ELF::DT_SYMTAB, headers[Symbols].sh_addr},
      {ELF::DT_SYMENT, sizeof(ELFT::Sym)},
      {ELF::DT_STRTAB, headers[Names].sh_addr},
      {ELF::DT_STRSZ, headers[Names].sh_size},
      {ELF::DT_JMPREL, headers[Relocations].sh_addr},
      {ELF::DT_PLTRELSZ, headers[Relocations].sh_size},
      {ELF::DT_PLTREL, ELF::DT_RELA},
      {ELF::DT_PLTGOT, headers[Offsets].sh_addr},
      {ELF::DT_NULL, 0}};
  for (auto [i, entry] : enumerate(entries)) {
    ELFT::Dyn dynamic = {};
    dynamic.d_tag = entry.first;
    dynamic.d_un.d_val = entry.second;
    put(headers[Dynamic].sh_offset + i * sizeof dynamic, dynamic);
  }
}

uint64_t Writer::addressOf(uint32_t object, const ObjectSymbol &symbol) const {
  if (!symbol.section)
    return addresses.lookup(symbol.name);
  SectionId id = {object, *symbol.section};
  const ELFT::Shdr &header =
      headers[input.section(id).isCode ? Code : Constants];
  return offsets.lookup(id) - header.sh_offset + header.sh_addr + symbol.value;
}

Error Writer::writeInputSection(SectionId id) {
  const ObjectSection &section = input.section(id);
  const ELFT::Shdr &header = headers[section.isCode ? Code : Constants];
  uint64_t offset = offsets.lookup(id);
  copy(section.contents, image.data() + offset);
  for (const ObjectRelocation &relocation : section.relocations) {
    uint64_t place = offset + relocation.offset;
    // Wraps around, as addresses do.
    uint64_t value =
        addressOf(id.first,
                  input.objects[id.first].symbols[relocation.symbol]) +
        uint64_t(relocation.addend) -
        (place - header.sh_offset + header.sh_addr);
    if (relocation.type == ELF::R_X86_64_PC64)
      put(place, support::ulittle64_t(value));
    else if (isInt<32>(int64_t(value)))
      put(place, support::ulittle32_t(uint32_t(value)));
    else
      return createStringError(
          "object " + Twine(id.first) + ": section '" + section.name +
          "' has a relocation at " + Twine(relocation.offset) + " to what is " +
          Twine(int64_t(value)) + " bytes away, further than 32 bits reach");
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Headers
//===----------------------------------------------------------------------===//

/// A segment from one section to the end of another.
static ELFT::Phdr makeSegment(uint32_t type, uint32_t flags, uint64_t alignment,
                              const ELFT::Shdr &first, const ELFT::Shdr &last) {
  ELFT::Phdr segment = {};
  segment.p_type = type;
  segment.p_flags = flags;
  segment.p_offset = first.sh_offset;
  segment.p_vaddr = first.sh_addr;
  segment.p_paddr = first.sh_addr;
  segment.p_filesz = last.sh_addr + last.sh_size - first.sh_addr;
  segment.p_memsz = segment.p_filesz;
  segment.p_align = alignment;
  return segment;
}

void Writer::writeHeaders() {
  ELFT::Shdr start = {};
  std::array<ELFT::Phdr, segmentCount> segments = {
      makeSegment(ELF::PT_LOAD, ELF::PF_R, pageBytes, start,
                  headers[Constants]),
      makeSegment(ELF::PT_LOAD, ELF::PF_R | ELF::PF_X, pageBytes, headers[Code],
                  headers[Jumps]),
      makeSegment(ELF::PT_LOAD, ELF::PF_R | ELF::PF_W, pageBytes,
                  headers[Dynamic], headers[Offsets]),
      makeSegment(ELF::PT_DYNAMIC, ELF::PF_R | ELF::PF_W, 8, headers[Dynamic],
                  headers[Dynamic]),
      makeSegment(ELF::PT_GNU_RELRO, ELF::PF_R, 1, headers[Dynamic],
                  headers[Offsets]),
      makeSegment(ELF::PT_GNU_STACK, ELF::PF_R | ELF::PF_W, 0, start, start)};
  // The loader protects whole pages.
  uint64_t end = segments[2].p_vaddr + segments[2].p_memsz;
  for (unsigned i : {2, 4})
    segments[i].p_memsz = alignTo(end, pageBytes) - segments[i].p_vaddr;

  ELFT::Ehdr header = {};
  copy(StringRef(ELF::ElfMagic), header.e_ident);
  header.e_ident[ELF::EI_CLASS] = ELF::ELFCLASS64;
  header.e_ident[ELF::EI_DATA] = ELF::ELFDATA2LSB;
  header.e_ident[ELF::EI_VERSION] = ELF::EV_CURRENT;
  header.e_version = ELF::EV_CURRENT;
  header.e_type = ELF::ET_DYN;
  header.e_machine = ELF::EM_X86_64;
  header.e_ehsize = sizeof header;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(ELFT::Phdr);
  header.e_phnum = segmentCount;
  header.e_shoff = image.size();
  header.e_shentsize = sizeof(ELFT::Shdr);
  header.e_shnum = SectionCount;
  header.e_shstrndx = SectionNames;
  put(0, header);
  put(header.e_phoff, segments);

  copy(sectionNames, image.data() + headers[SectionNames].sh_offset);
  headers[Symbols].sh_link = Names;
  headers[Dynamic].sh_link = Names;
  // The first symbol that is not local.
  headers[Symbols].sh_info = 1;
  headers[HashTable].sh_link = Symbols;
  headers[Relocations].sh_link = Symbols;
  headers[Relocations].sh_info = Offsets;
  headers[Symbols].sh_entsize = sizeof(ELFT::Sym);
  headers[HashTable].sh_entsize = 4;
  headers[Relocations].sh_entsize = sizeof(ELFT::Rela);
  headers[Dynamic].sh_entsize = sizeof(ELFT::Dyn);
  image.resize(image.size() + sizeof headers);
  put(header.e_shoff, headers);
}

Expected<SmallVector<char, 0>> Writer::write() {
  uint64_t bytes = 0;
  for (SectionId id : input.sections)
    bytes += input.section(id).contents.size() + input.section(id).alignment;
  if (bytes > mostImageBytes)
    return createStringError("code and constants need " + Twine(bytes) +
                             " bytes, at most " + Twine(mostImageBytes) +
                             " fit into a shared object");
  layOut();
  for (const auto &[name, symbol] : input.exports)
    addresses[name] = addressOf(symbol.object, *symbol.symbol);
  for (auto [i, name] : enumerate(input.imports))
    addresses[name] = headers[Jumps].sh_addr + i * sizeof jumpCode;
  writeSymbols();
  writeJumps();
  writeDynamic();
  for (SectionId id : input.sections)
    if (Error error = writeInputSection(id))
      return error;
  writeHeaders();
  return std::move(image);
}

Expected<SmallVector<char, 0>>
nsa::linkSharedObject(ArrayRef<SmallVector<char, 0>> objects) {
  LinkInput input;
  Error error = input.addObjects(objects);
  if (!error)
    error = input.findSections();
  if (error)
    return createStringError("linking the kernels failed: " +
                             toString(std::move(error)));
  Expected<SmallVector<char, 0>> image = Writer(input).write();
  if (!image)
    return createStringError("linking the kernels failed: " +
                             toString(image.takeError()));
  return image;
}
