#!/bin/sh
# What is asked for goes to standard output with exit 0; a mistake is one line on standard error with exit 2.
passed=0 failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fails() {
    echo "FAILED $1"
    sed 's/^/    /' "$tmp/out" "$tmp/err"
    failed=$((failed + 1))
}

# asked NAME PATTERN ARGS...: exit 0, PATTERN on standard output, nothing on standard error
asked() {
    name=$1 pattern=$2
    shift 2
    "$NIGHTSHIFT" "$@" >"$tmp/out" 2>"$tmp/err"
    if [ $? -eq 0 ] && grep -q -e "$pattern" "$tmp/out" && [ ! -s "$tmp/err" ]; then
        passed=$((passed + 1))
    else
        fails "$name"
    fi
}

# mistake NAME PATTERN ARGS...: exit 2, one line with PATTERN on standard error, nothing on standard output
mistake() {
    name=$1 pattern=$2
    shift 2
    "$NIGHTSHIFT" "$@" >"$tmp/out" 2>"$tmp/err"
    if [ $? -eq 2 ] && grep -q -e "^nightshift: .*$pattern" "$tmp/err" && [ "$(wc -l <"$tmp/err")" -eq 1 ] &&
        [ ! -s "$tmp/out" ]; then
        passed=$((passed + 1))
    else
        fails "$name"
    fi
}

asked "help" "^  check JOBS" --help
asked "short help" "^usage: nightshift COMMAND" -h
asked "version" "^nightshift [0-9]" --version
asked "help of a command" "^usage: nightshift check" check --help
asked "help tells letters and values" "^  -m, --model DIR  " check -h
asked "help tells choices" "error (default), skip" check --help
asked "help wins over what is missing" "^usage" check --model x --help
mistake "no command" "no command"
mistake "a misspelt command" "did you mean check" chekc
mistake "an unknown command" "unknown command frobnicate; see nightshift --help" frobnicate
mistake "an option first" "expected a command before --model" --model x
mistake "a misspelt option" "did you mean --prompt" check --promt x
mistake "no input" "check: expected JOBS" check
mistake "an input that is not there" "cannot read $tmp/none: No such file" check "$tmp/none"
mistake "a value that cannot be" "max-pixels: expected an integer of at least 1" check x --max-pixels 0

# Each command of the general help has help of its own, no wider than a terminal.
for c in $("$NIGHTSHIFT" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p; s/^  \([a-z][a-z]*\)$/\1/p'); do
    asked "help of $c" "^usage: nightshift $c" "$c" --help
    if awk 'length > 90 { exit 1 }' "$tmp/out"; then passed=$((passed + 1)); else fails "width of the help of $c"; fi
done

# Every option of every command's help, with a value of the kind it names and each choice it lists, is taken.
words() {
    awk '
        /^  (-[a-z], )?--/ { show(); sub(/^  (-[a-z], )?--/, ""); split($0, w, /  +/); head = w[1]; text = substr($0, length(head) + 1) ; next }
        /^                            / { text = text " " $0; next }
        { show(); head = "" }
        END { show() }
        function take(value) { print "--" name (value == "" ? "" : "=" value) }
        function show(   n, i, list, arg) {
            if (head == "") return
            name = head; arg = ""
            if (match(name, /[ \[]/)) { arg = substr(name, RSTART + 1); name = substr(name, 1, RSTART - 1) }
            if (name == "h" || name == "help") return
            if (name == "halt") { take("fail=3"); take("fail=20%"); take("never") }
            else if (name == "draft") { take("auto"); take("off"); take("4") }
            else if (name == "reasoning-effort") { take("none"); take("low"); take("high"); take("max") }
            else if (name == "cache-experts") { take("20"); take("20%") }
            else if (name == "deadline") { take("06:30"); take("2026-01-31T06:30"); take("8h") }
            else if (match(text, /: [^:]*\(default\)[^:]*$/)) {
                list = substr(text, RSTART + 2)
                gsub(/\(default\)| /, "", list)
                n = split(list, choice, ",")
                for (i = 1; i <= n; i++) take(choice[i])
            } else if (arg == "") take("")
            else if (arg ~ /^N/) take("16")
            else if (arg == "SIZE") take("2.6G")
            else if (arg == "X") take("0.5")
            else if (arg == "K/N") take("1/2")
            else if (arg == "OLD=NEW") take("a=b")
            else if (arg ~ /TIME/) { take("5m"); if (arg ~ /]/) take("") }
            else if (arg ~ /^(PATH|DIR|FILE|TEXT|STATE|CODE|NAME|SECTION)$/) take("x")
            else take("?")
        }' "$tmp/out"
}
for c in $("$NIGHTSHIFT" --help | sed -n 's/^  \([a-z][a-z]*\)\( .*\)\{0,1\}$/\1/p'); do
    "$NIGHTSHIFT" "$c" --help >"$tmp/out"
    words >"$tmp/words"
    wanted=$(grep -c '^  \(-[a-z], \)\{0,1\}--' "$tmp/out")
    named=$(sed 's/=.*//' "$tmp/words" | sort -u | wc -l)
    [ "$named" -eq $((wanted - 1)) ] && passed=$((passed + 1)) || fails "$c: $named of $((wanted - 1)) options are tried"
    set --
    while read -r word; do set -- "$@" "$word"; done <"$tmp/words"
    asked "all options of $c" "^usage: nightshift $c" "$c" "$@" --help
done

# A full disk behind standard output is not success.
if [ -w /dev/full ]; then
    "$NIGHTSHIFT" --help >/dev/full 2>"$tmp/err"
    [ $? -eq 5 ] && grep -q "No space" "$tmp/err" && passed=$((passed + 1)) || fails "a full standard output"
fi

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
