//===- ELFLinker.cpp - objects to a shared object -------------------------===//
//
// JITLink reads the objects and applies their relocations. The shared object
// has three segments, as a loader maps them: tables and constants, code, and
// what the loader writes itself before it makes it read-only. What is left to
// it are the addresses of imported functions, in a global offset table with a
// jump to each (a procedure linkage table without lazy binding).
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/ELFLinker.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ExecutionEngine/JITLink/ELF_x86_64.h"
#include "llvm/ExecutionEngine/JITLink/x86_64.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace nsa;
namespace x86_64 = llvm::jitlink::x86_64;

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

/// Sections of objects, in the order of their insertion.
using BlockSet = SetVector<jitlink::Block *>;

/// The contents of the shared object.
struct LinkInput {
  std::shared_ptr<orc::SymbolStringPool> names =
      std::make_shared<orc::SymbolStringPool>();
  std::vector<std::unique_ptr<jitlink::LinkGraph>> objects;
  MapVector<StringRef, jitlink::Symbol *> exports;
  SetVector<StringRef> imports;
  /// What the exports need, in the order of the objects, with its object.
  std::vector<std::pair<jitlink::Block *, jitlink::LinkGraph *>> sections;

  Error addObjects(ArrayRef<SmallVector<char, 0>> from);
  Error findSections();

private:
  Error addReferences(jitlink::Block &from, BlockSet &needed);
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

  void writeSymbol(unsigned index, StringRef name,
                   const jitlink::Symbol *exported);
  void writeSymbols();
  void writeJumps();
  void writeDynamic();
  void writeHeaders();
  void resolve();
  Error writeInputSections();

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
};

} // namespace

//===----------------------------------------------------------------------===//
// LinkInput
//===----------------------------------------------------------------------===//

static Expected<std::unique_ptr<jitlink::LinkGraph>>
readObject(ArrayRef<char> bytes, std::shared_ptr<orc::SymbolStringPool> names) {
  MemoryBufferRef buffer(StringRef(bytes.data(), bytes.size()), "object");
  Expected<std::unique_ptr<object::ObjectFile>> file =
      object::ObjectFile::createELFObjectFile(buffer);
  if (!file)
    return file.takeError();
  auto *elf = cast<object::ELFObjectFileBase>(file->get());
  if (!isa<object::ELF64LEObjectFile>(elf) ||
      elf->getEMachine() != ELF::EM_X86_64 || elf->getEType() != ELF::ET_REL)
    return createStringError("not a relocatable ELF object for x86-64");
  // JITLink takes it for granted.
  if (elf->symbol_begin() == elf->symbol_end())
    return createStringError("has no symbols");
  return jitlink::createLinkGraphFromELFObject_x86_64(buffer, std::move(names));
}

static bool isCode(const jitlink::Block &block) {
  return (block.getSection().getMemProt() & orc::MemProt::Exec) !=
         orc::MemProt::None;
}

/// Tables for unwinding are not needed: kernels call nothing that throws.
static bool isMapped(const jitlink::Section &section) {
  return section.getMemLifetime() == orc::MemLifetime::Standard &&
         section.getName() != ".eh_frame";
}

/// Checks the sections of kernels, and that ranges lie in them.
static Error checkSection(jitlink::LinkGraph &object,
                          jitlink::Section &section) {
  auto refuse = [&](const Twine &reason) {
    return createStringError("section '" + section.getName() + "' " + reason);
  };
  if ((section.getMemProt() & orc::MemProt::Write) != orc::MemProt::None)
    return refuse("is writable; kernels keep no state");
  for (const jitlink::Block *block : section.blocks()) {
    if (block->isZeroFill())
      return refuse("has no contents");
    if (block->getAlignment() > pageBytes)
      return refuse("has the alignment " + Twine(block->getAlignment()) +
                    ", which is over " + Twine(pageBytes));
    for (const jitlink::Edge &edge : block->edges()) {
      if (!is_contained(
              {x86_64::Delta32, x86_64::Delta64, x86_64::BranchPCRel32},
              edge.getKind()))
        return refuse("has a relocation of the type " +
                      Twine(object.getEdgeKindName(edge.getKind())) +
                      ", which is not relative to where it lies");
      uint64_t bytes = edge.getKind() == x86_64::Delta64 ? 8 : 4;
      if (edge.getOffset() + bytes > block->getSize())
        return refuse("has a relocation at " + Twine(edge.getOffset()) +
                      " of " + Twine(block->getSize()) + " bytes");
    }
  }
  for (const jitlink::Symbol *symbol : section.symbols())
    if (symbol->getOffset() > symbol->getBlock().getSize() ||
        symbol->getSize() > symbol->getBlock().getSize() - symbol->getOffset())
      return refuse("has a symbol of " + Twine(symbol->getSize()) +
                    " bytes at " + Twine(symbol->getOffset()) + " of " +
                    Twine(symbol->getBlock().getSize()));
  return Error::success();
}

static Error checkObject(jitlink::LinkGraph &object) {
  for (jitlink::Section &section : object.sections())
    if (isMapped(section))
      if (Error error = checkSection(object, section))
        return error;
  return Error::success();
}

/// The functions that others may call, by name.
static std::vector<jitlink::Symbol *> getExports(jitlink::LinkGraph &object) {
  std::vector<jitlink::Symbol *> found;
  for (jitlink::Symbol *symbol : object.defined_symbols())
    if (symbol->getScope() == jitlink::Scope::Default &&
        isCode(symbol->getBlock()))
      found.push_back(symbol);
  sort(found, [](jitlink::Symbol *x, jitlink::Symbol *y) {
    return *x->getName() < *y->getName();
  });
  return found;
}

Error LinkInput::addObjects(ArrayRef<SmallVector<char, 0>> from) {
  DenseMap<StringRef, size_t> definedBy;
  for (auto [number, bytes] : enumerate(from)) {
    auto object = readObject(bytes, names);
    Error error = object ? checkObject(**object) : object.takeError();
    if (error)
      return createStringError("object " + Twine(number) + ": " +
                               toString(std::move(error)));
    for (jitlink::Symbol *symbol : getExports(**object)) {
      StringRef name = *symbol->getName();
      auto [known, isNew] = definedBy.try_emplace(name, number);
      if (!isNew)
        return createStringError("objects " + Twine(known->second) + " and " +
                                 Twine(number) + " both define '" + name + "'");
      exports[name] = symbol;
    }
    objects.push_back(std::move(*object));
  }
  if (exports.empty())
    return createStringError("no object exports a function");
  return Error::success();
}

Error LinkInput::findSections() {
  for (auto [number, object] : enumerate(objects)) {
    BlockSet needed;
    for (jitlink::Symbol *symbol : getExports(*object))
      needed.insert(&symbol->getBlock());
    for (unsigned i = 0; i < needed.size(); ++i)
      if (Error error = addReferences(*needed[i], needed))
        return createStringError("object " + Twine(number) + ": " +
                                 toString(std::move(error)));
    auto blocks = needed.takeVector();
    sort(blocks, [](jitlink::Block *x, jitlink::Block *y) {
      return x->getContent().data() < y->getContent().data();
    });
    for (jitlink::Block *block : blocks)
      sections.push_back({block, object.get()});
  }
  return Error::success();
}

Error LinkInput::addReferences(jitlink::Block &from, BlockSet &needed) {
  for (const jitlink::Edge &edge : from.edges()) {
    jitlink::Symbol &target = edge.getTarget();
    if (target.isDefined() && isMapped(target.getSection()))
      needed.insert(&target.getBlock());
    else if (!target.isExternal())
      return createStringError("section '" + from.getSection().getName() +
                               "' refers to what is not in code or constants");
    else if (!exports.contains(*target.getName()))
      imports.insert(*target.getName());
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
  std::vector<std::pair<jitlink::Block *, uint64_t>> places;
  for (auto [block, object] : input.sections) {
    if (::isCode(*block) != isCode)
      continue;
    uint64_t own =
        std::max<uint64_t>(block->getAlignment(), isCode ? cacheLineBytes : 1);
    alignment = std::max(alignment, own);
    places.push_back({block, alignTo(bytes, own)});
    bytes = places.back().second + block->getSize();
  }
  addSection(section, name, ELF::SHT_PROGBITS,
             ELF::SHF_ALLOC | (isCode ? ELF::SHF_EXECINSTR : 0), alignment,
             bytes);
  for (auto [block, place] : places)
    block->setAddress(orc::ExecutorAddr(headers[section].sh_addr + place));
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

  // A segment begins on the next page, at the same offset in it: pages of the
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
                         const jitlink::Symbol *exported) {
  ELFT::Sym symbol = {};
  symbol.st_name = names.size();
  names += (name + StringRef("\0", 1)).str();
  symbol.setBindingAndType(ELF::STB_GLOBAL,
                           exported ? ELF::STT_FUNC : ELF::STT_NOTYPE);
  if (exported) {
    symbol.st_shndx = Code;
    symbol.st_value = exported->getAddress().getValue();
    symbol.st_size = exported->getSize();
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
  auto add = [&](StringRef name, const jitlink::Symbol *symbol) {
    writeSymbol(index, name, symbol);
    support::ulittle32_t &bucket = buckets[hashName(name) % count];
    chains[index] = bucket;
    bucket = index++;
  };
  for (StringRef name : input.imports)
    add(name, nullptr);
  for (const auto &[name, symbol] : input.exports)
    add(name, symbol);
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

/// Gives symbols that objects do not define the addresses of exports of others,
/// or of jumps.
void Writer::resolve() {
  DenseMap<StringRef, uint64_t> jumps;
  for (auto [i, name] : enumerate(input.imports))
    jumps[name] = headers[Jumps].sh_addr + i * sizeof jumpCode;
  for (const std::unique_ptr<jitlink::LinkGraph> &object : input.objects)
    for (jitlink::Symbol *symbol : object->external_symbols()) {
      StringRef name = *symbol->getName();
      const jitlink::Symbol *exported = input.exports.lookup(name);
      symbol->getAddressable().setAddress(
          exported ? exported->getAddress()
                   : orc::ExecutorAddr(jumps.lookup(name)));
    }
}

Error Writer::writeInputSections() {
  for (auto [block, object] : input.sections) {
    MutableArrayRef<char> contents = block->getMutableContent(*object);
    for (const jitlink::Edge &edge : block->edges())
      if (Error error = x86_64::applyFixup(*object, *block, edge,
                                           /*GOTSymbol=*/nullptr))
        return error;
    const ELFT::Shdr &header = headers[isCode(*block) ? Code : Constants];
    copy(contents, image.data() + header.sh_offset +
                       (block->getAddress().getValue() - header.sh_addr));
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
  for (auto [block, object] : input.sections)
    bytes += block->getSize() + block->getAlignment();
  if (bytes > mostImageBytes)
    return createStringError("code and constants need " + Twine(bytes) +
                             " bytes, at most " + Twine(mostImageBytes) +
                             " fit into a shared object");
  layOut();
  resolve();
  writeSymbols();
  writeJumps();
  writeDynamic();
  if (Error error = writeInputSections())
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
