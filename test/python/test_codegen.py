"""test/codegen.py: what makes kernels the same, and what a comparison says."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from codegen import losses, modules, normalise, record  # noqa: E402

PTX = """//
// Generated
//
.version 7.1
.target sm_80

	// .globl	add_n1
.extern .shared .align 1024 .b8 nsa_shared_memory[];

.visible .entry add_n1(
	.param .u64 add_n1_param_0
)
{
	.loc	1 7 2
$L__BB0_1:
	add.f32 	%f1, %f2, %f3; // here
	bra.uni 	$L__BB0_1;
}
	// .globl	add_n12_a0p256
.visible .entry add_n12_a0p256(
	.param .u64 add_n12_a0p256_param_0
)
{
$L__BB1_1:
	add.f32 	%f1, %f2, %f3;
	bra.uni 	$L__BB1_1;
}
	.section	.debug_abbrev
	{
	.b8 1
	}
"""


def codes(ptx):
    return dict(normalise.kernels_of_ptx(ptx))


def make(*kernels, host="h"):
    return record.Record({"LLVM": "1", "ptxas": "2"}, {"host program": host},
                         [record.Kernel(*kernel) for kernel in kernels])


def kinds(old, new):
    return sorted(difference.kind for difference in record.compare(old, new))


def test_ptx_otherNamesLabelsCommentsAndDebug_isEqual():
    first, second = codes(PTX).values()
    assert first == second
    assert b"add.f32" in first and b"debug" not in second


def test_ptx_oneChangedInstruction_differs():
    first, second = codes(PTX.replace("add.f32 	%f1, %f2, %f3;\n", "sub.f32 	%f1, %f2, %f3;\n")).values()
    assert first != second


def test_ptx_otherTargetOfAJump_differs():
    assert codes(PTX)["add_n1"] != codes(PTX.replace("bra.uni 	$L__BB0_1", "bra.uni 	$L__BB0_2"))["add_n1"]


def test_objdump_otherAddresses_isEqual():
    text = "<f>:\n\tvmovss\t0x10(%rip), %xmm0  # 0x{at:x}\n\tjmp\t0x1{at} <f+0x4>\n\tnop\n"
    one = dict(normalise.kernels_of_objdump(text.format(at=4), b"....abcd"))
    other = dict(normalise.kernels_of_objdump(text.format(at=8), b"........abcd"))
    assert one == other
    assert one != dict(normalise.kernels_of_objdump(text.format(at=4), b"....abce"))


def test_program_otherKernelNames_isEqual_otherOffset_differs():
    dump = 'hash 1\nsegments:\n  launch @{0} arena[{1}:64]\n  launch @{0}_1\n'
    assert normalise.normalise_program(dump.format("a", 0)) == normalise.normalise_program(dump.format("b", 0))
    assert normalise.normalise_program(dump.format("a", 0)) != normalise.normalise_program(dump.format("a", 32))


def test_log_twoKernels_registersAndSpillsOfEach():
    log = """ptxas info    : Compiling entry function 'a' for 'sm_80'
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers
ptxas info    : Compiling entry function 'b' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers
"""
    assert normalise.resources_of_log(log) == {"a": (96, 16), "b": (18, 0)}


def test_compare_sameCodeOtherName_isARename():
    old, new = make(("a", "1"), ("b", "1")), make(("a", "1"), ("c", "1"))
    assert kinds(old, new) == ["renamed"]
    assert kinds(old, old) == []


def test_compare_exchangedNames_areRenames():
    assert "changed" not in kinds(make(("a", "1"), ("b", "2")), make(("a", "2"), ("b", "1")))
    assert kinds(make(("a", "1"), ("b", "2")), make(("a", "2"), ("b", "1")))


def test_compare_otherCode_isChanged_orOtherAlignment():
    assert kinds(make(("a", "1")), make(("a", "2"))) == ["changed"]
    assert kinds(make(("a_a0p64", "1")), make(("a_a0p128", "2"))) == ["other alignment"]


def test_compare_aSecondKernelOfTheSameCode_isNew():
    assert kinds(make(("a", "1")), make(("a", "1"), ("b", "1"))) == ["new"]
    assert kinds(make(("a", "1"), ("b", "1")), make(("a", "1"))) == ["gone"]


def test_compare_otherCommands_isApartFromKernels():
    assert kinds(make(("a", "1")), make(("a", "1"), host="g")) == ["host program"]


def test_compare_sameCodeOtherRegisters_isOtherMachineCode():
    old, new = make(("a", "1", "x:10:0:0")), make(("a", "1", "y:12:8:0"))
    (difference,) = record.compare(old, new)
    assert difference.kind == "machine code"
    assert "registers 10 -> 12, bytes of spills 0 -> 8" in difference.text


def test_record_writtenAndParsed_isTheSame():
    old = make(("a", "0123456789abcdef", "0123456789abcdef:10:0:0"), ("b", "0123456789abcdef", "0123456789abcdef:10:0:0"))
    assert record.parse(old.write()).write() == old.write()
    assert record.compare(old, record.parse(old.write())) == []


def test_modules_otherCodeAndProgram_areNamedApart():
    old = modules.Set({"LLVM": "1"}, [modules.Module("a", "t", "1", "p"), modules.Module("b", "t", "2", "p")])
    assert modules.parse(old.write()) == old
    assert modules.compare(old, old) == []
    new = modules.Set({"LLVM": "1"}, [modules.Module("a", "t", "1", "q"), modules.Module("b", "u", "3", "p")])
    assert modules.compare(old, new) == [("host program", "a"), ("changed", "b (of another text)")]
    assert modules.compare(old, modules.Set({}, old.modules[1:])) == [("gone", "a")]


def test_losses_oneBit_differsAtItsStep():
    old = ["smoke 1 0x1.0p+1 0x1.0p+0", "smoke 2 0x1.0p+1 0x1.0p+0"]
    assert losses.compare(old, old) == []
    (difference,) = losses.compare(old, [old[0], "smoke 2 0x1.000002p+1 0x1.0p+0"])
    assert "smoke, step 2" in difference and "0x1.000002p+1" in difference
    assert losses.compare(old, old[:1]) == ["2 steps before, 1 now"]


def test_losses_shortestDigits_areTheBitsOfAFloat():
    assert losses.hexadecimal("5.5580416") != losses.hexadecimal("5.558042")
    assert losses.hexadecimal("0.5") == "0x1.0000000000000p-1"
