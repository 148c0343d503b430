"""What all experiments share: a record of where the figures come from, rules for what may be said
of several runs, and how long to wait before measuring.

Provenance. provenance() says which program, inputs and settings made a result, so that another
person can make the same one. It contains no date, so the same experiment gives the same bytes
again.

Statistics. Runs differ only by their seed.
  estimate()  the mean and its 95 % confidence interval, or why there cannot be one
  points()    median and range, for percentiles and maxima, whose mean says little
  paired()    the differences between two set-ups that ran with the same seeds

Warm-up. settle() finds out how much time the system needs until its behaviour no longer changes.
"""
import collections
import hashlib
import os
import platform as python
import re
import shlex
import statistics
import subprocess
import sys

import machine

# ---- provenance ----

FIRMWARE = {"bochs": ["/usr/share/bochs/BIOS-bochs-latest", "/usr/share/vgabios/vgabios.bin"]}


def said(*command):
    """Returns what a program prints, or "" if there is no such program or it fails."""
    try:
        done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    """Returns the commit of this tree, and whether the tree's files are those of the commit (None:
    unknown)."""
    name = said("git", "rev-parse", "HEAD")
    if not name:
        return {"commit": "unknown", "clean": None}
    return {"commit": name, "clean": said("git", "status", "--porcelain") == ""}


def image_commit(path):
    """Returns the commit that an image was built from, as the image itself says (hv/lib/version.h):
    its first digits, with a "+" if files had been changed. Returns None for a program that does not
    say its commit, such as build/sim-whole."""
    symbol = re.search(r"(?m)^ *\d+: ([0-9a-f]+) +(\d+) OBJECT .* (\d+) version_commit$",
                       said("readelf", "-W", "--syms", path))
    if not symbol:
        return None
    section = re.search(rf"(?m)^ *\[ *{symbol[3]}\] \S+ +\S+ +([0-9a-f]+) ([0-9a-f]+) ",
                        said("readelf", "-W", "--sections", path))
    with open(path, "rb") as f:
        f.seek(int(symbol[1], 16) - int(section[1], 16) + int(section[2], 16))
        commit_of = f.read(int(symbol[2])).rstrip(b"\0").decode("ascii")
    if commit_of == "simulation":
        return None
    return commit_of


def warn_of_another_image(tree, image):
    """Warns if an image (its image_commit()) was not built from the commit of this tree, as happens
    after a pull without a make. An image that was built from changed files belongs to this tree
    only as long as the tree has changes."""
    if image is None or image == tree["commit"]:
        return
    built_of_changes = image.endswith("+")
    if not tree["commit"].startswith(image.rstrip("+")) or (built_of_changes and tree["clean"]):
        changed = " and changed files" if built_of_changes else ""
        print(f"The image is of commit {image.rstrip('+')}{changed}, but this tree is at commit "
              f"{tree['commit'][:10]}: the results are the image's. `make` builds it anew.",
              file=sys.stderr)


def compiler(path):
    """Returns the compilers that made an ELF file, as the file itself says, or None if it does not.
    The image does not name its compilers, but the objects that it was linked from do."""
    objects = os.path.join(os.path.dirname(path), "image", "hv", "main.o")
    if os.path.basename(path) == "takt.elf" and os.path.exists(objects):
        path = objects
    found = re.findall(r"\[ *[0-9a-f]+\]\s+(.*)", said("readelf", "-p", ".comment", path))
    return ", ".join(sorted(set(found))) or None


def emulator(platform):
    """Returns the name and the version of the program that the machine runs on."""
    if platform == "sim":
        return "build/sim, of this tree"
    if platform == "whole":
        return "build/sim-whole, of this tree"
    if platform == "bochs":
        package = said("dpkg-query", "-W", "-f", "${Version}", "bochs")
        return "Bochs " + (package or ".".join(map(str, machine.bochs_version())))
    first = said("qemu-system-x86_64", "--version").partition("\n")[0]
    return first or "unknown"


def lwip():
    """Returns the version of lwIP that guests were built with, or None if there is none."""
    path = os.path.join(machine.BUILD, "lwip", "VERSION")
    if not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def inside(path):
    """Returns the path relative to this tree. A path outside the tree is returned as it is."""
    relative = os.path.relpath(path, machine.ROOT)
    return path if relative.startswith("..") else relative


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def files_of(vm_file, hv=None):
    """Returns the files that an image of this VM file is made of: the VM file, the hypervisor, and
    the guests that the VM file names."""
    with open(vm_file, encoding="utf-8") as f:
        names = re.findall(r"(?m)^\s*image\s*=\s*([^\s#]+)", f.read())
    guests = [os.path.join(machine.BUILD, "guests", name + ".elf") for name in sorted(set(names))]
    hv = hv or os.path.join(machine.BUILD, "takt.elf")
    return [vm_file, hv, *(g for g in guests if os.path.exists(g))]


def provenance(platform, program, inputs=(), **facts):
    """Returns the facts with which a results file has to begin.

    program   the ELF file that was measured (build/sim or build/takt.elf); it names its compiler
    inputs    paths of files of which the SHA-256 is written down. The program is always among them,
              and so is the emulator's firmware if it is a package of its own
    facts     whatever else the result depends on: seeds, warm_up_s, seconds, knobs (all that are in
              effect, not only those that were changed), trace (its hash)
    """
    paths = sorted({os.path.abspath(p) for p in (program, *inputs, *FIRMWARE.get(platform, ()))})
    tree, image = commit(), image_commit(program)
    warn_of_another_image(tree, image)
    result = {**tree, "image_commit": image,
              "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
              "platform": platform,
              "versions": {"emulator": emulator(platform), "compiler": compiler(program),
                           "lwip": lwip(), "python": python.python_version()},
              "ips": machine.BOCHS_HZ if platform == "bochs" else None}
    result.update(facts)
    result["inputs"] = {inside(p): digest(p) for p in paths}
    return result


def start_ms(seed):
    """Returns when the traffic of a run begins, in ms after the boot: the seed moves it within the
    120 ms in which four VMs have a slice."""
    return 500 + 37 * seed % 120


# ---- statistics ----

# Student's t for 0.975, by degrees of freedom. Beyond 30 degrees the last value makes an interval
# too wide by at most 4 %.
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042)

# Take n values from one normal distribution and cut them into two groups. For one sample in a
# thousand there is a cut so good that the groups keep no more than this part of the variance
# (measured with 20,000 samples each). Four values or fewer can nearly always be cut as well as
# that.
TWO_GROUPS = {5: 0.002, 6: 0.008, 8: 0.031, 10: 0.054, 15: 0.092, 20: 0.137, 30: 0.174}
APART = 0.01    # of the mean: groups that are closer are the same to any reader
SCATTER = 0.5   # of the mean: a wider half-width says hardly more than the order of magnitude
DIGITS = 3


def half_width(samples):
    """Returns half of the width of the 95 % confidence interval of the mean, by Student's t."""
    n = len(samples)
    t = T975[min(n - 2, len(T975) - 1)]
    return t * statistics.stdev(samples) / n ** 0.5


def squares(samples):
    mean = statistics.fmean(samples)
    return sum((x - mean) ** 2 for x in samples)


def two_groups(samples, floor=0.0):
    """Returns the sample as two groups if it consists of two, else None. Groups that are no further
    apart than `floor`, or than APART of the mean, count as one.

    The sample is cut where the groups vary least (by the sum of squares within them, as in Otsu's
    threshold for pictures). It consists of two groups if a sample of one normal distribution would
    hardly ever look like that.
    """
    ordered, n = sorted(samples), len(samples)
    limit = max((part for size, part in TWO_GROUPS.items() if size <= n), default=None)
    total = squares(samples)
    if limit is None or total == 0:
        return None
    within, at = min((squares(ordered[:k]) + squares(ordered[k:]), k) for k in range(1, n))
    low, high = ordered[:at], ordered[at:]
    if statistics.fmean(high) - statistics.fmean(low) <= max(APART * abs(statistics.fmean(samples)),
                                                             floor):
        return None
    return (low, high) if within <= limit * total else None


def rounded(x):
    return round(x, DIGITS)


def estimate(samples, signed=False, floor=0.0):
    """Returns what n runs say about a quantity. This is exactly one of

    {"n", "mean", "ci95"}            the mean and half the width of its 95 % confidence interval
    {"n", "value", "why"}            all runs gave the same value, so nothing is uncertain
    {"n", "groups": [g, g], "why"}   the runs are of two kinds, and a mean of both would describe
                                     neither; a group is {"n", "mean", "min", "max"}
    {"n", "values", "why"}           a mean is of no use, because there is one run or because the
                                     values scatter too much

    signed: the quantity may be around zero, such as a difference, so its scatter cannot be judged
    in relation to its mean. floor: a difference that is too small to matter; groups that are no
    further apart than that are one.
    """
    n = len(samples)
    if n == 1:
        return {"n": 1, "values": [rounded(samples[0])], "why": "one run has no interval"}
    if len({rounded(x) for x in samples}) == 1:
        return {"n": n, "value": rounded(samples[0]), "why": f"all {n} runs gave the same value"}
    groups = two_groups(samples, floor)
    if groups:
        return {"n": n, "why": "the runs fall into two groups, and the mean is in neither",
                "groups": [{"n": len(g), "mean": rounded(statistics.fmean(g)), "min": rounded(g[0]),
                            "max": rounded(g[-1])} for g in groups]}
    mean, half = statistics.fmean(samples), half_width(samples)
    if not signed and half > SCATTER * abs(mean):
        return {
            "n": n,
            "values": [rounded(x) for x in sorted(samples)],
            "why": f"the values scatter: the interval would be {2 * half:.3g} wide around "
                   f"{mean:.3g}",
        }
    return {"n": n, "mean": rounded(mean), "ci95": rounded(half)}


def points(samples):
    """Returns the median and the range of a percentile or a maximum of each run. There is no
    interval, because a maximum has no normal distribution, and grows with the length of a run."""
    return {"n": len(samples), "median": rounded(statistics.median(samples)),
            "min": rounded(min(samples)), "max": rounded(max(samples))}


def paired(before, after, floor=0.0):
    """Returns estimate() of after - before for the seeds that both have ({seed: value}), or None if
    there are none. An effect that a seed has on both of them cancels out."""
    seeds = sorted(set(before) & set(after))
    if not seeds:
        return None
    return estimate([after[seed] - before[seed] for seed in seeds], signed=True, floor=floor)


def same_trace(hashes):
    """Returns why several runs are in truth one run: their traces are the same, so the seed changed
    nothing. Returns None if they are not. `hashes` may have None for runs without a trace."""
    if len(hashes) < 2 or None in hashes or len(set(hashes)) > 1:
        return None
    return f"the seed changes nothing: all {len(hashes)} runs have the trace {hashes[0]}"


def text(e, digits=1, scale=1.0):
    """Returns the text that a table shows for an estimate(), points(), a plain number or None."""
    def show(x):
        return f"{x * scale:.{digits}f}"

    if e is None:
        return "-"
    if not isinstance(e, dict):
        return show(e)
    if "mean" in e:
        return f"{show(e['mean'])} ±{show(e['ci95'])}"
    if "value" in e:
        return f"{show(e['value'])} (all)"
    if "groups" in e:
        return " or ".join(f"{show(g['mean'])} ({g['n']})" for g in e["groups"])
    if "median" in e:
        return f"{show(e['median'])} ({show(e['min'])} to {show(e['max'])})"
    if e["n"] == 1:
        return show(e["values"][0])
    return (
        f"{show(statistics.median(e['values']))}, {show(e['values'][0])} to {show(e['values'][-1])}"
    )


LEGEND = (
    "a ±b: mean and 95 % confidence interval; a (all): every run gave a; a (n) or b (m): two "
    "groups of n and m runs, and their means; a, b to c: the values scatter, median and range; "
    "a (b to c): median and range of the runs"
)

# ---- warm-up ----

TOLERANCE = 0.05  # of a quantity: means that differ by less agree

# What a run looked like. `whole` and `halves` are {quantity: value}, of the measurement and of its
# two halves. `labels` is a list of {VM: label of the I/O monitor}, seen at the beginning, at the
# end, and perhaps in between. `credit` is a pair of {vCPU: its mean credit in ms}, one for each
# half. `labels` and `credit` may be empty on a platform that does not tell them; then they are not
# judged.
Look = collections.namedtuple("Look", "whole halves labels credit", defaults=((), ()))

Settled = collections.namedtuple("Settled", "warm_up why looks tried")


def differs(before, after, floor=0.0):
    """Returns why two lists of values, of the same seeds, do not agree, or None if they do.

    They agree if the mean difference is within TOLERANCE of the value, within its own 95 %
    interval, or below `floor`. An interval that is wider than SCATTER of the value cannot tell.
    Then they do not count as equal, because a system on its way into another state looks like that.
    """
    changes = [b - a for a, b in zip(before, after)]
    change = statistics.fmean(changes)
    half = half_width(changes) if len(changes) > 1 else 0.0
    size = max(abs(statistics.fmean(before)), abs(statistics.fmean(after)))
    if half > max(SCATTER * size, floor):
        return (f"is {size:.3g} and changes by {change:.3g} ±{half:.3g}, which scatters too much "
                "to tell")
    if abs(change) > max(TOLERANCE * size, half, floor):
        return f"changes from {statistics.fmean(before):.4g} to {statistics.fmean(after):.4g}"
    return None


def compared(before, after, floors):
    """Returns the first quantity that differs, as a sentence without its end, or None. `before` and
    `after` are lists of dictionaries."""
    for name in before[0]:
        why = differs([b[name] for b in before], [a[name] for a in after], floors.get(name, 0.0))
        if why:
            return f"{name} {why}"
    return None


def unsettled(looks, floors, credit_floor=30.0):
    """Returns why the system was not stationary while these runs were measured, or None if it
    was."""
    for look in looks:
        for earlier, later in zip(look.labels, look.labels[1:]):
            changed = sorted(vm for vm in later if earlier.get(vm) != later[vm])
            if changed:
                return f"the label of {changed[0]} changes during the measurement"
    if all(look.credit for look in looks):
        why = compared(*([look.credit[i] for look in looks] for i in (0, 1)),
                       {name: credit_floor for name in looks[0].credit[0]})
        if why:
            return f"the credit of {why} ms from one half to the other"
    why = compared(*([look.halves[i] for look in looks] for i in (0, 1)), floors)
    return why and f"{why} from one half to the other"


def changes(looks, later, floors, warm_up, longer):
    """Returns why a longer warm-up gives another result, or None if it does not."""
    why = compared([x.whole for x in looks], [x.whole for x in later], floors)
    return why and f"{why} from a warm-up of {warm_up:g} s to one of {longer:g} s"


def settle(observe, first, most, floors=None, credit_floor=30.0):
    """Finds out how long to warm up. This is the first of `first`, 2 `first`, 4 `first` ... below
    `most` seconds for which all of these hold:

      no label of the I/O monitor changes during the measurement,
      the mean credit of no vCPU drifts by more than `credit_floor`, one accounting period in ms,
      the halves of the measurement agree,
      a warm-up twice as long gives the same result, and so does a warm-up of `most` seconds.

    The last comparison finds a system that stays in one state for a while and leaves it later.

    observe(warm_up) returns a Look for each seed. `floors` is {quantity: difference that is too
    small to matter}. Returns a Settled: the warm-up; None, or why even `most` seconds are not
    enough; the looks at that warm-up; and [(warm-up, why not)] for those that were too short.
    """
    floors = floors or {}
    warm_up, looks, tried = first, observe(first), []
    last = observe(most)
    while 2 * warm_up <= most:
        later = observe(2 * warm_up) if 2 * warm_up < most else last
        why = (unsettled(looks, floors, credit_floor)
               or changes(looks, later, floors, warm_up, 2 * warm_up)
               or changes(looks, last, floors, warm_up, most))
        if why is None:
            return Settled(warm_up, None, looks, tried)
        tried.append((warm_up, why))
        warm_up, looks = 2 * warm_up, later
    return Settled(most, tried[-1][1] if tried else "there is nothing longer to compare with", last,
                   tried)
