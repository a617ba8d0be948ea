/* progress: events as text. */
#include "jobs/progress.h"
#include "tests/lib/test.h"

#include <time.h>

static char seen[4096];

static void keep(void *user, const char *text, size_t len)
{
    (void)user;
    size_t at = strlen(seen);
    if (len < sizeof seen - at) memcpy(seen + at, text, len);
    seen[at + len] = 0;
}

static struct progress begin(enum progress_style style)
{
    struct progress p;
    memset(seen, 0, sizeof seen);
    progress_init(&p, style, keep, NULL);
    return p;
}

static const struct pipeline_state state = {.event = PIPELINE_SWEPT,
                                            .total = 10,
                                            .done = 4,
                                            .failed = 1,
                                            .running = 3,
                                            .tokens = 50,
                                            .bytes_read = 1500000000,
                                            .waits = {3, {1, 0.5}, {7, 6}},
                                            .seconds = 20,
                                            .eta_s = 3725};

/* A terminal gets one line that is written over, and is left clean at the end. */
TEST(steady_line)
{
    struct progress p = begin(PROGRESS_LINE);
    struct pipeline_state s = state;
    progress_event(&p, &s);
    CHECK_STR(seen, "[##########..........] 4/10 done, 1 failed, 3 running, 2.5 tok/s, "
                    "1.5 GB read, ETA 1 h 02 m");
    *seen = 0;
    s.seconds += 0.1;
    progress_event(&p, &s);
    CHECK_STR(seen, "");
    s.seconds += 1;
    progress_event(&p, &s);
    CHECK_HAS(seen, "\r\033[K[####");
    *seen = 0;
    s.event = PIPELINE_ENDED;
    progress_event(&p, &s);
    CHECK_STR(seen, "\r\033[K");
}

/* In a narrow terminal the line loses its bar, then its end: it never wraps. */
TEST(narrow_terminal)
{
    static const char text[] =
        "4/10 done, 1 failed, 3 running, 2.5 tok/s, 1.5 GB read, ETA 1 h 02 m";
    struct progress p = begin(PROGRESS_LINE);
    struct pipeline_state s = state;
    p.columns = sizeof text - 1 + 23 + 1;
    progress_event(&p, &s);
    CHECK_HAS(seen, "[##########..........] 4/10");
    CHECK_INT(strlen(seen), p.columns - 1);
    p = begin(PROGRESS_LINE);
    p.columns = sizeof text - 1 + 23;
    progress_event(&p, &s);
    CHECK_STR(seen, text);
    p = begin(PROGRESS_LINE);
    p.columns = 12;
    progress_event(&p, &s);
    CHECK_STR(seen, "4/10 done, ");
}

static int64_t noon(void)
{
    return 1000000000 - 1000000000 % 86400 + 43200;
}

/* With a clock the time of day at which all is done stands behind the time left. */
TEST(time_of_day)
{
    struct progress p = begin(PROGRESS_LOG);
    struct pipeline_state s = state;
    CHECK(setenv("TZ", "UTC", 1) == 0);
    tzset();
    p.clock = noon;
    s.event = PIPELINE_STARTED;
    progress_event(&p, &s);
    CHECK_HAS(seen, "read, ETA 1 h 02 m, Sun 13:02\n");
    *seen = 0;
    s.eta_s = -1;
    progress_event(&p, &s);
    CHECK_HAS(seen, "read, ETA ?\n");
}

/* A failure is told at once, above the line; an answer is not. */
TEST(failures_are_told)
{
    struct queue_job j = {.id = 7, .custom_id = (char[]){"a7"}};
    struct pipeline_state s = state;
    struct progress p = begin(PROGRESS_LOG);
    s.event = PIPELINE_JOB;
    s.job = &j;
    p.last = s.seconds;
    progress_event(&p, &s);
    CHECK_STR(seen, "");
    s.code = E_IMAGE_MISSING;
    s.message = "no such file";
    progress_event(&p, &s);
    CHECK_STR(seen, "a7: failed: image_missing: no such file\n");
}

/* Elsewhere a plain line comes every half minute. */
TEST(log_lines)
{
    struct progress p = begin(PROGRESS_LOG);
    struct pipeline_state s = state;
    s.event = PIPELINE_STARTED;
    s.seconds = 0;
    s.eta_s = -1;
    progress_event(&p, &s);
    CHECK_HAS(seen, "0.0 tok/s, 1.5 GB read, ETA ?\n");
    *seen = 0;
    s.event = PIPELINE_SWEPT;
    s.seconds = 29;
    progress_event(&p, &s);
    CHECK_STR(seen, "");
    s.seconds = 30;
    progress_event(&p, &s);
    CHECK_HAS(seen, "4/10 done");
}

/* Each JSON line is one object, ids and messages quoted. */
TEST(json_lines)
{
    struct queue_job j = {.id = 7, .custom_id = (char[]){"a\"7"}};
    struct pipeline_state s = state;
    struct progress p = begin(PROGRESS_LINES);
    s.event = PIPELINE_JOB;
    s.job = &j;
    progress_event(&p, &s);
    CHECK_STR(seen, "{\"event\":\"job\",\"seconds\":20.000,\"total\":10,\"done\":4,\"failed\":1,"
                    "\"cancelled\":0,\"running\":3,\"ready\":0,\"tokens\":50,\"rows\":0,"
                    "\"sweeps\":0,\"bytes_read\":1500000000,\"decode_s\":7.000,"
                    "\"encode_s\":6.000,\"waited_s\":3.000,\"waited_decode_s\":1.000,"
                    "\"waited_encode_s\":0.500,\"eta_s\":3725,\"job\":7,"
                    "\"custom_id\":\"a\\\"7\",\"code\":null,\"message\":null}\n");
}

/* Durations and sizes at their borders. */
TEST(words_for_numbers)
{
    char t[32];
    progress_duration(t, sizeof t, 59.4);
    CHECK_STR(t, "59 s");
    progress_duration(t, sizeof t, 59.6);
    CHECK_STR(t, "1 m 00 s");
    progress_duration(t, sizeof t, 7265);
    CHECK_STR(t, "2 h 01 m");
    progress_bytes(t, sizeof t, 999);
    CHECK_STR(t, "999 B");
    progress_bytes(t, sizeof t, 1000);
    CHECK_STR(t, "1.0 kB");
    progress_bytes(t, sizeof t, 1.4e12);
    CHECK_STR(t, "1.4 TB");
}

TEST_MAIN
