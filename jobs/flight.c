/* Tokens of one job, and the result they make. */
#include "jobs/flight.h"

#include "jobs/jdoc.h"
#include "src/os.h"

#include <stdlib.h>

static enum status open_reply(struct flight *f, const struct prepare_opts *o, struct err *e)
{
    const struct job *j = &f->ready.job;
    struct reply_opts r = {
        .tok = o->tok,
        .thinking = j->settings.effort != NULL,
        .stop_ids = o->config->eos,
        .n_stop_ids = o->config->n_eos,
        .stops = j->settings.stops,
        .n_stops = j->settings.n_stops,
        .max_tokens = j->settings.max_tokens,
        .stop_repetition = true,
    };
    struct constrain_opts c = {.vocab = o->vocab,
                               .tok = o->tok,
                               .job = j,
                               .stop_ids = o->config->eos,
                               .n_stop_ids = o->config->n_eos};
    enum status rc = reply_open(&f->reply, &r, e);
    return rc ? rc : constrain_open(&f->constrain, &c, e);
}

enum status flight_start(struct flight *f, const struct prepare_opts *o, struct err *e)
{
    const struct queue_job *q = &f->job;
    f->started = true;
    f->past_prefill = q->prefill_s;
    f->past_decode = q->decode_s;
    f->room = f->ready.job.settings.max_tokens;
    f->tokens = NULL;
    /* The engine refuses what is longer than the context; then this is never written to. */
    if (f->room > o->config->context) f->room = o->config->context;
    if (f->room < q->n_tokens) f->room = q->n_tokens;
    f->tokens = calloc(f->room + 1, sizeof *f->tokens);
    if (!f->tokens) return err_set(e, E_NOMEM, "no memory for the tokens of a job");
    enum status rc = open_reply(f, o, e);
    for (size_t i = 0; i < q->n_tokens && !rc && f->state == REPLY_OPEN; i++) {
        f->tokens[f->n_tokens++] = q->tokens[i];
        if (f->constrain) constrain_push(f->constrain, q->tokens[i]);
        rc = reply_push(f->reply, q->tokens[i], &f->state, e);
    }
    f->n_saved = f->n_tokens;
    return rc;
}

uint64_t flight_seed(const struct flight *f)
{
    return f->ready.job.settings.seed + (uint64_t)f->job.redraws;
}

void flight_sequence(const struct flight *f, uint64_t tag, struct engine_sequence *out)
{
    const struct job_settings *s = &f->ready.job.settings;
    *out = (struct engine_sequence){
        .tag = tag,
        .ids = f->ready.prompt.ids.at,
        .n_ids = f->ready.prompt.ids.n,
        .images = f->ready.images,
        .n_images = f->ready.n_images,
        .done = f->tokens,
        .n_done = f->n_tokens,
        .max_tokens = s->max_tokens,
        .row_hash = f->ready.row_hash,
        .constraint = constrain_face(f->constrain),
        .kind = f->kind,
        .sample = {.temperature = s->temperature,
                   .top_p = s->top_p,
                   .top_k = s->top_k,
                   .seed = flight_seed(f)},
    };
}

bool flight_token(struct flight *f, int32_t id)
{
    f->last = os_now();
    if (f->first == 0) f->first = f->last;
    if (id == SAMPLE_BROKEN) {
        err_set(&f->err, E_ENGINE, "the model's logits for token %zu of the answer are no numbers",
                f->n_tokens + 1);
        return false;
    }
    if (f->n_tokens == f->room) {
        err_set(&f->err, E_INTERNAL, "job %lld: more tokens than it may have",
                (long long)f->job.id);
        return false;
    }
    f->err.code = constrain_fault(f->constrain, &f->err);
    if (f->err.code) return false; /* not a token to be saved */
    f->tokens[f->n_tokens++] = id;
    f->err.code = reply_push(f->reply, id, &f->state, &f->err);
    return !f->err.code && f->state == REPLY_OPEN;
}

double flight_prefill_s(const struct flight *f)
{
    return f->past_prefill + (f->first > 0 ? f->first - f->begun : 0);
}

double flight_decode_s(const struct flight *f)
{
    return f->past_decode + (f->last > f->first ? f->last - f->first : 0);
}

static enum status check_json(const struct flight *f, const struct result *r, struct err *e)
{
    enum chat_format format = f->ready.job.format;
    if (format == CHAT_TEXT) return OK;
    struct jdoc j = {0};
    struct err why;
    enum status rc = jdoc_parse(&j, r->content, r->content_len, &why);
    if (rc == E_NOMEM)
        rc = OK; /* nothing is known against it */
    else if (rc)
        rc = err_set(e, E_INVALID_OUTPUT_JSON, "the answer (ended by %s) is no JSON: %s",
                     r->finish_reason, why.text);
    else if (format == CHAT_JSON_OBJECT && j.values[0].type != JDOC_OBJECT)
        rc = err_set(e, E_INVALID_OUTPUT_JSON, "the answer is JSON, but no object");
    jdoc_free(&j);
    return rc;
}

void flight_result(struct flight *f, struct result *r, struct err *why)
{
    r->prompt_tokens = f->ready.prompt.ids.n;
    r->images = f->ready.facts;
    r->n_images = f->ready.n_facts;
    r->seed = flight_seed(f);
    if (f->reply) {
        r->completion_tokens = f->n_tokens;
        r->prefill_s = flight_prefill_s(f);
        r->decode_s = flight_decode_s(f);
        r->finish_reason = reply_finish_reason(f->reply);
        r->content = reply_content(f->reply, &r->content_len);
        r->reasoning = reply_reasoning(f->reply, &r->reasoning_len);
    }
    if (r->code) return;
    r->code = check_json(f, r, why);
    if (r->code) r->message = why->text;
}

void flight_free(struct flight *f, struct prepare *p)
{
    ready_free(p, &f->ready);
    reply_close(f->reply);
    constrain_close(f->constrain);
    free(f->tokens);
    queue_job_free(&f->job);
    *f = (struct flight){0};
}

int64_t flight_texts(const struct flight *f, size_t n, bool waiting)
{
    int64_t sum = 0;
    for (; n--; f++) {
        bool prepared = f->where == FLIGHT_AHEAD || f->where == FLIGHT_READY;
        if (waiting ? f->where == FLIGHT_WAITING : prepared) sum += f->job.text_bytes;
    }
    return sum;
}

double flight_limit(const struct flight *f, double usual)
{
    const struct job_settings *s = &f->ready.job.settings;
    if (f->where != FLIGHT_RUNNING) return 0;
    return s->has & JOB_HAS_TIMEOUT ? s->timeout_s : usual;
}
