"""build/cfgdump, with which make run, make iso and make demo check a VM file before anything
boots."""
import json
import os
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT

CFGDUMP = os.path.join(BUILD, "cfgdump")


def check(tmp_path, text, *options, cmdline=""):
    """Returns (exit status, standard output, standard error) for a file `my.cfg`. Its directory is
    left out of the messages."""
    path = tmp_path / "my.cfg"
    path.write_text(text)
    done = subprocess.run([CFGDUMP, *options, str(path), cmdline], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout, done.stderr.replace(str(tmp_path) + "/", "")


VM = "[vm a]\nimage = spin\n"


@pytest.mark.parametrize(
    "text, said",
    [
        (
            VM + "weight = x\n",
            'my.cfg:3:10: weight must be a whole number from 1 to 65535, not "x"\n',
        ),
        (
            VM + "cap = 25601\n",
            'my.cfg:3:7: cap must be a whole number from 0 to 25600 (%), not "25601"\n',
        ),
        (VM + "  io = maybe # yes\n", 'my.cfg:3:8: io must be auto, io or cpu, not "maybe"\n'),
        (
            "[hypervisor]\nsched = nosuch\n",
            'my.cfg:2:9: sched must be credit or null, not "nosuch"\n',
        ),
        (
            "[pool p]\ncpus = 1\nsched = null\nsched_preset = turbo\n",
            'my.cfg:4:16: null has no preset "turbo": it has no presets\n',
        ),
        (
            "[hypervisor]\ntslice_us = 500\n",
            "my.cfg:2:13: tslice_us = 500: ratelimit_us is longer than tslice_us\n",
        ),
        (
            "[pool p]\ncpus = 1\nsched_preset = vslicer\nshare = prorata\n",
            "my.cfg:4:9: share = prorata: slicer and share exclude each other: a round is by "
            "weight, whatever credit was moved\n",
        ),
        (
            "[pool p]\ncpus = 1\n[pool t]\ncpus = 2\nsched = null\nturbo_of = p\n",
            "my.cfg:6:12: pool t cannot be the turbo pool of p: both pools have to run credit\n",
        ),
        (
            "[hypervisor]\nslicer = vslicer\nboost = off\n[pool t]\ncpus = 2\nturbo_of = Pool-0\n"
            "slicer = edf\n",
            "my.cfg:7:10: slicer = edf: in a turbo pool, slicer must be off: all its slices are "
            "short already\n",
        ),
    ],
)
def test_refused(tmp_path, text, said):
    assert check(tmp_path, text) == (1, "", said)


def test_all_errors_are_told_at_once(tmp_path):
    code, _, said = check(tmp_path, "[hypervisor]\nsched = x\n[pool p]\ncpus = 1\nsched = y\n" + VM
                          + "pool = p\nweight = 0\n" +
                          "[vm b]\nimage = spin\nweight = 3\ncap = no\n")
    assert code == 1
    # A VM's parameters need the VM's pool.
    assert [line.split()[0] for line in said.splitlines()] == ["my.cfg:2:9:", "my.cfg:5:9:"]
    code, _, said = check(tmp_path, VM
                          + "weight = 0\n[vm b]\nimage = spin\ncap = no\n[hypervisor]\ndebit = x\n")
    assert [line.split()[0] for line in said.splitlines()] == ["my.cfg:3:10:", "my.cfg:6:7:",
                                                               "my.cfg:8:9:"]
    code, _, said = check(
        tmp_path,
        "[vm a]\nweight = 0\n[vm b]\nimage = spin\npool = nosuch\n[vm c]\nimage = spin\ncpus = 7\n"
        + "[vm d]\nimage = nosuch\nmemory = 1G\n[pool p]\ncpus = 0\nsched_preset = x\n",
        "-p",
        "2",
        "-m",
        "256",
        "-i",
        "build/guests",
    )
    assert code == 1
    assert [line.split()[0] for line in said.splitlines()[:-1]] == [
        "my.cfg:1:1:", "my.cfg:2:10:", "my.cfg:5:8:", "my.cfg:8:8:", "my.cfg:10:9:",
        "my.cfg:11:10:", "my.cfg:13:8:",
        "my.cfg:14:16:"]


def test_one_mistake_is_told_once(tmp_path):
    """A pool that cannot be made, or has no CPU of the machine, is reported once, and not again for
    everything that names it."""
    text = "[pool p]\ncpus = 9\n[pool t]\ncpus = 1\nturbo_of = nosuch\n" + VM + "pool = p\n"
    assert check(tmp_path, text, "-p", "2")[2].splitlines()[:-1] == [
        "my.cfg:2:8: pool p has none of the machine's CPUs, which are 0 to 1",
        "my.cfg:5:12: pool t is to be the turbo pool of nosuch, which is not described before it"]


def test_the_command_line_counts(tmp_path):
    """The command line overrides the file. So an error in the file may be mended by it, or the
    other way round."""
    assert check(tmp_path, "[hypervisor]\nsched = nosuch\n", cmdline="sched=null")[0] == 0
    code, _, said = check(tmp_path, VM, cmdline="noreboot sched_debit=never sched=credit")
    assert (code, said) == (1, 'command line:1:22: debit must be tick or time, not "never"\n')


def test_a_parameter_of_another_policy_is_a_warning(tmp_path):
    """One file can be used with several policies: a policy without weights ignores them."""
    code, out, said = check(tmp_path, VM + "weight = 3\n", cmdline="sched=null")
    assert code == 0 and json.loads(out)["vms"][0]["params"] == {"weight": "3"}
    assert said == "my.cfg:3:10: pool Pool-0 runs null, which has no parameter weight (warning)\n"


def test_the_machine(tmp_path):
    code, _, said = check(tmp_path,
                          VM + "cpus = 3\nmemory = 16M\n[vm b]\nimage = spin\nmemory = 256M\n",
                          "-p", "2", "-m", "256")
    assert code == 1
    assert said == (
        "my.cfg:3:8: VM a can run on no CPU: the machine's are 0 to 1\n"
        "my.cfg:7:10: VM b wants 256 MiB after the VMs before it took 16, but the machine has 256 "
        "MiB\n"
        "The machine is to have 2 CPUs (CPUS=) and 256 MiB of memory (MEMORY=).\n"
    )
    code, _, said = check(tmp_path, VM + "memory = 16M\n[vm b]\nimage = spin\nmemory = 256M\n",
                          "-p", "2", "-m", "256")
    assert code == 1 and said.startswith(
        "my.cfg:6:10: VM b wants 256 MiB after the VMs before it took 16, but the machine has 256 "
    )
    # The command line does not say which machine it is for.
    assert check(tmp_path, VM + "cpus = 3\n")[0] == 0


def test_images(tmp_path):
    (tmp_path / "guests").mkdir()
    for name in ("mine", "guests/busy.elf"):
        shutil.copy(os.path.join(BUILD, "guests", "hello.elf"), tmp_path / name)
    text = ("[hypervisor]\nscript = s\n[vm a]\nimage = mine\n[vm b]\nimage = busy\n[vm c]\n"
            "image = busy\n")
    where = ("-i", str(tmp_path / "guests"))
    assert check(tmp_path, text, *where, "-f", "s") == (
        0,
        f"mine {tmp_path}/mine\nbusy {tmp_path}/guests/busy.elf\n",
        "",
    )
    code, _, said = check(tmp_path, text.replace("= busy", "= buzy", 1), *where)
    assert code == 1
    assert said.replace("guests in ", "") == (
        "my.cfg:2:10: script: there is no file s beside the configuration file and no guest s in "
        "guests\n"
        "my.cfg:6:9: image: there is no file buzy beside the configuration file and no guest buzy "
        "in guests: is it busy?\n"
    )
    text = "[vm a]\nimage = mine\n[vm b]\nimage = /etc/passwd\n[vm c]\nimage = two words\n"
    code, _, said = check(tmp_path, text, *where)
    alone = ("expected the name alone of a file beside the configuration file or of a guest, "
             "without '/' and blanks")
    assert (code, said) == (
        1,
        f"my.cfg:4:9: image: /etc/passwd: {alone}\nmy.cfg:6:9: image: two words: {alone}\n",
    )


def test_an_image_that_cannot_be_loaded(tmp_path):
    """The hypervisor's own loader looks at the file, for each VM with the memory of that VM."""
    (tmp_path / "text").write_text("This is no program.\n")
    (tmp_path / "directory").mkdir()
    text = (
        "[vm a]\nimage = text\n[vm b]\nimage = directory\n[vm c]\nimage = hello\n[vm d]\nimage = "
    )
    with open(os.path.join(BUILD, "guests", "hello.elf"), "rb") as f:
        hello = f.read()
    (tmp_path / "cut").write_bytes(hello[:5000])
    code, _, said = check(tmp_path, text + "cut\n", "-i", os.path.join(BUILD, "guests"))
    assert code == 1
    assert [
        line.partition(" and no guest ")[0]
        for line in said.replace(f"{tmp_path}/", "").splitlines()
    ] == [
        "my.cfg:2:9: image: text: the image is neither ELF nor multiboot",
        "my.cfg:4:9: image: there is no file directory beside the configuration file",
        "my.cfg:8:9: image: cut: a segment of the image lies outside the file",
    ]


def test_a_ramdisk_that_does_not_fit(tmp_path):
    """A ramdisk is checked with the kernel that is to find it. Of a kernel as distributions ship
    it, which tools/mkiso.sh unpacks later, only the memory of the VM is known."""
    shutil.copy(os.path.join(BUILD, "guests", "hello.elf"), tmp_path / "linux")
    (tmp_path / "packed").write_bytes(bytes(0x202) + b"HdrS" + bytes(1000))
    for name, size in (("small", 5000), ("most", 3 << 20), ("large", 4 << 20)):
        with open(tmp_path / name, "wb") as f:
            f.truncate(size)
    where = ("-i", os.path.join(BUILD, "guests"))
    vm = "[vm a]\nmemory = 4M\nkernel = {}\nramdisk = {}\n"
    large = "the ramdisk is larger than the VM's memory"
    both = "the VM's memory is too small for both the image and the ramdisk"
    for kernel, ramdisk, why in (("linux", "small", ""), ("packed", "small", ""),
                                 ("linux", "large", large), ("packed", "large", large),
                                 ("linux", "most", both)):
        code, _, said = check(tmp_path, vm.format(kernel, ramdisk), *where)
        if why:
            assert (code, said) == (1, f"my.cfg:4:11: ramdisk: {ramdisk}: {why}\n"), kernel
        else:
            assert (code, said) == (0, ""), kernel
    code, _, said = check(tmp_path, vm.format("linux", "none"), *where)
    assert code == 1
    assert said.startswith("my.cfg:4:11: ramdisk: there is no file none beside the configuration")


def test_a_file_without_a_vm(tmp_path):
    code, _, said = check(tmp_path, "", "-i", "build/guests")
    assert (code, said) == (
        0,
        "my.cfg: there is no [vm NAME] in this file: Takt will run no VM (warning)\n",
    )
    assert check(tmp_path, "[hypervisor]\nselftest = yes\n", "-i", "build/guests") == (0, "", "")


def test_mkiso_refuses_before_anything_boots(tmp_path):
    path = tmp_path / "my.cfg"
    path.write_text(VM + "weight = x\n")
    out = str(tmp_path / "out.iso")
    done = subprocess.run(["tools/mkiso.sh", out, str(path)], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and not os.path.exists(out)
    assert done.stderr == (f'{path}:3:10: weight must be a whole number from 1 to 65535, not "x"\n'
                           f"mkiso: {path} cannot be used: see above\n")


def test_what_is_in_the_tree_passes():
    files = [
        os.path.join(d, f)
        for d in ("boot", "labs")
        for f in os.listdir(os.path.join(ROOT, d))
        if f.endswith(".cfg")
    ]
    assert files
    command = [CFGDUMP, "-i", "build/guests"]
    for name in ("script", "linux-demo.script", "vmlinuz", "initrd.img"):  # that a tool adds
        command += ["-f", name]
    for path in files:
        done = subprocess.run(command + [path], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr


SCRIPT = "[hypervisor]\nscript = s\n" + VM


@pytest.mark.parametrize("script, said", [
    ("# first\n\n@1s lst\n", "s:3: the shell has no command lst: is it list?\n"),
    ("@1s list\n2s list\n",
     "s:2: expected @TIME COMMAND or +TIME COMMAND, as in @1500ms pause vm2\n"),
    ("@1s nonsense x\n+1ms poweroff now\n+5q list",
     "s:1: the shell has no command nonsense\n"
     "s:3: expected @TIME COMMAND or +TIME COMMAND, as in @1500ms pause vm2\n"),
    ("+20ms   list -j=x  # why\n@1s ? list\n@2s # nothing\n", ""),
])
def test_a_script_is_checked_before_the_boot(tmp_path, script, said):
    (tmp_path / "s").write_text(script)
    assert check(tmp_path, SCRIPT, "-i", "build/guests")[::2] == (1 if said else 0, said)
