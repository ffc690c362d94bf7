"""Code of kernels and host programs without what does not matter to what they do."""
import hashlib
import re
import struct

ALIGNMENT = re.compile(r"(_a\d+p\d+)+$")


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def base(name):
    """A kernel's name without the alignment of its arguments (`_a0p256`)."""
    return ALIGNMENT.sub("", name)


def normalise_ptx(ptx, name):
    """A kernel's PTX without names, numbers of labels, comments and debug information."""
    ptx = re.sub(r"\b%s(?=\b|_param)" % re.escape(name), "K", ptx)
    ptx = re.sub(r"\$L__BB\d+_", "$L__BB_", ptx)
    ptx = re.sub(r"//[^\n]*", "", ptx)
    ptx = re.sub(r"^\s*\.(loc|file|version)\b[^\n]*", "", ptx, flags=re.M)
    ptx = re.sub(r"^\s*\.section\s+\.debug.*?^\s*\}", "", ptx, flags=re.M | re.S)
    return "\n".join(line.rstrip() for line in ptx.splitlines() if line.strip())


def kernels_of_ptx(text):
    """Names and normalised text of the kernels of a file."""
    parts = re.split(r"^\s*// \.globl\s+(\S+)[^\n]*\n", text, flags=re.M)
    for name, body in zip(parts[1::2], parts[2::2]):
        # What the file declares once stands beside the kernel that happens to be the first.
        body = re.sub(r"^\.extern \.shared [^\n]*\n", "", body, flags=re.M)
        yield name, normalise_ptx(body, name).encode()


def sections_of_cubin(elf):
    """Names of kernels and the bytes of their machine code."""
    table, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)

    def header(index):
        name, _, _, _, offset, length = struct.unpack_from("<IIQQQQ", elf, table + index * size)
        return name, offset, length

    _, strings, _ = header(names)
    for index in range(count):
        name, offset, length = header(index)
        end = elf.index(b"\0", strings + name)
        name = elf[strings + name:end].decode()
        if name.startswith(".text."):
            yield name[len(".text."):], elf[offset:offset + length]


def resources_of_log(log):
    """What `ptxas -v` says of each kernel: registers and bytes of spills."""
    found = {}
    for name, body in re.findall(r"Compiling entry function '([^']+)'(.*?)(?=Compiling entry function|\Z)", log, re.S):
        registers = re.search(r"Used (\d+) registers", body)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", body)
        found[name] = int(registers[1]), int(spills[1]) + int(spills[2])
    return found


def _constant(elf, mnemonic, operands, address):
    """The bytes of a constant in read-only data, which lies where it is in the file."""
    if re.search(r"(ss|broadcastd|cvtdq2ps|movd|insertps)$", mnemonic):
        size = 4
    elif re.search(r"(sd|broadcastq|movq)$", mnemonic):
        size = 8
    else:
        size = 32 if "%ymm" in operands and "128" not in mnemonic else 16
    return elf[address:address + size].hex()


def kernels_of_objdump(text, elf):
    """Names and machine code of the functions of a shared object, of what llvm-objdump
    prints. Constants and jumps are by value and within the function: where a function
    lies does not matter."""
    for name, body in re.findall(r"^<(\S+)>:\n((?:[ \t]+\S.*\n?)*)", text, flags=re.M):
        lines = []
        # A comment on a line of its own has the address of a constant, too.
        for line in re.sub(r"\n\s*# 0x", " # 0x", body).splitlines():
            mnemonic, _, operands = line.strip().partition("\t")
            operands, _, comment = operands.partition("#")
            operands = re.sub(r"0x[0-9a-f]+ <[^@>+]*(\+0x[0-9a-f]+)?>", r"<\1>", operands)
            operands = re.sub(r"0x[0-9a-f]+ <(\w+@plt)>", r"\1", operands)
            address = re.search(r"0x([0-9a-f]+)(\s*<[^>]*>)?\s*$", comment)
            if "(%rip)" in operands:
                value = "address" if mnemonic == "leaq" or not address else _constant(
                    elf, mnemonic, operands, int(address[1], 16))
                operands = re.sub(r"-?(0x[0-9a-f]+)?\(%rip\)", value, operands)
            lines.append(f"{mnemonic} {operands.strip()}")
        # What fills the space up to the next function.
        while lines and re.match(r"(nop|int3|data16|cs)", lines[-1]):
            lines.pop()
        yield name, "\n".join(lines).encode()


def normalise_program(dump):
    """The commands that nsa-dump prints, with their offsets; kernels by their numbers."""
    text = re.sub(r'"[^"\n]*"', '""', dump)
    names = {}
    text = re.sub(r"@(\w+)", lambda m: "@" + str(names.setdefault(m[1], len(names))), text)
    # Programs were recorded when the states of AdamW had roles of their own.
    for name, role in (("m", "moment1"), ("v", "moment2")):
        text = re.sub(rf"^(  %{name}\.\S+: \S+) state,", rf"\1 {role},", text, flags=re.M)
    # The first lines have hashes of the file.
    return text[text.find("segments"):].encode()


def launches_of(dump):
    """Of what `nsa-dump --kernels` prints: the grid, the threads and the bytes of shared
    memory of each kernel."""
    found = {}
    for name, grid, rest in re.findall(r"^  @(\w+): grid (\S+), (.*)$", dump, flags=re.M):
        threads = re.search(r"(\d+) threads", rest)
        shared = re.search(r"(\d+) bytes shared", rest)
        found[name] = grid, int(threads[1]) if threads else 1, int(shared[1]) if shared else 0
    return found
