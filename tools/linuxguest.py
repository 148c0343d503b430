#!/usr/bin/env python3
"""Makes the kernel and the initial RAM disk of a Linux VM from the distribution's own packages.

  tools/linuxguest.py [--release debian12|debian13] [--programs demo|stress] [--drivers] DIR

Afterwards DIR/vmlinuz is the kernel of the package linux-image-cloud-amd64, as the distribution
ships it, or with --drivers that of linux-image-amd64, which has drivers for real devices.
DIR/initrd.img has busybox, the kernel's modules for virtio and the power button (with --drivers
also those for real devices), and the files of guests/linux, of which `init` is the first process.
With `--programs demo` it also has iperf3, fio, nginx and ab with their shared libraries, and with
`--programs stress` stress-ng. A program can do the same with make().

apt gets the packages, with a configuration of its own below build/linux. So this needs no root,
installs nothing, and can get packages of another release than the one that runs here. What it got
stays there, and is not asked for again: `rm -r build/linux` lets the next run get newer packages.
"""
import argparse
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import subprocess

import machine
import progress
import sentence

RELEASES = {"debian12": "bookworm", "debian13": "trixie"}
# Packages that depend on that of the newest version, by whether it has drivers for real devices.
KERNELS = {False: "linux-image-cloud-amd64", True: "linux-image-amd64"}
CACHE = os.path.join(machine.BUILD, "linux")
FILES = os.path.join(machine.ROOT, "guests", "linux")
AGENT = os.path.join(FILES, "agent")  # programs that use Takt's store; store.c is a part of each
AGENT_PROGRAMS = ("takt-store", "takt-collab")
# What init loads, and with each what it depends on. A kernel may have some of them built in.
MODULES = ("virtio_mmio", "virtio_net", "virtio_blk", "virtio_rng", "button", "evdev", "msr")
DRIVERS = ("igbvf", "e1000e", "nvme")  # of devices that a VM can be given; with --drivers
# The sets of programs that a RAM disk can have: {name: {package: path of the program in it}}.
PROGRAMS = {"demo": {"iperf3": "usr/bin/iperf3", "fio": "usr/bin/fio",
                     "nginx": "usr/sbin/nginx", "apache2-utils": "usr/bin/ab"},
            "stress": {"stress-ng": "usr/bin/stress-ng"}}
APT_CONF = """\
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{at}/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "{at}/lists";
Dir::State::status "{at}/status";
Dir::Cache "{at}/cache";
APT::Sandbox::User "";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
"""


def run(command, what, **options):
    """Returns what a command prints. Raises Problem with `what` and the reason if it fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False, **options)
    except FileNotFoundError as e:
        raise sentence.Problem(f"{what}: there is no program {command[0]} here") from e
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        said = said or done.stderr.splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise sentence.Problem(f"{what}: {said[0]}")
    return done.stdout


class Archive:
    """The packages of a release, through an apt with a configuration of its own."""

    def __init__(self, release):
        self.release, self.at = release, os.path.join(CACHE, release, "apt")
        self.failed = f"the packages of {release} cannot be had"

    def prepare(self):
        """Writes the configuration, and gets the lists of packages. The source is the one that
        this machine gets its own release from. The package status is empty, so that apt gets all
        packages that something depends on, and not only those that are missing here."""
        if os.path.exists(os.path.join(self.at, "ready")):
            return
        shutil.rmtree(self.at, ignore_errors=True)
        for directory in ("sources", "lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self.at, directory))
        source = run([os.path.join(machine.ROOT, "tools", "deps.sh"), "--source",
                      RELEASES[self.release]],
                     f"{self.failed}: apt has no source of this machine's own release")
        kind, _, text = source.partition("\n")
        for name, content in ((f"sources/linux.{kind}", text), ("status", ""),
                              ("apt.conf", APT_CONF.format(at=self.at))):
            with open(os.path.join(self.at, name), "w", encoding="utf-8") as f:
                f.write(content)
        self.apt("apt-get", "-q", "--error-on=any", "update")
        with open(os.path.join(self.at, "ready"), "w", encoding="ascii"):
            pass

    def apt(self, *command, directory=None):
        return run(command, self.failed, cwd=directory or self.at,
                   env=os.environ | {"APT_CONFIG": os.path.join(self.at, "apt.conf"),
                                     "LC_ALL": "C"})

    def download(self, *packages):
        """Returns the paths of these packages' files."""
        for package in packages:
            if not glob.glob(os.path.join(self.at, f"{package}_*.deb")):
                self.apt("apt-get", "-q", "download", package)
        return [glob.glob(os.path.join(self.at, f"{package}_*.deb"))[0] for package in packages]

    def download_all(self, *packages):
        """Returns the paths of these packages' files, and of all that they depend on."""
        self.apt("apt-get", "-q", "-y", "--download-only", "install", *packages)
        return glob.glob(os.path.join(self.at, "cache", "archives", "*.deb"))

    def kernel(self, drivers):
        """Returns the name of the package that has the newest kernel."""
        said = self.apt("apt-cache", "show", KERNELS[drivers])
        found = re.search(r"^Depends:.*?(linux-image-[0-9][^ ,]+-amd64)", said, re.MULTILINE)
        if not found:
            raise sentence.Problem(f"{self.failed}: {KERNELS[drivers]} does not name a kernel")
        return found[1]


def unpack(packages, directory):
    os.makedirs(directory, exist_ok=True)
    for package in packages:
        run(["dpkg-deb", "-x", package, directory], f"{package} cannot be unpacked")
    return directory


# ---- modules -----------------------------------------------------------------------------------

def dependencies(path):
    """Returns the names of the modules that a module depends on, which its section .modinfo has.
    Newer kernels have their modules packed by xz."""
    with open(path, "rb") as f:
        data = f.read()
    if path.endswith(".xz"):
        data = lzma.decompress(data)
    found = re.search(rb"\0depends=([^\0]*)\0", data)
    return found[1].decode().replace("-", "_").split(",") if found else []


def add_modules(root, tree, names):
    """Copies the modules with these names as they are, with those that they depend on, and writes
    modules/order, which names them in the order in which they have to be loaded."""
    paths = {}
    for path in glob.glob(os.path.join(root, "**", "*.ko*"), recursive=True):
        paths[os.path.basename(path).partition(".")[0].replace("-", "_")] = path
    order = []

    def add(name):
        if name not in paths or os.path.basename(paths[name]) in order:
            return
        for other in dependencies(paths[name]):
            add(other)
        shutil.copy(paths[name], os.path.join(tree, "modules"))
        order.append(os.path.basename(paths[name]))

    os.makedirs(os.path.join(tree, "modules"))
    for name in names:
        add(name)
    with open(os.path.join(tree, "modules", "order"), "w", encoding="ascii") as f:
        f.write("".join(f"{name}\n" for name in order))


# ---- programs ----------------------------------------------------------------------------------

def merged(path):
    """Returns where a file of a package is in a system whose /bin and /lib are links into /usr."""
    return path if path.startswith("usr/") else os.path.join("usr", path)


def libraries(root):
    """Returns where each shared library of the unpacked packages is: {name: path below root}."""
    found = {}
    for directory in ("lib64", "usr/lib64", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"):
        for path in glob.glob(os.path.join(root, directory, "**", "*.so*"), recursive=True):
            found.setdefault(os.path.basename(path), os.path.relpath(path, root))
    return found


def needed(path):
    said = run(["readelf", "-d", path], f"{path} cannot be read")
    return re.findall(r"\(NEEDED\).*\[(.*)\]", said)


def add_programs(root, tree, paths):
    """Copies the programs, and the shared libraries that they and these libraries need."""
    where, todo = libraries(root), [*paths]
    todo.append(where["ld-linux-x86-64.so.2"])
    done = set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        to = os.path.join(tree, merged(path))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(os.path.join(root, path), to)
        for name in needed(to):
            if name not in where:
                raise sentence.Problem(f"/{path} needs {name}, which no package has")
            todo.append(where[name])


def add_agent(tree):
    """Compiles the programs that use Takt's store, without shared libraries."""
    for name in AGENT_PROGRAMS:
        run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o",
             os.path.join(tree, "usr/bin", name), os.path.join(AGENT, name + ".c"),
             os.path.join(AGENT, "store.c")], f"guests/linux/agent/{name}.c cannot be compiled")


# ---- the RAM disk ------------------------------------------------------------------------------

def pack(tree, out):
    """Packs a directory as the kernel wants it (Linux,
    Documentation/driver-api/early-userspace/buffer-format.rst), by lz4, which the guest unpacks
    fastest."""
    for program in ("cpio", "lz4"):
        if not shutil.which(program):
            raise sentence.Problem(f"the RAM disk cannot be packed: there is no program {program} "
                                   "here (tools/deps.sh linux installs it)")
    run(["bash", "-o", "pipefail", "-c", "find . | LC_ALL=C sort | "
         "cpio -o -H newc -R 0:0 --reproducible --quiet | lz4 -q -l -c - > \"$0\"", out],
        "the RAM disk cannot be packed", cwd=tree)


def make_tree(release, tree, work, programs, drivers):
    archive = Archive(release)
    archive.prepare()
    for directory in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        os.makedirs(os.path.join(tree, directory))
        os.symlink(directory, os.path.join(tree, os.path.basename(directory)))
    kernel = unpack(archive.download(archive.kernel(drivers)), os.path.join(work, "kernel"))
    add_modules(kernel, tree, MODULES + DRIVERS if drivers else MODULES)
    busybox = unpack(archive.download("busybox-static"), os.path.join(work, "busybox"))
    shutil.copy(glob.glob(os.path.join(busybox, "**", "bin", "busybox"), recursive=True)[0],
                os.path.join(tree, "usr/bin"))
    if programs:
        wanted = PROGRAMS[programs]
        add_programs(unpack(archive.download_all(*wanted), os.path.join(work, "programs")),
                     tree, wanted.values())
    add_agent(tree)
    run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o",
         os.path.join(tree, "usr/bin/hostile"), os.path.join(FILES, "hostile.c")],
        "guests/linux/hostile.c cannot be compiled")
    for path in filter(os.path.isfile, glob.glob(os.path.join(FILES, "*"))):
        shutil.copy(path, tree)
    return glob.glob(os.path.join(kernel, "boot", "vmlinuz-*"))[0]


def inputs(*words):
    """Returns a hash of everything that the result depends on, except the packages."""
    h = hashlib.sha256(repr(words).encode())
    files = glob.glob(os.path.join(FILES, "**"), recursive=True)
    for path in sorted([os.path.abspath(__file__), *filter(os.path.isfile, files)]):
        with open(path, "rb") as f:
            h.update(path.encode() + f.read())
    return h.hexdigest()


def make(release="debian12", programs=None, drivers=False):
    """Makes a kernel and an initial RAM disk, unless they are there. `programs` is a name in
    PROGRAMS. Returns their paths. Raises Problem if the packages cannot be had."""
    name = programs or "small"
    out = os.path.join(CACHE, release, name + "-drivers" if drivers else name)
    stamp, want = os.path.join(out, "stamp"), inputs(release, programs, drivers)
    kernel, initrd = (os.path.join(out, name) for name in ("vmlinuz", "initrd.img"))
    os.makedirs(out, exist_ok=True)
    # Two tests may want it at the same time.
    with open(os.path.join(CACHE, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(stamp):
            with open(stamp, encoding="ascii") as f:
                if f.read() == want:
                    return kernel, initrd
        work = os.path.join(out, "work")
        shutil.rmtree(work, ignore_errors=True)
        with progress.Line(f"packages of {release}"):
            shutil.copy(make_tree(release, os.path.join(work, "tree"), work, programs, drivers),
                        kernel)
            pack(os.path.join(work, "tree"), initrd)
        shutil.rmtree(work)
        with open(stamp, "w", encoding="ascii") as f:
            f.write(want)
    return kernel, initrd


def main():
    parser = argparse.ArgumentParser(description="a Linux kernel and its initial RAM disk")
    parser.add_argument("--release", default="debian12", choices=RELEASES)
    parser.add_argument("--programs", choices=PROGRAMS)
    parser.add_argument("--drivers", action="store_true")
    parser.add_argument("directory")
    args = parser.parse_args()
    os.makedirs(args.directory, exist_ok=True)
    for path in make(args.release, args.programs, args.drivers):
        shutil.copy(path, args.directory)
        print(os.path.join(args.directory, os.path.basename(path)))


if __name__ == "__main__":
    sentence.run(main)
