#!/bin/sh
# The AVX-512 and AMX tables on a machine without them: their sources over emulated instructions, the unit tests of
# kern and kern_math. Needs an x86-64 compiler, AVX2 and SIMDe (libsimde-dev).
. tests/cli/kern_isa.sh

grep -q avx2 /proc/cpuinfo 2>/dev/null && [ "$(uname -m)" = x86_64 ] || skip "no AVX2"
echo '#include <simde/x86/avx512.h>' | cc -fsyntax-only -x c - 2>/dev/null || skip "no SIMDe"
flags="-Wno-psabi -DKERN_EMULATED -mavx2 -mfma -I tests/lib/emulate"
object kern.o src/kern.c -DKERN_EMULATED
object avx2.o src/kern_avx2.c -mavx2 -mfma
object avx512.o src/kern_avx512.c -w -Og $flags
object avx512bf16.o src/kern_avx512bf16.c -w -Og $flags
object amx.o src/kern_amx.c -w -Og $flags
run_tests
