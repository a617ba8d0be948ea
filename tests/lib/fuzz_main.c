/* The main program of a fuzz target when it runs as a regression test: every file of its corpus,
 * then a fixed number of mutations of them, the same on every run and machine (seeded by the
 * target's name).
 *
 *     build/<mode>/tests/fuzz/NAME            corpus tests/fuzz/corpus/NAME and its mutations
 *     build/<mode>/tests/fuzz/NAME FILE...    these files only: replays a finding
 *
 * A crash, a sanitizer report or an input that takes more than WATCHDOG_S seconds ends the program
 * without its result line; the input is left in NAME.crash beside the program. The campaign that
 * looks for new inputs is tests/fuzz/run.sh. */
#include "tests/lib/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#define MUTATIONS  2000
#define MAX_FILES  4096
#define ROOM       4096 /* bytes that the mutations of one input may add */
#define WATCHDOG_S 60

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

struct input {
    char *data;
    size_t len;
};
static struct input corpus[MAX_FILES];
static size_t n_corpus;

static struct input current; /* what a crash handler saves */
static char crash_path[512];

static void save_current(void)
{
    static const char told[] = "crashed; the input is in ";
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, current.data, current.len) != (ssize_t)current.len) return;
    if (write(STDOUT_FILENO, told, sizeof told - 1) < 0) return;
    if (write(STDOUT_FILENO, crash_path, strlen(crash_path)) < 0) return;
    if (write(STDOUT_FILENO, "\n", 1) < 0) return;
}

static void on_signal(int number)
{
    save_current();
    signal(number, SIG_DFL);
    raise(number);
}

/* The target gets a copy of exactly its size, so that one byte too far is seen by the sanitizer. */
static void run_one(const char *data, size_t len)
{
    current = (struct input){malloc(len ? len : 1), len};
    if (!current.data) abort();
    memcpy(current.data, data, len);
    alarm(WATCHDOG_S);
    LLVMFuzzerTestOneInput((const uint8_t *)current.data, len);
    alarm(0);
    free(current.data);
    current = (struct input){0};
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void load_corpus(const char *name)
{
    char dir[512], path[1024];
    struct dirent **list;
    snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", name);
    int n = scandir(dir, &list, not_hidden, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        free(list[i]);
        if (n_corpus == MAX_FILES) abort();
        struct input in = {0};
        in.data = test_read(path, &in.len);
        if (in.data) corpus[n_corpus++] = in;
    }
    if (n >= 0) free(list);
}

static size_t below(unsigned long long *rng, size_t n)
{
    return n ? (size_t)(test_rand(rng) % n) : 0;
}

/* A part of some corpus file goes over or into the input. */
static size_t graft(char *d, size_t len, size_t cap, unsigned long long *rng)
{
    const struct input *from = &corpus[below(rng, n_corpus)];
    size_t at = below(rng, from->len), n = below(rng, from->len - at + 1), to = below(rng, len + 1);
    if (test_rand(rng) & 1) {
        if (n > cap - len) n = cap - len;
        memmove(d + to + n, d + to, len - to);
        len += n;
    } else if (n > len - to) {
        n = len - to;
    }
    memcpy(d + to, from->data + at, n);
    return len;
}

static size_t cut(char *d, size_t len, unsigned long long *rng)
{
    size_t at = below(rng, len), n = 1 + below(rng, len - at < 64 ? len - at : 64);
    if (n > len - at) n = len - at;
    memmove(d + at, d + at + n, len - at - n);
    return len - n;
}

static size_t mutate(char *d, size_t len, size_t cap, unsigned long long *rng)
{
    static const unsigned char edges[] = {0,   1,   0x7f, 0x80, 0xff, 0xc0, 0xed, '"', '\\',
                                          '{', '}', '[',  ']',  ',',  '-',  '0',  '9', '\n'};
    size_t at = below(rng, len);
    switch (test_rand(rng) % 7) {
    case 0:
        if (len) d[at] = (char)(d[at] ^ (1 << (test_rand(rng) & 7)));
        return len;
    case 1:
        if (len) d[at] = (char)test_rand(rng);
        return len;
    case 2:
        if (len) d[at] = (char)edges[below(rng, sizeof edges)];
        return len;
    case 3: /* a little-endian number of 1, 2, 4 or 8 bytes near an edge of its range */
        for (size_t i = 0, n = (size_t)1 << below(rng, 4); i < n && at + i < len; i++)
            d[at + i] = (char)(i + 1 == n ? edges[below(rng, 5)] : 0xff);
        return len;
    case 4:
        return len ? cut(d, len, rng) : 0;
    case 5:
        return at; /* the end is missing */
    default:
        return graft(d, len, cap, rng);
    }
}

static void run_mutations(const char *name)
{
    unsigned long long rng = 0;
    for (const char *p = name; *p; p++) rng = rng * 131 + (unsigned char)*p;
    for (int i = 0; i < MUTATIONS; i++) {
        const struct input *from = &corpus[below(&rng, n_corpus)];
        size_t len = from->len, cap = len + ROOM;
        char *d = malloc(cap);
        if (!d) abort();
        memcpy(d, from->data, len);
        for (size_t n = 1 + below(&rng, 4); n; n--) len = mutate(d, len, cap, &rng);
        run_one(d, len);
        free(d);
    }
}

static int replay(int n, char **paths)
{
    for (int i = 0; i < n; i++) {
        size_t len;
        char *data = test_read(paths[i], &len);
        if (!data) return 1;
        run_one(data, len);
        free(data);
    }
    printf("%d passed, 0 failed, 0 skipped\n", n);
    return 0;
}

int main(int argc, char **argv)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    snprintf(crash_path, sizeof crash_path, "%s.crash", argv[0]);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(save_current);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (!__sanitizer_set_death_callback || fatal[i] == SIGALRM) signal(fatal[i], on_signal);
    if (argc > 1) return replay(argc - 1, argv + 1);

    load_corpus(name);
    if (n_corpus == 0) {
        printf("tests/fuzz/corpus/%s has no files\n0 passed, 1 failed, 0 skipped\n", name);
        return 1;
    }
    for (size_t i = 0; i < n_corpus; i++) run_one(corpus[i].data, corpus[i].len);
    run_mutations(name);
    for (size_t i = 0; i < n_corpus; i++) free(corpus[i].data);
    printf("%zu passed, 0 failed, 0 skipped\n", n_corpus + 1);
    return 0;
}
