/* Which of the claimed jobs goes next, and when (design.md 4).
 *
 * Some hundreds of claimed jobs wait here, read but not prepared. The next one is, among those of
 * the highest priority: one that others went past for too long; else, where beginnings are long,
 * one of a few that are under way, so that its picture is at hand and its beginning shared; else
 * the one whose kind needs the fewest experts that those under way do not need already
 * (src/affinity.h), if that promises to be far fewer than the one whose turn it is; else that one.
 * Jobs that begin alike are spread as far as that allows: what one has answered is a good draft for
 * the next, and of no use to one that runs beside it.
 *
 * Prepared jobs are admitted several at a time: a sweep with prompts in it reads nearly every
 * expert, for one prompt as for many, and an idle place costs a share of a sweep without prompts.
 * How many is worth waiting for follows from what both kinds of sweep read and gave so far. With
 * `input` all of this is off. Nothing here changes a result. */
#ifndef NS_ORDER_H
#define NS_ORDER_H

#include "jobs/flight.h"
#include "jobs/share.h"
#include "src/affinity.h"

#define ORDER_WINDOW 256
#define ORDER_PASSED 1024 /* a job lets so many others past, then it goes first */

struct order;

struct order_opts {
    bool input;
    size_t sequences, prefill_rows; /* of the engine */
    size_t window;                  /* most jobs that wait */
    size_t passed;                  /* 0: ORDER_PASSED */
    struct affinity *affinity;      /* or NULL */
    const struct tok *tok;
};

enum status order_open(struct order **out, const struct order_opts *o, struct err *e);
void order_close(struct order *o);

/* f was claimed; it is borrowed until order_next gives it back. */
void order_wait(struct order *o, struct flight *f);
/* How many wait, and how many more may. */
size_t order_waiting(const struct order *o);
size_t order_room(const struct order *o);
/* Do both begin with the same system text and the same picture or first words? As far as a hash
 * tells (place.h). */
bool order_alike(const struct flight *a, const struct flight *b);
/* The next to prepare, in view of all flights [n] under way; NULL: none waits. */
struct flight *order_next(struct order *o, const struct flight *flights, size_t n);

/* Where f parts from those that run and those that are ready: the state there is worth keeping. Of
 * those that are not prepared only the beginning is known: behind its picture they may part.
 * cuts: [SHARE_CUTS] lengths of the prompt, ascending; returns how many. */
size_t order_cuts(const struct flight *f, const struct flight *flights, size_t n_flights,
                  size_t *cuts);

struct order_now {
    size_t free, ready; /* places in the engine; prepared jobs */
    bool running;       /* something is */
    bool coming;        /* more jobs are being prepared, or may be claimed */
};
/* Shall prepared jobs be admitted before the next sweep? Asked once for each. */
bool order_admit(struct order *o, const struct order_now *now);
void order_admitted(struct order *o);
/* A sweep was done: counts of the engine so far, and how many sequences ran. */
void order_swept(struct order *o, const struct engine_stats *s, size_t running);

#endif
