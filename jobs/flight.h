/* One job under way: what it has given so far, and what that makes of it. */
#ifndef NS_FLIGHT_H
#define NS_FLIGHT_H

#include "jobs/constrain.h"
#include "jobs/prepare.h"
#include "src/reply.h"

struct flight {
    enum { FLIGHT_FREE, FLIGHT_WAITING, FLIGHT_AHEAD, FLIGHT_READY, FLIGHT_RUNNING } where;
    struct queue_job job;
    struct ready ready;
    unsigned kind; /* of prompt, for order.h */
    uint64_t turn; /* order.h: jobs picked when it came */
    bool lost;     /* someone else has the job */
    bool started;  /* flight_start was called */
    struct reply *reply;
    struct constrain *constrain; /* NULL: any text */
    int32_t *tokens;             /* [room] */
    size_t n_tokens, room, n_saved;
    enum reply_state state;
    struct err err;                   /* of the machine, met while tokens came */
    double begun, first, last;        /* os_now: added, first token, last token; 0: not yet */
    double past_prefill, past_decode; /* seconds before the interruption */
};

/* The reply and the tokens given before an interruption; the job may end right there
 * (f->state). f->ready is whole. */
enum status flight_start(struct flight *f, const struct prepare_opts *o, struct err *e);
void flight_sequence(const struct flight *f, uint64_t tag, struct engine_sequence *out);
/* One more token; false: the sequence ends (f->state, or f->err). */
bool flight_token(struct flight *f, int32_t id);
double flight_prefill_s(const struct flight *f);
double flight_decode_s(const struct flight *f);
/* Seconds that it may take, `usual` unless it says so itself; 0: any, or it does not run. */
double flight_limit(const struct flight *f, double usual);
/* What to store: an answer, or with r->code (set by the caller, as r->message and r->now) a failure
 * with as much text as there is. A closed reply
 * that is no JSON where JSON was asked for turns into E_INVALID_OUTPUT_JSON, with its message in
 * `why`, which the result borrows. Borrows from f. */
void flight_result(struct flight *f, struct result *out, struct err *why);
/* Bytes of text of those [n] that wait, or else of those that are or were prepared and do not run.
 */
int64_t flight_texts(const struct flight *f, size_t n, bool waiting);
/* The seed of this try: a try that gave no JSON is drawn anew, any other repeats the same draws. */
uint64_t flight_seed(const struct flight *f);
void flight_free(struct flight *f, struct prepare *p);

#endif
