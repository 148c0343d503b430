"""Prints Takt's counters in Prometheus' text format 0.0.4, for `taktctl metrics`.

https://prometheus.io/docs/instrumenting/exposition_formats/ describes the format. Times are in
seconds and totals never decrease, as is usual there. The textfile collector of node_exporter can
read it from a file.
"""

FAMILIES = (  # name, type, help
    ("takt_build_info", "gauge",
     "The version of Takt, and what it runs on; the value is always 1."),
    ("takt_uptime_seconds", "gauge", "Time since boot."),
    ("takt_memory_bytes", "gauge", "Memory of the machine that Takt manages: all, and free."),
    ("takt_console_lost_lines_total", "counter",
     "Lines of the log that were overwritten before the console could carry them."),
    ("takt_pcpu_seconds_total", "counter",
     "Time of a pCPU by what it did: guest, hypervisor, idle."),
    ("takt_vm_info", "gauge", "A VM, its pool and its state; the value is always 1."),
    ("takt_vm_memory_bytes", "gauge", "Memory of a VM."),
    ("takt_vm_weight", "gauge", "Weight of a VM, if its pool's policy has weights."),
    ("takt_vm_cap_percent", "gauge", "Cap of a VM in percent of one pCPU; 0: none."),
    ("takt_vcpu_seconds_total", "counter",
     "Time of a vCPU by state: running, runnable, blocked, offline."),
    ("takt_vcpu_switches_total", "counter", "How often the vCPU was switched to."),
    ("takt_vcpu_wakes_total", "counter", "How often the vCPU woke."),
    ("takt_vcpu_preemptions_total", "counter",
     "How often another vCPU got its pCPU before its slice was over."),
    ("takt_vcpu_boosts_total", "counter", "How many of its wakes were boosted."),
    ("takt_vcpu_grants_total", "counter", "How often the scheduler granted it credit."),
    ("takt_vcpu_granted_seconds_total", "counter", "How much credit the scheduler granted it."),
    ("takt_vcpu_migrations_total", "counter", "How often the vCPU moved to another pCPU."),
    ("takt_vcpu_exits_total", "counter", "How often the vCPU left its guest for the hypervisor."),
    ("takt_vcpu_wake_latency_seconds", "gauge",
     "From wake to run, since the last measurement by top: percentiles and maximum."),
    ("takt_events_total", "counter",
     "Counters of the hypervisor, by name (the shell's `counters`)."),
)


def quoted(value):
    """Returns a label's value in quotes. The format asks to escape three characters."""
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def seconds(ns):
    """Returns seconds exactly: a rounded counter would stand still and then jump."""
    return f"{ns // 10**9}.{ns % 10**9:09}"


class Exposition:
    """Collects samples, and prints them family by family, as the format demands."""

    def __init__(self):
        self.samples = {name: [] for name, _, _ in FAMILIES}

    def add(self, name, value, /, **labels):
        text = ",".join(f"{key}={quoted(v)}" for key, v in labels.items())
        self.samples[name].append(f"{name}{{{text}}} {value}" if text else f"{name} {value}")

    def text(self):
        lines = []
        for name, kind, what in FAMILIES:
            if self.samples[name]:
                lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}", *self.samples[name]]
        return "\n".join(lines) + "\n"


def collect(run):
    """Returns the whole text. `run` executes a command of the shell and returns its JSON."""
    e = Exposition()
    info = run("info")
    e.add("takt_build_info", 1, version=info["version"], virt=info["virt"],
          scheduler=info["scheduler"])
    e.add("takt_uptime_seconds", info["uptime_s"])
    e.add("takt_memory_bytes", info["total_memory_mib"] << 20, kind="total")
    e.add("takt_memory_bytes", info["free_memory_mib"] << 20, kind="free")
    e.add("takt_console_lost_lines_total", info["console_dropped"])
    for cpu in run("pcpu-list"):
        for mode, key in (("guest", "guest_ns"), ("hypervisor", "hv_ns"), ("idle", "idle_ns")):
            e.add("takt_pcpu_seconds_total", seconds(cpu[key]), cpu=cpu["cpu"], pool=cpu["pool"],
                  mode=mode)
    for vm in run("list"):
        e.add("takt_vm_info", 1, vm=vm["name"], id=vm["id"], pool=vm["pool"], state=vm["state"])
        e.add("takt_vm_memory_bytes", vm["memory_mib"] << 20, vm=vm["name"])
    for vm in run("sched-credit"):
        if vm["weight"]:  # 0: the policy has no weights
            e.add("takt_vm_weight", vm["weight"], vm=vm["name"])
            e.add("takt_vm_cap_percent", vm["cap"], vm=vm["name"])
    for v in run("vcpu-list"):
        who = {"vm": v["vm"], "vcpu": v["vcpu"]}
        for state in ("running", "runnable", "blocked", "offline"):
            e.add("takt_vcpu_seconds_total", seconds(v[state + "_ns"]), **who, state=state)
        for what in ("switches", "wakes", "preemptions", "boosts", "grants", "migrations", "exits"):
            e.add(f"takt_vcpu_{what}_total", v[what], **who)
        e.add("takt_vcpu_granted_seconds_total", seconds(v["granted_ns"]), **who)
        for what in ("p50", "p99", "max"):
            e.add("takt_vcpu_wake_latency_seconds", seconds(v["wake_ns"][what]), **who, stat=what)
    for counter in run("counters"):
        e.add("takt_events_total", counter["value"], name=counter["name"])
    return e.text()
