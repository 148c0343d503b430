"""taktctl metrics: Prometheus' text format is read by its own client library, and strictly as its
specification says."""
import re

import metrics
from prometheus_client.parser import text_string_to_metric_families

ODD = 'a "vm" \\ of\nmine'
ANSWERS = {
    "info": {"version": "1.0", "virt": "svm", "nr_cpus": 2, "total_memory_mib": 250,
             "free_memory_mib": 200, "scheduler": "credit", "uptime_s": 12.345,
             "console_dropped": 3},
    "pcpu-list": [{"cpu": 0, "pool": "Pool-0", "guest_ns": 5_000_000_001, "hv_ns": 1_000_000,
                  "idle_ns": 0}],
    "list": [{"name": ODD, "id": 1, "memory_mib": 4, "pool": "Pool-0", "state": "running"}],
    "sched-credit": [{"name": ODD, "weight": 256, "cap": 50},
                     {"name": "null-vm", "weight": 0, "cap": 0}],
    "vcpu-list": [{"vm": ODD, "vcpu": 0, "running_ns": 1, "runnable_ns": 2, "blocked_ns": 3,
                   "offline_ns": 4, "switches": 5, "wakes": 6, "migrations": 7, "exits": 8,
                   "preemptions": 9, "boosts": 10, "grants": 11, "granted_ns": 12_000_000_013,
                   "wake_ns": {"p50": 1000, "p99": 2000, "max": 30000}}],
    "counters": [{"name": "kicks", "value": 18446744073709551615},
                 {"name": "kicks by NMI", "value": 0}],
}

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
LABELS = r"\{%s(?:,%s)*\}" % (LABEL, LABEL)
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(%s)? (-?[0-9.]+(?:e[+-]?[0-9]+)?)" % LABELS)


def assert_strict(text):
    """Checks that each line is as the specification wants it: one HELP, one TYPE, then all samples
    of a family, each only once."""
    assert text.endswith("\n") and "\n\n" not in text
    families, series, current = set(), set(), None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in families, f"two groups of {name}"
            families.add(name)
            current, kind = name, None
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge")
            assert (kind == "counter") == name.endswith("_total")
        else:
            m = SAMPLE.fullmatch(line)
            assert m and m[1] == current and kind, line
            assert line[:m.start(3)] not in series, f"twice: {line}"
            series.add(line[:m.start(3)])
    return len(series)


def test_the_format():
    text = metrics.collect(ANSWERS.__getitem__)
    assert assert_strict(text) == 1 + 1 + 2 + 1 + 3 + 1 + 1 + 2 + 4 + 8 + 3 + 2
    families = text_string_to_metric_families(text)
    got = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}
    assert len(got) == 29
    about = (("scheduler", "credit"), ("version", "1.0"), ("virt", "svm"))
    assert got["takt_build_info", about] == 1
    assert got["takt_console_lost_lines_total", ()] == 3  # hv/platform/console.h counts lines
    assert got["takt_vm_weight", (("vm", ODD),)] == 256
    assert ("takt_vm_weight", (("vm", "null-vm"),)) not in got
    guest = (("cpu", "0"), ("mode", "guest"), ("pool", "Pool-0"))
    assert got["takt_pcpu_seconds_total", guest] == 5.000000001
    longest = (("stat", "max"), ("vcpu", "0"), ("vm", ODD))
    assert got["takt_vcpu_wake_latency_seconds", longest] == 0.00003
    assert got["takt_events_total", (("name", "kicks"),)] == float(18446744073709551615)


def test_numbers_are_exact():
    """A rounded counter would seem to stand still, and then to jump."""
    counters = [{"name": "kicks", "value": 123456789012345}]
    text = metrics.collect({**ANSWERS, "counters": counters}.__getitem__)
    assert 'takt_events_total{name="kicks"} 123456789012345\n' in text
