#!/usr/bin/env bash
# Installs through apt what is missing on Debian 12 and 13. On Ubuntu 24.04 it installs what is
# needed to build, but not what is needed to run. It first says what is missing, and why it is
# needed. It does nothing if nothing is missing.
#   tools/deps.sh [--print] GROUP...      GROUP: build qemu bochs test net clients store check cost
#                                         compare debug picture fresh lab linux playground
#                                         browser experiments book slurm grade
#   tools/deps.sh --backports             prints the apt source that it adds for a QEMU older than 8
#   tools/deps.sh --deb-src               prints the apt source of this release's source packages
#   tools/deps.sh --source SUITE          prints the apt source of another release of the same
#                                         distribution
# With --print it says what it would do, and does nothing. If it prints an apt source, the first
# line is the file format of that source.
set -eu

QEMU_MIN=8
# This is apt's own Python. Another one in PATH does not find apt's modules.
PYTHON=/usr/bin/python3
APT_DIR=${TAKT_APT_DIR:-/etc/apt}             # tests point these two elsewhere
OS_RELEASE=${TAKT_OS_RELEASE:-/etc/os-release}

# group | package | what shows that it is there (a command, or a file) | why
packages() { cat <<'END'
build|gcc|gcc|compiles the hypervisor and its guests
build|libc6-dev|/usr/include/stdio.h|host side of the build: configuration dump, simulation
build|binutils|ld|links the image
build|nasm|nasm|assembles the entry code
build|make|make|drives the build
build|acpica-tools|iasl|compiles the ACPI table of VMs that run an operating system
build|python3|python3|launches the machine, computes entitlements
build|grub-common|grub-mkrescue|makes the boot image
build|grub-pc-bin|/usr/lib/grub/i386-pc/moddep.lst|boot image: BIOS
build|grub-efi-amd64-bin|/usr/lib/grub/x86_64-efi/moddep.lst|boot image: UEFI
build|xorriso|xorriso|writes the boot image
build|mtools|mformat|boot image: its EFI partition
qemu|qemu-system-x86|qemu-system-x86_64|the machine to boot (AMD-V by emulation, or nested KVM)
bochs|bochs|bochs|the machine to boot (VT-x by emulation)
bochs|bochsbios|/usr/share/bochs/BIOS-bochs-latest|firmware for Bochs
bochs|vgabios|/usr/share/vgabios/vgabios.bin|firmware for Bochs
test|libcmocka-dev|/usr/include/cmocka.h|unit tests
test|python3-pytest|py:pytest|guest and system tests
test|python3-pytest-xdist|py:xdist|tests in virtual time side by side
test|gdb|gdb|reads core files of VMs, and debugs VMs
test|python3-prometheus-client|py:prometheus_client|reads what taktctl metrics prints
test|python3-matplotlib|py:matplotlib|the picture of make trace
test|python3-jsonschema|py:jsonschema|checks experiments and their results
net|apt|apt-get|gets the source of lwIP
net|xz-utils|xz|unpacks it
clients|iproute2|ip|a tap device between this host and a machine in QEMU
clients|iputils-ping|ping|this host's own programs, to talk to guests
clients|iperf|iperf|the same
clients|curl|curl|the same
clients|apache2-utils|ab|the same
clients|tshark|tshark|judges what they and guests say to each other
check|qemu-utils|qemu-img|makes a disk image in qcow2
check|ovmf|/usr/share/OVMF/OVMF_CODE_4M.fd|boot by UEFI
check|clang|clang|fuzz targets
check|libclang-rt-dev|sanitizers|fuzz targets: libFuzzer and sanitizers
check|clang-format|clang-format|lint
check|cppcheck|cppcheck|lint
cost|valgrind|valgrind|cost of scheduling decisions (callgrind)
compare|python3-matplotlib|py:matplotlib|the picture of a comparison
store|xenstore-utils|xenstore-ls|clients of the store
store|python3-pyxs|py:pyxs|a client of the store in Python
debug|gdb|gdb|debugger
picture|python3-matplotlib|py:matplotlib|the picture of the demonstration
lab|ipmitool|ipmitool|power and serial over LAN of servers, for tools/labhost
lab|openipmi|ipmi_sim|plays a BMC in the tests of tools/labhost
linux|apt|apt-get|gets the packages that a Linux VM is made of
linux|cpio|cpio|packs the RAM disk of a Linux VM
linux|lz4|lz4|packs it, and unpacks kernels
linux|zstd|zstd|unpacks kernels
linux|iperf3|iperf3|measures a Linux VM from this host
linux|python3-pyte|py:pyte|plays the terminal at the console of a Linux VM, in a test
playground|clang|clang|compiles the simulation to WebAssembly
playground|lld|wasm-ld|links it
playground|wasi-libc|/usr/include/wasm32-wasi/stdio.h|the C library of WebAssembly
playground|libclang-rt-dev-wasm32|wasm-builtins|the compiler's own functions for WebAssembly
browser|chromium|chromium|opens the playground in tests
browser|chromium-driver|chromedriver|lets tests control the browser
browser|python3-selenium|py:selenium|the same, from Python
experiments|snakemake|snakemake|runs the set-ups of experiments that are not finished
experiments|python3-jsonschema|py:jsonschema|checks experiments and their results
experiments|python3-matplotlib|py:matplotlib|figures of experiments
slurm|munge|munged|lets the daemons of Slurm know each other
slurm|slurmctld|slurmctld|a controller, which runs a sweep of experiments in tests
slurm|slurmd|slurmd|a node
slurm|slurm-client|sbatch|submits the jobs
book|python3-sphinx|py:sphinx|makes the book
book|python3-myst-parser|py:myst_parser|reads its pages, which are Markdown
book|graphviz|dot|draws its diagrams
book|weasyprint|py:weasyprint|writes it as PDF
grade|bubblewrap|bwrap|runs what students have written, without network and files
grade|similarity-tester|sim_c|finds what students have in common
fresh|mmdebstrap|mmdebstrap|makes a fresh system of a supported release in a directory
fresh|bubblewrap|bwrap|runs commands in that system, apart from this one
fresh|iproute2|ip|switches on the loopback interface inside
fresh|python3-pexpect|py:pexpect|plays the person at make run
END
}

there() {
	case $1 in
	/*) [ -e "$1" ] ;;
	sanitizers)
		dir=$(clang -print-resource-dir 2>/dev/null) &&
			find "$dir/lib/" -name 'libclang_rt.fuzzer*.a' | grep -q . ;;
	wasm-builtins)
		dir=$(clang -print-resource-dir 2>/dev/null) &&
			find "$dir/lib/" -name 'libclang_rt.builtins*wasm32*' -o \
				-path '*wasm32*/libclang_rt.builtins.a' | grep -q . ;;
	py:*) "$PYTHON" -c "import ${1#py:}" 2>/dev/null ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

os_field() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$OS_RELEASE"; }

# Prints the major version of the QEMU that is installed, or 0 if there is none.
qemu_major() {
	command -v qemu-system-x86_64 >/dev/null 2>&1 || { echo 0; return; }
	qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9]*\).*/\1/p'
}

# Prints the major version of the QEMU that apt would install, or 0 if apt knows none.
qemu_candidate() {
	LC_ALL=C apt-cache policy qemu-system-x86 2>/dev/null | sed -n 's/^ *Candidate: //p' |
		sed -n 's/^\([0-9]*:\)\{0,1\}\([0-9]*\).*/\2/p' | grep . || echo 0
}

# Prints an apt source of SUITE and TYPE (deb, deb-src) that has the same URIs and the same key ring
# as this machine's own source of CODENAME. Before the source it prints "sources" or "list", its
# file format. Fails if the machine has no source of CODENAME.
derived_source() { # CODENAME SUITE TYPE
	code=$1 suite=$2 type=$3
	for f in "$APT_DIR"/sources.list.d/*.sources; do
		[ -e "$f" ] || continue
		stanza=$(awk -v code="$code" -v suite="$suite" -v type="$type" '
			function flush() {
				if (suites ~ "(^|[ \t])" code "([ \t]|$)" && types ~ /(^|[ \t])deb([ \t]|$)/ &&
				    enabled !~ /no/ && !done) {
					printf "%s", text; done = 1
				}
				text = suites = types = enabled = ""
			}
			/^[ \t]*$/ { flush(); field = ""; next }
			/^#/ { next }
			/^[^ \t]/ { field = tolower($0); sub(/:.*/, "", field) }
			{ value = $0; if ($0 ~ /^[^ \t]/) sub(/^[^:]*:/, "", value) }
			field == "suites" {
				suites = suites " " value
				if ($0 ~ /^[^ \t]/) text = text "Suites: " suite "\n"
				next
			}
			field == "types" {
				types = types " " value
				if ($0 ~ /^[^ \t]/) text = text "Types: " type "\n"
				next
			}
			field == "enabled" { enabled = value; next }
			{ text = text $0 "\n" }
			END { flush() }' "$f")
		[ -z "$stanza" ] || { printf 'sources\n%s\n' "$stanza"; return 0; }
	done
	for f in "$APT_DIR"/sources.list "$APT_DIR"/sources.list.d/*.list; do
		[ -e "$f" ] || continue
		line=$(awk -v code="$code" -v suite="$suite" -v type="$type" '$1 == "deb" {
			i = 2
			if ($2 ~ /^\[/) { while ($i !~ /\]$/) i++; i++ }
			if ($(i + 1) == code) { $1 = type; $(i + 1) = suite; print; exit }
		}' "$f")
		[ -z "$line" ] || { printf 'list\n%s\n' "$line"; return 0; }
	done
	return 1
}

# Succeeds if apt looks at CODENAME-backports already.
has_backports() {
	grep -hs -v '^[[:space:]]*#' "$APT_DIR"/sources.list \
		"$APT_DIR"/sources.list.d/*.list "$APT_DIR"/sources.list.d/*.sources |
		grep -qE "(^|[[:space:]])$1-backports([[:space:]/]|\$)"
}

as_root() {
	if [ -n "$print" ]; then echo "would run: $*"; return; fi
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null 2>&1; then sudo "$@"
	else echo "deps: need root for: $* (no sudo here; run it as root and come back)" >&2; exit 1
	fi
}

install() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
}

install_qemu() {
	have=$(qemu_candidate)
	if [ "$have" -ge $QEMU_MIN ]; then install qemu-system-x86; return; fi
	code=$(os_field VERSION_CODENAME)
	if ! has_backports "$code"; then
		if ! src=$(derived_source "$code" "$code-backports" deb); then
			echo "deps: QEMU $have is too old (need $QEMU_MIN) and apt has no source of '$code'" \
				"to derive its backports from" >&2
			exit 1
		fi
		file=$APT_DIR/sources.list.d/takt-backports.${src%%$'\n'*}
		echo "deps: the QEMU of $code is version $have, Takt needs $QEMU_MIN:" \
			"adding $code-backports as $file"
		if [ -z "$print" ]; then printf '%s\n' "${src#*$'\n'}" | as_root tee "$file" >/dev/null
		else printf '%s\n' "${src#*$'\n'}" | sed 's/^/    /'
		fi
		as_root apt-get -q update
	fi
	# From the backports comes what is QEMU's own. With `-t` apt would prefer their libraries, too,
	# and packages of the release that need another version of these could not be installed later.
	from=$code-backports
	install "qemu-system-x86/$from" "qemu-system-common/$from" "qemu-system-data/$from" \
		"seabios/$from" || install -t "$from" qemu-system-x86
}

# Installs packages of the release. Where libraries of the backports are installed that have to have
# the same version, the packages have to come from there, too.
install_missing() {
	code=$(os_field VERSION_CODENAME)
	install "$@" || { has_backports "$code" && install -t "$code-backports" "$@"; }
}

if [ "${1:-}" = --source ] && [ $# = 2 ]; then
	derived_source "$(os_field VERSION_CODENAME)" "$2" deb
	exit
fi

print=
groups=
for a in "$@"; do
	case $a in
	--print) print=1 ;;
	--backports)
		code=$(os_field VERSION_CODENAME)
		derived_source "$code" "$code-backports" deb
		exit
		;;
	--deb-src) code=$(os_field VERSION_CODENAME); derived_source "$code" "$code" deb-src; exit ;;
	build | qemu | bochs | test | net | clients | store | check | cost | compare | debug | \
		picture | fresh | lab | linux | playground | browser | experiments | book | slurm | \
		grade)
		groups="$groups $a"
		;;
	*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
done

missing=
qemu_missing=
while IFS='|' read -r group package shown why; do
	case " $groups " in *" $group "*) ;; *) continue ;; esac
	if [ "$package" = qemu-system-x86 ]; then
		major=$(qemu_major)
		[ "$major" -lt $QEMU_MIN ] || continue
		qemu_missing=1
		[ "$major" = 0 ] || why="$why; version $major is too old, Takt needs $QEMU_MIN"
	else
		if there "$shown"; then continue; fi
		missing="$missing $package"
	fi
	[ -n "${told:-}" ] || echo "deps: missing here, to be installed through apt:"
	told=1
	printf '  %-20s %s\n' "$package" "$why"
done <<<"$(packages)"

[ -n "$missing$qemu_missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "deps: no apt-get here: install the above by hand and come back" >&2
	exit 1
fi
as_root apt-get -q update
# shellcheck disable=SC2086
[ -z "$missing" ] || install_missing $missing
[ -z "$qemu_missing" ] || install_qemu
