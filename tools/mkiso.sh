#!/usr/bin/env bash
# mkiso.sh OUT CONFIG [--cmdline TEXT] [--module NAME=FILE]... [--guests DIR] [--hv FILE]
# One image that boots by BIOS and by UEFI, from CD and from a USB stick: the hypervisor, CONFIG, and as modules the
# files that CONFIG names (image = NAME, script = NAME). They are looked for among the --module options, beside CONFIG and in
# DIR (build/guests).
set -eu
die() { echo "mkiso: $*" >&2; exit 1; }

[ $# -ge 2 ] || die "usage: mkiso.sh OUT CONFIG [--cmdline TEXT] [--module NAME=FILE]... [--guests DIR] [--hv FILE]"
out=$1 config=$2 cmdline= guests=build/guests hv=build/takt.elf
shift 2
declare -A module
while [ $# -gt 0 ]; do
    case $1 in
    --cmdline) cmdline=$2 ;;
    --module) module[${2%%=*}]=${2#*=} ;;
    --guests) guests=$2 ;;
    --hv) hv=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done

key='s/^[[:space:]]*\(image\|script\)[[:space:]]*=[[:space:]]*"\{0,1\}\([^[:space:]"#;]*\).*/\2/p'
for name in $(sed -n "$key" "$config" | sort -u); do
    [ -n "${module[$name]:-}" ] && continue
    for file in "$(dirname "$config")/$name" "$guests/$name" "$guests/$name.elf"; do
        [ -f "$file" ] && module[$name]=$file && break
    done
    [ -n "${module[$name]:-}" ] || die "$config names $name, which is neither beside it nor in $guests"
done

tree=$(mktemp -d) log=$(mktemp)
trap 'rm -rf "$tree" "$log"' EXIT
mkdir -p "$tree/boot/grub"
objcopy --strip-debug "$hv" "$tree/boot/takt.elf"
# The copy for UEFI asks for a frame buffer: see the header in boot/boot.asm.
LC_ALL=C sed 's/FB\x01\x00\x14\x00\x00\x00/\x05\x00\x01\x00\x14\x00\x00\x00/' "$tree/boot/takt.elf" > "$tree/boot/takt-efi.elf"
cp "$config" "$tree/boot/takt.cfg"
{
    echo 'set timeout=0'
    echo 'set takt=/boot/takt.elf'
    echo 'if [ "$grub_platform" = efi ]; then insmod all_video; set takt=/boot/takt-efi.elf; fi'
    echo 'menuentry Takt {'
    echo "    multiboot2 \$takt $cmdline"
    echo '    module2 /boot/takt.cfg takt.cfg'
    for name in "${!module[@]}"; do
        cp "${module[$name]}" "$tree/boot/$name"
        case $name in
        *.elf) objcopy --strip-debug "$tree/boot/$name" 2>/dev/null || true ;;
        esac
        echo "    module2 /boot/$name $name"
    done | sort
    echo '}'
} > "$tree/boot/grub/grub.cfg"

mkdir -p "$(dirname "$out")"
# Few GRUB modules: quick to make and to load. Dates fixed: the same input gives the same image.
modules="multiboot2 iso9660 normal fat test all_video part_gpt part_msdos
    part_acorn part_amiga part_apple part_bsd part_dfly part_dvh part_plan part_sun part_sunpc"
if ! SOURCE_DATE_EPOCH=0 grub-mkrescue --compress=no --fonts= --locales= --themes= \
    --install-modules="$modules" -o "$out" "$tree" > "$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
