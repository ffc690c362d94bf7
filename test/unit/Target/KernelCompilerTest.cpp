//===- KernelCompilerTest.cpp - what the code generator refuses -----------===//
//
// Whatever a kernel contains, the answer is machine code or a diagnostic; LLVM
// must not end the process.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/CPU/KernelCompiler.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "test/unit/Expect.h"
#include <gtest/gtest.h>

using namespace mlir;
using namespace nsa;

namespace {

class KernelCompilerTest : public testing::Test {
protected:
  KernelCompilerTest() : context(makeRegistry()) {
    context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
      message += diagnostic.str() + "\n";
      return success();
    });
  }

  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registerKernelTranslations(registry);
    return registry;
  }

  /// Compiles the public functions of `text`.
  FailureOr<CPUBinary> compile(StringRef text, unsigned threads = 1,
                               StringRef cpu = "x86-64-v3") {
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    SmallVector<LLVM::LLVMFuncOp> kernels;
    for (auto function : module->getOps<LLVM::LLVMFuncOp>())
      if (!function.isExternal() &&
          function.getLinkage() == LLVM::Linkage::External)
        kernels.push_back(function);
    return compileKernels(*module, kernels, cantFail(describeCPU(cpu)),
                          threads);
  }

  /// Wraps statements into a kernel that has a pointer %p.
  static std::string kernel(StringRef body, StringRef name = "broken") {
    return ("llvm.func @" + name +
            "(%args: !llvm.ptr, %begin: i64, %end: i64) {\n"
            "%p = llvm.load %args : !llvm.ptr -> !llvm.ptr\n" +
            body + "\nllvm.return\n}\n")
        .str();
  }

  void expectFailure(const std::string &text, StringRef reason) {
    message.clear();
    EXPECT_TRUE(failed(compile(text)));
    EXPECT_TRUE(contains(message, "kernel 'broken' cannot be compiled"));
    EXPECT_TRUE(contains(message, reason.str()));
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::string message;
};

const char *const goodKernels = R"(
llvm.func @memcpy(!llvm.ptr, !llvm.ptr, i64) -> !llvm.ptr
llvm.mlir.global private constant @ones(dense<1.0> : tensor<8xf32>) : !llvm.array<8 x f32>
llvm.func private @square(%x: vector<8xf32>) -> vector<8xf32> {
  %0 = llvm.fmul %x, %x : vector<8xf32>
  llvm.return %0 : vector<8xf32>
}
llvm.func @first(%args: !llvm.ptr, %begin: i64, %end: i64) {
  %bytes = llvm.mlir.constant(4096 : i64) : i64
  %buffer = llvm.alloca %bytes x i8 : (i64) -> !llvm.ptr
  %p = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %0 = llvm.call @memcpy(%buffer, %p, %bytes) : (!llvm.ptr, !llvm.ptr, i64) -> !llvm.ptr
  %place = llvm.getelementptr %buffer[%begin] : (!llvm.ptr, i64) -> !llvm.ptr, f32
  %x = llvm.load %place : !llvm.ptr -> vector<8xf32>
  %y = llvm.call @square(%x) : (vector<8xf32>) -> vector<8xf32>
  llvm.store %y, %p : vector<8xf32>, !llvm.ptr
  llvm.return
}
llvm.func @second(%args: !llvm.ptr, %begin: i64, %end: i64) {
  %p = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %ones = llvm.mlir.addressof @ones : !llvm.ptr
  %x = llvm.load %ones : !llvm.ptr -> vector<8xf32>
  %y = llvm.call @square(%x) : (vector<8xf32>) -> vector<8xf32>
  llvm.store %y, %p : vector<8xf32>, !llvm.ptr
  llvm.return
}
)";

TEST_F(KernelCompilerTest, KernelsThatShareHelpers_Compile) {
  FailureOr<CPUBinary> binary = compile(goodKernels);
  ASSERT_TRUE(succeeded(binary)) << message;
  EXPECT_EQ(StringRef(binary->image.data(), 8), "!<arch>\n");
  ASSERT_EQ(binary->kernels.size(), 2u);
  EXPECT_EQ(binary->kernels[0].symbol, "first");
  EXPECT_GE(binary->kernels[0].stackBytes, 4096u);
  EXPECT_LT(binary->kernels[1].stackBytes, 4096u);
  EXPECT_GT(binary->kernels[1].codeBytes, 0u);
}

TEST_F(KernelCompilerTest, Bytes_DependOnTheKernelsOnly) {
  FailureOr<CPUBinary> one = compile(goodKernels, 1);
  FailureOr<CPUBinary> four = compile(goodKernels, 4);
  ASSERT_TRUE(succeeded(one) && succeeded(four)) << message;
  EXPECT_EQ(one->image, four->image);
}

TEST_F(KernelCompilerTest, UndefinedSymbol_IsNamedWithItsKernel) {
  expectFailure("llvm.func @expf(f32) -> f32\n" +
                    kernel("%x = llvm.load %p : !llvm.ptr -> f32\n"
                           "%y = llvm.call @expf(%x) : (f32) -> f32\n"
                           "llvm.store %y, %p : f32, !llvm.ptr"),
                "undefined symbol 'expf'");
}

TEST_F(KernelCompilerTest, MathThatBecomesACall_IsRefused) {
  expectFailure(kernel("%x = llvm.load %p : !llvm.ptr -> f32\n"
                       "%y = llvm.intr.exp(%x) : (f32) -> f32\n"
                       "llvm.store %y, %p : f32, !llvm.ptr"),
                "undefined symbol 'expf'");
}

TEST_F(KernelCompilerTest, AssemblyErrors_AreReported) {
  expectFailure(kernel("llvm.inline_asm has_side_effects \"no such\", \"\" : "
                       "() -> ()"),
                "invalid instruction mnemonic 'no'");
}

TEST_F(KernelCompilerTest, FatalErrorOfTheCodeGenerator_IsAnError) {
  std::string gpu = kernel(
      "%x = llvm.call_intrinsic \"llvm.nvvm.read.ptx.sreg.tid.x\"() : () -> "
      "i32\nllvm.store %x, %p : i32, !llvm.ptr");
  expectFailure(gpu, "Cannot select");
  // The process is as good as before.
  expectFailure(gpu, "Cannot select");
  EXPECT_TRUE(succeeded(compile(goodKernels, 2)));
}

TEST_F(KernelCompilerTest, EveryBrokenKernel_IsReported) {
  EXPECT_TRUE(failed(compile("llvm.func @f()\nllvm.func @g()\n" +
                                 kernel("llvm.call @f() : () -> ()", "one") +
                                 kernel("llvm.call @g() : () -> ()", "two"),
                             2)));
  size_t one = message.find("kernel 'one'"), two = message.find("kernel 'two'");
  EXPECT_NE(two, std::string::npos) << message;
  EXPECT_LT(one, two);
}

TEST(CPUDescriptionTest, LevelsAndTheHost_AreKnown) {
  CPUDescription v3 = cantFail(describeCPU("x86-64-v3"));
  EXPECT_TRUE(llvm::is_contained(v3.features, "avx2"));
  EXPECT_FALSE(llvm::is_contained(v3.features, "avx512f"));
  EXPECT_EQ(v3.getVectorWidth(), 8u);
  EXPECT_EQ(cantFail(describeCPU("x86-64-v4")).getVectorWidth(), 16u);
  EXPECT_EQ(cantFail(describeCPU("x86-64-v2")).getVectorWidth(), 4u);
  EXPECT_NE(cantFail(describeCPU("native")).name, "native");
  llvm::Expected<CPUDescription> unknown = describeCPU("z80");
  ASSERT_FALSE(static_cast<bool>(unknown));
  EXPECT_TRUE(
      contains(llvm::toString(unknown.takeError()), "unknown cpu 'z80'"));
}

} // namespace
