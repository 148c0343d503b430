#!/usr/bin/env python3
"""Replays a recording of the scheduler (`record = yes`, docs/scheduler.md) in the simulation:
tools/replay.py TRACE.bin

The recording is the stream of docs/trace.md. Exits 0 if the simulation, compiled from the same
sources, made the very same decisions; 1 with the first that differs.
"""
import os
import subprocess
import sys
import tempfile

import sentence
import tracestream

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPLAY = (0x0401, 0x0402, tracestream.LOST)


def replay(path):
    """Replays the stream in `path` with build/sim. Returns (exit status, what it printed)."""
    trace = tracestream.load(path)
    with tempfile.NamedTemporaryFile(suffix=".rec") as out:
        for r in trace.records:
            if r.event in REPLAY:
                out.write(r.pack())
        out.flush()
        done = subprocess.run([os.path.join(ROOT, "build", "sim"), "replay", out.name],
                              capture_output=True, text=True, check=False)
    lost = f"missing of the stream: {sentence.count(trace.gaps, 'frame')}\n" if trace.gaps else ""
    return done.returncode or bool(trace.gaps), lost + done.stdout + done.stderr


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    status, text = replay(sys.argv[1])
    print(text, end="")
    return status


if __name__ == "__main__":
    sentence.run(main)
