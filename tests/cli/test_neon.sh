#!/bin/sh
# The NEON table on a machine that is no ARM: cross-compiled, the unit tests of kern and kern_math under qemu-aarch64.
# Needs gcc-aarch64-linux-gnu and qemu-user.
CC=aarch64-linux-gnu-gcc
EMULATOR=qemu-aarch64
. tests/cli/kern_isa.sh

command -v $CC >/dev/null && command -v $EMULATOR >/dev/null || skip "no $CC or $EMULATOR"
object kern.o src/kern.c
object neon.o src/kern_neon.c
run_tests -static
