"""What an instruction and an exit cost in the simulation of the whole machine: how instructions are
counted (tests/whole/count.awk), and whether the costs are what tools/simcosts.py measures."""
import os
import re
import subprocess
import sys

import machine
import pytest

COUNT = os.path.join(machine.ROOT, "tests", "whole", "count.awk")
CALL = "\tcall\t__sanitizer_cov_trace_pc@PLT\n"
# Two blocks of a function with a table of jumps behind the first, and one that writes a trace.
ASSEMBLY = f"""\t.text
f:
.LFB0:
\t.cfi_startproc
{CALL}\tmovl\t%edi, %eax
\t.loc 1 7 3 is_stmt 1
\taddl\t$1, %eax
\tjmp\t*%rax
\t.section\t.rodata
.L4:
\t.long\t.L5-.L4
\t.text
{CALL}.L5:
\tret
{CALL}\tmovl\t$1, %edi
\tcall\ttrace_write@PLT
\t.cfi_endproc
"""


@pytest.mark.parametrize("of, counts", [
    ("guest", r"\timulq\t\$(\d+), whole_per_instruction\(%rip\), %rax\n"
              r"\tsubq\t%rax, %r15\n"),
    ("hv", r"\timulq\t\$(\d+), whole_instruction\(%rip\), %rax\n"
           r"\taddq\t%rax, whole_due\(%rip\)\n")], ids=["guest", "hv"])
def test_each_block_counts_its_instructions(of, counts):
    done = subprocess.run(["awk", "-v", f"of={of}", "-f", COUNT], input=ASSEMBLY, text=True,
                          capture_output=True, check=True).stdout
    assert re.findall(counts, done) == ["3", "1"]
    # Besides the counting, all is as it was, but without the compiler's calls.
    rest = re.sub(counts + r"\tjn?s\t771f\n\tcall\twhole_\w+\n771:\n", "", done)
    assert rest == ASSEMBLY.replace(CALL, "")


@pytest.mark.long
@pytest.mark.bochs
def test_costs_are_as_measured():
    done = subprocess.run([sys.executable, "tools/simcosts.py", "--check"], cwd=machine.ROOT,
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
