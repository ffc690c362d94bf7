//===- ELFObject.cpp - relocatable objects, checked -----------------------===//

#include "lib/Target/CPU/ELFObject.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Object/ELF.h"

using namespace llvm;
using namespace nsa;

using ELFT = object::ELF64LE;
using ELFFile = object::ELFFile<ELFT>;

static constexpr uint64_t pageBytes = 4096;

/// Whether a section is for the loader. Tables for unwinding are not needed:
/// kernels call nothing that throws.
static bool isMapped(const ELFT::Shdr &header, StringRef name) {
  return (header.sh_flags & ELF::SHF_ALLOC) &&
         header.sh_type != ELF::SHT_NOTE &&
         header.sh_type != ELF::SHT_X86_64_UNWIND && name != ".eh_frame";
}

static Error checkMapped(const ELFT::Shdr &header, StringRef name) {
  auto refuse = [&](const Twine &reason) {
    return createStringError("section '" + name + "' " + reason);
  };
  if (header.sh_flags & ELF::SHF_WRITE)
    return refuse("is writable; kernels keep no state");
  if (header.sh_flags & (ELF::SHF_TLS | ELF::SHF_COMPRESSED))
    return refuse("is thread-local or compressed");
  if (header.sh_type != ELF::SHT_PROGBITS)
    return refuse("has the type " + Twine(uint32_t(header.sh_type)) +
                  ", which is not that of code or constants");
  uint64_t alignment = std::max<uint64_t>(header.sh_addralign, 1);
  if (!isPowerOf2_64(alignment) || alignment > pageBytes)
    return refuse("has the alignment " + Twine(alignment) +
                  ", which is not a power of two up to " + Twine(pageBytes));
  return Error::success();
}

static Expected<std::vector<ObjectSection>>
readSections(const ELFFile &file, ELFT::ShdrRange headers) {
  Expected<StringRef> names = file.getSectionStringTable(headers);
  if (!names)
    return names.takeError();
  std::vector<ObjectSection> sections(headers.size());
  for (auto [section, header] : zip_equal(sections, headers)) {
    Expected<StringRef> name = file.getSectionName(header, *names);
    if (!name)
      return name.takeError();
    section.name = *name;
    section.isMapped = isMapped(header, *name);
    if (!section.isMapped)
      continue;
    if (Error error = checkMapped(header, *name))
      return error;
    Expected<ArrayRef<uint8_t>> contents = file.getSectionContents(header);
    if (!contents)
      return contents.takeError();
    section.contents = *contents;
    section.alignment = std::max<uint64_t>(header.sh_addralign, 1);
    section.isCode = header.sh_flags & ELF::SHF_EXECINSTR;
  }
  return sections;
}

static Expected<ObjectSymbol> readSymbol(const ELFT::Sym &symbol,
                                         StringRef names,
                                         ArrayRef<ObjectSection> sections) {
  Expected<StringRef> name = symbol.getName(names);
  if (!name)
    return name.takeError();
  ObjectSymbol result;
  result.name = *name;
  result.value = symbol.st_value;
  result.size = symbol.st_size;
  result.isUndefined = symbol.st_shndx == ELF::SHN_UNDEF;
  result.isExported = false;
  if (result.isUndefined || symbol.st_shndx >= ELF::SHN_LORESERVE)
    return result;
  if (symbol.st_shndx >= sections.size())
    return createStringError("symbol '" + *name + "' lies in section " +
                             Twine(uint16_t(symbol.st_shndx)) + " of " +
                             Twine(sections.size()));
  const ObjectSection &section = sections[symbol.st_shndx];
  if (!section.isMapped)
    return result;
  uint64_t sectionBytes = section.contents.size();
  if (result.value > sectionBytes || result.size > sectionBytes - result.value)
    return createStringError(
        "symbol '" + *name + "' has " + Twine(result.size) + " bytes at " +
        Twine(result.value) + " of section '" + section.name + "', which has " +
        Twine(sectionBytes));
  result.section = symbol.st_shndx;
  result.isExported = section.isCode && symbol.getBinding() != ELF::STB_LOCAL &&
                      symbol.getVisibility() == ELF::STV_DEFAULT;
  return result;
}

static Expected<std::vector<ObjectSymbol>>
readSymbols(const ELFFile &file, ELFT::ShdrRange headers,
            ArrayRef<ObjectSection> sections) {
  std::vector<ObjectSymbol> result;
  const auto *table = find_if(headers, [](const ELFT::Shdr &header) {
    return header.sh_type == ELF::SHT_SYMTAB;
  });
  if (table == headers.end())
    return result;
  Expected<ELFT::SymRange> symbols = file.symbols(table);
  if (!symbols)
    return symbols.takeError();
  Expected<StringRef> names = file.getStringTableForSymtab(*table, headers);
  if (!names)
    return names.takeError();
  for (const ELFT::Sym &symbol : *symbols) {
    Expected<ObjectSymbol> read = readSymbol(symbol, *names, sections);
    if (!read)
      return read.takeError();
    result.push_back(*read);
  }
  return result;
}

static Error readRelocation(const ELFT::Rela &from, ObjectSection &section,
                            size_t symbolCount) {
  uint32_t type = from.getType(/*isMips64EL=*/false);
  if (type == ELF::R_X86_64_NONE)
    return Error::success();
  if (!is_contained(
          {ELF::R_X86_64_PC32, ELF::R_X86_64_PLT32, ELF::R_X86_64_PC64}, type))
    return createStringError(
        "section '" + section.name + "' has a relocation of the type " +
        object::getELFRelocationTypeName(ELF::EM_X86_64, type) +
        ", which is not relative to where it lies");
  uint64_t bytes = type == ELF::R_X86_64_PC64 ? 8 : 4;
  uint64_t sectionBytes = section.contents.size();
  if (from.r_offset > sectionBytes || bytes > sectionBytes - from.r_offset)
    return createStringError("section '" + section.name +
                             "' has a relocation at " +
                             Twine(uint64_t(from.r_offset)) + " of " +
                             Twine(sectionBytes) + " bytes");
  uint32_t symbol = from.getSymbol(/*isMips64EL=*/false);
  if (symbol >= symbolCount)
    return createStringError("section '" + section.name +
                             "' has a relocation to symbol " + Twine(symbol) +
                             " of " + Twine(symbolCount));
  section.relocations.push_back(
      {from.r_offset, type, symbol, int64_t(from.r_addend)});
  return Error::success();
}

static Error readRelocations(const ELFFile &file, ELFT::ShdrRange headers,
                             ELFObject &object) {
  for (const ELFT::Shdr &header : headers) {
    if (header.sh_type != ELF::SHT_RELA && header.sh_type != ELF::SHT_REL)
      continue;
    if (header.sh_info >= object.sections.size())
      return createStringError("relocations are for section " +
                               Twine(uint32_t(header.sh_info)) + " of " +
                               Twine(object.sections.size()));
    ObjectSection &section = object.sections[header.sh_info];
    if (!section.isMapped)
      continue;
    if (header.sh_type == ELF::SHT_REL)
      return createStringError("section '" + section.name +
                               "' has relocations without addends");
    Expected<ELFT::RelaRange> relocations = file.relas(header);
    if (!relocations)
      return relocations.takeError();
    for (const ELFT::Rela &relocation : *relocations)
      if (Error error =
              readRelocation(relocation, section, object.symbols.size()))
        return error;
  }
  return Error::success();
}

Expected<ELFObject> nsa::readELFObject(ArrayRef<char> bytes) {
  Expected<ELFFile> file =
      ELFFile::create(StringRef(bytes.data(), bytes.size()));
  if (!file)
    return file.takeError();
  const ELFT::Ehdr &header = file->getHeader();
  if (!header.checkMagic() || header.getFileClass() != ELF::ELFCLASS64 ||
      header.getDataEncoding() != ELF::ELFDATA2LSB ||
      header.e_type != ELF::ET_REL || header.e_machine != ELF::EM_X86_64)
    return createStringError("not a relocatable ELF object for x86-64");
  Expected<ELFT::ShdrRange> headers = file->sections();
  if (!headers)
    return headers.takeError();
  Expected<std::vector<ObjectSection>> sections = readSections(*file, *headers);
  if (!sections)
    return sections.takeError();
  ELFObject object;
  object.sections = std::move(*sections);
  Expected<std::vector<ObjectSymbol>> symbols =
      readSymbols(*file, *headers, object.sections);
  if (!symbols)
    return symbols.takeError();
  object.symbols = std::move(*symbols);
  if (Error error = readRelocations(*file, *headers, object))
    return error;
  return object;
}
