#!/usr/bin/env python3
"""Makes the descriptions of tests/machines/ from what other projects publish (see README.md).

  tests/machines/extract.py SOURCES [OUT]
  tests/machines/extract.py --own NAME FILE... > NAME.txt

SOURCES is a directory that holds the unpacked sources that CHOSEN below names. Each description
keeps the numbers that Takt's probes ask for, and where they come from. A number that the source
does not have is left out: nothing is made up. What Takt should say of the machine is worked out
here once more, from the manuals.

--own describes a machine of your own. Each FILE is what one of these commands printed there, as
root: `cpuid -r`, `acpidump`, `lspci -xxxx`; or lines of `INDEX: VALUE` from `rdmsr`.
"""
import glob
import os
import re
import sys
import tarfile
import xml.etree.ElementTree as ET
import zipfile

# The leaves of CPUID that Takt reads, for its probes and for the places of CPUs.
LEAVES = {0, 1, 4, 7, 0xb, 0xd, 0x15, 0x16, 0x1a, 0x1f, 0x40000000, 0x40000001, 0x40000010,
          0x80000000, 0x80000001, 0x80000007, 0x80000008, 0x8000000a, 0x8000001d, 0x8000001e}
BRAND = (0x80000002, 0x80000003, 0x80000004)

# VT-x tells what it offers in MSRs 480h to 491h (SDM 3D appendix A).
VMX_BASIC, VMX_OLD_PRIMARY, VMX_SECONDARY, VMX_EPT_VPID = 0x480, 0x482, 0x48b, 0x48c
VMX_PIN, VMX_PRIMARY, VMX_EXIT, VMX_ENTRY = 0x48d, 0x48e, 0x48f, 0x490  # the "true" ones
BASIC_TRUE_CONTROLS = 1 << 55
PIN_PREEMPTION_TIMER = 1 << 6
SECONDARY_EPT, SECONDARY_VPID, SECONDARY_UNRESTRICTED = 1 << 1, 1 << 5, 1 << 7
EPT_NEEDED = 1 << 6 | 1 << 14 | 1 << 16 | 1 << 20 | 1 << 26 | 1 << 32 | 1 << 42
VTX_LOCKED = "the firmware has switched VT-x off and locked it: allow it in its set-up."
VTX_NO_EPT = "VT-x of this CPU has no EPT, which Takt needs."
VTX_NO_VPID = "VT-x of this CPU has no VPID, which Takt needs."
VTX_NO_UNRESTRICTED = ("VT-x of this CPU has no unrestricted guest, which Takt needs: "
                       "Intel's have it since 2010 (Westmere).")
VTX_LACKS = "VT-x of this CPU lacks a control, or an ability of EPT or VPID, that Takt needs."
SVM_LOCKED = "the firmware has switched AMD-V off and locked it: allow SVM in its set-up."
FEATURE_CONTROL, FEATURE_LOCKED, FEATURE_VMXON = 0x3a, 1 << 0, 1 << 2
VM_CR, VM_CR_LOCK, VM_CR_SVMDIS = 0xc0010114, 1 << 3, 1 << 4


class Machine:
    """What a source tells of one machine."""

    def __init__(self):
        self.cpuid = {}     # (leaf, subleaf): (eax, ebx, ecx, edx)
        self.msr = {}       # index: value
        self.apic_ids = []  # of its CPUs, in the source's order
        self.tables = []    # (signature, bytes behind the header)
        self.pci = {}       # (bus, device, function): {offset: dword}
        self.expect = {}    # what the source itself says of it
        self.sockets = 1

    def leaf(self, leaf, sub=0):
        return self.cpuid.get((leaf, sub), (0, 0, 0, 0))

    def has_leaf(self, leaf):
        return self.leaf(leaf & 0xffff0000)[0] >= leaf

    def brand(self):
        raw = b"".join(r.to_bytes(4, "little") for leaf in BRAND for r in self.leaf(leaf))
        return " ".join(raw.split(b"\0")[0].decode("ascii", "replace").split())

    def absent_msrs(self):
        """MSRs of VT-x that this CPU does not have, so that reading them is a #GP: SDM 3D A.2,
        A.3.3, A.10."""
        if VMX_BASIC not in self.msr:
            return []
        out = []
        if not self.msr[VMX_BASIC] & BASIC_TRUE_CONTROLS:
            out += [VMX_PIN, VMX_PRIMARY, VMX_EXIT, VMX_ENTRY]
        secondary = self.msr.get(VMX_OLD_PRIMARY, 0) >> 63
        if not secondary:
            out.append(VMX_SECONDARY)
        if not self.msr.get(VMX_SECONDARY, 0) >> 32 & (SECONDARY_EPT | SECONDARY_VPID):
            out.append(VMX_EPT_VPID)
        return [msr for msr in out if msr not in self.msr]

    def verdict(self):
        """("yes" | "no" | "not known", the sentence), by the manuals and not by Takt's code."""
        if self.leaf(1)[2] & 1 << 5:
            return self.verdict_intel()
        if self.has_leaf(0x80000001) and self.leaf(0x80000001)[2] & 1 << 2:
            return self.verdict_amd()
        return "no", "this CPU has neither VT-x nor AMD-V."

    def rows(self):
        """{line of the pre-flight table: "yes" | "no"}, for those that the CPU decides alone."""
        def word(bit):
            return "yes" if bit else "no"

        power = self.leaf(0x80000007)[3] if self.has_leaf(0x80000007) else 0
        out = {"x2APIC": word(self.leaf(1)[2] & 1 << 21), "invariant TSC": word(power & 1 << 8)}
        if self.verdict()[0] == "yes":
            out["EPT or nested paging"] = out["unrestricted guest"] = out["VPID or ASID"] = "yes"
            out["preemption timer"] = word(self.msr.get(VMX_PIN, 0) >> 32 & PIN_PREEMPTION_TIMER)
            svm = self.leaf(0x8000000a)[3] if self.has_leaf(0x8000000a) else 0  # APM3 E.4.9
            out["decode assists"] = word(svm & 1 << 7)
            out["flush by ASID"] = word(svm & 1 << 6)
        return out

    def verdict_intel(self):
        control = self.msr.get(FEATURE_CONTROL, FEATURE_LOCKED | FEATURE_VMXON)
        if control & FEATURE_LOCKED and not control & FEATURE_VMXON:
            return "no", VTX_LOCKED
        if VMX_BASIC not in self.msr:
            return "not known", (
                f"MSR {VMX_BASIC:x} is missing here: VT-x tells there what it can do. "
                "On the machine, tools/takt-check or `probe` says yes or no."
            )
        offered = self.msr.get(VMX_SECONDARY, 0) >> 32
        if not self.msr[VMX_BASIC] & BASIC_TRUE_CONTROLS:
            offered = 0  # a first generation, which has no EPT either
        for bit, says in ((SECONDARY_EPT, VTX_NO_EPT), (SECONDARY_VPID, VTX_NO_VPID),
                          (SECONDARY_UNRESTRICTED, VTX_NO_UNRESTRICTED)):
            if not offered & bit:
                return "no", says
        if self.msr.get(VMX_EPT_VPID, 0) & EPT_NEEDED != EPT_NEEDED:
            return "no", VTX_LACKS
        return "yes", "Guests can run."

    def verdict_amd(self):
        _, tags, _, features = self.leaf(0x8000000a)
        control = self.msr.get(VM_CR, 0)
        if control & VM_CR_LOCK and control & VM_CR_SVMDIS:
            return "no", SVM_LOCKED
        if not features & 1:
            return "no", "this CPU has AMD-V without nested paging, which Takt needs."
        if tags < 2:
            return "no", "this CPU has AMD-V without address space identifiers."
        return "yes", "Guests can run."


# ---- formats ----

def apic_id(machine):
    """The APIC id of the CPU whose CPUID this is: leaf 0Bh has all 32 bits, leaf 1 has 8."""
    if machine.has_leaf(0xb) and machine.leaf(0xb)[1]:
        return machine.leaf(0xb)[3]
    return machine.leaf(1)[1] >> 24


def hwloc_cpuid(root, path):
    """hwloc: an archive with a file for each CPU; beside it the topology that hwloc makes."""
    m = Machine()
    with tarfile.open(os.path.join(root, path + ".tar.bz2")) as tar:
        names = [n for n in tar.getnames() if re.search(r"/pu\d+$", n)]
        for name in sorted(names, key=lambda n: int(n.split("/pu")[1])):
            cpu = Machine()
            for line in tar.extractfile(name).read().decode().splitlines():
                if line.startswith("#"):
                    continue
                left, right = line.split("=>")
                mask, eax, _, ecx, _ = (int(x, 16) for x in left.split())
                key = eax, ecx if mask & 4 else 0
                cpu.cpuid.setdefault(key, tuple(int(x, 16) for x in right.split()))
            m.apic_ids.append(apic_id(cpu))
            if not m.cpuid:
                m.cpuid = cpu.cpuid
    text = open(os.path.join(root, path + ".output"), encoding="utf-8").read()
    m.sockets = text.count('<object type="Package"')
    for key, kind in (("sockets", "Package"), ("cores", "Core"), ("threads", "PU")):
        m.expect[key] = text.count(f'<object type="{kind}"')
    if m.leaf(1)[0] >> 8 & 15 == 15 and m.leaf(1)[0] >> 20 & 0xff == 6:
        # Family 15h: two cores of a module share fetch, decode and the FPU. To Takt, as to Linux,
        # such a module is a core with two threads.
        m.expect["cores"] //= (m.leaf(0x8000001e)[1] >> 8 & 0xff) + 1
    return m


CPUID_LINE = re.compile(r"CPUID ([0-9A-F]{8}): ((?:[0-9A-F]{8}-?){4})(?: \[SL ([0-9A-F]+)\])?")
MSR_LINE = re.compile(r"MSR ([0-9A-F]{8}): ((?:[0-9A-F]{4}-?){4})")


def instlat(text):
    """InstLatx64, AIDA64: a block of CPUID for each CPU, then perhaps one of MSRs for each.
    Subleaves are numbered, or follow each other."""
    m, cpu, first_msrs = Machine(), None, True
    for line in text.splitlines():
        if re.match(r"CPU#\d|------\[ (CPUID Registers / )?Logical CPU #\d", line):
            if cpu and cpu.cpuid:
                m.apic_ids.append(apic_id(cpu))
            cpu = Machine()
        if line.startswith("------[ MSR Registers / Logical CPU"):
            first_msrs = "#0 " in line
        got = CPUID_LINE.match(line)
        if got and cpu is not None:
            leaf = int(got[1], 16)
            sub = int(got[3], 16) if got[3] else sum(known == leaf for known, _ in cpu.cpuid)
            key = leaf, sub
            cpu.cpuid.setdefault(key, tuple(int(x, 16) for x in got[2].split("-")))
            if not m.apic_ids:
                m.cpuid = cpu.cpuid
        got = MSR_LINE.match(line)
        if got and first_msrs:
            m.msr.setdefault(int(got[1], 16), int(got[2].replace("-", ""), 16))
    if cpu and cpu.cpuid:
        m.apic_ids.append(apic_id(cpu))
    return m


def libcpuid(root, path):
    """libcpuid: arrays of registers of one CPU; newer ones as InstLatx64 has them."""
    text = open(os.path.join(root, path), encoding="utf-8", errors="replace").read()
    arrays = {"basic_cpuid": (0, False), "ext_cpuid": (0x80000000, False), "intel_fn4": (4, True),
              "intel_fn11": (0xb, True), "amd_fn8000001dh": (0x8000001d, True)}
    m = instlat(text)
    row = re.compile(r"^(\w+)\[(\d+)\]=((?:[0-9a-f]{8} ?){4})", re.MULTILINE)
    for name, index, regs in row.findall(text):
        if name not in arrays:
            continue
        base, subleaves = arrays[name]
        key = (base, int(index)) if subleaves else (base + int(index), 0)
        m.cpuid.setdefault(key, tuple(int(x, 16) for x in regs.split()))
    return m


def klauspost(root, path):
    """klauspost-cpuid: an archive of InstLatx64's files."""
    archive, name = path.split("#")
    with zipfile.ZipFile(os.path.join(root, archive)) as z:
        inside = next(n for n in z.namelist() if n.endswith("/" + name + "_CPUID.txt"))
        return instlat(z.read(inside).decode("latin-1"))


def libvirt(root, path):
    """libvirt: XML, as its cpu-gather tool reads it from CPUID and a few MSRs."""
    m = Machine()
    for e in ET.parse(os.path.join(root, path)).getroot():
        value = {k: int(v, 16) for k, v in e.attrib.items() if k != "index"}
        if e.tag == "cpuid":
            regs = tuple(value[r] for r in ("eax", "ebx", "ecx", "edx"))
            m.cpuid[(value["eax_in"], value["ecx_in"])] = regs
        elif e.tag == "msr":
            m.msr[int(e.attrib["index"], 16)] = value["edx"] << 32 | value["eax"]
    return m


def bdf(text):
    """(bus, device, function) of "02:00.1", of segment 0."""
    got = re.match(r"(?:0000:)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", text)
    return int(got[1], 16), int(got[2], 16), int(got[3])


# What Takt reads of each capability: its id and the dwords behind its head.
CAPABILITY_DWORDS = {0x01: 1, 0x05: 0, 0x10: 2, 0x11: 2, 0x13: 1}
EXTENDED_DWORDS = {0x0d: 1, 0x0e: 0, 0x10: 9}


def keep_registers(space):
    """{offset: dword} of what Takt reads of a configuration space: header and capabilities."""
    def dword(at):
        return int.from_bytes(space[at:at + 4], "little") if at + 4 <= len(space) else 0

    kept = set(range(0, 0x40, 4))
    at, seen = (dword(0x34) & 0xfc if dword(4) >> 16 & 0x10 else 0), set()
    while 0x40 <= at <= len(space) - 4 and at not in seen:
        seen.add(at)
        kept.update(range(at, at + 4 + 4 * CAPABILITY_DWORDS.get(space[at], 0), 4))
        at = space[at + 1] & 0xfc
    at = 0x100 if len(space) == 4096 else 0
    while at >= 0x100 and at not in seen and dword(at) not in (0, 0xffffffff):
        seen.add(at)
        kept.update(range(at, at + 4 + 4 * EXTENDED_DWORDS.get(dword(at) & 0xffff, 0), 4))
        at = dword(at) >> 20 & 0xffc
    return {at: dword(at) for at in sorted(kept) if at + 4 <= len(space) and dword(at)}


def read_text(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def lspci(root, path):
    m = Machine()
    read_lspci(m, read_text(root, path))
    return m


def read_lspci(m, text):
    """The output of lspci -x, -xxx or -xxxx; a function without a dump is left out."""
    at, spaces = None, {}
    for line in text.splitlines():
        got = re.match(r"(?:0000:)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ", line)
        if got:
            at = bdf(got[1])
        got = re.match(r"([0-9a-f]{2,3}):((?: [0-9a-f]{2}){16})\s*$", line)
        if got and at:
            space = spaces.setdefault(at, bytearray(int(got[1], 16)))
            space += bytes.fromhex(got[2].replace(" ", ""))
    set_pci(m, spaces)


def set_pci(m, spaces):
    m.pci = {at: keep_registers(space) for at, space in sorted(spaces.items())}
    m.expect["pci functions"] = len(spaces)
    m.expect["pci bridges"] = sum(space[0x0e] & 0x7f == 1 for space in spaces.values())


def sysfs_pci(root, path):
    """hwloc: an archive of a machine's /sys, with the first bytes of configuration space."""
    m, spaces = Machine(), {}
    with tarfile.open(os.path.join(root, path + ".tar.bz2")) as tar:
        for member in tar.getmembers():
            got = re.search(r"/(0000:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/config$", member.name)
            if got and member.isfile():
                spaces[bdf(got[1])] = tar.extractfile(member).read()
    set_pci(m, spaces)
    return m


TABLES = ("APIC", "DMAR", "HPET", "IVRS", "MCFG", "SPCR", "SRAT")
TABLE_HEAD = 36


def add_table(m, data):
    """Keeps an ACPI table whose length and checksum hold: Takt leaves out others."""
    signature = data[:4].decode("ascii", "replace")
    if signature not in TABLES:
        return
    if signature in (s for s, _ in m.tables):  # the first counts, as in Linux
        m.expect["repeated tables"] = m.expect.get("repeated tables", 0) + 1
        m.tables.append((signature, bytes(data[TABLE_HEAD:])))
        return
    if int.from_bytes(data[4:8], "little") != len(data) or sum(data) & 0xff:
        sys.exit(f"extract: table {signature}: its length or its checksum does not hold")
    m.tables.append((signature, bytes(data[TABLE_HEAD:])))
    if signature == "APIC":
        expect_madt(m, data)
    if signature == "DMAR":
        kinds = [data[at] for at, _ in entries(data, 48, 2)]
        m.expect.update({"iommu units": kinds.count(0), "iommu regions": kinds.count(1),
                         "iommu table": "good"})


def entries(data, at, width):
    """(offset, length) of the entries from `at` on; type and length have `width` bytes each."""
    while at + 2 * width <= len(data):
        length = int.from_bytes(data[at + width:at + 2 * width], "little")
        if length < 2 * width:
            sys.exit("extract: an entry of a table has no length")
        yield at, length
        at += length


def expect_madt(m, data):
    """ACPI 6.5, 5.2.12: CPUs that are enabled, once each, and the other entries that Takt keeps."""
    ids, kinds = set(), []
    for at, _ in entries(data, 44, 1):
        kinds.append(data[at])
        if data[at] == 0 and data[at + 4] & 1 and data[at + 3] != 0xff:
            ids.add(data[at + 3])
        if data[at] == 9 and data[at + 8] & 1 and data[at + 4:at + 8] != b"\xff" * 4:
            ids.add(int.from_bytes(data[at + 4:at + 8], "little"))
    m.expect.update({"cpus": len(ids), "ioapics": kinds.count(1), "overrides": kinds.count(2),
                     "malformed tables": 0})


def table_files(root, path):
    """QEMU: a file for each ACPI table."""
    folder, names = path.split("#")
    m = Machine()
    for name in names.split(","):
        with open(os.path.join(root, folder, name), "rb") as f:
            add_table(m, f.read())
    return m


def fwts(root, path):
    """fwts: what acpidump printed on a machine."""
    m = Machine()
    read_acpidump(m, read_text(root, path))
    return m


# ---- a machine of one's own ----

def read_acpidump(m, text):
    """acpidump's text: `APIC @ 0x...`, then lines of an offset, 16 bytes, and the same as text."""
    table = bytearray()
    for line in text.splitlines() + ["end @ 0x0"]:
        row = re.match(r"\s+[0-9A-Fa-f]{4,8}: ((?:[0-9A-Fa-f]{2} ){1,16})", line)
        if row:
            table += bytes.fromhex(row[1])
        elif " @ 0x" in line:
            if len(table) >= TABLE_HEAD:
                add_table(m, table)
            table = bytearray()


def read_cpuid(m, text):
    """cpuid -r, of all CPUs."""
    cpu = None
    for line in text.splitlines():
        if line.startswith("CPU"):
            cpu = Machine()
        row = re.match(r"\s+0x(\w+) 0x(\w+): eax=0x(\w+) ebx=0x(\w+) ecx=0x(\w+) edx=0x(\w+)", line)
        if not row or cpu is None:
            continue
        leaf, sub, *regs = (int(x, 16) for x in row.groups())
        cpu.cpuid[(leaf, sub)] = tuple(regs)
        if (leaf, sub) == (0x80000000, 0):  # behind all basic leaves
            m.apic_ids.append(apic_id(cpu))
        m.cpuid = m.cpuid or cpu.cpuid


def own(name, paths):
    """The description of a machine, from what commands printed there."""
    m = Machine()
    for path in paths:
        text = read_text("", path)
        if re.search(r"^\s+0x\w+ 0x\w+: eax=", text, re.MULTILINE):
            read_cpuid(m, text)
        elif re.search(r"^\S{4} @ 0x", text, re.MULTILINE):
            read_acpidump(m, text)
        elif re.search(r"^00: (\w\w ?){16}$", text, re.MULTILINE):
            read_lspci(m, text)
        elif re.match(r"\s*[0-9a-fA-F]+: *[0-9a-fA-F]+\s*$", text.splitlines()[0]):
            for line in text.split("\n"):
                index, _, value = line.partition(":")
                if value:
                    m.msr[int(index, 16)] = int(value, 16)
        else:
            sys.exit(f"extract: {path}: output of cpuid -r, acpidump or lspci -xxxx was expected")
    return describe(m, name, "read by its owner", "none needed")


# ---- writing ----

def describe(m, name, source, licence):
    """The text of a description."""
    out = [f"name: {name}", f"source: {source}", f"licence: {licence}"]
    if m.cpuid:
        verdict, says = m.verdict()
        out += [f"verdict: {verdict}", f"says: {says}"]
        if verdict != "not known":
            out += [f"expect row {row}: {word}" for row, word in m.rows().items()]
    out += [f"expect {key}: {value}" for key, value in m.expect.items()]
    if m.apic_ids:
        out.append("apic-ids: " + " ".join(f"{i:x}" for i in m.apic_ids))
    for (leaf, sub), regs in sorted(m.cpuid.items()):
        if leaf in LEAVES and any(regs):
            out.append(f"cpuid {leaf:x} {sub:x}: " + " ".join(f"{r:x}" for r in regs))
    out += [f"msr {i:x}: {value:x}" for i, value in sorted(m.msr.items()) if wanted_msr(i)]
    out += [f"msr {index:x}: faults" for index in m.absent_msrs()]
    for signature, data in m.tables:
        out.append(f"table {signature}: {data.hex()}")
    for at, dwords in m.pci.items():
        registers = "".join(f" {offset:x}={value:x}" for offset, value in dwords.items())
        out.append(f"pci {at[0]:02x}:{at[1]:02x}.{at[2]}{registers}")
    return "\n".join(out) + "\n"


def wanted_msr(index):
    return index in (0x3a, 0x8b, 0xce, 0x10a, VM_CR) or VMX_BASIC <= index <= 0x493


HWLOC = "hwloc-2.9.0"
LIBCPUID = "libcpuid-0.7.1"
LIBVIRT = "libvirt-11.3.0"
KLAUSPOST = "golang-github-klauspost-cpuid-2.2.10"
PCIUTILS = "pciutils-3.13.0"
QEMU = "qemu-10.0.13"
FWTS = "fwts-24.01.00"
LICENCE = {HWLOC: "BSD-3-Clause", LIBCPUID: "BSD-2-Clause", LIBVIRT: "LGPL-2.1-or-later",
           KLAUSPOST: "MIT", PCIUTILS: "GPL-2.0-or-later", QEMU: "GPL-2.0-or-later",
           FWTS: "GPL-2.0-only"}
FILE_NAMES = {hwloc_cpuid: ".tar.bz2", sysfs_pci: ".tar.bz2", klauspost: "_CPUID.txt"}

# format, source, its file, what the machine is ("": what CPUID says)
CHOSEN = []


def choose(read, package, folder, names):
    for name in names.split():
        slug, _, title = name.partition("=")
        CHOSEN.append((read, package, folder + slug, title))


choose(hwloc_cpuid, HWLOC, "tests/hwloc/x86/", """
    AMD-15h-Bulldozer-4xOpteron-6272 AMD-15h-Piledriver-4xOpteron-6348 AMD-17h-Zen-2xEpyc-7451
    AMD-19h-Zen3-2xEpyc-7763 AMD-K10-Istanbul-8xOpteron-8439SE
    AMD-K10-MagnyCours-2xOpteron-6164HE AMD-K8-SantaRosa-2xOpteron-2218
    AMD-K8-SledgeHammer-2xOpteron-250 Hygon-Dhyana-32cores Intel-Broadwell-2xXeon-E5-2650Lv4
    Intel-CascadeLake-2xXeon6230 Intel-Core-2xXeon-E5345 Intel-Haswell-2xXeon-E5-2680v3
    Intel-IvyBridge-12xXeon-E5-4620v2 Intel-KnightsCorner-XeonPhi-SE10P
    Intel-KnightsLanding-XeonPhi-7210 Intel-Nehalem-2xXeon-X5550 Intel-Penryn-4xXeon-X7460
    Intel-SandyBridge-2xXeon-E5-2650 Intel-Skylake-2xXeon6140 Intel-Westmere-2xXeon-X5650
    Zhaoxin-CentaurHauls-ZXD-4600 Zhaoxin-Shanghai-KaiSheng-ZXC+-FC1081""")
choose(libcpuid, LIBCPUID, "tests/amd/", """
    bobcat/brazos-zacate.test bulldozer/kaveri-x4.test jaguar/steppe-eagle-x2.test
    k10/phenom-2-thuban.test k10/athlon-2-regor.test k8/opteron-denmark.test
    k8/turion-64-lancaster.test k8/athlon-64-brisbane.test zen/ryzen5-raven-ridge.test
    zen2/threadripper-castle-peak.test zen2/epyc-rome-dual.test zen2/van-gogh-custom-0405.test
    zen3/ryzen9-vermeer.test zen4/ryzen7-phoenix-g.test zen5/epyc-turin.test
    zen5/ryzen9-granite-ridge.test""")
choose(libvirt, LIBVIRT, "tests/cputestdata/x86_64-cpuid-", """
    Atom-D510.xml Atom-N450.xml Atom-P5362.xml Cooperlake.xml Core-i5-650.xml Core-i5-2540M.xml
    Core-i7-3520M.xml Core-i7-4600U.xml Core-i7-8550U.xml Core2-Q9500.xml FX-8150.xml
    EPYC-7502-32-Core.xml Ice-Lake-Server.xml Opteron-1352.xml Opteron-2350.xml Phenom-B95.xml
    Pentium-P6100.xml Ryzen-9-3900X-12-Core.xml Xeon-5110.xml Xeon-E3-1245-v5.xml
    Xeon-E7-4830.xml Xeon-E7-8890-v3.xml Xeon-Gold-6148.xml Xeon-Platinum-9242.xml
    Xeon-W3520.xml""")
choose(klauspost, KLAUSPOST, "testdata/cpuid_data.zip#", """
    AuthenticAMD0A10F11_K19_Genoa_01 AuthenticAMD0A40F41_K19_Rembrandt_01
    CentaurHauls00006FE_CNR_Isaiah CentaurHauls00307B1_ZXE CentaurHauls00307B2_KX6000_01
    CentaurHauls00507B3_KX40000_01 CentaurHauls0040672_CNS_04 GenuineIntel00006F6_Conroe
    GenuineIntel00006FB_Conroe GenuineIntel0010676_Yorkfield GenuineIntel00106D1_Dunnington
    GenuineIntel00206C2_Gulftown_01 GenuineIntel00206D5_SandyBridgeEP
    GenuineIntel00206D6_SandyBridgeE GenuineIntel00206D7_SandyBridgeE_00
    GenuineIntel00306A9_IvyBridge GenuineIntel00306C3_Haswell GenuineIntel00306C3_HaswellXeon
    GenuineIntel00306F2_HaswellE2 GenuineIntel00306F2_HaswellEP GenuineIntel00306F2_HaswellEP_01
    GenuineIntel0040661_CrystalWell GenuineIntel0040671_BroadwellH GenuineIntel00306D4_Broadwell
    GenuineIntel00406F1_BroadwellE GenuineIntel0050662_BroadwellDE
    GenuineIntel0030673_Silvermont3 GenuineIntel0030679_Silvermont GenuineIntel00406C3_Braswell
    GenuineIntel00406C3_CherryTrail GenuineIntel00506C9_Goldmont GenuineIntel00506CA_Goldmont_01
    GenuineIntel00506F1_Denverton GenuineIntel00706A8_GoldmontPlus
    GenuineIntel00906C0_JasperLake_01 GenuineIntel00806A1_Lakefield GenuineIntel00406E3_Skylake
    GenuineIntel00506E3_Skylake GenuineIntel0050654_SkylakeX GenuineIntel0050654_SkylakeD
    GenuineIntel0050654_SkylakeXeon_20 GenuineIntel0050657_CascadeLakeW
    GenuineIntel00806E9_AmberLakeY GenuineIntel00806EA_Kabylake GenuineIntel00806EB_WhiskeyLake
    GenuineIntel00906E9_Kabylake GenuineIntel00906EA_Coffeelake GenuineIntel00906EB_Coffeelake
    GenuineIntel00906ED_CoffeeLake GenuineIntel00A0655_CometLake GenuineIntel00706E5_IceLakeY
    GenuineIntel00806C1_TigerLake GenuineIntel00A0671_RocketLakeE_01
    GenuineIntel0090672_AlderLake_02 GenuineIntel00906A3_AlderLakeP_00
    GenuineIntel00906A4_AlderLakeP_01 GenuineIntel00B06E0_AlderLakeN_02
    GenuineIntel00B0671_RaptorLake_01 GenuineIntel00B06A2_RaptorLakeP_04
    GenuineIntel00B06F2_RaptorLakeS_02 GenuineIntel00A06A4_MeteorLake_08
    GenuineIntel00806F8_SapphireRapids_05 GenuineIntel00806F8_SapphireRapids_06
    GenuineIntel00C06F2_EmeraldRapids_01""")
choose(lspci, PCIUTILS, "tests/", """
    tree-asus-p6t6=Asus-P6T6-with-X58 tree-fujitsu-p8010=Fujitsu-LifeBook-P8010""")
choose(table_files, QEMU, "tests/data/acpi/x86/", """
    q35#APIC,HPET,MCFG,DMAR.dmar=QEMU,-q35-with-VT-d
    q35#APIC.xapic,HPET,MCFG,SRAT.xapic=QEMU,-q35-with-room-for-288-CPUs
    q35#APIC.type4-count,HPET,MCFG=QEMU,-q35-with-100-CPUs
    q35#APIC.dimmpxm,HPET,MCFG,SRAT.dimmpxm=QEMU,-q35-with-4-nodes
    q35#APIC,HPET,MCFG,IVRS.ivrs=QEMU,-q35-with-AMD-Vi
    microvm#APIC.ioapic2=QEMU,-microvm-with-two-IOAPICs""")
choose(fwts, FWTS, "fwts-test/", """
    wmi-0001/acpidump-0001.log=Lenovo-ThinkPad,-firmware-TP-G2
    wmi-0001/acpidump-0002.log=ASUS,-notebook-with-8-CPUs
    wmi-0001/acpidump-0003.log=Dell,-firmware-QA09
    acpitables-0001/acpidump-0001.log=Notebook,-Intel-Crestline,-OEM-TOSCPL""")
choose(sysfs_pci, HWLOC, "tests/hwloc/linux/", """
    32em64t-2n8c+1mic=two-sockets-with-a-Xeon-Phi-card
    32intel64-2p8co2t+8ve=two-sockets-with-8-vector-engines
    40intel64-2g2n4c+pci=a-server-with-40-CPUs""")


def title_of(m, title, path):
    """What a reader calls the machine: the CPU's own name unless a better one is given."""
    if title:
        return title.replace("-", " ")
    name = m.brand() or slug_of(path)
    return f"{m.sockets} x {name}" if m.sockets > 1 else name


def slug_of(path, title=""):
    base = title if "," in title else os.path.basename(path.split("#")[-1])
    base = re.sub(r"^x86_64-cpuid-|\.(test|xml)$", "", base)
    base = re.sub(r"^(?:Genuine|Authentic)?(Intel|AMD|CentaurHauls)0*(\w+)", r"\1-\2", base)
    return re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "--own":
        print(own(sys.argv[2], sys.argv[3:]), end="")
        return
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = sys.argv[2] if len(sys.argv) == 3 else os.path.dirname(os.path.abspath(__file__))
    names = set()
    for read, package, path, title in CHOSEN:
        m = read(os.path.join(sys.argv[1], package), path)
        slug = slug_of(path, title)
        if slug in names:
            sys.exit(f"extract: two machines would be called {slug}")
        names.add(slug)
        shown = path.replace("#", ": ") + FILE_NAMES.get(read, "")
        text = describe(m, title_of(m, title, path), f"{package}, {shown}", LICENCE[package])
        with open(os.path.join(out, slug + ".txt"), "w", encoding="utf-8") as f:
            f.write(text)
    stray = {os.path.basename(f)[:-4] for f in glob.glob(os.path.join(out, "*.txt"))} - names
    print(f"{len(names)} descriptions")
    if stray:
        print(f"not from here: {', '.join(sorted(stray))}")


if __name__ == "__main__":
    main()
