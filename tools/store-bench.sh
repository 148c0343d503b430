#!/usr/bin/env bash
# Measures Takt's store (build/store-bench) beside an xenstored. Debian's packages are unpacked
# under build/xen; nothing is installed. xenstored and oxenstored are each tried as a plain process.
# If neither answers a request, the script says how each ended, and measures Takt's store alone.
set -u
cd "$(dirname "$0")/.."
dir=build/xen
run=$PWD/$dir/run
mkdir -p "$run"

fetch() {
	package=$(apt-cache search --names-only '^xen-utils-[0-9.]+$' 2>/dev/null |
		sed 's/ .*//' | sort -V | tail -1)
	[ -n "$package" ] || { echo "xenstored: apt knows no xen-utils here"; return 1; }
	libraries=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
		--no-breaks --no-replaces --no-enhances \
		"$package" | grep -oE '^(libxen[a-z0-9.]+|libyajl[0-9]+)$' | sort -u)
	# shellcheck disable=SC2086
	(cd "$dir" && apt-get -q download "$package" xenstore-utils $libraries >fetch.log 2>&1) ||
		{ echo "xenstored: cannot be fetched: $(grep -m1 '^E:' "$dir/fetch.log")"; return 1; }
	for f in "$dir"/*.deb; do dpkg -x "$f" "$dir"; done
}

# Starts COMMAND, waits for its socket, and asks it for the root of the tree.
try() {
	rm -f "$run/socket"
	"$@" >"$run/log" 2>&1 &
	pid=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S "$run/socket" ] && break; sleep 0.1; done
	"$dir/usr/bin/xenstore" exists / >/dev/null 2>&1 && return 0
	kill $pid 2>/dev/null
	{ wait $pid; } 2>/dev/null
	code=$?
	what="$(grep -v '^$' "$run/log" | tail -1)"
	[ $code -gt 128 ] && [ $code != 143 ] &&
		what="started, but died of signal $((code - 128)) at the first request ${what:+($what)}"
	echo "${1##*/}: does not run as a plain process here: ${what:-no answer, status $code}"
	return 1
}

socket=
if ls "$dir"/usr/lib/xen-*/bin/xenstored >/dev/null 2>&1 || fetch; then
	bin=$(ls -d "$dir"/usr/lib/xen-*/bin | tail -1)
	export LD_LIBRARY_PATH=$PWD/$dir/usr/lib/x86_64-linux-gnu
	export XENSTORED_RUNDIR=$run XENSTORED_ROOTDIR=$run XENSTORED_PATH=$run/socket
	if try "$bin/xenstored" -N -D || try "$bin/oxenstored" --no-fork --no-domain-init; then
		socket=$run/socket
	fi 2>/dev/null # or the shell tells of the signal as well
fi
build/store-bench ${socket:+"$socket"}
code=$?
[ -z "$socket" ] || kill $pid
exit $code
