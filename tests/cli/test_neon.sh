#!/bin/sh
# The NEON table on a machine that is no ARM: cross-compiled, the unit tests of kern and kern_math under qemu-aarch64: of
# the tables those that the Makefile builds for it.
# Needs gcc-aarch64-linux-gnu and qemu-user.
CC=aarch64-linux-gnu-gcc
EMULATOR=qemu-aarch64
. tests/cli/kern_isa.sh

command -v $CC >/dev/null && command -v $EMULATOR >/dev/null || skip "no $CC or $EMULATOR"
for source in $(make -n -B CC=$CC nightshift | grep -o 'src/kern[a-z0-9_]*\.c' | sort -u); do
    object "$(basename "$source" .c).o" "$source"
done
run_tests -static
