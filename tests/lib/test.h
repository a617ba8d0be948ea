/* A test program: TEST cases in order, each one behaviour; CHECK says what failed and goes on with
 * the next case.
 *
 *     // An empty file has no tensors.
 *     TEST(empty_file) { CHECK(...); }
 *     TEST_MAIN
 *
 * Prints one line a failure and a last line "N passed, N failed, N skipped"; exit 1 when one
 * failed. Run with names of cases to run only those. */
#ifndef NS_TEST_H
#define NS_TEST_H

#include "src/err.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*test_fn)(void);
void test_register(const char *name, test_fn fn);
void test_failed(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
void test_skip(const char *why);
bool test_has_failed(void); /* in this case */
int test_main(int argc, char **argv);

/* A fresh empty folder, removed at the end of the program. */
const char *test_dir(void);
/* At the end of a program without TEST_MAIN. */
void test_dir_remove(void);
/* path = test_dir() "/" name; the text lives until the end of the program. */
const char *test_path(const char *name);
void test_write(const char *path, const void *data, size_t len);
/* malloc'ed, NUL-terminated; fails the case and returns NULL when it cannot be read */
char *test_read(const char *path, size_t *len);
/* Deterministic pseudo random: uniform 64 bits; uniform in [-1, 1). */
unsigned long long test_rand(unsigned long long *state);
float test_randf(unsigned long long *state);
/* ||a - b|| / ||b|| */
double test_rel_l2(const float *a, const float *b, size_t n);

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        test_register(#name, test_##name);                                                         \
    }                                                                                              \
    static void test_##name(void)

#define TEST_MAIN                                                                                  \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return test_main(argc, argv);                                                              \
    }

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        test_failed(__FILE__, __LINE__, __VA_ARGS__);                                              \
        return;                                                                                    \
    } while (0)
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) FAIL("not true: %s", #cond);                                                  \
    } while (0)
#define CHECK_INT(a, b)                                                                            \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) FAIL("%s is %lld, not %lld", #a, a_, b_);                                    \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (!a_ || strcmp(a_, b_)) FAIL("%s is \"%s\", not \"%s\"", #a, a_ ? a_ : "(null)", b_);   \
    } while (0)
/* needle occurs in haystack */
#define CHECK_HAS(haystack, needle)                                                                \
    do {                                                                                           \
        const char *h_ = (haystack), *n_ = (needle);                                               \
        if (!h_ || !strstr(h_, n_))                                                                \
            FAIL("%s is \"%s\", without \"%s\"", #haystack, h_ ? h_ : "(null)", n_);               \
    } while (0)
#define CHECK_NEAR(a, b, tol)                                                                      \
    do {                                                                                           \
        double a_ = (a), b_ = (b);                                                                 \
        if (!(fabs(a_ - b_) <= (tol))) FAIL("%s is %.9g, not %.9g", #a, a_, b_);                   \
    } while (0)
/* an enum status with its struct err */
#define CHECK_OK(expr, err)                                                                        \
    do {                                                                                           \
        if ((expr) != OK) FAIL("%s: %s", #expr, (err).text);                                       \
    } while (0)
#define CHECK_ERR(expr, want, err, needle)                                                         \
    do {                                                                                           \
        enum status s_ = (expr);                                                                   \
        if (s_ != (want)) FAIL("%s gives %s, not %s", #expr, status_name(s_), status_name(want));  \
        if (!strstr((err).text, needle))                                                           \
            FAIL("message \"%s\" without \"%s\"", (err).text, needle);                             \
    } while (0)

#endif
