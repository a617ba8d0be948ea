# The rules of the house that a line can show; called by lint.sh with the layers first, then all C files.
# Prints "file:line: [rule] what" for each finding.

function finding(rule, line, text) { print where ":" line ": [" rule "] " text }

function stem(path) { sub(/\.[ch]$/, "", path); return path }

# jobs/cmd_run and the like belong to the commands without being listed one by one
function known(path) { return path ~ /^jobs\/cmd[^\/]*$/ ? "jobs/cmd" : path }

# Code without comments and without what stands in quotes; remembers an open comment from line to line.
function code_of(s,    out, i, c, two) {
    out = ""
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1); two = substr(s, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++ }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (two == "/*") { in_comment = 1; i++ }
        else if (two == "//") break
        else { if (c == "\"" || c == "'") quote = c; out = out c }
    }
    quote = ""
    return out
}

function check_layer(line, target,    from, to) {
    from = known(stem(where)); to = known(stem(target))
    if (!(from in layer) || !(to in layer)) return   # said where the file begins
    if (group[from] == group[to]) return
    if (layer[to] > layer[from])
        finding("layers", line, "layer " layer[from] " " group[from] " includes up: " target " is layer " layer[to] " " group[to])
    else if (layer[to] == layer[from])
        finding("layers", line, group[from] " includes sideways: " target " is " group[to] ", layer " layer[to] " too")
}

function is_file(path,    ignored, there) {
    if (!(path in seen)) { seen[path] = (getline ignored < path) >= 0; close(path) }
    return seen[path]
}

function check_include(line, s,    target) {
    target = s
    sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
    if (target !~ /^(src|vision|jobs|tests|examples)\//) finding("includes", line, "\"" target "\" is not written from the root")
    else if (!is_file(target)) finding("includes", line, "\"" target "\" is no file")
    else if (product && target ~ /^tests\//) finding("layers", line, "the program includes a test: " target)
    else if (product) check_layer(line, target)
}

function begin_file(    s) {
    where = FILENAME
    n_lines = in_comment = body = 0; guard = ""
    product = where ~ /^(src|vision|jobs)\//
    quiet = product && where !~ /^jobs\/cmd/ && where != "src/main.c"
    s = known(stem(where))
    if (product && !(s in layer)) finding("layers", 1, s " is not in tests/layers.txt")
}

function end_file(    want) {
    if (n_lines > 600) finding("size", n_lines, n_lines " lines, at most 600")
    if (where !~ /\.h$/) return
    want = toupper(stem(where)); sub(/.*\//, "", want)
    if (guard != "NS_" want "_H" && !(where ~ /^tests\// && guard == "NS_TEST_" want "_H"))
        finding("guards", 1, "no header guard NS_" want "_H")
}

BEGIN {
    forbidden = "(^|[^a-zA-Z0-9_])(printf|vprintf|puts|putchar|perror|exit|_exit|quick_exit|abort|getenv|secure_getenv)[ ]*\\(|(^|[^a-zA-Z0-9_])(stdout|stderr)([^a-zA-Z0-9_]|$)"
    unsafe = "(^|[^a-zA-Z0-9_])(gets|strcpy|strcat|sprintf|vsprintf|strtok|alloca|system|popen|tmpnam|mktemp)[ ]*\\("
}

FILENAME == layers_file {
    where = FILENAME
    if ($0 !~ /^[0-9]/) next
    for (i = 3; i <= NF; i++) {
        if ($i in group && group[$i] != $2) finding("layers", FNR, $i " is " $2 " here and " group[$i] " before")
        layer[$i] = $1 + 0
        group[$i] = $2
    }
    next
}

FNR == 1 {
    if (where != layers_file) end_file()
    begin_file()
    if ($0 !~ /^\/\*/) finding("heads", 1, "does not begin with a comment that says what the file is")
}

{
    n_lines = FNR
    if (index($0, "\t")) finding("text", FNR, "a tab")
    if ($0 ~ /[ ]$/) finding("text", FNR, "a space at the end of the line")
    if ($0 ~ /^#include "/) check_include(FNR, $0)
    if ($0 ~ /^#ifndef NS_/ && guard == "") guard_try = $2
    if ($0 ~ /^#define NS_/ && guard == "" && $2 == guard_try) guard = $2
    code = code_of($0)
    if (quiet && code ~ forbidden) finding("silent", FNR, "prints, exits or reads the environment below jobs/cmd")
    if (product && code ~ unsafe) finding("unsafe", FNR, "a function without bounds or with a shell")
    if ($0 == "{") body = FNR
    if ($0 ~ /^}/ && body) {
        if (FNR - body + 1 > 80) finding("size", body, "a function of " FNR - body + 1 " lines, at most 80")
        body = 0
    }
}

END { if (where != layers_file) end_file() }
