/* The flow, from claim to result:
 *
 *     claim      some hundred jobs of the queue, those that begin alike        (turn, queue)
 *     choose     the one that goes next, when the last one was prepared        (order)
 *     prepare    pictures, prompt: on a thread beside the sweeps               (ahead, prepare)
 *     hold       sweeps back while jobs that are worth it become ready         (hold)
 *     admit      ready jobs into the engine, several at a time                 (order, flight)
 *     sweep      one pass of the model over everything running                 (engine)
 *     finish     jobs that ended: answer and state in one transaction          (result)
 *     save       every half minute: tokens so far of the others, leases        (result)
 *
 * Every job claimed has a slot in p->flights from claim to store; its number is the sequence's tag.
 * SQL is done on this thread only. */
#include "jobs/pipeline.h"

#include "jobs/eta.h"
#include "jobs/flight.h"
#include "jobs/hold.h"
#include "jobs/order.h"
#include "jobs/runs.h"
#include "jobs/turn.h"
#include "src/os.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_S       0.2               /* between looks at a stop or at the queue while idle */
#define IDLE_CLAIM_S 1.0               /* between looks into an empty queue */
#define LEASE_MS     (15 * 60 * 1000L) /* unless told; longer where a sweep is */
#define HALT_LEAST   10
#define CLAIM_MOST   64                  /* in one transaction */
#define TEXT_BYTES   ((int64_t)32 << 20) /* of jobs that wait, about */
#define AHEAD_BYTES  (TEXT_BYTES / 8)    /* of those that are prepared, which hold much more */
#define MAX_RETRY_S  600.0

struct pipeline {
    const struct pipeline_opts *o;
    struct prepare *prepare;
    struct ahead *ahead;
    struct order *order;
    struct turn turn;
    size_t ahead_max, claim_max, n_flights;
    int64_t longest;             /* text of a job, bytes */
    struct flight *flights;      /* [n_flights] */
    struct queue_job *claimed;   /* [claim_max] */
    struct result_partial *part; /* [n_flights] */
    struct flight **ready;       /* [n_ready] not yet admitted, in the order of preparing */
    size_t n_ready;
    struct hold hold;
    struct queue_worker worker;
    struct pipeline_state state;
    struct pipeline_report *report;
    struct eta eta;
    double begun, saved, next_claim;
    bool dry; /* the last claim found nothing */
    bool ending;
    size_t running;
};

static int64_t now_ms(void)
{
    return os_unix_time() * 1000;
}

static void event(struct pipeline *p, enum pipeline_event kind, const struct flight *f,
                  const struct result *r)
{
    if (!p->o->event) return;
    struct engine_stats s = {0};
    p->o->engine.stats(p->o->engine.g, &s);
    struct pipeline_state *t = &p->state;
    t->event = kind;
    t->running = p->running;
    t->ready = (p->ahead ? ahead_inside(p->ahead) : 0) + p->n_ready;
    t->rows = s.prefill_rows + s.decode_rows;
    t->bytes_read = s.expert_bytes + s.trunk_bytes;
    t->sweeps = s.sweeps;
    if (p->ahead) ahead_waits(p->ahead, &t->waits);
    t->seconds = os_now() - p->begun;
    t->eta_s =
        t->rows > 0 && t->seconds > 0 ? eta_rows(&p->eta) / ((double)t->rows / t->seconds) : -1;
    t->job = f ? &f->job : NULL;
    t->code = r ? r->code : OK;
    t->message = r ? r->message : NULL;
    p->o->event(p->o->user, t);
}

static void end(struct pipeline *p, enum pipeline_end how)
{
    p->report->end = how;
    p->ending = true;
}

static struct eta_load load_of(const struct flight *f)
{
    struct eta_load load = {1, (double)f->job.text_bytes, 0};
    for (size_t i = 0; i < f->job.n_images; i++) {
        int64_t rows = f->job.images[i].rows;
        load.image_rows += rows ? (double)rows : ETA_IMAGE_ROWS;
    }
    return load;
}

static void land(struct pipeline *p, struct flight *f)
{
    if (f->where == FLIGHT_RUNNING) p->running--;
    flight_free(f, p->prepare);
}

static bool stop_wanted(const struct pipeline *p)
{
    return p->o->stop && p->o->stop(p->o->user);
}

/* ---- claim ---- */

/* Claimed and not yet in the engine. */
static size_t inside(const struct pipeline *p)
{
    return order_waiting(p->order) + ahead_inside(p->ahead) + p->n_ready;
}

static size_t claim_room(const struct pipeline *p)
{
    size_t room = order_room(p->order), most = order_waiting(p->order) + room;
    /* In parts: one commit for several jobs. */
    if (room * 4 < most) return 0;
    if (room > p->claim_max) room = p->claim_max;
    int64_t fit = p->longest > 0
                      ? (TEXT_BYTES - flight_texts(p->flights, p->n_flights, true)) / p->longest
                      : CLAIM_MOST;
    if (fit < (int64_t)room) room = fit > 0 ? (size_t)fit : order_waiting(p->order) == 0;
    if (p->o->max_jobs) {
        uint64_t begun = p->report->done + p->report->failed + p->running + inside(p);
        uint64_t left = p->o->max_jobs > begun ? p->o->max_jobs - begun : 0;
        if (left < room) room = (size_t)left;
    }
    return room;
}

static enum status claim(struct pipeline *p, struct err *e)
{
    size_t room = claim_room(p), n = 0, slot = 0;
    double now = os_now();
    if (room == 0 || (p->dry && now < p->next_claim)) return OK;
    enum status rc = turn_next(p->o->db, &p->turn, &p->worker, e);
    if (!rc) rc = queue_claim(p->o->db, &p->worker, now_ms(), p->claimed, room, &n, e);
    if (rc) return rc;
    turn_claimed(&p->turn, &p->worker, p->claimed, n);
    p->dry = n < room;
    p->next_claim = now + IDLE_CLAIM_S;
    for (size_t i = 0; i < n; i++) {
        while (p->flights[slot].where != FLIGHT_FREE) slot++;
        p->flights[slot].job = p->claimed[i];
        order_wait(p->order, &p->flights[slot]);
    }
    return OK;
}

/* Keeps the preparing thread busy. */
static void choose(struct pipeline *p)
{
    struct flight *f;
    while (ahead_inside(p->ahead) + p->n_ready < p->ahead_max &&
           flight_texts(p->flights, p->n_flights, false) < AHEAD_BYTES &&
           (f = order_next(p->order, p->flights, p->n_flights))) {
        if (f->lost) {
            land(p, f);
            continue;
        }
        f->where = FLIGHT_AHEAD;
        f->ready.from = &f->job;
        ahead_submit(p->ahead, &f->ready);
    }
}

/* ---- finish ---- */

static double retry_delay(const struct pipeline *p, int64_t attempt)
{
    double s = p->o->retry_s;
    for (int64_t i = 1; i < attempt && s < MAX_RETRY_S; i++) s *= 4;
    return s < MAX_RETRY_S ? s : MAX_RETRY_S;
}

/* A fault that another try may not meet. An answer that is drawn without chance comes out the same
 * again. */
static bool may_pass(const struct flight *f, enum status code)
{
    if (code == E_INVALID_OUTPUT_JSON) return f->ready.job.settings.temperature > 0;
    return f->ready.transient || code == E_ENGINE;
}

static void count(struct pipeline *p, const struct flight *f, const struct result *r)
{
    struct eta_load load = load_of(f);
    eta_finish(&p->eta, &load, r->code ? 0 : r->completion_tokens);
    *(r->code ? &p->report->failed : &p->report->done) += 1;
    *(r->code ? &p->state.failed : &p->state.done) += 1;
    p->report->prompt_tokens += r->prompt_tokens;
    p->report->completion_tokens += r->completion_tokens;
}

/* Stores what became of f and frees it. code OK: the reply as it is. */
static enum status finish(struct pipeline *p, struct flight *f, enum status code,
                          const char *message, struct err *e)
{
    struct result r = {.code = code, .message = message, .now = now_ms(), .run_id = p->o->run_id};
    struct err why;
    flight_result(f, &r, &why);
    int64_t tries = f->job.attempt - f->job.tried;
    bool again = r.code && may_pass(f, r.code) && (uint64_t)tries <= p->o->retries;
    enum status rc;
    if (again) {
        double delay = r.code == E_INVALID_OUTPUT_JSON ? 0 : retry_delay(p, tries);
        rc = result_retry(p->o->db, &f->job, &r, (int64_t)(delay * 1000), e);
        if (!rc) p->report->retried++;
        p->dry = false;
    } else {
        rc = result_store(p->o->db, &f->job, &r, e);
        if (!rc) count(p, f, &r);
    }
    if (!rc) event(p, again ? PIPELINE_RETRY : PIPELINE_JOB, f, &r);
    if (rc == E_LEASE) {
        p->report->lost++;
        rc = OK;
    }
    land(p, f);
    return rc;
}

static enum status fail_or_stop(struct pipeline *p, struct flight *f, const struct err *why,
                                struct err *e)
{
    struct err copy = *why;
    if (status_fault(copy.code) == FAULT_JOB) return finish(p, f, copy.code, copy.text, e);
    if (copy.code == E_STOPPED) {
        land(p, f);
        return OK;
    }
    if (e) *e = copy;
    return copy.code;
}

static enum status finish_ended(struct pipeline *p, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < p->n_flights && !rc; i++) {
        struct flight *f = &p->flights[i];
        if (f->where != FLIGHT_RUNNING) continue;
        if (f->first > 0) ready_drop_rows(p->prepare, &f->ready);
        if (f->err.code)
            rc = fail_or_stop(p, f, &f->err, e);
        else if (f->state != REPLY_OPEN)
            rc = finish(p, f, OK, NULL, e);
    }
    return rc;
}

static enum status finish_late(struct pipeline *p, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < p->n_flights && !rc; i++) {
        struct flight *f = &p->flights[i];
        if (f->where != FLIGHT_RUNNING) continue;
        double limit = flight_limit(f, p->o->timeout_s);
        double spent = os_now() - f->begun + f->past_prefill + f->past_decode;
        if (limit <= 0 || spent < limit) continue;
        p->o->engine.remove(p->o->engine.g, i);
        char message[96];
        snprintf(message, sizeof message, "not finished after %.0f of %.0f seconds", spent, limit);
        rc = finish(p, f, E_TIMEOUT, message, e);
    }
    return rc;
}

/* ---- admit ---- */

/* A job comes out of the preparing thread. */
static enum status take(struct pipeline *p, struct ready *r, struct err *e)
{
    struct flight *f = (struct flight *)((char *)r - offsetof(struct flight, ready));
    if (f->lost) {
        land(p, f);
        return OK;
    }
    struct err why = r->err;
    if (why.code) return fail_or_stop(p, f, &why, e);
    struct eta_load load = load_of(f);
    uint64_t pictures = 0;
    for (size_t i = 0; i < r->n_images; i++) pictures += r->images[i].n;
    eta_prompt(&p->eta, &load, r->prompt.ids.n - pictures, pictures);
    enum status rc = flight_start(f, &p->o->prepare, e);
    if (rc) return rc;
    if (f->state != REPLY_OPEN) return finish(p, f, OK, NULL, e);
    f->where = FLIGHT_READY;
    p->ready[p->n_ready++] = f;
    return OK;
}

static bool hold(struct pipeline *p)
{
    if (ahead_inside(p->ahead) == 0) return false;
    /* Pictures that fill the store are given back by sweeps. */
    size_t n = p->running + p->n_ready;
    if (n && prepare_full(p->prepare)) return false;
    /* A job's time is not spent on others. */
    for (size_t i = 0; i < p->n_flights; i++)
        if (flight_limit(&p->flights[i], p->o->timeout_s) > 0) return false;
    return p->o->patient || hold_sweep(&p->hold, n, p->o->sequences, os_now());
}

/* Takes what is ready; *held: more is worth waiting for. */
static enum status take_ready(struct pipeline *p, bool *held, struct err *e)
{
    enum status rc = OK;
    struct ready *r;
    while (!rc && (r = ahead_take(p->ahead, (*held = hold(p)) ? POLL_S : 0))) {
        hold_came(&p->hold, os_now());
        rc = take(p, r, e);
    }
    return rc;
}

static enum status add(struct pipeline *p, struct flight *f, struct err *why)
{
    struct engine_sequence s;
    size_t cuts[SHARE_CUTS];
    flight_sequence(f, (uint64_t)(f - p->flights), &s);
    s.cuts = cuts;
    s.n_cuts = order_cuts(f, p->flights, p->n_flights, cuts);
    return p->o->engine.add(p->o->engine.g, &s, why);
}

static enum status admit(struct pipeline *p, bool *held, struct err *e)
{
    enum status rc = take_ready(p, held, e);
    struct order_now now = {
        .free = p->o->sequences - p->running, .ready = p->n_ready, .running = p->running > 0};
    now.coming = !p->dry || ahead_inside(p->ahead) + order_waiting(p->order) > 0;
    if (!rc && (*held || !order_admit(p->order, &now))) return OK;
    while (!rc && p->n_ready) {
        struct flight *f = p->ready[0];
        struct err why;
        enum status added = f->lost ? E_LEASE : add(p, f, &why);
        if (added == E_BUDGET && p->running > 0) break;
        memmove(p->ready, p->ready + 1, --p->n_ready * sizeof *p->ready);
        if (added == E_LEASE) {
            land(p, f);
        } else if (added) {
            rc = fail_or_stop(p, f, &why, e);
        } else {
            f->where = FLIGHT_RUNNING;
            f->begun = os_now();
            p->running++;
            order_admitted(p->order);
        }
    }
    return rc;
}

/* ---- sweep ---- */

static bool on_token(void *user, uint64_t tag, int32_t id, const float *logits)
{
    (void)logits;
    struct pipeline *p = user;
    p->state.tokens++;
    return flight_token(&p->flights[tag], id);
}

static enum status sweep(struct pipeline *p, struct err *e)
{
    double start = os_now();
    size_t running = p->running;
    enum status rc = p->o->engine.sweep(p->o->engine.g, on_token, p, e);
    if (rc) return rc;
    double took = os_now() - start;
    int64_t needed = (int64_t)(took * 4000);
    if (needed > p->worker.lease_ms) p->worker.lease_ms = needed;
    rc = finish_ended(p, e);
    if (!rc) rc = finish_late(p, e);
    struct engine_stats s = {0};
    p->o->engine.stats(p->o->engine.g, &s);
    hold_swept(&p->hold, took, s.expert_wait_s + s.trunk_wait_s, os_now());
    order_swept(p->order, &s, running);
    if (!rc) event(p, PIPELINE_SWEPT, NULL, NULL);
    return rc;
}

/* ---- save ---- */

static enum status update_run(struct pipeline *p, struct err *e)
{
    struct engine_stats s = {0};
    p->o->engine.stats(p->o->engine.g, &s);
    struct run_counts c = {
        .done = p->report->done,
        .failed = p->report->failed,
        .prompt_rows = s.prefill_rows,
        .completion_tokens = p->state.tokens,
        .sweeps = s.sweeps,
        .bytes_read = s.expert_bytes + s.trunk_bytes,
        .seconds = os_now() - p->begun,
    };
    return run_update(p->o->db, p->o->run_id, &c, -1, e);
}

static void drop_lost(struct pipeline *p, size_t slot)
{
    struct flight *f = &p->flights[slot];
    p->report->lost++;
    if (f->where == FLIGHT_RUNNING) {
        p->o->engine.remove(p->o->engine.g, slot);
        land(p, f);
    } else {
        f->lost = true; /* the preparing thread may be at it */
    }
}

static enum status save(struct pipeline *p, struct err *e)
{
    size_t n = 0;
    p->saved = os_now();
    for (size_t i = 0; i < p->n_flights; i++) {
        struct flight *f = &p->flights[i];
        if (f->where == FLIGHT_FREE || f->lost) continue;
        p->part[n] = (struct result_partial){.id = f->job.id, .fence = f->job.fence, .slot = i};
        if (f->where == FLIGHT_RUNNING && f->n_tokens > f->n_saved) {
            p->part[n].tokens = f->tokens;
            p->part[n].n_tokens = f->n_tokens;
            p->part[n].prefill_s = flight_prefill_s(f);
            p->part[n].decode_s = flight_decode_s(f);
        }
        n++;
    }
    enum status rc =
        n ? result_checkpoint(p->o->db, p->part, n, now_ms(), p->worker.lease_ms, e) : OK;
    for (size_t i = 0; i < n && !rc; i++) {
        struct flight *f = &p->flights[p->part[i].slot];
        if (p->part[i].n_tokens) f->n_saved = f->n_tokens;
        if (p->part[i].lost) drop_lost(p, p->part[i].slot);
    }
    if (!rc && !p->o->alone) rc = queue_release_gone(p->o->db, e);
    if (!rc) rc = update_run(p, e);
    if (!rc) event(p, PIPELINE_SAVED, NULL, NULL);
    return rc;
}

/* ---- the loop ---- */

static void check_limits(struct pipeline *p)
{
    const struct pipeline_opts *o = p->o;
    const struct pipeline_report *r = p->report;
    uint64_t ended = r->done + r->failed;
    if (stop_wanted(p)) return end(p, PIPELINE_STOPPED);
    if (o->deadline && os_unix_time() >= o->deadline) return end(p, PIPELINE_LIMIT);
    if (o->max_jobs && ended >= o->max_jobs) return end(p, PIPELINE_LIMIT);
    if (o->halt_fails && r->failed >= o->halt_fails) return end(p, PIPELINE_HALTED);
    if (o->halt_percent > 0 && ended >= HALT_LEAST &&
        100.0 * (double)r->failed >= o->halt_percent * (double)ended)
        end(p, PIPELINE_HALTED);
}

/* Nothing runs and nothing is being prepared: is anything to come? */
static enum status idle(struct pipeline *p, struct err *e)
{
    struct queue_counts c;
    enum status rc = queue_counts(p->o->db, &c, e);
    if (rc) return rc;
    if (queue_unfinished(&c) == 0) {
        end(p, PIPELINE_FINISHED);
        return OK;
    }
    /* What waits for a retry or belongs to another worker may still come to us. */
    nanosleep(&(struct timespec){.tv_nsec = (long)(POLL_S * 1e9)}, NULL);
    return OK;
}

static enum status step(struct pipeline *p, struct err *e)
{
    check_limits(p);
    if (p->ending) return OK;
    enum status rc = claim(p, e);
    if (rc) return rc;
    choose(p);
    bool held;
    rc = admit(p, &held, e);
    if (rc) return rc;
    if (!held && p->running)
        rc = sweep(p, e);
    else if (p->dry && inside(p) + p->running == 0)
        rc = idle(p, e);
    if (!rc && os_now() - p->saved >= p->o->checkpoint_s) rc = save(p, e);
    return rc;
}

static enum status load_counts(struct pipeline *p, struct err *e)
{
    struct queue_counts c;
    struct queue_load load;
    enum status rc = queue_counts(p->o->db, &c, e);
    if (!rc) rc = queue_load(p->o->db, ETA_IMAGE_ROWS, &load, e);
    if (rc) return rc;
    p->state.total = queue_total(&c);
    p->state.done = c.done;
    p->state.failed = c.failed;
    p->state.cancelled = c.cancelled;
    p->longest = load.longest;
    p->eta.left = (struct eta_load){(double)queue_unfinished(&c), (double)load.text_bytes,
                                    (double)load.image_rows};
    return OK;
}

static enum status start(struct pipeline *p, struct err *e)
{
    const struct pipeline_opts *o = p->o;
    p->begun = p->saved = os_now();
    hold_begin(&p->hold, o->sweep_s, o->idle_s, p->begun);
    p->worker = o->worker;
    if (p->worker.lease_ms <= 0) p->worker.lease_ms = LEASE_MS;
    /* Where workers share a queue, none takes much more than it runs. */
    p->ahead_max = o->alone ? o->sequences : o->sequences / 2;
    if (p->ahead_max < 2) p->ahead_max = 2;
    struct order_opts order = {.input = o->worker.input_order,
                               .sequences = o->sequences,
                               .prefill_rows = o->prefill_rows,
                               .passed = o->passed,
                               .affinity = o->engine.affinity,
                               .tok = o->prepare.tok};
    /* What one worker has claimed another cannot take. */
    order.window = o->alone && !order.input ? ORDER_WINDOW : p->ahead_max;
    p->turn = (struct turn){.limit = TURN_PASSED, .input = o->worker.input_order};
    if (o->passed) p->turn.limit = (int64_t)o->passed;
    p->claim_max = order.window < CLAIM_MOST ? order.window : CLAIM_MOST;
    p->n_flights = o->sequences + p->ahead_max + order.window + 1;
    p->flights = calloc(p->n_flights, sizeof *p->flights);
    p->claimed = calloc(p->claim_max, sizeof *p->claimed);
    p->part = calloc(p->n_flights, sizeof *p->part);
    p->ready = calloc(p->n_flights, sizeof *p->ready);
    if (!p->flights || !p->ready || !p->claimed || !p->part)
        return err_set(e, E_NOMEM, "pipeline: no memory");
    enum status rc = queue_release_dead(o->db, o->alone, e);
    if (!rc) rc = load_counts(p, e);
    if (!rc) rc = order_open(&p->order, &order, e);
    if (!rc) rc = prepare_open(&p->prepare, &o->prepare, e);
    if (!rc) rc = ahead_open(&p->ahead, p->prepare, p->ahead_max, e);
    return rc;
}

/* Stores what there is, even after a fault, and gives everything back. The first fault counts. */
static enum status put_down(struct pipeline *p, enum status rc, struct err *e)
{
    struct err more;
    bool begun = p->ahead != NULL;
    if (begun) ahead_waits(p->ahead, &p->report->waits);
    ahead_close(p->ahead);
    p->ahead = NULL;
    if (begun) {
        enum status kept = save(p, &more);
        if (!kept) kept = queue_release(p->o->db, p->worker.name, &more);
        if (kept && !rc) {
            rc = kept;
            if (e) *e = more;
        }
    }
    for (size_t i = 0; i < p->n_flights && p->flights; i++) {
        if (p->flights[i].where == FLIGHT_RUNNING) p->o->engine.remove(p->o->engine.g, i);
        if (p->prepare) flight_free(&p->flights[i], p->prepare);
    }
    prepare_close(p->prepare);
    order_close(p->order);
    free(p->flights);
    free(p->claimed);
    free(p->part);
    free(p->ready);
    return rc;
}

enum status pipeline_run(const struct pipeline_opts *o, struct pipeline_report *out, struct err *e)
{
    *out = (struct pipeline_report){0};
    struct pipeline p = {.o = o, .report = out};
    enum status rc = start(&p, e);
    if (!rc) event(&p, PIPELINE_STARTED, NULL, NULL);
    while (!rc && !p.ending) rc = step(&p, e);
    if (!rc) event(&p, PIPELINE_ENDED, NULL, NULL);
    rc = put_down(&p, rc, e);
    struct queue_counts c;
    if (!rc) rc = queue_counts(o->db, &c, e);
    if (!rc) out->unfinished = queue_unfinished(&c);
    out->seconds = os_now() - p.begun;
    o->engine.stats(o->engine.g, &out->engine);
    return rc;
}
