#!/bin/sh
# Checks what the house rules say and a program can see: lint.sh [RULE...]. Each finding is "file:line: [rule] what". Rules:
#   source   layers (tests/layers.txt), includes from the root, sizes, header guards, file heads, silence below the
#            commands, unsafe functions, blanks: tests/lint.awk
#   columns  no C line over 100 columns
#   words    no path of somebody's machine in any tracked file
#   scripts  every shell script parses
#   format   clang-format (14 or newer)
#   cppcheck, tidy   static analysis
# A tool that is not installed is a skip. The last line is "N passed, N failed, N skipped", counted in rules. Files are
# those of git, else all in the tree; a file that clang-tidy found clean is not checked again until it or a header changes.
rules=${*:-source columns words scripts format cppcheck tidy}
passed=0 failed=0 skipped=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -co --exclude-standard
else
    find . -type f ! -path './build/*' ! -path './.git/*' | sed 's|^\./||'
fi | while read -r f; do [ -f "$f" ] && echo "$f"; done | sort >"$tmp/all"
grep '\.[ch]$' "$tmp/all" >"$tmp/c"
grep '\.c$' "$tmp/all" >"$tmp/units"

rule_source() {
    xargs -r awk -v layers_file=tests/layers.txt -f tests/lint.awk tests/layers.txt <"$tmp/c"
}

rule_columns() {
    LC_ALL=C.UTF-8 xargs -r grep -Hn '.\{101\}' <"$tmp/c" | sed 's/^\([^:]*:[0-9]*\):.*/\1: [columns] over 100 columns/'
}

rule_words() {
    xargs -r grep -HnIE '(^|[^a-zA-Z0-9_.])/(work|root|home)/|\.\./shared' <"$tmp/all" |
        grep -v '^tests/lint.sh:\|^tests/cli/test_lint.sh:' |
        sed 's/^\([^:]*:[0-9]*\):\(.\{0,80\}\).*/\1: [words] a path of one machine: \2/'
}

rule_scripts() {
    grep '\.sh$\|^\.ci/run$' "$tmp/all" | while read -r f; do
        sh -n "$f" 2>&1 | sed 's/^/[scripts] /'
    done
}

rule_format() {
    tool clang-format 14 || return
    xargs -r clang-format --dry-run -Werror <"$tmp/c" 2>&1 |
        sed -n 's/^\([^:]*:[0-9]*\):.*/\1: [format] clang-format would change this/p'
}

# Suppressed: what it takes for faults in malloc'ed memory, in NULL as a last argument, and in structs that a call fills.
rule_cppcheck() {
    tool cppcheck 2 || return
    xargs -r cppcheck --quiet -j2 --enable=warning,performance,portability --std=c11 --inline-suppr -I. -D_GNU_SOURCE \
        -D__x86_64__ --max-configs=4 --suppress='*:/usr/*' --suppress=invalidPointerCast --suppress=varFuncNullUB \
        --suppress=uninitStructMember --template='{file}:{line}: [cppcheck] {message} [{id}]' \
        <"$tmp/units" 2>&1 | grep '\[cppcheck\]'
}

# One instruction set's kernels need its flags, else the compiler does not know its types.
flags_of() {
    case $1 in
    src/kern_avx2.c) echo "-mavx2 -mfma -mf16c" ;;
    src/kern_avx512.c) echo "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma" ;;
    src/kern_avx512bf16.c) echo "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx2 -mfma" ;;
    src/kern_amx.c) echo "-mamx-tile -mamx-bf16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma" ;;
    src/kern_neon.c) echo "--target=aarch64-linux-gnu" ;;
    esac
}

rule_tidy() {
    tool clang-tidy 14 || return
    clean=build/lint
    mkdir -p $clean
    headers=$(grep '\.h$' "$tmp/all" | xargs -r cat .clang-tidy tests/lint.sh | cksum | tr ' ' -)
    grep -v '^src/kern_neon\.c' "$tmp/units" | while read -r f; do
        stamp=$clean/$(cat "$f" | cksum | tr ' ' -)$headers
        [ -e "$stamp" ] || echo "$f" "$stamp" $(flags_of "$f")
    done | xargs -r -P 2 -L 1 sh -c '
        f=$0 stamp=$1; shift
        if out=$(clang-tidy --quiet "$f" -- -std=gnu11 -D_GNU_SOURCE -I. "$@" 2>/dev/null); then : >"$stamp"; else
            echo "${out:-$f:1:1: error: clang-tidy failed}" |
                sed -n "s|^$PWD/||; s/:[0-9]*: \(warning\|error\): /: [tidy] /p"
        fi'
}

# Is this tool there, in this version or newer? Else the rule counts as skipped.
tool() {
    version=$("$1" --version 2>/dev/null | sed -n 's/.*[^0-9.]\([0-9][0-9]*\)\.[0-9].*/\1/p' | head -n 1)
    [ "${version:-0}" -ge "$2" ] && return 0
    : >"$tmp/skip"
    return 1
}

for rule in $rules; do
    rm -f "$tmp/skip"
    "rule_$rule" >"$tmp/out"
    cat "$tmp/out"
    if [ -s "$tmp/out" ]; then
        failed=$((failed + 1))
    elif [ -e "$tmp/skip" ]; then
        skipped=$((skipped + 1))
        echo "skipped: $rule: its tool is not installed or too old"
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
