#!/bin/sh
# Runs the jobs of this folder with the demo model and shows each answer beside the right one: demo.sh [OPTION...], run
# from the root of the repository; options go to `nightshift run`. Exit 0 when every answer is right.
here=$(dirname "$0")
nightshift=${NIGHTSHIFT:-./nightshift}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

echo "$nightshift run -i $here/jobs.jsonl -m $here/demo-model -o out.jsonl${*:+ $*}"
"$nightshift" run -i "$here/jobs.jsonl" -m "$here/demo-model" -o "$tmp/out.jsonl" "$@" </dev/null || {
    rc=$?
    echo "the run ended with exit code $rc" >&2
    [ -s "$tmp/out.jsonl" ] || exit $rc
}

# field(NAME): the string after "NAME": in a line of JSON, unescaped as far as these files need it
awk '
function field(line, name,    at, out, c) {
    at = match(line, "\"" name "\": *\"")
    if (!at) return ""
    line = substr(line, at + RLENGTH)
    while ((c = substr(line, 1, 1)) != "\"" && c != "") {
        if (c == "\\") { line = substr(line, 2); c = substr(line, 1, 1); if (c == "n") c = " " }
        out = out c
        line = substr(line, 2)
    }
    return out
}
FILENAME ~ /expected/ { truth[field($0, "custom_id")] = field($0, "answer"); next }
FILENAME ~ /jobs/ {
    id = field($0, "custom_id") field($0, "id")
    ids[++n] = id
    prompt[id] = field($0, "prompt") field($0, "text")
    if (prompt[id] == "") prompt[id] = field($0, "content")
    picture[id] = match($0, /images\/[^"]*/) ? substr($0, RSTART + 7, RLENGTH - 7) : "-"
    next
}
{ id = field($0, "custom_id"); answer[id] = field($0, "content"); if (answer[id] == "") answer[id] = field($0, "message") }
END {
    row = "%-17s %-20s %-37s %-5s %s\n"
    printf "\n" row, "job", "picture", "prompt", "", "answer"
    for (i = 1; i <= n; i++) {
        id = ids[i]
        ok = answer[id] == truth[id]
        right += ok
        printf row, id, picture[id], prompt[id], ok ? "right" : "WRONG", answer[id]
        if (!ok) printf row, "", "", "", "", "(right: " truth[id] ")"
    }
    printf "\n%d of %d right\n", right, n
    exit right != n || n == 0
}' "$here/expected.jsonl" "$here/jobs.jsonl" "$tmp/out.jsonl"
