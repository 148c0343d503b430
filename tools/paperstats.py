"""What may be said of a paper's result after several runs: intervals, conditions, and the verdict.

An interval is a bootstrap interval of the mean: seeds are drawn again and again, with repetition,
and 95 of 100 means of such draws lie within it. The draws come from a fixed seed, so the same runs
give the same interval. Runs that all gave one value have no interval. A ratio of two set-ups that
ran with the same seeds is drawn with the same seeds on both sides.

A condition of an experiment file holds if the whole interval is where the paper says, and is broken
if the whole interval is elsewhere. An interval that reaches both sides decides nothing.
"""
import random
import statistics

DRAWS = 2000
DIGITS = 6

HOLDS, BROKEN, OPEN = "holds", "broken", "undecided"
SHAPE_HOLDS, DIFFERS, UNDECIDED = "shape holds", "differs", "undecided"
CANNOT, TODO = "cannot be run here", "no experiment yet"
NO_CLAIM = "no claim"
FAILED = "failed"


def interval(rows, of):
    """Returns (low, high), between which 95 % of the means lie, or None if there is none.

    rows  a list with one entry for each seed
    of    what is computed of such a list: a mean, or a ratio of two means
    """
    if len(rows) < 2 or len({repr(row) for row in rows}) == 1:
        return None
    draw = random.Random(1)
    found = sorted(of(draw.choices(rows, k=len(rows))) for _ in range(DRAWS))
    return found[int(0.025 * DRAWS)], found[int(0.975 * DRAWS) - 1]


def mean(rows):
    return statistics.fmean(rows)


def ratio(rows):
    """Returns the mean of the first of each pair divided by the mean of the second ones."""
    below = statistics.fmean(b for _, b in rows)
    if below == 0:
        return float("inf")
    return statistics.fmean(a for a, _ in rows) / below


def difference(rows):
    return statistics.fmean(a - b for a, b in rows)


class Figures:
    """What was measured: of each (series, point) and measure one value for each seed."""

    def __init__(self):
        self.found = {}

    def add(self, series, point, seed, values):
        for measure, value in values.items():
            self.found.setdefault((measure, series, point), {})[seed] = value

    def of(self, measure, series, point):
        """Returns {seed: value}; an empty one if nothing was measured."""
        return self.found.get((measure, series, point), {})

    def estimate(self, measure, series, point):
        """Returns {"n", "mean", "interval"}; the interval is None if there is none."""
        values = self.of(measure, series, point)
        if not values:
            return None
        rows = [values[seed] for seed in sorted(values)]
        found = interval(rows, mean)
        return {"n": len(rows), "mean": rounded(mean(rows)),
                "interval": found and [rounded(found[0]), rounded(found[1])]}


def rounded(x):
    return round(x, DIGITS)


def judge(rows, of, at_least, at_most):
    """Returns (HOLDS, BROKEN or OPEN, a sentence's end with the figures)."""
    found = interval(rows, of) or (of(rows), of(rows))
    low, high = found
    told = f"{of(rows):.4g}"
    if low != high:
        told += f" ({low:.4g} to {high:.4g})"
    bounds = []
    if at_least is not None:
        bounds.append(f"at least {at_least:g}")
    if at_most is not None:
        bounds.append(f"at most {at_most:g}")
    told += ", expected " + " and ".join(bounds)
    at_least = at_least if at_least is not None else float("-inf")
    at_most = at_most if at_most is not None else float("inf")
    if at_least <= low and high <= at_most:
        return HOLDS, told
    if high < at_least or low > at_most:
        return BROKEN, told
    return OPEN, told


def pairs(above, below):
    return [(above[seed], below[seed]) for seed in sorted(set(above) & set(below))]


def check_bounds(condition, figures):
    """Judges a value, or with "over" a ratio of two values of the same seeds."""
    place, over = condition["value"], condition.get("over")
    at_least, at_most = condition.get("at_least"), condition.get("at_most")
    above = figures.of(place["measure"], place["series"], place["point"])
    if not above:
        return OPEN, "no run of it is finished"
    if not over:
        return judge([above[seed] for seed in sorted(above)], mean, at_least, at_most)
    rows = pairs(above, figures.of(over["measure"], over["series"], over["point"]))
    if not rows:
        return OPEN, "no seed was run in both set-ups"
    return judge(rows, ratio, at_least, at_most)


def check_order(condition, figures, points):
    """Judges whether a measure rises (or falls) from each point of a series to the next one."""
    results = []
    for before, after in zip(points, points[1:]):
        rows = pairs(figures.of(condition["measure"], condition["series"], after),
                     figures.of(condition["measure"], condition["series"], before))
        if not rows:
            return OPEN, f"no seed was run at both {before} and {after}"
        low, high = interval(rows, difference) or (difference(rows), difference(rows))
        if condition["order"] == "falls":
            low, high = -high, -low
        if low > 0:
            results.append((HOLDS, ""))
        elif high <= 0:
            results.append((BROKEN, f"not from {before} to {after}"))
        else:
            results.append((OPEN, f"cannot be told from {before} to {after}"))
    for state in (BROKEN, OPEN):
        said = [text for found, text in results if found == state]
        if said:
            return state, ", ".join(said)
    return HOLDS, f"it {condition['order']} at each of {len(points)} points"


def check(condition, figures, points):
    """Returns the condition as the report shows it: {"says", "section", "state", "found"}."""
    if "order" in condition:
        state, found = check_order(condition, figures, condition.get("points", points))
    else:
        state, found = check_bounds(condition, figures)
    return {"says": condition["says"], "section": condition["section"], "state": state,
            "found": found}


def verdict(conditions, notes):
    """Returns (verdict, why). `notes` are reasons for which nothing may be concluded."""
    if not conditions:
        return NO_CLAIM, "no paper says what comes out"
    broken = [c for c in conditions if c["state"] == BROKEN]
    unclear = [c for c in conditions if c["state"] == OPEN]
    if notes:
        return UNDECIDED, "; ".join(notes)
    if broken:
        return DIFFERS, "; ".join(f"{c['says']}: {c['found']}" for c in broken)
    if unclear:
        return UNDECIDED, "; ".join(f"{c['says']}: {c['found']}" for c in unclear)
    return SHAPE_HOLDS, f"all {len(conditions)} conditions hold"
