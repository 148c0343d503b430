"""A person at the console of a Linux VM. With `console -r` programs that draw on the whole screen
work there: a model of a terminal (pyte) gets all that comes on the line, and answers what a program
asks it. Without -r what a guest prints cannot change the terminal. And `trigger tux nmi` makes a
kernel say where it is, and `sysrq tux h` which system requests it knows."""
import re
import time

import pytest
from machine import Machine

from system.takt import linux_place, make_iso
from system.test_linux import PROMPT, SLOWEST, Person

pytestmark = pytest.mark.long
pyte = pytest.importorskip("pyte", reason="tools/deps.sh linux installs python3-pyte")

CONFIG = """[hypervisor]
top = no
[vm tux]
kernel = vmlinuz
ramdisk = initrd.img
cmdline = console=ttyS0 loglevel=5 panic=1
memory = 192M
vcpus = 2
start = no
"""
ROWS, COLUMNS = 30, 90
LETTER = ["Dear reader,", "        this is vi.", "Yours"]


class Watcher(Person):
    """Somebody who has a terminal."""

    def __init__(self, machine):
        super().__init__(machine)
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.screen.write_process_input = lambda answer: self.type(answer)
        self.stream = pyte.ByteStream(self.screen)

    def receive(self):
        data = super().receive()
        self.stream.feed(data)
        return data

    def type(self, text):
        self.link.sendall(text.encode())

    def rows(self):
        return [row.rstrip() for row in self.screen.display]

    def sees(self, what, seconds=30):
        """Waits until what(rows of the screen) is true. Returns the rows."""
        end = time.monotonic() + seconds * SLOWEST
        while not what(self.rows()):
            assert time.monotonic() < end, "\n".join(self.rows())
            self.machine.raise_if_dead()
            self.hear()
        return self.rows()

    def prompted(self):
        """Waits for the prompt after a program that draws has ended."""
        self.expect(PROMPT)


def edit(person):
    """Writes a letter in vi, and moves its last line to the top. Returns what vi showed before, and
    the file."""
    person.type("vi /tmp/letter\r")
    person.sees(lambda rows: rows[ROWS - 1].startswith("- /tmp/letter"))
    person.type("i" + "\r".join(["Dear reader,", "\tthis is vi.", "Yours"]) + "\x1b")
    # A key that came at once after Escape would be taken for a part of a sequence.
    first = person.sees(lambda rows: rows[:3] == LETTER
                        and rows[ROWS - 1].startswith("- /tmp/letter [Modified]"))
    person.type("ddggP")
    person.sees(lambda rows: rows[:3] == LETTER[2:] + LETTER[:2])
    person.type(":wq\r")
    person.prompted()
    return first, person.linux("cat /tmp/letter")


def look_at_top(person):
    """Returns what top shows, when it has shown itself in the table. Later it shows something
    else."""
    person.type("top -d 1\r")
    first = person.sees(lambda rows: any(re.match(r" *\d+ .* top -d 1$", row) for row in rows))
    person.sees(lambda rows: rows[0].startswith("Mem:") and rows[:3] != first[:3])
    person.type("q")
    person.prompted()
    return first


def nmis(person):
    """Returns how many NMIs each CPU of Linux has had. What the kernel says of them may come
    first."""
    said = person.linux("grep NMI: /proc/interrupts")
    return [int(n) for n in re.search(r"NMI: +(\d+) +(\d+) +Non-maskable", said).groups()]


def session(person):
    seen = {}
    person.expect("takt> ")
    person.takt("create tux")
    person.enter("-r")
    person.expect(PROMPT, 120)
    # Otherwise vi asks the terminal, and waits for the answer no longer than a fast host needs.
    person.linux(f"stty rows {ROWS} cols {COLUMNS}")
    seen["vi"] = edit(person)
    seen["top"] = look_at_top(person)
    person.type("clear; stty -onlcr; printf 'ab\\ncd\\n'; stty onlcr\r")
    seen["stairs"] = person.sees(lambda rows: "cd" in rows[1])[:2]
    person.prompted()
    seen["nmis"] = [nmis(person)]
    person.leave()
    # Without -r a sequence is text.
    person.enter()
    seen["escaped"] = person.linux("printf 'a\\033[2Jb\\n'")
    person.leave()
    for command in ("trigger tux nmi", "trigger tux nmi 1", "trigger tux nmi 1"):
        person.takt(command)
        time.sleep(1)  # of two that come together a real CPU may lose one, too
    person.enter()
    seen["nmis"].append(nmis(person))
    seen["said"] = person.linux("dmesg | grep -i 'nmi received'")
    person.leave()
    person.takt("sysrq tux h")
    person.enter()
    person.expect("sysrq: HELP : ")
    person.linux("true")
    person.linux("echo 1 > /proc/sys/kernel/unknown_nmi_panic")
    person.leave()
    person.takt("trigger tux nmi")
    seen["end"] = person.expect(r"tux: (.*)\n")[1]
    return seen


@pytest.fixture(scope="module")
def seen(platform):
    directory = linux_place(f"linux-screen-{platform}", "debian12")
    iso = make_iso(directory, CONFIG)
    with Machine(platform, iso, memory=512, directory=directory, com1="socket") as m:
        found = session(Watcher(m))
    print(found)
    return found


def test_vi(seen):
    """vi uses all of the screen."""
    first, text = seen["vi"]
    assert set(first[3:ROWS - 1]) == {"~"}
    assert text == "Yours\nDear reader,\n\tthis is vi.\n"


def test_top(seen):
    rows = seen["top"]
    assert [rows[n].split(":")[0] for n in range(3)] == ["Mem", "CPU", "Load average"]
    assert rows[3].split()[:3] == ["PID", "PPID", "USER"]


def test_line_feed_stays_alone(seen):
    """Takt adds no carriage return of its own: Linux does that where a program wants it."""
    assert seen["stairs"] == ["ab", "  cd"]


def test_without_r_sequences_are_text(seen):
    assert seen["escaped"] == "a\\x1b[2Jb\n"


def test_nmi(seen):
    """An NMI reaches the vCPU that was named. Linux knows no reason for it, and can be told to take
    it for an order to panic."""
    before, after = seen["nmis"]
    assert [new - old for new, old in zip(after, before)] == [1, 2]
    assert len(re.findall("NMI received for unknown reason 20 on CPU [01]", seen["said"])) == 3
    assert seen["end"] == "reboots with code 0"
