/* Progress as text. */
#include "jobs/progress.h"

#include "jobs/export.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_EVERY_S  0.2
#define LOG_EVERY_S   30.0
#define LINES_EVERY_S 1.0
#define BAR           20

void progress_init(struct progress *p, enum progress_style style,
                   void (*write)(void *user, const char *text, size_t len), void *user)
{
    *p = (struct progress){.style = style, .write = write, .user = user, .last = -1};
}

void progress_duration(char *out, size_t size, double seconds)
{
    long s = seconds < 3e9 ? (long)(seconds + 0.5) : 3000000000L;
    if (s < 60)
        snprintf(out, size, "%ld s", s);
    else if (s < 3600)
        snprintf(out, size, "%ld m %02ld s", s / 60, s % 60);
    else
        snprintf(out, size, "%ld h %02ld m", s / 3600, s % 3600 / 60);
}

void progress_bytes(char *out, size_t size, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t u = 0;
    for (; bytes >= 1000 && u + 1 < sizeof units / sizeof *units; u++) bytes /= 1000;
    snprintf(out, size, u == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
}

static void put(struct progress *p, const struct buf *b)
{
    if (b->len) p->write(p->user, b->data, b->len);
}

void progress_time(char *out, size_t size, int64_t at)
{
    struct tm tm;
    time_t t = (time_t)at;
    strftime(out, size, "%a %H:%M", localtime_r(&t, &tm));
}

/* Counts, rates and the time left, in one line without its end. */
static enum status summary(struct buf *b, const struct progress *p, const struct pipeline_state *s)
{
    char read[24], eta[32], when[32] = "";
    double rate = s->seconds > 0 ? (double)s->tokens / s->seconds : 0;
    progress_bytes(read, sizeof read, (double)s->bytes_read);
    progress_duration(eta, sizeof eta, s->eta_s);
    if (p->clock && s->eta_s >= 0) progress_time(when, sizeof when, p->clock() + (int64_t)s->eta_s);
    return buf_addf(b, NULL,
                    "%lld/%lld done, %lld failed, %zu running, %.1f tok/s, %s read, ETA %s%s%s",
                    (long long)s->done, (long long)s->total, (long long)s->failed, s->running, rate,
                    read, s->eta_s < 0 ? "?" : eta, *when ? ", " : "", when);
}

static enum status bar(struct buf *b, const struct pipeline_state *s)
{
    int64_t ended = s->done + s->failed + s->cancelled;
    int full = s->total > 0 ? (int)(BAR * ended / s->total) : BAR;
    char cells[BAR + 1];
    for (int i = 0; i < BAR; i++) cells[i] = i < full ? '#' : '.';
    cells[BAR] = 0;
    return buf_addf(b, NULL, "[%s] ", cells);
}

/* A job that failed deserves a line of its own; one that is done does not. An id may hold anything,
 * also what a terminal would obey. */
static enum status job_line(struct buf *b, const struct pipeline_state *s)
{
    char id[80];
    snprintf(id, sizeof id, "%s", s->job->custom_id);
    for (char *c = id; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    if (s->event == PIPELINE_RETRY)
        return buf_addf(b, NULL, "%s: try %lld failed: %s: %s\n", id, (long long)s->job->attempt,
                        status_name(s->code), s->message);
    return buf_addf(b, NULL, "%s: failed: %s: %s\n", id, status_name(s->code), s->message);
}

static bool is_failure(const struct pipeline_state *s)
{
    return s->event == PIPELINE_RETRY || (s->event == PIPELINE_JOB && s->code);
}

/* A line that wraps cannot be written over: the bar goes first, then what stands behind. */
static void fit(struct buf *b, const struct progress *p, const struct pipeline_state *s)
{
    size_t start = b->len, most = p->columns ? p->columns - 1 : SIZE_MAX;
    enum status rc = bar(b, s);
    if (!rc) rc = summary(b, p, s);
    if (b->len - start > most) {
        b->len = start;
        summary(b, p, s);
    }
    if (b->len - start > most) b->len = start + most;
}

static void steady_line(struct progress *p, const struct pipeline_state *s)
{
    struct buf b = {0};
    bool failure = is_failure(s), last = s->event == PIPELINE_ENDED;
    if (!failure && !last && p->last >= 0 && s->seconds - p->last < LINE_EVERY_S) return;
    p->last = s->seconds;
    if (p->shown) buf_addf(&b, NULL, "\r\033[K");
    if (failure) job_line(&b, s);
    p->shown = !last;
    if (!last) fit(&b, p, s);
    put(p, &b);
    buf_free(&b);
}

static void log_line(struct progress *p, const struct pipeline_state *s)
{
    struct buf b = {0};
    if (is_failure(s)) job_line(&b, s);
    bool due = s->seconds - p->last >= LOG_EVERY_S || s->event == PIPELINE_STARTED;
    if (due) {
        p->last = s->seconds;
        if (!summary(&b, p, s)) buf_addf(&b, NULL, "\n");
    }
    put(p, &b);
    buf_free(&b);
}

static void json_line(struct progress *p, const struct pipeline_state *s)
{
    static const char *const names[] = {"started", "progress", "job", "retry", "saved", "ended"};
    struct buf b = {0};
    if (s->event == PIPELINE_SWEPT && s->seconds - p->last < LINES_EVERY_S) return;
    if (s->event == PIPELINE_SWEPT) p->last = s->seconds;
    enum status rc = buf_addf(
        &b, NULL,
        "{\"event\":\"%s\",\"seconds\":%.3f,\"total\":%lld,\"done\":%lld,\"failed\":%lld,"
        "\"cancelled\":%lld,\"running\":%zu,\"ready\":%zu,\"tokens\":%llu,\"rows\":%llu,"
        "\"sweeps\":%llu,\"bytes_read\":%llu,\"decode_s\":%.3f,\"encode_s\":%.3f,\"waited_s\":%.3f,"
        "\"waited_decode_s\":%.3f,\"waited_encode_s\":%.3f,\"eta_s\":",
        names[s->event], s->seconds, (long long)s->total, (long long)s->done, (long long)s->failed,
        (long long)s->cancelled, s->running, s->ready, (unsigned long long)s->tokens,
        (unsigned long long)s->rows, (unsigned long long)s->sweeps,
        (unsigned long long)s->bytes_read, s->waits.all.decode_s, s->waits.all.encode_s,
        s->waits.seconds, s->waits.waited.decode_s, s->waits.waited.encode_s);
    if (!rc) rc = s->eta_s < 0 ? buf_addf(&b, NULL, "null") : buf_addf(&b, NULL, "%.0f", s->eta_s);
    if (!rc && s->job) {
        rc = buf_addf(&b, NULL, ",\"job\":%lld,\"custom_id\":", (long long)s->job->id);
        const char *id = s->job->custom_id;
        if (!rc) rc = export_quote(&b, id, id ? strlen(id) : 0, NULL);
        const char *code = s->code ? status_name(s->code) : NULL;
        if (!rc) rc = buf_addf(&b, NULL, ",\"code\":");
        if (!rc) rc = export_quote(&b, code, code ? strlen(code) : 0, NULL);
        if (!rc) rc = buf_addf(&b, NULL, ",\"message\":");
        if (!rc) rc = export_quote(&b, s->message, s->message ? strlen(s->message) : 0, NULL);
    }
    if (!rc) rc = buf_addf(&b, NULL, "}\n");
    if (!rc) put(p, &b);
    buf_free(&b);
}

void progress_event(struct progress *p, const struct pipeline_state *s)
{
    switch (p->style) {
    case PROGRESS_LINE:
        steady_line(p, s);
        break;
    case PROGRESS_LOG:
        log_line(p, s);
        break;
    case PROGRESS_LINES:
        json_line(p, s);
        break;
    case PROGRESS_SILENT:
        break;
    }
}
