#!/usr/bin/env bash
# mkiso.sh OUT CONFIG [--cmdline TEXT] [--module NAME=FILE]... [--guests DIR] [--hv FILE] [--cpus N]
# [--memory MIB]
#          [--unchecked] [--menu] [--net] [--http SERVER] [--memory-disk]
# With --net, OUT becomes a directory for a TFTP server instead of an image: machines boot from it
# over the network, by BIOS and by UEFI (docs/lab.md). With --http, GRUB comes by TFTP, and
# everything that GRUB loads comes by HTTP from SERVER, which serves OUT. Without --net, OUT is one
# image that boots by BIOS and by UEFI, from CD and from a USB stick. It holds the hypervisor,
# CONFIG, and as modules the files that CONFIG names (image = NAME, script = NAME). These files are
# looked for among the --module options, beside CONFIG and in DIR (build/guests). With
# --memory-disk, OUT is a GRUB that has all of this in a disk in its memory, for `qemu -kernel`. A
# disk of QEMU answers when the host has time. Here no such disk is read, so with -icount each boot
# is the same to the bit. OUT has room for 480 KiB, compressed: Takt without its symbols and three
# or four guests. build/cfgdump checks CONFIG first, with the policies of that hypervisor. --cpus
# and --memory say for which machine it checks. With --menu, GRUB waits 5 s, on the screen and on
# COM1, for Esc, which shows a menu: to start Takt, to test the machine, or to describe it
# (docs/boot.md). --unchecked makes the image in spite of errors, to see what the hypervisor says
# about them.
set -eu
die() { echo "mkiso: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "usage: mkiso.sh OUT CONFIG [--cmdline TEXT] [--module NAME=FILE]..." \
    "[--guests DIR] [--hv FILE] [--cpus N] [--memory MIB] [--unchecked] [--menu] [--net]" \
    "[--http SERVER] [--memory-disk]"
out=$1 config=$2 cmdline= guests=build/guests hv=build/takt.elf
unchecked= menu= net= http= memory_disk=
machine=()
shift 2
declare -A module
while [ $# -gt 0 ]; do
    case $1 in
    --unchecked) unchecked=1; shift; continue ;;
    --menu) menu=5; shift; continue ;;
    --net) net=1; shift; continue ;;
    --memory-disk) memory_disk=1; shift; continue ;;
    --http) http=$2 ;;
    --cpus) machine+=(-p "$2") ;;
    --memory) machine+=(-m "$2") ;;
    --cmdline) cmdline=$2 ;;
    --module) module[${2%%=*}]=${2#*=} ;;
    --guests) guests=$2 ;;
    --hv) hv=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done

# GRUB understands (http,SERVER) and (http,SERVER:PORT), and finds nothing if it is given another
# form.
server='^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$'
if [ -n "$http" ] && ! [[ $http =~ $server ]]; then
    die "HTTP=$http: expected the name or the address of a web server, perhaps with a port," \
        "as 192.168.7.1 or boot.example.org:8080"
fi
if [ -n "$net" ] && [ -e "$out" ] && [ ! -d "$out" ]; then
    die "PXE=$out: it is no directory: expected one for the files that machines boot from," \
        "or a new name"
fi

# An image that was built elsewhere (make B=build/labs LABS=...) has its own cfgdump beside it, with
# its own policies.
cfgdump=$(dirname "$hv")/cfgdump
[ -x "$cfgdump" ] || die "$cfgdump is missing: make it as you made $hv"
given=()
for name in "${!module[@]}"; do given+=(-f "$name"); done
if ! files=$("$cfgdump" "${machine[@]}" -i "$guests" "${given[@]}" "$config" "$cmdline") &&
    [ -z "$unchecked" ]; then
    die "$config cannot be used${cmdline:+ with the command line \"$cmdline\"}: see above"
fi
while read -r name file; do
    [ -z "$name" ] || module[$name]=$file
done <<< "$files"

if [ -n "$net" ] && [ -e "$out/boot" ] && [ ! -e "$out/boot/takt.elf" ]; then
    die "$out/boot is there and is not Takt's: it is left as it is. Give another directory"
fi

tree=$(mktemp -d) log=$(mktemp)
trap 'rm -rf "$tree" "$log"' EXIT
mkdir -p "$tree/boot/grub"
objcopy --strip-debug "$hv" "$tree/boot/takt.elf"
# The copy for UEFI asks for a frame buffer: see the header in boot/boot.asm.
LC_ALL=C sed 's/FB\x01\x00\x14\x00\x00\x00/\x05\x00\x01\x00\x14\x00\x00\x00/' \
    "$tree/boot/takt.elf" > "$tree/boot/takt-efi.elf"
cp "$config" "$tree/boot/takt.cfg"
# This is a Linux kernel as distributions ship it. Takt loads the ELF file that is in it.
is_bzimage() { [ "$(dd if="$1" bs=1 skip=514 count=4 2>/dev/null | tr -d '\0')" = HdrS ]; }
modules=$(
    set -e
    for name in "${!module[@]}"; do
        cp "${module[$name]}" "$tree/boot/$name"
        if is_bzimage "$tree/boot/$name"; then
            tools/vmlinux.py "${module[$name]}" "$tree/boot/$name" || exit 1
        fi
        echo "    module2 /boot/$name $name"
    done | sort
)

entry() { # TITLE WORDS: Takt with these words on its command line
    printf 'menuentry "%s" {\n    multiboot2 $takt %s\n' "$1" "$2"
    printf '    module2 /boot/takt.cfg takt.cfg\n%s\n}\n' "$modules"
}
{
    echo "set timeout=${menu:-0}"
    [ -z "$http" ] || printf 'insmod http\nset root=(http,%s)\n' "$http"
    echo 'set takt=/boot/takt.elf'
    echo 'if [ "$grub_platform" = efi ]; then insmod all_video; set takt=/boot/takt-efi.elf; fi'
    entry Takt "$cmdline"
    if [ -n "$menu" ]; then
        # The menu is hidden at first, and Esc alone shows it. GRUB stops waiting for any key at a
        # menu that is shown, so a program that types commands on COM1 while the machine starts
        # (tools/taktctl) would keep it from starting.
        echo 'set timeout_style=countdown'
        echo 'serial --unit=0 --speed=115200'
        echo 'terminal_input --append serial'
        echo 'terminal_output --append serial'
        echo 'echo "Press Esc for a menu: test or describe this machine. Takt starts in 5 s."'
        entry "Test this machine" "$cmdline selftest"
        entry "Describe this machine" "$cmdline probe"
    fi
} > "$tree/boot/grub/grub.cfg"

mkdir -p "$(dirname "$out")"
if [ -n "$net" ]; then
    net_modules="multiboot2 normal tftp http test all_video"
    # There is one GRUB for each firmware. It loads its modules and grub.cfg from where it came.
    if ! SOURCE_DATE_EPOCH=0 grub-mknetdir --compress=no --fonts= --locales= --themes= \
        --install-modules="${menu:+serial terminal echo} $net_modules" \
        --net-directory="$tree" --subdir=boot/grub \
        > "$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    chmod -R a+rX "$tree"
    mkdir -p "$out"
    # The old tree may be served at this moment, so the new one is complete before it takes its
    # place.
    rm -rf "$out/boot.new" "$out/boot.old"
    mv "$tree/boot" "$out/boot.new"
    if [ -e "$out/boot" ]; then mv "$out/boot" "$out/boot.old"; fi
    mv "$out/boot.new" "$out/boot"
    rm -rf "$out/boot.old"
    exit 0
fi
if [ -n "$memory_disk" ]; then
    rm "$tree/boot/takt-efi.elf"
    for elf in "$tree"/boot/*; do
        [ ! -f "$elf" ] || strip --strip-all --remove-section=.symbols "$elf" 2>/dev/null || true
    done
    grub=/usr/lib/grub/i386-pc
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
        -C "$tree" -cf "$tree/disk.tar" boot
    if ! grub-mkimage -O i386-pc -d "$grub" -p '(memdisk)/boot/grub' \
        -m "$tree/disk.tar" -o "$tree/core.img" \
        memdisk tar multiboot2 normal test > "$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    cat "$grub/lnxboot.img" "$tree/core.img" > "$out"
    exit 0
fi
# Few GRUB modules make an image that is quick to make and to load. Dates are fixed, so the same
# input gives the same image.
grub_modules="${menu:+serial terminal echo} multiboot2 iso9660 normal fat test all_video
    part_gpt part_msdos part_acorn part_amiga part_apple part_bsd part_dfly part_dvh part_plan
    part_sun part_sunpc"
if ! SOURCE_DATE_EPOCH=0 grub-mkrescue --compress=no --fonts= --locales= --themes= \
    --install-modules="$grub_modules" -o "$out" "$tree" > "$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
