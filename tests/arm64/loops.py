#!/usr/bin/python3
"""Counts the instructions of the arm64 kernels' inner loops.

    tests/arm64/loops.py OBJECTS

OBJECTS is the directory with the objects of lib/kernels, cross-compiled. The inner loop of a function
is, of its loops without a loop inside, the one with the most multiply-adds. For each the script
prints a row of the table in docs/KERNELS.md: multiply-adds, the least instructions with which they
can be had, instructions, those for each multiply-add, and times the least. The script fails where the
last is above 1.15, where the loop touches the stack, or where the document has another row.
"""
import re
import subprocess
import sys

DOCUMENT = "docs/KERNELS.md"
OBJDUMP = ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn"]
MULTIPLY_ADDS = {"fmla", "bfdot", "bfmmla", "sdot"}

MOST = 1.15  # times the least
COUNTING = 3  # instructions: the next place, comparing, branching

# What the loop multiplies, object, function, loads (in pairs where they follow one another), and
# conversions of what is loaded.
LOOPS = [
    ("`project` float32, 6 rows x 4 vectors", "_project", "project_f32_neon_half_6", 22, 0),
    ("`project` bf16 by `bfmmla`, 6 x 4", "_bf16", "project_bf16_bfmmla_half_6", 22, 32),
    ("`project` bf16 by `bfdot`, 3 x 8", "_bf16", "project_bf16_bfmmla_whole_3", 35, 0),
    ("`project` bf16 widened, 6 x 4", "_project", "project_bf16_neon_half_6", 14, 32),
    ("`project` int8 by `sdot`, 6 x 4", "_dotprod", "project_int8_dotprod_half_6", 22, 32),
    ("`project` float32, 3 x 8", "_project", "project_f32_neon_whole_3", 35, 0),
    ("`matmul` float32, 8 x 2", "", "matmul_f32_neon_full_8", 12, 0),
    ("`matmul` float32, 4 x 4", "", "matmul_f32_neon_wide_4", 12, 0),
    ("`matmul` bf16, 8 x 2", "", "matmul_bf16_neon_full_8", 12, 8),
    ("`matmul` f16, 8 x 2", "", "matmul_f16_neon_full_8", 12, 8),
    ("`matmul` int8 widened, 8 x 2", "", "matmul_int8_neon_full_8", 9, 24),
    ("`matmul` int8 by `sdot`, 4 rows of 3 bytes x 2", "_dotprod", "matmul_int8_dotprod_full_4", 5, 2),
    ("`outer`, 12 x 2", "", "outer_neon_full_12", 4, 0),
]


def instructions_of(path, function):
    """The function's instructions as (address, mnemonic, operands)."""
    text = subprocess.run(OBJDUMP + ["--disassemble=" + function, path], check=True,
                          capture_output=True, text=True).stdout
    rows = re.findall(r"^ *([0-9a-f]+):\t(\S+)(?:\t(.*))?$", text, re.MULTILINE)
    return [(int(address, 16), name, operands) for address, name, operands in rows]


def loops_of(code):
    """Each loop without a loop inside, as a list of instructions."""
    ends = []
    for address, name, operands in code:
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if re.match(r"b$|b\.|cbn?z|tbn?z", name) and target and int(target[1], 16) <= address:
            ends.append((int(target[1], 16), address))
    return [[line for line in code if first <= line[0] <= last] for first, last in ends
            if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in ends)]


def multiply_adds_in(loop):
    return sum(name in MULTIPLY_ADDS for _, name, _ in loop)


def main():
    with open(DOCUMENT, encoding="utf-8") as file:
        document = file.read()
    wrong = 0
    for what, name, function, loads, conversions in LOOPS:
        code = instructions_of(f"{sys.argv[1]}/neon{name}.o", function)
        loop = max(loops_of(code), key=multiply_adds_in, default=[])
        products = multiply_adds_in(loop)
        if products == 0:
            sys.exit(f"loops: {function} has no loop of multiply-adds")
        count, least = len(loop), products + loads + conversions + COUNTING
        row = (f"| {what} | {products} | {least} | {count} | {count / products:.2f} |"
               f" {count / least:.2f} |")
        faults = [f"above {MOST} of the least"] * (count > MOST * least)
        faults += ["touches the stack"] * any("[sp" in operands for _, _, operands in loop)
        faults += [f"not so in {DOCUMENT}"] * (row not in document)
        print("  ".join([row] + faults))
        wrong += len(faults) > 0
    print(f"loops: {len(LOOPS)} inner loops of arm64's kernels, {wrong} not as they should be")
    sys.exit(wrong > 0)


main()
