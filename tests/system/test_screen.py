"""The shell on the machine's own screen and keyboard. QEMU presses the keys. What its screen shows
is read from the text that VGA has in memory, or from a picture of the screen, by means of the font
that Takt draws with."""
import os
import re
import socket
import time

import pytest

from conftest import ROOT
from machine import Machine
from system.takt import make_iso, place, until, vm

CONFIG = "[hypervisor]\ntop = no\nnoreboot = yes\n" + vm("spinner", "spin")
KEYS = {" ": "spc", "\n": "ret", "-": "minus", "|": "shift-backslash", "?": "shift-slash",
        "<up>": "up", "<^U>": "ctrl-u"}
TEXT, COLUMNS, ROWS = 0xB8000, 80, 25
CELL_W, CELL_H = 6, 9  # as in hv/platform/screen.c


def font():
    """Returns {the lit pixels of a character: the character}, from the source."""
    with open(os.path.join(ROOT, "hv/platform/screen.c"), encoding="ascii") as f:
        table = re.search(r"font\[95\] = \{(.*?)\};", f.read(), re.S)[1]
    return {int(n, 16): chr(32 + i) for i, n in enumerate(re.findall(r"0x[0-9a-f]+", table))}


class Screen(Machine):
    """A QEMU whose screen is read and whose keys are pressed, over its monitor."""

    def __init__(self, name, **machine):
        directory = place(name)
        iso = make_iso(directory, CONFIG)
        self.memory_file, self.picture = os.path.join(directory, "vga.bin"), os.path.join(
            directory, "screen.ppm"
        )
        self.read = self.text  # how the screen is read: this or self.drawn
        super().__init__("qemu", iso, directory=directory, **machine,
                         extra=["-monitor", f"unix:{directory}/monitor,server=on,wait=off"])

    def __enter__(self):
        super().__enter__()
        path = os.path.join(self.dir, "monitor")
        self.monitor = socket.socket(socket.AF_UNIX)
        until(lambda: os.path.exists(path) and self.monitor.connect_ex(path) == 0)
        self.monitor.settimeout(20)
        self.hear()
        return self

    def __exit__(self, *what):
        self.monitor.close()
        super().__exit__(*what)

    def hear(self):
        said = b""
        while not said.endswith(b"(qemu) "):
            more = self.monitor.recv(4096)
            if not more:
                break
            said += more

    def ask(self, command):
        self.monitor.sendall(command.encode() + b"\n")
        self.hear()

    def press(self, text):
        """Types each key when the screen shows the key before. A controller keeps only 16 bytes. So
        a machine that has to wait on a busy host would lose keys that come faster than it reads
        them."""
        typed = ""
        for key in re.findall(r"<.+?>|.|\n", text):
            self.ask(f"sendkey {KEYS.get(key, key)} 1")
            if len(key) > 1 or key == "\n":  # The screen does not show such a key as itself.
                typed = ""
                continue
            typed += key
            self.wait_for_echo(typed)

    def wait_for_echo(self, typed):
        end = time.monotonic() + 60
        while True:
            lines = [line for line in self.read() if line]
            if lines and lines[-1].endswith(typed.rstrip()):  # A blank cannot be seen.
                return
            assert time.monotonic() < end, f"no echo of {typed!r}:\n" + "\n".join(lines)
            time.sleep(0.02)

    def text(self):
        """Returns the lines of VGA's text mode."""
        self.ask(f'pmemsave {TEXT:#x} {2 * COLUMNS * ROWS} "{self.memory_file}"')
        with open(self.memory_file, "rb") as f:
            cells = f.read()[::2].decode("cp437")
        return [cells[i:i + COLUMNS].rstrip(" \0") for i in range(0, COLUMNS * ROWS, COLUMNS)]

    def drawn(self):
        """Returns the lines of a frame buffer. Each cell's picture is looked up in the font; the
        picture of the cursor is inverted."""
        self.ask(f'screendump "{self.picture}"')
        with open(self.picture, "rb") as f:
            magic, width, height, _, pixels = re.match(rb"(P6)\s(\d+)\s(\d+)\s(\d+)\s(.*)",
                                                       f.read(), re.S).groups()
        assert magic == b"P6"
        width, height, glyphs = int(width), int(height), font()
        zoom = 2 if width >= 1280 else 1

        def cell(x, y):
            bits = [
                (pixels[3 * ((y * CELL_H + gy) * zoom * width + (x * CELL_W + gx) * zoom)] > 0)
                << (5 * gy + gx)
                for gy in range(7)
                for gx in range(5)
            ]
            return glyphs.get(sum(bits)) or glyphs.get(sum(bits) ^ (1 << 35) - 1, "\0")

        return ["".join(cell(x, y) for x in range(width // (CELL_W * zoom))).rstrip()
                for y in range(height // (CELL_H * zoom))]


def shows(read, *lines):
    """Waits until the screen shows these regular expressions, each as a line of it."""
    seen = []

    def there():
        seen[:] = read()
        return all(any(re.fullmatch(line, s) for s in seen) for line in lines)

    try:
        until(there, 60)
    except AssertionError:
        raise AssertionError(f"{lines} not on the screen:\n" + "\n".join(seen)) from None


def operate(screen, read):
    """Does what a person without a serial port does: looks, makes an error, goes back, ends the
    machine."""
    screen.read = read
    shows(read, r".*console: the shell is on the screen", "takt>")
    screen.press("list spinner\n")
    shows(read, "takt> list spinner", r"spinner +1 +4 +1 +r-----.*", "State: r running, .*",
          "takt>")
    screen.press("help nosuch\n")
    shows(read, "help: there is no command nosuch; help lists them all", "takt>")
    screen.press("<up><up>\n")
    shows(lambda: ["|".join(read())],
          r".*takt> list spinner.*takt> help nosuch.*takt> list spinner\|.*")
    screen.press("counters\n")  # This prints more lines than the screen has.
    shows(lambda: [s for s in read() if s][-1:], "takt>")
    screen.press("list -x<^U>poweroff\n")
    assert screen.process.wait(30) == 1  # The port that ends QEMU gives this exit code.


def test_without_a_serial_port():
    with Screen("screen-alone", com1="none") as screen:
        operate(screen, screen.text)


def test_beside_a_serial_port():
    """The screen says where the shell is, and has the shell as well from the first key on."""
    with Screen("screen-beside") as screen:
        shows(screen.text,
              r"The shell is on com1.*, 115200 baud, 8N1. To have it here as well, press a key.*")
        assert "takt>" not in screen.text()
        screen.press("i")
        shows(screen.text, "takt> i")
        screen.press("nfo\n")
        shows(screen.text, "takt> info", r"nr_cpus +: 2", "takt>")
        assert screen.wait(r"takt> info\n(.*\n)*nr_cpus +: 2", 20)[0] == "matched"
        screen.press("pci-list\n")
        table = screen.wait(r"takt> pci-list\n(Device .*\n(?:\d.*\n)+)", 20)[1][1]
        assert "it is a part of the machine itself" in table
        assert max(len(line) for line in table.splitlines()) < COLUMNS
        screen.press("fault ud\n")  # The machine stays as it is.
        shows(screen.text, r".*PANIC on CPU 0: .*", r".*Stopped, since noreboot is set\.")


@pytest.mark.long
def test_uefis_frame_buffer():
    with Screen("screen-uefi", com1="none", uefi=True) as screen:
        operate(screen, screen.drawn)
