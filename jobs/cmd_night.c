/* Working a queue on behalf of run and work: settings, memory, the pipeline, progress, the end. */
#include "jobs/cmd_order.h"
#include "jobs/cmd_queue.h"
#include "jobs/cmd_speed.h"

#include "jobs/kinds.h"
#include "jobs/past.h"
#include "jobs/pipeline.h"
#include "jobs/progress.h"
#include "jobs/runs.h"
#include "src/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define RETRY_S      5.0
#define CHECKPOINT_S 30.0
#define SPOOL_BYTES  ((uint64_t)8 << 30)

struct night {
    struct cmd_queue *q;
    const struct cmd_options *o;
    struct cmd_model *m;
    bool alone;
    char worker[160], settings[160], machine[160];
    struct progress progress;
    struct pipeline_report report;
    int64_t run_id;
    uint64_t known_rows; /* learned of kinds when they were stored */
};

static void write_err(void *user, const char *text, size_t len)
{
    (void)user;
    fwrite(text, 1, len, stderr);
}

static enum progress_style style(const struct cmd_options *o)
{
    if (o->quiet) return PROGRESS_SILENT;
    switch (o->progress) {
    case PROGRESS_TTY:
        return PROGRESS_LINE;
    case PROGRESS_PLAIN:
        return PROGRESS_LOG;
    case PROGRESS_JSON:
        return PROGRESS_LINES;
    case PROGRESS_NONE:
        return PROGRESS_SILENT;
    default:
        return isatty(STDERR_FILENO) ? PROGRESS_LINE : PROGRESS_LOG;
    }
}

/* Now and then: when as much again was learned. A failure waits for the queue's own writes. */
static void keep_kinds(struct night *n, bool last)
{
    struct affinity *a = engine_affinity(n->m->engine);
    struct err why;
    uint64_t rows = a ? affinity_rows(a) : 0;
    if (rows == n->known_rows || (!last && rows < 2 * n->known_rows)) return;
    kinds_store(n->q->db, n->m->sha256, a, &n->m->config, &why);
    n->known_rows = rows;
}

static void on_event(void *user, const struct pipeline_state *s)
{
    struct night *n = user;
    struct winsize w;
    if (s->event == PIPELINE_SAVED) keep_kinds(n, false);
    /* A terminal may be resized at any time. */
    n->progress.columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
    progress_event(&n->progress, s);
}

static int on_stop(void *user)
{
    (void)user;
    return cmd_stop_wanted();
}

/* What results depend on beside the job, stored with the queue and compared on resume. */
static enum status check_settings(struct night *n, struct err *e)
{
    const struct cmd_options *o = n->o;
    const struct vision_limits *l = &n->m->limits;
    char patches[16];
    struct buf changed = {0};
    snprintf(patches, sizeof patches, "%u", l->max_patches);
    const struct run_setting list[] = {
        {"model", n->m->name, true},
        {"model_sha256", n->m->sha256, false},
        {"activations", o->activations == ACTIVATIONS_BF16 ? "bf16" : "f32", false},
        {"max_patches", patches, false},
        {"exif", l->exif ? "on" : "off", false},
        {"lenient_images", l->lenient ? "on" : "off", false},
        {"isa", n->m->kern->name, true},
    };
    size_t at = 0;
    for (size_t i = 2; i < 6; i++)
        at += (size_t)snprintf(n->settings + at, sizeof n->settings - at, "%s%s=%s",
                               i > 2 ? " " : "", list[i].name, list[i].value);
    /* What the dead held, nobody computes with other settings. */
    enum status rc = queue_release_dead(n->q->db, n->alone, e);
    if (!rc)
        rc = run_settings(n->q->db, list, sizeof list / sizeof *list, o->allow_model_change,
                          &changed, e);
    if (!rc && changed.len && !o->quiet)
        fprintf(stderr, "nightshift: the queue was begun otherwise: %s\n", changed.data);
    buf_free(&changed);
    return rc;
}

static enum status begin_run(struct night *n, struct err *e)
{
    char ram[24];
    progress_bytes(ram, sizeof ram, (double)n->m->plan.ram_bytes);
    snprintf(n->machine, sizeof n->machine, "%s, %u threads, %s", n->m->kern->name, n->m->threads,
             ram);
    struct run_info info = {.worker = n->worker,
                            .model = n->m->name,
                            .model_sha256 = n->m->sha256,
                            .settings = n->settings,
                            .machine = n->machine};
    return run_begin(n->q->db, &info, &n->run_id, e);
}

/* Beside the database; only for a queue that has this process alone. */
static enum status open_spool(struct night *n, struct spool **out, struct err *e)
{
    struct buf dir = {0}, scope = {0};
    *out = NULL;
    if (!n->alone || !n->m->vision) return OK;
    enum status rc = buf_addf(&dir, e, "%s.images", db_path(n->q->db));
    if (!rc) rc = buf_addf(&scope, e, "%s isa=%s", n->settings, n->m->kern->name);
    struct spool_opts o = {.dir = dir.data,
                           .scope = scope.data,
                           .limit_bytes = SPOOL_BYTES,
                           .width = n->m->config.hidden};
    if (!rc) rc = spool_open(out, &o, e);
    buf_free(&dir);
    buf_free(&scope);
    return rc;
}

/* Of a run that died after its last picture. */
static void forget_spool(struct night *n)
{
    struct buf dir = {0};
    struct spool_opts o = {.scope = "", .width = 1};
    struct spool *s;
    if (!n->alone || buf_addf(&dir, NULL, "%s.images", db_path(n->q->db))) return;
    o.dir = dir.data;
    if (!spool_open(&s, &o, NULL)) spool_close(s, true);
    buf_free(&dir);
}

static void learn(void *user, const int32_t *ids, size_t n, size_t n_prompt)
{
    engine_learn(user, ids, n, n_prompt);
}

/* What earlier runs of the queue are good for. */
static enum status remember(struct night *n, struct err *e)
{
    struct affinity *a = engine_affinity(n->m->engine);
    struct past past = {n->m->tok, &n->m->config, learn, n->m->engine};
    enum status rc = a ? kinds_load(n->q->db, n->m->sha256, a, e) : OK;
    if (!rc && n->m->plan.draft_rows) rc = past_answers(n->q->db, &past, e);
    n->known_rows = a ? affinity_rows(a) : 0;
    return rc;
}

static enum status work(struct night *n, struct err *e)
{
    const struct cmd_options *o = n->o;
    struct cmd_model *m = n->m;
    int64_t lease_ms = cmd_queue_lease_ms();
    struct pipeline_opts p = {
        .db = n->q->db,
        .worker = {.name = n->worker, .lease_ms = lease_ms, .input_order = o->order == ORDER_INPUT},
        .alone = n->alone,
        .engine = {m->engine, engine_add, engine_remove, engine_sweep, engine_stats,
                   engine_affinity(m->engine)},
        .sequences = m->plan.sequences,
        .prefill_rows = m->plan.prefill_rows,
        .sweep_s = m->night.sweep.seconds,
        .idle_s = m->night.sweep.seconds - m->night.sweep.compute_s,
        .prepare = {.mem = &m->mem,
                    .config = &m->config,
                    .tok = m->tok,
                    .vocab = m->vocab,
                    .encode = m->vision ? vision_encode : NULL,
                    .times = m->vision ? vision_times : NULL,
                    .vision = m->vision,
                    .image_bytes = m->store_bytes,
                    .ram_bytes = m->plan.ram_bytes,
                    .picture_bytes = m->picture_bytes,
                    .images = o->images,
                    .keep_changed = o->on_changed_input == CHANGED_KEEP,
                    .verify_stat = o->verify_images == VERIFY_STAT,
                    .model_name = m->name},
        .retries = o->retries,
        .retry_s = RETRY_S,
        .checkpoint_s = lease_ms ? (double)lease_ms / 4000 : CHECKPOINT_S,
        .timeout_s = o->job.has & JOB_HAS_TIMEOUT ? o->job.timeout_s : 0,
        .max_jobs = o->max_jobs,
        .deadline = o->deadline,
        .halt_fails = o->halt_fails,
        .halt_percent = o->halt_percent,
        .run_id = n->run_id,
        .stop = on_stop,
        .event = on_event,
        .user = n,
    };
    progress_init(&n->progress, style(o), write_err, NULL);
    if (o->eta) n->progress.clock = os_unix_time;
    enum status rc = open_spool(n, &p.prepare.spool, e);
    if (!rc) rc = remember(n, e);
    if (!rc) rc = pipeline_run(&p, &n->report, e);
    keep_kinds(n, true);
    spool_close(p.prepare.spool, !rc && n->report.unfinished == 0);
    return rc;
}

static int exit_code(const struct night *n, const struct queue_counts *c)
{
    if (n->report.end == PIPELINE_STOPPED) return cmd_stop_exit();
    if (queue_unfinished(c)) return EXIT_LIMIT;
    return c->failed + c->cancelled ? EXIT_SOME_FAILED : EXIT_DONE;
}

static enum status failures(struct db *db, struct buf *b, struct err *e)
{
    sqlite3_stmt *s;
    bool row = true;
    enum status rc = db_stmt(db, &s, "SELECT code, jobs FROM failure_counts ORDER BY jobs DESC", e);
    while (!rc) {
        rc = db_step(db, s, &row, e);
        if (rc || !row) break;
        rc =
            buf_addf(b, e, "%s%s %lld", b->len ? ", " : "", (const char *)sqlite3_column_text(s, 0),
                     (long long)sqlite3_column_int64(s, 1));
    }
    return rc;
}

/* "176 jobs: 170 done, 6 failed (image_missing 4, timeout 2), 0 left" */
static enum status tell_counts(const struct night *n, const struct queue_counts *c, struct err *e)
{
    struct buf codes = {0};
    enum status rc = failures(n->q->db, &codes, e);
    if (!rc) {
        fprintf(stderr, "%lld jobs: %lld done, %lld failed%s%s%s, ", (long long)queue_total(c),
                (long long)c->done, (long long)c->failed, codes.len ? " (" : "",
                codes.len ? codes.data : "", codes.len ? ")" : "");
        if (c->cancelled) fprintf(stderr, "%lld cancelled, ", (long long)c->cancelled);
        fprintf(stderr, "%lld left\n", (long long)queue_unfinished(c));
    }
    buf_free(&codes);
    return rc;
}

/* What was expected beside what came of it; seconds say nothing. */
#define LEAST_TOLD_S 10
static void tell_forecast(const struct night *n)
{
    const struct pipeline_report *r = &n->report;
    const struct engine_stats *g = &r->engine;
    double tokens = (double)g->tokens, bytes = (double)(g->expert_bytes + g->trunk_bytes);
    char expected[24], read[24];
    if (!g->tokens || r->seconds < LEAST_TOLD_S) return;
    progress_bytes(expected, sizeof expected, n->m->night.bytes_per_token);
    progress_bytes(read, sizeof read, bytes / tokens);
    fprintf(stderr,
            "expected %.3g tokens a second, %s read for each, %.0f jobs an hour; it was %.3g, %s, "
            "%.0f\n",
            n->m->night.tokens_s, expected, n->m->night.jobs_per_hour, tokens / r->seconds, read,
            (double)r->done / r->seconds * 3600);
    if (n->m->disk_bytes_s <= 0) return;
    progress_bytes(expected, sizeof expected, n->m->planned_bytes_s);
    progress_bytes(read, sizeof read, n->m->disk_bytes_s);
    fprintf(
        stderr,
        "the disk gave %s a second where %s were measured: with that, %.3g tokens a second were "
        "to be expected\n",
        read, expected, n->m->seen.tokens_s);
}

/* Where the time went: sweeps wait for what is not there yet, and compute; between them the engine
 * waits for jobs that are being prepared. */
static void tell_time(const struct pipeline_report *r)
{
    const struct engine_stats *g = &r->engine;
    const struct ahead_waits *w = &r->waits;
    double waits = g->expert_wait_s + g->trunk_wait_s, percent = 100 / r->seconds;
    if (r->seconds <= 0 || g->sweep_s <= 0) return;
    fprintf(stderr,
            "of the time %.0f %% computing, %.0f %% waiting for experts, %.0f %% for other "
            "weights, %.0f %% for pictures being decoded, %.0f %% for the vision tower, %.0f %% "
            "for prompts; %.0f %% the queue and the rest\n",
            (g->sweep_s - waits) * percent, g->expert_wait_s * percent, g->trunk_wait_s * percent,
            w->waited.decode_s * percent, w->waited.encode_s * percent,
            (w->seconds - w->waited.decode_s - w->waited.encode_s) * percent,
            (r->seconds - g->sweep_s - w->seconds) * percent);
}

/* What this run did, beside what was planned. */
static void tell_work(const struct night *n)
{
    const struct pipeline_report *r = &n->report;
    const struct engine_stats *g = &r->engine;
    char time[32], read[24], peak[24], budget[24];
    progress_duration(time, sizeof time, r->seconds);
    progress_bytes(read, sizeof read, (double)(g->expert_bytes + g->trunk_bytes));
    progress_bytes(peak, sizeof peak, (double)os_peak_rss());
    progress_bytes(budget, sizeof budget, (double)n->m->plan.ram_bytes);
    fprintf(stderr, "%llu tokens in %s (%.1f a second), %llu prompt rows",
            (unsigned long long)g->tokens, time,
            r->seconds > 0 ? (double)g->tokens / r->seconds : 0,
            (unsigned long long)g->prefill_rows);
    if (g->prefix.rows_saved)
        fprintf(stderr, " and %llu shared", (unsigned long long)g->prefix.rows_saved);
    if (g->spec.drafted)
        fprintf(stderr, ", %llu of %llu drafts right", (unsigned long long)g->spec.accepted,
                (unsigned long long)g->spec.drafted);
    fprintf(stderr, "; %llu sweeps, %s read; peak memory %s of %s\n", (unsigned long long)g->sweeps,
            read, peak, budget);
    tell_time(r);
    cmd_tell_order(r);
    tell_forecast(n);
}

static enum status end_run(struct night *n, int code, struct err *e)
{
    const struct pipeline_report *r = &n->report;
    struct run_counts c = {
        .done = r->done,
        .failed = r->failed,
        .prompt_rows = r->engine.prefill_rows,
        .completion_tokens = r->engine.tokens,
        .sweeps = r->engine.sweeps,
        .bytes_read = r->engine.expert_bytes + r->engine.trunk_bytes,
        .seconds = r->seconds,
    };
    return run_update(n->q->db, n->run_id, &c, code, e);
}

static enum status prepare(struct night *n, const struct measure *need, struct err *e)
{
    enum status rc = check_settings(n, e);
    if (!rc) rc = cmd_speed_take(n->m, n->o, n->q->db, e);
    if (!rc) rc = cmd_model_plan(n->m, n->o, need, e);
    if (rc) return rc;
    if (n->m->short_of && !n->o->quiet)
        fprintf(stderr,
                "nightshift: the memory has room for jobs of %zu rows; the longest has %llu, those "
                "over it will fail\n",
                n->m->plan.context, (unsigned long long)n->m->short_of);
    if (n->m->short_picture && !n->o->quiet)
        fprintf(stderr,
                "nightshift: the memory has %.0f MB to decode a picture; those that need more will "
                "fail\n",
                (double)n->m->short_picture / 1e6);
    rc = begin_run(n, e);
    return rc ? rc : cmd_model_load(n->m, n->o, e);
}

enum status cmd_night(struct cmd_queue *q, const struct cmd_options *o, struct cmd_model *m,
                      int *code, struct err *e)
{
    struct night n = {.q = q, .o = o, .m = m, .alone = !strcmp(o->command, "run")};
    struct measure need;
    struct queue_counts c;
    os_process_name(n.worker, sizeof n.worker);
    enum status rc = measure_queue(q->db, &m->config, m->tok, cmd_model_image_rows(m), &need, e);
    /* Workers may be given pictures later on. */
    if (!n.alone) need.images++, need.unknown++;
    if (!rc && need.jobs) {
        rc = prepare(&n, &need, e);
        if (!rc) rc = work(&n, e);
        struct cmd_speed_run run = {&n.report.engine, n.report.seconds, n.report.done};
        if (!rc) rc = cmd_speed_learn(m, o, q->db, &run, e);
    }
    if (!rc && n.report.unfinished == 0) forget_spool(&n);
    if (!rc) rc = queue_counts(q->db, &c, e);
    if (!rc) *code = exit_code(&n, &c);
    if (n.run_id) {
        struct err more;
        end_run(&n, rc ? (int)cmd_exit_code(rc) : *code, rc ? &more : e);
    }
    if (rc || o->quiet) return rc;
    rc = tell_counts(&n, &c, e);
    if (!rc && n.report.engine.sweeps) tell_work(&n);
    return rc;
}
