#!/usr/bin/env bash
# demo-picture.sh [PLATFORM] [PNG]: runs the demonstration (boot/demo.cfg) on Bochs (or qemu), traces its third second,
# and draws who ran where: docs/img/demo.png is made by it.
set -eu
cd "$(dirname "$0")/.."
platform=${1:-bochs} png=${2:-docs/img/demo.png}
dir=build/demo-picture
python=${PYTHON:-/usr/bin/python3} # apt's own: another one in PATH does not see apt's modules
tools/deps.sh build "$platform" picture
rm -rf "$dir"
mkdir -p "$dir" "$(dirname "$png")"

sed 's/^top *=.*/script = picture.script/' boot/demo.cfg > "$dir/demo.cfg"
vms=$(sed -n 's/^\[vm \(.*\)\]/\1/p' boot/demo.cfg)
{
    echo "@2000ms trace start sched"
    echo "@3050ms trace stop"
    for vm in $vms; do echo "@3050ms pause $vm"; done # the line is slow: all the time is its
    echo "@3060ms trace stream com2"
    echo "@15000ms trace status"
    echo "@15000ms poweroff"
} > "$dir/picture.script"

make -s all
tools/mkiso.sh "$dir/demo.iso" "$dir/demo.cfg" --guests build/guests
"$python" tools/machine.py watch --platform "$platform" --cpus 2 --timeout 400 --dir "$dir" \
    --com2 "$PWD/$dir/trace.bin" "$dir/demo.iso" > "$dir/log" || true
"$python" tools/trace-picture.py "$dir/trace.bin" "$png" --from 0.02
