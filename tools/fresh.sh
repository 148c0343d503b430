#!/usr/bin/env bash
# Does what README.md says on a machine that has nothing. For each release it makes a fresh system
# in a directory, puts a clone of the committed tree there, and runs make demo, run, test and lint
# inside.
#   tools/fresh.sh [--steps "demo run ..."] RELEASE...     RELEASE: debian12 debian13 ubuntu24.04
# The fresh system has no sound card, no desktop and no /dev/kvm. This needs root. Packages come
# from where this machine's own come from. A release whose archive cannot be reached is skipped, and
# the last line counts it separately. The exit status is 1 if a step failed. Logs:
# build/results/fresh/RELEASE/STEP.log.
set -u
cd "$(dirname "$0")/.." || exit 1
self=$PWD/tools/fresh.sh
work=${TAKT_FRESH_DIR:-$PWD/build/fresh} results=$PWD/build/results/fresh

if [ "$(id -u)" != 0 ]; then
	if sudo -n true 2>/dev/null || { command -v sudo >/dev/null && [ -t 0 ]; }; then
		exec sudo "$self" "$@"
	fi
	echo "fresh: skipped: a fresh system needs root, or a sudo that asks for no password"
	echo "0 passed, 0 failed, $# skipped"
	exit 0
fi

steps="demo run needs demo-bochs test lint"
[ "${1:-}" != --steps ] || { steps=$2; shift 2; }
[ $# -gt 0 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$self" >&2; exit 2; }

codename() {
	case $1 in
	debian12) echo bookworm ;;
	debian13) echo trixie ;;
	ubuntu24.04) echo noble ;;
	*) return 1 ;;
	esac
}

# Writes the base system of RELEASE to $work/RELEASE.tar, at most once a day. If it fails, prints
# why.
base() { # RELEASE
	tar=$work/$1.tar log=$results/$1/base.log
	[ -z "$(find "$tar" -mtime -1 2>/dev/null)" ] || return 0
	suite=$(codename "$1")
	source=
	if [ "${1%%[0-9]*}" = "$(. /etc/os-release && echo "$ID")" ]; then
		if ! text=$(tools/deps.sh --source "$suite"); then
			echo "this machine's apt has no source to derive the one of $suite from"
			return 1
		fi
		source=$work/$1.${text%%$'\n'*}
		printf '%s\n' "${text#*$'\n'}" >"$source"
	fi
	# Without $source mmdebstrap takes the archive that it knows by itself, with keys of
	# /usr/share/keyrings. shellcheck disable=SC2086
	if ! mmdebstrap --format=tar --variant=minbase --include=apt,ca-certificates,git,make \
		--components=main,universe "$suite" "$tar.new" $source >"$log" 2>&1; then
		echo "its archive cannot be reached: $(grep -m1 '^E:' "$log" || tail -1 "$log")"
		return 1
	fi
	mv "$tar.new" "$tar"
}

# Runs a command inside the fresh system. It has an empty environment, sees only its own processes,
# and has a /dev with what every machine has. Unless "net" comes before the command, there is no
# network but 127.0.0.1 and what the command makes.
inside() { # RELEASE [net] COMMAND...
	root=$work/$1
	shift
	# A new network namespace has a loopback interface that is down, so 127.0.0.1 is switched on.
	isolate=(unshare --net --mount sh -c
		'mount -t sysfs sysfs /sys && ip link set lo up && exec "$@"' sh)
	[ "$1" != net ] || { isolate=(); shift; }
	"${isolate[@]}" bwrap --bind "$root" / --proc /proc --dev /dev \
		--dev-bind-try /dev/net/tun /dev/net/tun \
		--ro-bind /sys /sys --ro-bind /etc/resolv.conf /etc/resolv.conf \
		--bind "$work/debs" /var/cache/apt/archives \
		--unshare-pid --unshare-ipc --unshare-uts --hostname fresh --die-with-parent --cap-add ALL \
		--clearenv --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --setenv HOME /root \
		--setenv TERM xterm --setenv LANG C.UTF-8 --chdir /root/takt "$@"
}

step() { # RELEASE STEP
	case $2 in
	demo) inside "$1" net make demo ;;
	run) /usr/bin/python3 tools/person.py "$self" --inside "$1" net make run ;;
	needs) inside "$1" net make test-needs ;;
	demo-bochs) inside "$1" make demo PLATFORM=bochs ;;
	test) inside "$1" make test ;;
	lint) inside "$1" net tools/deps.sh check && inside "$1" make lint ;;
	*) echo "there is no step $2" ; return 2 ;;
	esac
}

# Says what the process does until it ends. On a terminal this is one line, written anew each
# second; elsewhere it is a new line each minute.
follow() { # PID LABEL LOG
	while kill -0 "$1" 2>/dev/null; do
		sleep 1
		if [ -t 1 ]; then
			last=$(tail -n 1 "$3" | tr -cd '[:print:]')
			printf '\r\033[K%.79s' "$2: $((SECONDS - begin)) s: $last"
		elif [ $(((SECONDS - begin) % 60)) = 59 ]; then
			echo "$2: $((SECONDS - begin)) s: $(tail -n 1 "$3" | tr -cd '[:print:]' | cut -c1-100)"
		fi
	done
	[ ! -t 1 ] || printf '\r\033[K'
}

# A step runs in the background and so does not see Ctrl-C. This ends the step's process, and what
# runs inside ends with it.
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

if [ "$1" = --inside ]; then
	shift
	inside "$@"
	exit
fi

for release in "$@"; do
	codename "$release" >/dev/null || {
		echo "fresh: $release is none of debian12 debian13 ubuntu24.04"
		exit 2
	}
done
tools/deps.sh fresh || exit 1
passed=0 failed=0 skipped=0
mkdir -p "$work/debs/partial"
for release in "$@"; do
	mkdir -p "$results/$release"
	echo "$release: making the system"
	if ! why=$(base "$release"); then
		echo "$release: skipped: $why"
		skipped=$((skipped + 1))
		continue
	fi
	rm -rf "${work:?}/$release"
	mkdir -p "$work/$release"
	tar -xf "$work/$release.tar" -C "$work/$release" &&
		git clone -q --no-hardlinks . "$work/$release/root/takt" || exit 1
	for step in $steps; do
		log=$results/$release/$step.log begin=$SECONDS
		step "$release" "$step" >"$log" 2>&1 </dev/null &
		follow $! "$release: $step" "$log"
		if wait $!; then
			echo "$release: $step: passed in $((SECONDS - begin)) s"
			passed=$((passed + 1))
		else
			echo "$release: $step: FAILED (exit status $?) after $((SECONDS - begin)) s, see $log:"
			tail -n 5 "$log" | sed 's/^/    /'
			failed=$((failed + 1))
		fi
	done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
