"""For gdb: `make sim GDB=1` (docs/simulation.md, "A debugger"). Runs build/sim-whole until it stops
at a virtual time, loads the symbols of all guests where they are in memory, and shows the source
line.
"""
import os

import gdb

loaded = {}  # {file: where it was loaded}


def symbols():
    """Loads the symbols of the guests that there are now. Each VM has its own addresses."""
    places = gdb.parse_and_eval("whole_places")
    first, last = places.type.range()
    base, span = (int(gdb.parse_and_eval(n)) for n in ("whole_base", "whole_span"))
    directory = gdb.parse_and_eval("whole_guests").string()
    for n in range(first, last + 1):
        image = places[n]["image"].string()
        at = base + n * span
        if image and loaded.get(at) != image:
            path = os.path.join(directory, image + ".elf")
            gdb.execute(f"add-symbol-file {path} -o {at:#x}", to_string=True)
            loaded[at] = image


def arrived():
    """Shows where the code is that executes. The frames below it are those of the stop itself."""
    if not gdb.selected_thread():
        return  # The simulation has ended before.
    frame = gdb.selected_frame()
    if frame.name() != "whole_stopped":
        return
    where, ps = frame.read_var("in").string(), int(frame.read_var("ps"))
    symbols()
    # What a basic block calls when the time of the stop has come.
    counts = ("__sanitizer_cov_trace_pc", "whole_stop_due", "whole_out_of_time")
    while frame.name() not in counts:
        frame = frame.older()
    while frame.name() in counts:
        frame = frame.older()
    frame.select()
    print(f"sim: {ps // 1000 / 1e9:.9f} s, in {where}")
    gdb.execute("frame")


class At(gdb.Command):
    """at TIME [VM|hypervisor]: goes on until that virtual time, such as 1.5s, 20ms or 700us."""

    def __init__(self):
        super().__init__("at", gdb.COMMAND_RUNNING)

    def invoke(self, text, from_tty):
        time, _, name = text.partition(" ")
        units = {"us": 1e3, "ms": 1e6, "s": 1e9}
        unit = next((u for u in units if time.endswith(u)), None)
        if not unit:
            raise gdb.GdbError("at: expected a time such as 1.5s, 20ms or 700us")
        stop = gdb.parse_and_eval("&whole_stop").dereference()
        name = name.strip().encode()[:stop["in"].type.sizeof - 1] + b"\0"
        gdb.selected_inferior().write_memory(int(stop["in"].address), name)
        gdb.execute(f"set var whole_stop.at = {round(float(time[:-len(unit)]) * units[unit])}")
        gdb.execute("continue")
        arrived()


class Symbols(gdb.Command):
    """guest-symbols: loads the symbols of guests that were made since the last stop."""

    def __init__(self):
        super().__init__("guest-symbols", gdb.COMMAND_FILES)

    def invoke(self, text, from_tty):
        symbols()


At()
Symbols()
for line in ("set pagination off", "set confirm off", "set print thread-events off",
             # A guest's page appears at the first access, in the handler of these signals.
             "handle SIGSEGV SIGBUS SIGILL nostop noprint pass"):
    gdb.execute(line)
gdb.Breakpoint("whole_stopped").silent = True
gdb.execute("run")
arrived()
