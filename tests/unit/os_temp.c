/* os_temp: which names are those of unfinished files, and which of them go. */
#include "src/os_temp.h"

#include "src/os.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err e;

static char *in(const char *dir, const char *name)
{
    static char path[4][512];
    static int turn;
    snprintf(path[turn %= 4], sizeof *path, "%s/%s", dir, name);
    return path[turn++];
}

/* Dies while it writes; returns what it called the file, malloc'ed. */
static char *killed(const char *path)
{
    int ends[2];
    char name[512] = "";
    if (pipe(ends)) return NULL;
    pid_t pid = fork();
    if (pid == 0) {
        struct os_publish p;
        if (os_publish_begin(&p, path, &e)) _exit(1);
        os_publish_write(&p, "half", 4);
        ssize_t n = write(ends[1], p.tmp, strlen(p.tmp) + 1);
        _exit(n < 0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], name, sizeof name - 1);
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return n > 0 ? strdup(name) : NULL;
}

static void publish(const char *path)
{
    struct os_publish p;
    CHECK_OK(os_publish_begin(&p, path, &e), e);
    os_publish_write(&p, "whole", 5);
    CHECK_OK(os_publish_commit(&p, &e), e);
}

/* A suffix of eight hexadecimal digits and a process; what only looks alike is none. */
TEST(names)
{
    char name[OS_TEMP_CHARS + 10] = "a.tmp";
    os_temp_suffix(name + 5);
    CHECK_INT(os_temp_base(name), 5);
    CHECK_INT(os_temp_base("out.jsonl.tmp0123abcd-7"), 9);
    static const char *const none[] = {
        "out.jsonl",         "out.tmp",           "out.tmp7",           "out.tmp0123abcd",
        "out.tmp0123abcd-",  "out.tmp0123abcd-x", "out.tmp0123abcd-7x", "out.tmp0123abcde-7",
        "out.tmp0123abc-77", "out.tmp0123ABCD-7", "out.tmp0123abcd-7~", ".tmp0123abcd-7",
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (os_temp_base(none[i])) FAIL("%s", none[i]);
}

/* What a killed process left goes when the next one publishes there. */
TEST(left_over)
{
    const char *dir = test_path("left");
    CHECK(mkdir(dir, 0777) == 0);
    char *half = killed(in(dir, "out"));
    CHECK(half && os_exists(half) && !os_exists(in(dir, "out")));
    publish(in(dir, "out"));
    CHECK(os_exists(in(dir, "out")) && !os_exists(half));
    free(half);
}

/* Files of living processes, of other machines, and of other programs stay. */
TEST(not_ours)
{
    const char *dir = test_path("others");
    CHECK(mkdir(dir, 0777) == 0);
    char *half = killed(in(dir, "out")), suffix[OS_TEMP_CHARS], names[4][64];
    CHECK(half);
    os_temp_suffix(suffix);
    snprintf(names[0], sizeof *names, "out%.13s%ld", suffix, (long)getppid());
    snprintf(names[1], sizeof *names, "out.tmp%s%s", suffix[4] == '0' ? "1" : "0",
             strrchr(half, '.') + 5);
    snprintf(names[2], sizeof *names, "out.tmp%s", strrchr(half, '-') + 1);
    snprintf(names[3], sizeof *names, "out%s~", strrchr(half, '.'));
    for (int i = 0; i < 4; i++) test_write(in(dir, names[i]), "x", 1);
    publish(in(dir, "out"));
    CHECK(!os_exists(half));
    for (int i = 0; i < 4; i++)
        if (!os_exists(in(dir, names[i]))) FAIL("%s", names[i]);
    free(half);
}

TEST_MAIN
