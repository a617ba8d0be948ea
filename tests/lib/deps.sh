#!/bin/sh
# Makes sure that what is needed is installed: deps.sh build|lint|isa|fuzz. Says nothing when all is there; installs with
# apt-get as root or with sudo; else prints the one command to run.
libs="make libc6-dev libcjson-dev libsqlite3-dev libwebp-dev libjpeg62-turbo-dev libpng-dev libmd-dev"
case $1 in
build) want="gcc $libs" ;;
lint) want="clang-format clang-tidy cppcheck libstb-dev" ;;
isa) want="libsimde-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
fuzz) want="clang libclang-rt-dev $libs" ;;
*) echo "usage: deps.sh build|lint|isa|fuzz" >&2; exit 2 ;;
esac

missing=
for p in $want; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

command="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo=sudo
else
    echo "missing packages; run: sudo $command" >&2
    exit 1
fi
echo "installing$missing"
log=$(mktemp)
if ! (DEBIAN_FRONTEND=noninteractive $sudo $command ||
      { $sudo apt-get update && DEBIAN_FRONTEND=noninteractive $sudo $command; }) >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "could not install; run: sudo $command" >&2
    exit 1
fi
rm -f "$log"
