#!/bin/sh
# Looks for inputs that break a parser: run.sh [NAME...]. Each target of tests/fuzz/*.c (or those named) runs under
# libFuzzer with the address and undefined behaviour sanitizers for FUZZ_SECONDS (default 60). Objects and the corpus that
# grows lie in build/fuzz; an input that crashes, leaks, hangs or eats memory goes to build/fuzz/findings and ends in exit 1.
# Mend the code, then move the finding to tests/fuzz/corpus/NAME: `make test` replays it from then on.
seconds=${FUZZ_SECONDS:-60}
[ $# -gt 0 ] || set -- $(ls tests/fuzz/*.c 2>/dev/null | sed 's|.*/||; s|\.c$||')
[ $# -gt 0 ] || { echo "no fuzz targets in tests/fuzz"; exit 1; }

programs=
for name; do programs="$programs build/fuzz/tests/fuzz/$name"; done
${MAKE:-make} --no-print-directory -s -j2 MODE=fuzz CC=clang $programs || exit 1

found=0
for name; do
    grown=build/fuzz/corpus/$name findings=build/fuzz/findings/$name log=build/fuzz/$name.log
    mkdir -p "$grown" "$findings" "tests/fuzz/corpus/$name"
    before=$(ls "$findings" | wc -l)
    dict=; [ -e "tests/fuzz/$name.dict" ] && dict="-dict=tests/fuzz/$name.dict"
    "build/fuzz/tests/fuzz/$name" $dict -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="$findings/" "$grown" "tests/fuzz/corpus/$name" >"$log" 2>&1
    rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ $rc -ne 0 ] || [ "$(ls "$findings" | wc -l)" -gt "$before" ]; then
        found=$((found + 1))
        grep -m 1 '^SUMMARY\|ERROR:' "$log"
        echo "$name: FOUND after ${runs:-?} runs: $(ls -t "$findings" | head -n 1 | sed "s|^|$findings/|"); see $log"
    else
        echo "$name: nothing in ${runs:-?} runs"
    fi
done
[ $found -eq 0 ]
