#!/usr/bin/env python3
"""Tells Snakemake how a job of Slurm is doing: running, success or failed. It asks the controller,
so Slurm needs no accounting. A job that the controller has forgotten has ended long ago; whether it
was successful is told by its result, which Snakemake looks for."""
import re
import subprocess
import sys

GOOD, ENDED = "COMPLETED", ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL",
                            "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")


def state(said):
    """Returns what Snakemake wants to know, from what `scontrol show job` has printed."""
    found = re.search(r"JobState=(\w+)", said)
    if not found or found[1] == GOOD:
        return "success"
    if found[1] in ENDED:
        return "failed"
    return "running"


def main():
    job = sys.argv[1]
    asked = subprocess.run(["scontrol", "--oneliner", "show", "job", job], capture_output=True,
                           text=True, check=False)
    if asked.returncode and "Invalid job id" not in asked.stderr:
        print("running")  # the controller is busy, or away for a moment
        return
    print(state(asked.stdout))


if __name__ == "__main__":
    main()
