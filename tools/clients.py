"""Runs this host's own ping and iperf (version 2) against guests (tools/hostnet.py), and returns
what they print as numbers."""
import math
import re
import subprocess
import time

# With -f b: "[  1] 0.0000-2.0189 sec  267540 Bytes  1060133 bits/sec   0.004 ms 0/182 (0%)". Only a
# report by the server has the last three values.
INTERVAL = re.compile(
    r"^\[ *\d+\] +([\d.]+)-([\d.]+) sec +(\d+) Bytes +(\d+) bits/sec(?: +([\d.]+) ms +(\d+)/ "
    r"*(\d+) )?",
    re.M,
)


class Failed(Exception):
    """The program did not do what it was asked for. The text has its output."""


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
    """Sends echo requests. Returns the number of requests and of answers, and the sorted round-trip
    times in ms."""
    text = run(["ping", "-n", *words, address], timeout)
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    if not counts:
        raise Failed(text)
    times = sorted(float(t) for t in re.findall(r" time=([\d.]+) ms", text))
    return {"requests": int(counts[1]), "answers": int(counts[2]), "rtt_ms": times}


def until_answered(address, seconds=30):
    """Sends echo requests until the guest answers."""
    end = time.monotonic() + seconds
    while not ping(address, "-c", "1", "-W", "1")["answers"]:
        if time.monotonic() > end:
            raise Failed(f"{address} has not answered for {seconds} s")


def quantile(times, part):
    return times[max(math.ceil(len(times) * part) - 1, 0)] if times else None


def intervals(text):
    """Returns what iperf says about each connection: bytes, seconds, Mb/s. For datagrams on which
    the server has reported, also jitter_ms, lost and sent."""
    found = []
    for m in INTERVAL.finditer(text):
        found.append({"seconds": float(m[2]) - float(m[1]), "bytes": int(m[3]),
                      "mbps": int(m[4]) / 1e6})
        if m[5]:
            found[-1].update(jitter_ms=float(m[5]), lost=int(m[6]), sent=int(m[7]))
    return found


def iperf_tcp(address, *words, timeout=60):
    """Sends a stream. Its time ends when the server has closed it."""
    text = run(["iperf", "-f", "b", "-c", address, *words], timeout)
    found = intervals(text)
    if not found:
        raise Failed(text)
    return found[-1]


def iperf_udp(address, *words, timeout=60):
    """Sends a flow of datagrams. Returns what the server has reported about it."""
    text = run(["iperf", "-u", "-f", "b", "-c", address, *words], timeout)
    found = intervals(text[max(text.find("Server Report"), 0):])
    if not found or "lost" not in found[-1]:
        raise Failed(text)
    return found[-1]
