"""Runs this host's own ping and iperf (version 2) against guests (tools/hostnet.py), and returns
what they print as numbers."""
import math
import re
import subprocess
import time

# With -f b: "[  1] 0.0000-2.0189 sec  267540 Bytes  1060133 bits/sec   0.004 ms 0/182 (0%)"; the
# last three of a report by the server.
INTERVAL = re.compile(
    r"^\[ *\d+\] +([\d.]+)-([\d.]+) sec +(\d+) Bytes +(\d+) bits/sec(?: +([\d.]+) ms +(\d+)/ "
    r"*(\d+) )?",
    re.M,
)


class Failed(Exception):
    """The program has not done what it was asked for; with its output."""


def run(command, timeout):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, check=False,
                              stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Failed(f"{command[0]} is missing (tools/deps.sh clients)") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: still there after {timeout} s") from None
    return done.stdout


def ping(address, *words, timeout=60):
    """Requests and answers, and the round-trip times in ms, sorted."""
    text = run(["ping", "-n", *words, address], timeout)
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    if not counts:
        raise Failed(text)
    times = sorted(float(t) for t in re.findall(r" time=([\d.]+) ms", text))
    return {"requests": int(counts[1]), "answers": int(counts[2]), "rtt_ms": times}


def until_answered(address, seconds=30):
    """Asks until the guest is there."""
    end = time.monotonic() + seconds
    while not ping(address, "-c", "1", "-W", "1")["answers"]:
        if time.monotonic() > end:
            raise Failed(f"{address} has not answered for {seconds} s")


def quantile(times, part):
    return times[max(math.ceil(len(times) * part) - 1, 0)] if times else None


def intervals(text):
    """What iperf tells of each connection: bytes, seconds, Mb/s; of datagrams that are reported on
    jitter_ms, lost, sent."""
    found = []
    for m in INTERVAL.finditer(text):
        found.append({"seconds": float(m[2]) - float(m[1]), "bytes": int(m[3]),
                      "mbps": int(m[4]) / 1e6})
        if m[5]:
            found[-1].update(jitter_ms=float(m[5]), lost=int(m[6]), sent=int(m[7]))
    return found


def iperf_tcp(address, *words, timeout=60):
    """A stream: the time is that until the server has closed it."""
    text = run(["iperf", "-f", "b", "-c", address, *words], timeout)
    found = intervals(text)
    if not found:
        raise Failed(text)
    return found[-1]


def iperf_udp(address, *words, timeout=60):
    """A flow of datagrams, as the server has reported on it."""
    text = run(["iperf", "-u", "-f", "b", "-c", address, *words], timeout)
    found = intervals(text[max(text.find("Server Report"), 0):])
    if not found or "lost" not in found[-1]:
        raise Failed(text)
    return found[-1]
