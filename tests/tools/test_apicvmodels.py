"""tools/apicvmodels.py asks a CPU model of Bochs, and reads what it says."""
import os
import subprocess

import apicvmodels

CPUS = """\
00000000000i[      ] LTDL_LIBRARY_PATH not set
Supported CPU models:

bx_generic
corei7_icelake_u

00000000000i[SIM   ] quit_sim called with exit code 0
"""
SAID = "00000481 0000007f\n00000482 fff9fffe\n0000048b 00000313\n"
ALL_BUT_POSTED = [True, True, True, True, True, False]


def test_reading():
    assert apicvmodels.models(CPUS) == ["bx_generic", "corei7_icelake_u"]
    assert apicvmodels.offered(SAID) == ALL_BUT_POSTED
    assert apicvmodels.offered(SAID.replace("313", "103")) == [True, True, True, False, False,
                                                               False]
    assert apicvmodels.offered(SAID.replace("7f", "ff"))[-1]
    assert apicvmodels.offered("(0).[0] [0x00000000fff0]\n") is None
    rows = apicvmodels.table({"a": ALL_BUT_POSTED, "b": None})
    assert rows[2:] == ["| `a` | yes | yes | yes | yes | yes | - |"]


def test_asking(tmp_path):
    """The firmware runs, on a model that tells most and on one that has no VT-x."""
    rom = os.path.join(tmp_path, "rom.bin")
    subprocess.run(["nasm", "-f", "bin", "-o", rom, apicvmodels.ASM], check=True)
    parts = apicvmodels.ask("corei7_icelake_u", rom, str(tmp_path))
    assert parts[:5] == ALL_BUT_POSTED[:5]
    assert apicvmodels.ask("atom_n270", rom, str(tmp_path)) is None
