"""What the compiler tells the author of a guest who takes the guest for a program of Linux."""
import os
import shlex
import subprocess

import pytest
from conftest import BUILD, ROOT


def compiled(tmp_path, text):
    path = tmp_path / "mine.c"
    path.write_text(text)
    with open(os.path.join(BUILD, "guests", "flags"), encoding="utf-8") as f:
        words = [w for w in shlex.split(f.read()) if w not in ("-MMD", "-MP")]
    return subprocess.run([*words, "-c", str(path), "-o", str(tmp_path / "mine.o")], cwd=ROOT,
                          capture_output=True, text=True, check=False)


NO_FLOAT = "a guest has no floating point: compute with integers, "


@pytest.mark.parametrize("text, said", [
    ("#include <stdio.h>\n", "A guest has no C library: <guest/printf.h> has printf()"),
    ("#include <stdlib.h>\n", "A guest has no C library: <guest/mem.h> has malloc()"),
    ("#include <string.h>\n", "A guest has no C library: <guest/string.h> has memcpy()"),
    ("#include <math.h>\n", "A guest has no floating point"),
    ("#include <pthread.h>\n", "A guest has no C library: <guest/thread.h> has threads"),
    ("double half;\n", NO_FLOAT),
    ("long f(void) { float x = 1; return (long)x; }\n", NO_FLOAT),
    ("unsigned long f(unsigned long y) { return y * 1.5; }\n", "unsuffixed floating constant"),
])
def test_told_in_a_sentence(tmp_path, text, said):
    done = compiled(tmp_path, text)
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert f"mine.c:{1}:" in done.stderr


def test_what_a_guest_may_include(tmp_path):
    done = compiled(tmp_path, "#include <stdarg.h>\n#include <stdbool.h>\n#include <stddef.h>\n"
                    "#include <stdint.h>\n#include <limits.h>\n#include <guest/guest.h>\n"
                    "int main(void) { return INT_MAX > 0; }\n")
    assert done.returncode == 0, done.stderr
