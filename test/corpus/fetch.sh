#!/usr/bin/env bash
# fetch.sh DIR: puts the captures of Debian's python3-dpkt package and of the tests of its tcpdump source package below DIR.
#
# Nothing is installed, and the system's package lists stay as they are: apt works in a directory of its own, with the
# system's sources and its keys, and a deb-src line beside each deb line. A package that is there already is not fetched
# again. Needs apt-get, dpkg-deb and tar (any Debian), and the network.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
for tool in apt-get dpkg-deb tar xz; do
  command -v "$tool" >/dev/null || { echo "fetch: no $tool here: on a system other than Debian, put the captures into $dir/dpkt and $dir/tcpdump by hand" >&2; exit 1; }
done

apt=$dir/apt
mkdir -p "$apt"/{lists/partial,cache/archives/partial,sources}
# The system's own sources, with source packages too.
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ -f "$f" ] || continue
  awk '$1 == "deb" {print; $1 = "deb-src"; print}' "$f" > "$apt/sources/$(basename "$f" .list).list"
done
for f in /etc/apt/sources.list.d/*.sources; do
  [ -f "$f" ] || continue
  sed 's/^Types:.*/Types: deb deb-src/' "$f" > "$apt/sources/$(basename "$f")"
done
options=(
  -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$apt/sources" -o Dir::State::lists="$apt/lists"
  -o Dir::Cache="$apt/cache" -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User= -o APT::Get::List-Cleanup=false
  -o Debug::NoLocking=true -o Acquire::Retries=3 -o APT::Update::Post-Invoke::= -o APT::Update::Post-Invoke-Success::=
)
ready=
update() {
  [ -z "$ready" ] || return 0
  apt-get -qq "${options[@]}" update
  ready=1
}

# fetch NAME COMMAND: runs the command in an empty directory, which becomes DIR/NAME when it has succeeded.
fetch() {
  [ ! -d "$dir/$1" ] || return 0
  update
  rm -rf "$dir/$1.part"
  mkdir "$dir/$1.part"
  (cd "$dir/$1.part" && "$2")
  mv "$dir/$1.part" "$dir/$1"
}

# The binary package has the captures of its examples; those of the tests are in the source package only.
dpkt() {
  apt-get -qq "${options[@]}" download python3-dpkt
  dpkg-deb -x python3-dpkt_*.deb .
  rm python3-dpkt_*.deb
}
tcpdump() {
  apt-get -qq "${options[@]}" --download-only source tcpdump
  tar -xf tcpdump_*.orig.tar.*z --wildcards --strip-components 1 '*/tests/*'
  rm tcpdump_*
}
fetch dpkt dpkt
fetch tcpdump tcpdump
