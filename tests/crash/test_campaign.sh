#!/bin/sh
# A dozen kills at random moments: the short form of `make crash`. SEED=n sets the moments.
build=${BUILD:-build/release}
nightshift=${NIGHTSHIFT:-./nightshift}
seed=${SEED:-$$}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0
for how in run work; do
    if "$build/tests/crash/campaign" $how "$nightshift" "${KILLS:-7}" "$seed" "${JOBS:-40}" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    cat "$log" | grep -v 'passed,'
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
