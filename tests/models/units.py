"""How much the longest wait of a vCPU depends on the unit in which credit is counted. Xen counts in
whole credits of 100 us, Takt's own presets in ns. This plays the model of Credit 4.2 in both units
on the same random scenarios and compares the longest waits (run.py units FIRST-LAST). The
simulation is not used."""
import random

from models import credit, machine

SECOND = 1_000_000_000
WARM_UP, MEASURED = 3 * SECOND, 10 * SECOND


def guests(rng):
    """Returns (name, weight, a function that makes the guest) of each of two to five random VMs,
    with random phases."""
    found = []
    for i in range(rng.randint(2, 5)):
        kind = rng.choice(("spin", "spin", "busy", "waker"))
        weight, period = rng.choice((256, 256, 512)), rng.randint(2_000_000, 40_000_000)
        if kind == "spin":
            found.append((f"spin-{i}", weight, machine.Spin))
            continue
        work = 50_000 if kind == "waker" else period * rng.randint(3, 40) // 100
        phase = rng.randrange(period)
        found.append((f"{kind}-{i}", weight, lambda p=period, w=work,
                      s=phase: machine.Periodic(p, w, s)))
    return found


def waits(found, unit):
    """Returns {name: (longest wait in ms, share in %)} in the model that counts credit in units of
    `unit` ns."""
    m = machine.Machine(1, 2000, 2000)
    pool = credit.Credit(m, [0], credit.rules_of("faithful-4.2", unit=unit))
    for number, (name, weight, guest) in enumerate(found, 1):
        v = machine.Vcpu(credit.Vm(number, name, weight), 0, guest(), {0})
        m.add(v, 0)
        pool.add(v)
        m.start(v)
    m.run_until(WARM_UP)
    m.mark()
    m.run_until(WARM_UP + MEASURED)
    return {v.vm.name: (m.longest_wait(v) / 1e6, m.ran(v) * 100 / MEASURED) for v in m.vcpus}


def ratios(seeds):
    """Returns [(longest wait in whole credits / longest wait in ns, seed, name, the two waits in
    ms, by how many points the shares differ)], sorted, of each vCPU whose longest wait in ns is 1
    ms or more."""
    found = []
    for seed in seeds:
        vms = guests(random.Random(f"units {seed}"))
        exact, whole = waits(vms, 1), waits(vms, 100_000)
        found += [(whole[n][0] / exact[n][0], seed, n, exact[n][0], whole[n][0],
                   abs(whole[n][1] - exact[n][1]))
                  for n in exact if exact[n][0] >= 1]
    return sorted(found)


def report(seeds):
    """Prints by how much the longest waits differ between the two units, and the two extreme
    vCPUs."""
    found = ratios(seeds)
    only = [r[0] for r in found]
    print(f"longest wait in whole credits / in ns, {len(found)} vCPUs of {len(seeds)} scenarios: "
          f"{only[0]:.2f} to {only[-1]:.2f}, median {only[len(only) // 2]:.2f}; "
          f"{sum(abs(r - 1) > 0.05 for r in only)} differ by more than 5 %; "
          f"shares differ by up to {max(r[5] for r in found):.2f} points")
    for ratio, seed, name, exact, whole, _ in (found[0], found[-1]):
        print(
            f"  {ratio:.2f}: seed {seed}, {name}: {exact:.2f} ms in ns, {whole:.2f} ms in whole "
            "credits"
        )
