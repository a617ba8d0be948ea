#!/bin/sh
# The lint sees each fault that it is there for: a small clean tree passes, then one fault at a time goes in.
passed=0 failed=0 skipped=0
root=$PWD
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# file FILE: what comes on standard input, after a file head
file() {
    mkdir -p "$(dirname "$tree/$1")"
    { echo "/* A file of the test. */"; cat; } >"$tree/$1"
}

clean_tree() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/tests"
    cp "$root/tests/lint.sh" "$root/tests/lint.awk" "$tree/tests"
    cp "$root/.clang-format" "$root/.clang-tidy" "$tree"
    printf '# comment\n0 base src/low\n1 left src/left\n1 right src/right\n2 cmd jobs/cmd\n' >"$tree/tests/layers.txt"
    printf '#ifndef NS_LOW_H\n#define NS_LOW_H\nint low(int a);\n#endif\n' | file src/low.h
    printf '#ifndef NS_RIGHT_H\n#define NS_RIGHT_H\n#endif\n' | file src/right.h
    printf '#include "src/low.h"\n\nint low(int a)\n{\n    return a + 1; /* printf() */\n}\n' | file src/low.c
    printf '#include "src/low.h"\n\nint main(void)\n{\n    return low(1);\n}\n' | file jobs/cmd_x.c
}

# lints RULE: standard output of the lint in the tree
lints() {
    (cd "$tree" && GIT_DIR=none sh tests/lint.sh "$1" 2>&1)
}

# sees NAME RULE PATTERN: one line of the findings of RULE matches PATTERN; then the tree is clean again
sees() {
    out=$(lints "$2")
    if echo "$out" | grep -q '0 passed, 0 failed, 1 skipped'; then
        echo "skipped: $1: no tool for $2"
        skipped=$((skipped + 1))
    elif echo "$out" | grep -q "$3" && echo "$out" | grep -q '0 passed, 1 failed'; then
        passed=$((passed + 1))
    else
        echo "FAILED $1: nothing like \"$3\" in:"
        echo "$out"
        failed=$((failed + 1))
    fi
    clean_tree
}

clean_tree
for rule in source columns words scripts format cppcheck tidy; do
    out=$(lints $rule)
    case $out in
    "1 passed, 0 failed, 0 skipped") passed=$((passed + 1)) ;;
    *"0 passed, 0 failed, 1 skipped") skipped=$((skipped + 1)); echo "skipped: clean tree: no tool for $rule" ;;
    *) echo "FAILED a clean tree does not pass $rule: $out"; failed=$((failed + 1)) ;;
    esac
done

echo 'int x;' | file src/stranger.c
sees "a file without a layer" source 'src/stranger.c:1: \[layers\]'
echo '1 right src/left' >>"$tree/tests/layers.txt"
sees "a file in two groups" source 'layers.txt:6: \[layers\] src/left is right here'
printf '#include "src/right.h"\n' | file src/low.c
sees "an include upward" source 'src/low.c:2: \[layers\].*up'
printf '#include "src/right.h"\n' | file src/left.c
sees "an include sideways" source 'src/left.c:2: \[layers\].*sideways'
printf '#include "tests/lib/test.h"\n' | file src/left.c
mkdir -p "$tree/tests/lib"
printf '#ifndef NS_TEST_H\n#define NS_TEST_H\n#endif\n' | file tests/lib/test.h
sees "a test in the program" source 'src/left.c:2: \[layers\].*test'
printf '#include "low.h"\n' | file src/left.c
sees "an include not from the root" source 'src/left.c:2: \[includes\].*root'
printf '#include "src/gone.h"\n' | file src/left.c
sees "an include of nothing" source 'src/left.c:2: \[includes\].*no file'
awk 'BEGIN { for (i = 0; i < 600; i++) print "int a" i ";" }' | file src/left.c
sees "a long file" source 'src/left.c:601: \[size\] 601 lines'
awk 'BEGIN { print "int f(void)\n{"; for (i = 0; i < 78; i++) print "    f();"; print "    return 0;\n}" }' | file src/left.c
sees "a long function" source 'src/left.c:3: \[size\] a function of 81 lines'
printf '#ifndef NS_OTHER_H\n#define NS_OTHER_H\n#endif\n' | file src/left.h
sees "a wrong guard" source 'src/left.h:1: \[guards\].*NS_LEFT_H'
printf '#include "src/low.h"\n' >"$tree/src/left.c"
sees "no file head" source 'src/left.c:1: \[heads\]'
for call in 'printf("x")' 'exit(1)' 'getenv("X")' 'fputs("", stderr)' 'abort()'; do
    printf 'void f(void)\n{\n    %s;\n}\n' "$call" | file src/left.c
    sees "$call below the commands" source 'src/left.c:4: \[silent\]'
done
printf 'void f(char *s)\n{\n    strcpy(s, "x");\n}\n' | file src/left.c
sees "strcpy" source 'src/left.c:4: \[unsafe\]'
printf '\tint x;\n' | file src/left.c
sees "a tab" source 'src/left.c:2: \[text\] a tab'
printf 'int x; \n' | file src/left.c
sees "a blank at the end" source 'src/left.c:2: \[text\] a space'
awk 'BEGIN { printf "/*"; for (i = 0; i < 100; i++) printf "x"; print "*/" }' | file src/left.c
sees "a long line" columns 'src/left.c:2: \[columns\]'
echo 'see /home/somebody/notes' >"$tree/README.md"
sees "a path of one machine" words 'README.md:1: \[words\]'
printf 'if true\n' >"$tree/tests/bad.sh"
sees "a script that does not parse" scripts 'bad.sh'
printf 'int  x;\n' | file src/left.c
sees "another format" format 'src/left.c:2: \[format\]'
printf 'int f(void);\nint f(void)\n{\n    int *p = 0;\n    return *p;\n}\n' | file src/left.c
sees "a null pointer" cppcheck 'src/left.c:6: \[cppcheck\]'
printf 'int f(int a);\nint f(int a)\n{\n    return a == 1 && a == 1;\n}\n' | file src/left.c
sees "the same test twice" tidy 'src/left.c:5: \[tidy\]'

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
