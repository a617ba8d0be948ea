/* The runner behind test.h. */
#include "tests/lib/test.h"

#include <ftw.h>
#include <stdarg.h>
#include <unistd.h>

#define MAX_CASES 512

static struct {
    const char *name;
    test_fn fn;
} cases[MAX_CASES];
static int n_cases, passed, failed, skipped;
static bool case_failed, case_skipped;
static char dir[64];

void test_register(const char *name, test_fn fn)
{
    if (n_cases == MAX_CASES) abort();
    cases[n_cases].name = name;
    cases[n_cases++].fn = fn;
}

void test_failed(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%s:%d: ", file, line);
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    case_failed = true;
}

void test_skip(const char *why)
{
    printf("skipped: %s\n", why);
    case_skipped = true;
}

bool test_has_failed(void)
{
    return case_failed;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name)) return true;
    return argc < 2;
}

int test_main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < n_cases; i++) {
        if (!wanted(cases[i].name, argc, argv)) continue;
        case_failed = case_skipped = false;
        cases[i].fn();
        if (case_failed) {
            printf("FAILED %s\n", cases[i].name);
            failed++;
        } else if (case_skipped) {
            skipped++;
        } else {
            passed++;
        }
    }
    test_dir_remove();
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed || passed + skipped == 0;
}

void test_dir_remove(void)
{
    if (*dir) nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *dir = 0;
}

const char *test_dir(void)
{
    if (!*dir) {
        snprintf(dir, sizeof dir, "/tmp/nightshift-test-XXXXXX");
        if (!mkdtemp(dir)) abort();
    }
    return dir;
}

const char *test_path(const char *name)
{
    /* kept on purpose until the end: reachable for the leak checker */
    static char *all[4096];
    static int n_all;
    for (int i = 0; i < n_all; i++)
        if (!strcmp(all[i] + strlen(test_dir()) + 1, name)) return all[i];
    if (n_all == 4096) abort();
    size_t n = strlen(test_dir()) + strlen(name) + 2;
    char *p = all[n_all++] = malloc(n);
    if (!p) abort();
    snprintf(p, n, "%s/%s", test_dir(), name);
    return p;
}

void test_write(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0) {
        test_failed(path, 0, "cannot write");
        exit(1);
    }
}

char *test_read(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        test_failed(path, 0, "cannot read");
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *p = malloc((size_t)n + 1);
    if (!p || fread(p, 1, (size_t)n, f) != (size_t)n) abort();
    fclose(f);
    p[n] = 0;
    if (len) *len = (size_t)n;
    return p;
}

unsigned long long test_rand(unsigned long long *s)
{
    unsigned long long z = (*s += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

float test_randf(unsigned long long *s)
{
    return (float)(test_rand(s) >> 40) / 8388608.0f - 1.0f;
}

double test_rel_l2(const float *a, const float *b, size_t n)
{
    double d = 0, q = 0;
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[i] - (double)b[i];
        d += x * x;
        q += (double)b[i] * (double)b[i];
    }
    return sqrt(d / (q > 0 ? q : 1));
}
