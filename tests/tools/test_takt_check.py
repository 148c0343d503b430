"""tools/takt-check runs over the files of made-up machines."""
import os
import re
import subprocess

from conftest import ROOT

INTEL = "fpu lm vmx xsave constant_tsc nonstop_tsc"
AMD = "fpu lm svm npt xsave constant_tsc nonstop_tsc"
NO = "no: Takt cannot run guests on this machine: "
VMX = "vnmi preemption_timer ept vpid unrestricted_guest"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text)


def machine(tmp_path, flags, vmx_flags=VMX, cpus=2, msrs=(), files=()):
    """Makes a root directory with what the script reads. `msrs`: {number: value}; `files`: {path:
    text or bytes}."""
    cpu = f"processor\t: 0\nmodel name\t: Made Up\nflags\t\t: {flags}\n"
    if vmx_flags:
        cpu += f"vmx flags\t: {vmx_flags}\n"
    write(tmp_path / "proc/cpuinfo", "\n".join([cpu] * cpus))
    write(tmp_path / "proc/meminfo", "MemTotal:     8388608 kB\n")
    for number, value in dict(msrs).items():
        path = tmp_path / "dev/cpu/0/msr"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "r+b" if path.exists() else "w+b") as f:
            f.seek(number)
            f.write(value.to_bytes(8, "little"))
    for path, text in dict(files).items():
        write(tmp_path / path, text)
    return tmp_path


def check(root):
    """Returns (exit code, last line, {what: (found, remark)})."""
    done = subprocess.run([os.path.join(ROOT, "tools", "takt-check")],
                          env=dict(os.environ, TAKT_ROOT=str(root)),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    rows = re.findall(r"^  (.{24}) (.{8}) ?(.*)$", done.stdout, re.M)
    return (
        done.returncode,
        done.stdout.splitlines()[-1],
        {w.strip(): (f.strip(), r) for w, f, r in rows},
    )


def test_a_server_of_intel(tmp_path):
    code, last, rows = check(machine(
        tmp_path, INTEL, msrs={0x3A: 5},
        files={"sys/firmware/acpi/tables/DMAR": "", "sys/firmware/acpi/tables/SPCR": "",
               "sys/bus/pci/devices/0000:01:00.0/vendor": "0x8086\n",
               "sys/bus/pci/devices/0000:01:00.0/device": "0x10c9\n",
               "sys/bus/pci/devices/0000:01:00.0/class": "0x020000\n"}))
    assert (code, last) == (0, "yes: Takt can run guests on this machine")
    assert rows["IOMMU"][0] == "VT-d"
    assert rows["0000:01:00.0"] == ("yes", "network: igb, 82576, with virtual functions")
    assert rows["CPUs"][0] == "2"


def test_locked_off(tmp_path):
    code, last, _ = check(machine(tmp_path, INTEL, msrs={0x3A: 1}))
    assert (code, last) == (1, NO + "VT-x is switched off and locked")
    code, last, _ = check(machine(tmp_path / "amd", AMD, None, msrs={0xC0010114: 0x18}))
    assert (code, last) == (1, NO + "AMD-V is switched off and locked")


def test_what_cannot_be_read_is_said(tmp_path):
    code, last, rows = check(machine(tmp_path, INTEL, vmx_flags=None))
    assert (code, last) == (
        2,
        "cannot tell: it is not known whether the CPU has EPT, VPID and unrestricted guest",
    )
    assert rows["left on by firmware"] == ("unknown", "run this as root, after 'modprobe msr'")


def test_what_is_missing(tmp_path):
    code, last, _ = check(machine(tmp_path, INTEL, vmx_flags="vnmi ept"))
    assert (code, last) == (1, NO + "the CPU has no vpid, the CPU has no unrestricted_guest")
    code, last, _ = check(machine(tmp_path / "none", "fpu lm"))
    assert (code, last) == (
        1,
        NO + "the CPU has neither VT-x nor AMD-V, or the firmware has switched it off",
    )
    code, last, _ = check(machine(tmp_path / "npt", "fpu lm svm", None))
    assert (code, last) == (1, NO + "the CPU has no nested paging")


def test_secure_boot(tmp_path):
    variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    code, last, _ = check(machine(tmp_path, AMD, None, files={variable: b"\6\0\0\0\1"}))
    assert (code, last) == (1, NO + "Secure Boot must be off")
    code, _, rows = check(machine(tmp_path / "off", AMD, None, files={variable: b"\6\0\0\0\0"}))
    assert code == 0 and rows["Secure Boot off"][0] == "yes"


def test_devices_are_those_with_a_driver():
    """The script's list is the same as the list in the drivers' headers."""
    ids = set()
    for header, names in (("e1000.h", ["E1000_DEVICE"]),
                          ("igb_regs.h", ["IGB_DEVICE", "IGB_VF_DEVICE"])):
        with open(os.path.join(ROOT, "drivers", header), encoding="utf-8") as f:
            text = f.read()
        ids |= {re.search(rf"#define {name}\s+(0x[0-9a-f]+)", text)[1] for name in names}
    with open(os.path.join(ROOT, "tools", "takt-check"), encoding="utf-8") as f:
        assert set(re.findall(r"0x8086:(0x[0-9a-f]{4})\)", f.read())) == ids


def test_cpus_beyond_the_limit(tmp_path):
    """The script's limit is that of the hypervisor."""
    with open(os.path.join(ROOT, "hv", "lib", "cpumask.h"), encoding="utf-8") as f:
        most = int(re.search(r"#define TAKT_MAX_CPUS (\d+)", f.read())[1])
    for cpus, remark in ((most, ""), (most + 1, f"Takt uses {most} of them")):
        code, _, rows = check(machine(tmp_path / str(cpus), AMD, None, cpus=cpus))
        assert code == 0 and rows["CPUs"] == (str(cpus), remark)


def test_a_virtual_machine_without_nested_virtualisation(tmp_path):
    """The advice is for the VM's host. A VM has no firmware set-up that could help."""
    code, last, rows = check(machine(tmp_path, "fpu lm hypervisor"))
    assert (code, last) == (1, NO + "this virtual machine has neither VT-x nor AMD-V")
    assert rows["virtualisation"][1] == "allow nested virtualisation on its host"


def test_where_there_is_nothing_to_read(tmp_path):
    code, last, _ = check(tmp_path)
    assert (code, last) == (2, "takt-check: there is no /proc/cpuinfo here: run this under Linux")


def test_words_that_it_does_not_know():
    done = subprocess.run([os.path.join(ROOT, "tools", "takt-check"), "--nosuch"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(
        'takt-check: expected no words behind the command, not "--nosuch".'
    )
    assert "Tells whether this machine can run Takt" in done.stderr
