//===- ELFLinkerTest.cpp - objects to a shared object ---------------------===//

#include "lib/Target/CPU/ELFLinker.h"
#include "lib/Target/CPU/ObjectEmitter.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/SourceMgr.h"
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace llvm;
using namespace nsa;

namespace {

using Bytes = SmallVector<char, 0>;

/// A constant, and a function that stays one.
constexpr StringLiteral scaleText = R"(
define float @scale(float %x) {
  %y = call float @helper(float %x)
  %z = fmul float %y, 3.25
  ret float %z
}
define float @helper(float %x) noinline {
  %y = fadd float %x, 0.75
  ret float %y
}
)";

/// An import, and a table of 64 bytes.
constexpr StringLiteral copyText = R"(
@table = constant <16 x i32> <i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7,
    i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16>,
    align 64
declare ptr @memcpy(ptr, ptr, i64)
define void @copy_table(ptr %to, i64 %bytes) {
  %1 = call ptr @memcpy(ptr %to, ptr @table, i64 %bytes)
  ret void
}
)";

Bytes emit(StringRef text, StringRef symbol) {
  LLVMContext context;
  SMDiagnostic diagnostic;
  std::unique_ptr<Module> module =
      parseAssemblyString(text, diagnostic, context);
  EXPECT_TRUE(module) << diagnostic.getMessage().str();
  return cantFail(emitObject(*module, symbol,
                             cantFail(describeCPU("x86-64-v3")),
                             /*keepText=*/false))
      .bytes;
}

std::string linkError(ArrayRef<Bytes> objects) {
  Expected<Bytes> image = linkSharedObject(objects);
  return image ? "" : toString(image.takeError());
}

/// A shared object, opened as the runtime does.
class Library {
public:
  explicit Library(const Bytes &image) : fd(memfd_create("library", 0)) {
    EXPECT_EQ(::write(fd, image.data(), image.size()), ssize_t(image.size()));
    std::string path = "/proc/self/fd/" + std::to_string(fd);
    handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(handle) << ::dlerror();
  }
  ~Library() {
    if (handle)
      ::dlclose(handle);
    ::close(fd);
  }
  template <typename Function>
  Function *find(const char *name) const {
    return reinterpret_cast<Function *>(::dlsym(handle, name));
  }

private:
  int fd;
  void *handle = nullptr;
};

TEST(ELFLinkerTest, TwoObjects_Loaded_FunctionsRun) {
  Bytes objects[] = {emit(scaleText, "scale"), emit(copyText, "copy_table")};
  Expected<Bytes> image = linkSharedObject(objects);
  ASSERT_TRUE(bool(image)) << toString(image.takeError());
  Library library(*image);
  auto *scale = library.find<float(float)>("scale");
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale(1.25F), 6.5F);
  auto *copy = library.find<void(int *, int64_t)>("copy_table");
  ASSERT_TRUE(copy);
  int values[17] = {};
  copy(values, 64);
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(values[i], i + 1);
  EXPECT_EQ(values[16], 0);
  EXPECT_FALSE(library.find<void()>("helper"));
  EXPECT_FALSE(library.find<void()>("table"));
}

TEST(ELFLinkerTest, SameObjects_LinkedTwice_SameBytes) {
  Bytes objects[] = {emit(scaleText, "scale"), emit(copyText, "copy_table")};
  EXPECT_EQ(cantFail(linkSharedObject(objects)),
            cantFail(linkSharedObject(objects)));
}

TEST(ELFLinkerTest, SharedObject_ReadAgain_ImportsAndProtectionAsDocumented) {
  Bytes objects[] = {emit(copyText, "copy_table"), emit(scaleText, "scale")};
  Bytes image = cantFail(linkSharedObject(objects));
  auto file = cantFail(object::ELFObjectFileBase::createELFObjectFile(
      MemoryBufferRef(StringRef(image.data(), image.size()), "kernels.so")));
  std::vector<std::string> imports, exports;
  for (const object::SymbolRef &symbol :
       cast<object::ELFObjectFileBase>(*file).getDynamicSymbolIterators())
    ((cantFail(symbol.getFlags()) & object::SymbolRef::SF_Undefined) ? imports
                                                                     : exports)
        .push_back(cantFail(symbol.getName()).str());
  EXPECT_EQ(imports, std::vector<std::string>{"memcpy"});
  EXPECT_EQ(exports, (std::vector<std::string>{"copy_table", "scale"}));
  const auto &elf =
      cast<object::ELFObjectFile<object::ELF64LE>>(*file).getELFFile();
  for (const auto &segment : cantFail(elf.program_headers())) {
    EXPECT_NE(segment.p_flags & (ELF::PF_W | ELF::PF_X),
              uint32_t(ELF::PF_W | ELF::PF_X));
    EXPECT_LE(segment.p_offset + segment.p_filesz, image.size());
    if (segment.p_type == ELF::PT_LOAD)
      EXPECT_EQ((segment.p_vaddr - segment.p_offset) % segment.p_align, 0u);
  }
}

TEST(ELFLinkerTest, NameExportedTwice_Fails) {
  Bytes objects[] = {emit(scaleText, "scale"), emit(scaleText, "scale")};
  EXPECT_EQ(linkError(objects), "linking the kernels failed: objects 0 and 1 "
                                "both define 'scale'");
}

TEST(ELFLinkerTest, NothingExported_Fails) {
  EXPECT_EQ(linkError({}),
            "linking the kernels failed: no object exports a function");
}

TEST(ELFLinkerTest, WritableData_Fails) {
  Bytes object = emit(R"(
@count = global i32 0
define i32 @next() {
  %old = load i32, ptr @count
  %new = add i32 %old, 1
  store i32 %new, ptr @count
  ret i32 %new
}
)",
                      "next");
  EXPECT_EQ(linkError(object), "linking the kernels failed: object 0: section "
                               "'.bss.count' is writable; kernels keep no "
                               "state");
}

TEST(ELFLinkerTest, AbsoluteAddress_Fails) {
  Bytes object = emit(R"(
module asm ".section .rodata.pointer, \22a\22"
module asm ".quad f"
define void @f() {
  ret void
}
)",
                      "f");
  EXPECT_EQ(linkError(object),
            "linking the kernels failed: object 0: section '.rodata.pointer' "
            "has a relocation of the type Pointer64, which is not relative to "
            "where it lies");
}

TEST(ELFLinkerTest, NotAnObject_Fails) {
  Bytes image = cantFail(linkSharedObject(emit(scaleText, "scale")));
  EXPECT_EQ(linkError(image), "linking the kernels failed: object 0: not a "
                              "relocatable ELF object for x86-64");
  EXPECT_NE(linkError(Bytes()), "");
}

/// Links a damaged object. There is an error of one line, or a shared object
/// that can be read.
void tryDamaged(const Bytes &object) {
  // As many bytes as there are, for tools that find reads beyond the end.
  Bytes exact(object.begin(), object.end());
  Expected<Bytes> image = linkSharedObject(exact);
  if (!image) {
    std::string message = toString(image.takeError());
    EXPECT_TRUE(StringRef(message).starts_with("linking the kernels failed: "));
    return;
  }
  auto file = object::ELFFile<object::ELF64LE>::create(
      StringRef(image->data(), image->size()));
  ASSERT_TRUE(bool(file)) << toString(file.takeError());
  auto sections = file->sections();
  ASSERT_TRUE(bool(sections)) << toString(sections.takeError());
}

TEST(ELFLinkerTest, DamagedObject_AnyByteOrLength_ErrorOrSharedObject) {
  for (const Bytes &object :
       {emit(scaleText, "scale"), emit(copyText, "copy_table")}) {
    for (size_t i = 0; i < object.size(); ++i) {
      for (int change : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
        Bytes damaged = object;
        damaged[i] ^= char(change);
        tryDamaged(damaged);
      }
      tryDamaged(Bytes(object.begin(), object.begin() + i));
    }
  }
}

} // namespace
