#!/usr/bin/env bash
# Gets the source of lwIP through apt, checks it against tools/lwip.sha256 and unpacks it,
# unmodified.
#   tools/lwip.sh DIR       makes DIR/src, and DIR/VERSION, which says what it is; does nothing if
#                           it is there and not older than this script
#   LWIP_TARBALL=FILE       takes this file instead of asking apt: lwip_VERSION.orig.tar.xz of the
#                           source package
# apt gets a configuration of its own, below DIR. So this needs no root, and changes nothing of this
# machine's apt.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)

fail() { echo "lwip: $*" >&2; exit 1; }

# Gets the tarball through apt. Prints its name, relative to the directory that this runs in.
by_apt() {
	command -v apt-get >/dev/null 2>&1 ||
		fail "no apt-get here; get an lwip_*.orig.tar.xz of tools/lwip.sha256 and set LWIP_TARBALL"
	source=$("$tools"/deps.sh --deb-src) ||
		fail "apt has no source of this release to derive the one of source packages from"
	echo "lwip: getting its source through apt" >&2
	mkdir -p sources lists/partial cache/archives/partial
	printf '%s\n' "${source#*$'\n'}" >"sources/lwip.${source%%$'\n'*}"
	cat >apt.conf <<-END
		Dir::Etc::sourcelist "/dev/null";
		Dir::Etc::sourceparts "$PWD/sources";
		Dir::State::lists "$PWD/lists";
		Dir::Cache "$PWD/cache";
		APT::Sandbox::User "";
		Acquire::Languages "none";
		Acquire::Retries "1";
		Acquire::http::Timeout "10";
		Acquire::https::Timeout "10";
	END
	APT_CONFIG=$PWD/apt.conf apt-get -q --error-on=any update >apt.log 2>&1 &&
		APT_CONFIG=$PWD/apt.conf apt-get -q source --download-only lwip >>apt.log 2>&1 ||
		fail "apt cannot get the source package lwip (offline?):" \
			"$(grep -m1 '^E:' apt.log || tail -1 apt.log)"
	ls lwip_*.orig.tar.xz
}

[ $# = 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$1
mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9 # make may want it from two sides at once
[ "$tools/lwip.sh" -nt "$dir/VERSION" ] || [ "$tools/lwip.sha256" -nt "$dir/VERSION" ] || exit 0
[ -z "${LWIP_TARBALL:-}" ] || [ -f "$LWIP_TARBALL" ] ||
	fail "LWIP_TARBALL: there is no file $LWIP_TARBALL"
[ -z "${LWIP_TARBALL:-}" ] || LWIP_TARBALL=$(realpath "$LWIP_TARBALL")

work=$dir.new
rm -rf "$work"
mkdir -p "$work/get"
trap 'rm -rf "$work"' EXIT
cd "$work/get"
if [ -n "${LWIP_TARBALL:-}" ]; then tarball=$LWIP_TARBALL; else tarball=$(by_apt); fi

name=${tarball##*/}
want=$(awk -v name="$name" '$2 == name { print $1 }' "$tools/lwip.sha256")
[ -n "$want" ] || fail "$name is none of the versions in tools/lwip.sha256"
[ "$(sha256sum <"$tarball")" = "$want  -" ] ||
	fail "$name has another checksum than tools/lwip.sha256 says; it is not used"
mkdir ../lwip
tar -xJf "$tarball" --strip-components=1 -C ../lwip || fail "$name does not unpack"
sed 's/^lwip_\(.*\)\.orig.*/\1/' <<<"$name" >../lwip/VERSION
cd - >/dev/null
rm -rf "$dir"
mv "$work/lwip" "$dir"
echo "lwip: $(cat "$dir/VERSION") in $dir"
