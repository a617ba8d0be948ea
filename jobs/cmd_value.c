/* Values of options: numbers, sizes, times, choices, and the few with a grammar of their own. */
#include "jobs/cmd_table.h"

#include "src/spec.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool read_u64(const char *s, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)s[0])) return false;
    errno = 0;
    *out = strtoull(s, &end, 10);
    return !*end && errno == 0;
}

/* Digits with at most one point, no sign, exponent or hex; *rest is what follows. */
static bool read_plain(const char *s, double *out, const char **rest)
{
    char copy[64];
    size_t n = strspn(s, "0123456789."), points = 0;
    for (size_t i = 0; i < n; i++) points += s[i] == '.';
    if (n == 0 || n >= sizeof copy || points > 1 || n == points) return false;
    memcpy(copy, s, n);
    copy[n] = 0;
    *out = strtod(copy, NULL);
    *rest = s + n;
    return true;
}

/* 4096, 64K, 512M, 2.6G, 1T, also 2.6GB and 2.6GiB: powers of 1024 whatever the spelling */
static bool read_size(const char *s, uint64_t *out)
{
    double x;
    const char *rest;
    if (!read_plain(s, &x, &rest)) return false;
    static const char units[] = "KMGT";
    const char *unit = *rest ? strchr(units, toupper((unsigned char)*rest)) : NULL;
    if (unit) {
        x *= (double)(1ull << (10 * (unit - units + 1)));
        rest++;
        if (*rest == 'i') rest++;
    }
    if (*rest == 'B' || *rest == 'b') rest++;
    if (*rest || x < 1 || x >= 9e18) return false;
    *out = (uint64_t)x;
    return true;
}

/* 90, 30s, 5m, 8h, 1d, 1h30m */
static bool read_seconds(const char *s, double *out)
{
    double x, sum = 0;
    const char *rest;
    if (read_plain(s, &x, &rest) && !*rest) {
        *out = x;
        return x > 0;
    }
    for (; *s; s = rest + 1) {
        if (!read_plain(s, &x, &rest)) return false;
        switch (*rest) {
        case 's':
            sum += x;
            break;
        case 'm':
            sum += x * 60;
            break;
        case 'h':
            sum += x * 3600;
            break;
        case 'd':
            sum += x * 86400;
            break;
        default:
            return false;
        }
    }
    *out = sum;
    return sum > 0 && sum < 1e10;
}

static bool read_choice(const char *choices, const char *value, int *out)
{
    size_t n = strlen(value);
    *out = 0;
    for (const char *c = choices;; (*out)++) {
        size_t len = strcspn(c, "|");
        if (len == n && !memcmp(c, value, n)) return true;
        if (!c[len]) return false;
        c += len + 1;
    }
}

static enum status bad(const char *name, const char *expected, const char *value, struct err *e)
{
    return err_set(e, E_USAGE, "--%s: expected %s, found \"%.100s\"", name, expected, value);
}

static enum status read_count(const struct cmd_option *x, const char *value, uint64_t *out,
                              struct err *e)
{
    char expected[80];
    bool seed = x->has == JOB_HAS_SEED; /* every 64-bit number */
    if (read_u64(value, out) && (seed || ((double)*out >= x->min && (double)*out <= x->max)))
        return OK;
    snprintf(expected, sizeof expected, "an integer of at least %.0f", x->min);
    return bad(x->name, expected, value, e);
}

static enum status read_real(const struct cmd_option *x, const char *value, double *out,
                             struct err *e)
{
    char expected[80];
    const char *rest;
    if (read_plain(value, out, &rest) && !*rest && *out >= x->min && *out <= x->max) return OK;
    snprintf(expected, sizeof expected, "a number from %g to %g", x->min, x->max);
    return bad(x->name, expected, value, e);
}

enum status cmd_read_value(struct cmd_options *o, const struct cmd_option *x, const char *value,
                           struct err *e)
{
    void *at = (char *)o + x->at;
    uint64_t n;
    enum status rc = OK;
    switch (x->kind) {
    case CMD_FLAG:
        *(bool *)at = true;
        break;
    case CMD_TEXT:
        *(const char **)at = value;
        break;
    case CMD_COUNT:
        rc = read_count(x, value, at, e);
        break;
    case CMD_COUNT32:
        rc = read_count(x, value, &n, e);
        if (!rc) *(uint32_t *)at = (uint32_t)n;
        break;
    case CMD_REAL:
        rc = read_real(x, value, at, e);
        break;
    case CMD_SIZE:
        if (!read_size(value, at))
            rc = bad(x->name, "a size like 512M or 2.6G (powers of 1024)", value, e);
        break;
    case CMD_SECONDS:
        *(double *)at = 2;
        if (value && !read_seconds(value, at))
            rc = bad(x->name, "a time like 90s, 5m or 1h30m", value, e);
        break;
    case CMD_CHOICE:
        if (!read_choice(x->choices, value, at)) rc = bad(x->name, x->choices, value, e);
        break;
    case CMD_OWN:
        return x->own(o, value, e);
    }
    o->job.has |= x->has;
    return rc;
}

static bool read_percent(const char *s, double *out)
{
    const char *rest;
    return read_plain(s, out, &rest) && !strcmp(rest, "%") && *out > 0 && *out <= 100;
}

enum status cmd_read_halt(struct cmd_options *o, const char *value, struct err *e)
{
    const char *s = value;
    o->halt_fails = 0;
    o->halt_percent = 0;
    if (!strcmp(s, "never")) return OK;
    if (!strncmp(s, "soon,", 5)) s += 5;
    if (!strncmp(s, "fail=", 5) && (read_percent(s + 5, &o->halt_percent) ||
                                    (read_u64(s + 5, &o->halt_fails) && o->halt_fails)))
        return OK;
    return bad("halt", "never, fail=N or fail=P%", value, e);
}

/* The next time that the clock shows hour:minute. */
static int64_t next_time(int hour, int minute)
{
    time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    tm.tm_hour = hour;
    tm.tm_min = minute;
    tm.tm_sec = 0;
    tm.tm_isdst = -1;
    time_t t = mktime(&tm);
    if (t > now) return t;
    tm.tm_mday++;
    tm.tm_hour = hour;
    tm.tm_min = minute;
    tm.tm_isdst = -1;
    return mktime(&tm);
}

enum status cmd_read_deadline(struct cmd_options *o, const char *value, struct err *e)
{
    struct tm tm = {0};
    double seconds;
    const char *end = strptime(value, "%H:%M", &tm);
    if (end && !*end) {
        o->deadline = next_time(tm.tm_hour, tm.tm_min);
        return OK;
    }
    tm = (struct tm){.tm_isdst = -1};
    end = strptime(value, "%Y-%m-%dT%H:%M", &tm);
    if (end && !*end) {
        o->deadline = mktime(&tm);
        return OK;
    }
    if (!isdigit((unsigned char)value[strlen(value) - (*value != 0)]) &&
        read_seconds(value, &seconds)) {
        o->deadline = time(NULL) + (int64_t)ceil(seconds);
        return OK;
    }
    return bad("deadline", "a time like 06:30 or 2026-01-31T06:30, or 8h from now", value, e);
}

static bool read_env(const char *name, uint64_t *out)
{
    const char *s = getenv(name);
    return s && read_u64(s, out);
}

/* k of n from an array of Slurm (task id, first id, step, count) or an Indexed Job of Kubernetes,
 * which does not know how many there are. */
static bool shard_of_array(uint64_t *k, uint64_t *n)
{
    uint64_t id, first, step, count;
    if (read_env("JOB_COMPLETION_INDEX", &id)) {
        *k = id + 1;
        return *n != 0;
    }
    if (!read_env("SLURM_ARRAY_TASK_ID", &id)) return false;
    if (!read_env("SLURM_ARRAY_TASK_MIN", &first)) first = 0;
    if (!read_env("SLURM_ARRAY_TASK_STEP", &step) || step == 0) step = 1;
    if (!*n && read_env("SLURM_ARRAY_TASK_COUNT", &count)) *n = count;
    if (id < first || (id - first) % step) return false;
    *k = (id - first) / step + 1;
    return *n != 0;
}

enum status cmd_read_shard(struct cmd_options *o, const char *value, struct err *e)
{
    uint64_t k = 0, n = 0;
    char first[24] = "";
    const char *slash = strchr(value, '/');
    size_t len = slash ? (size_t)(slash - value) : strlen(value);
    bool good = len < sizeof first && (!slash || read_u64(slash + 1, &n));
    if (good) memcpy(first, value, len);
    bool from_array = !strcmp(first, "auto");
    good = good && (from_array ? shard_of_array(&k, &n) : slash && read_u64(first, &k));
    if (good && k >= 1 && k <= n && n <= 1000000) {
        o->shard = (uint32_t)k;
        o->shards = (uint32_t)n;
        return OK;
    }
    if (from_array)
        return err_set(e, E_USAGE,
                       "--shard %s: neither SLURM_ARRAY_TASK_ID, _MIN, _STEP, _COUNT nor "
                       "JOB_COMPLETION_INDEX (with auto/N) give a shard",
                       value);
    return bad("shard", "K/N with 1 <= K <= N", value, e);
}

enum status cmd_read_cache(struct cmd_options *o, const char *value, struct err *e)
{
    o->cache_experts = 0;
    o->cache_experts_percent = 0;
    if (read_percent(value, &o->cache_experts_percent)) return OK;
    if (read_u64(value, &o->cache_experts) && o->cache_experts) return OK;
    return bad("cache-experts", "a number of at least 1, or a percentage like 20%", value, e);
}

enum status cmd_read_draft(struct cmd_options *o, const char *value, struct err *e)
{
    o->no_drafts = !strcmp(value, "off");
    o->draft_tokens = 0;
    if (o->no_drafts || !strcmp(value, "auto")) return OK;
    if (read_u64(value, &o->draft_tokens) && o->draft_tokens && o->draft_tokens <= SPEC_MAX_DRAFT)
        return OK;
    return bad("draft", "auto, off, or a number from 1 to 16", value, e);
}

enum status cmd_read_effort(struct cmd_options *o, const char *value, struct err *e)
{
    static const char *const efforts[] = {NULL, NULL, "low", "high", "max"};
    int i;
    if (!read_choice("none|off|low|high|max", value, &i))
        return bad("reasoning-effort", "none, low, high or max", value, e);
    o->job.effort = efforts[i];
    o->job.has |= JOB_HAS_EFFORT;
    return OK;
}

enum status cmd_read_stop(struct cmd_options *o, const char *value, struct err *e)
{
    if (!*value) return bad("stop", "a text that is not empty", value, e);
    enum status rc = cmd_list_add(&o->stops, value, e);
    o->job.stops = o->stops.at;
    o->job.n_stops = o->stops.n;
    o->job.has |= JOB_HAS_STOP;
    return rc;
}

enum status cmd_read_map(struct cmd_options *o, const char *value, struct err *e)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !equals[1]) return bad("map-path", "OLD=NEW", value, e);
    struct image_ref_map *p = realloc(o->maps, (o->images.n_maps + 1) * sizeof *p);
    if (p) {
        o->maps = p;
        o->images.maps = p;
        p[o->images.n_maps] =
            (struct image_ref_map){strndup(value, (size_t)(equals - value)), equals + 1};
    }
    if (!p || !p[o->images.n_maps].from) return err_set(e, E_NOMEM, "no memory for --map-path");
    o->images.n_maps++;
    return OK;
}

enum status cmd_read_input(struct cmd_options *o, const char *value, struct err *e)
{
    return cmd_list_add(&o->operands, value, e);
}

enum status cmd_read_only(struct cmd_options *o, const char *value, struct err *e)
{
    return cmd_list_add(&o->only, value, e);
}
