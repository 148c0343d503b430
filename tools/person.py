#!/usr/bin/env python3
"""Plays the person at `make run`: looks at the live table, goes to the shell, lists the VMs, and
switches off.

  tools/person.py COMMAND...        runs the command in a terminal of its own and prints what came

The exit status is 1, with a sentence, if anything was not as README.md says.
"""
import sys

import sentence

INSTALL_AND_BUILD = 1800  # seconds for what comes before the machine is there
WAIT = 180


def main():
    pexpect = sentence.need("pexpect", "python3-pexpect")
    person = pexpect.spawn(sys.argv[1], sys.argv[2:], dimensions=(24, 80), encoding="utf-8",
                           codec_errors="replace", logfile=sys.stdout, timeout=WAIT)
    what = "the line that says how to end the machine"
    try:
        person.expect("Ctrl-A x ends the machine", timeout=INSTALL_AND_BUILD)
        what = "a row of the live table"
        person.expect(r"hog-a")
        what = "the shell's prompt, after a key"
        person.send("q")
        person.expect("takt> ")
        what = "the list of VMs"
        person.send("list\r")
        person.expect("waker.*takt> ")
        what = "the end, after poweroff"
        person.send("poweroff\r")
        person.expect(pexpect.EOF)
    except (pexpect.TIMEOUT, pexpect.EOF) as e:
        person.close(force=True)
        end = "time was up" if isinstance(e, pexpect.TIMEOUT) else "the command had ended"
        sys.exit(f"\nperson: {what} did not come: {end}")
    person.close()
    if person.exitstatus:
        sys.exit(f"\nperson: the command ended with exit status {person.exitstatus}")
    return 0


if __name__ == "__main__":
    sentence.run(main)
