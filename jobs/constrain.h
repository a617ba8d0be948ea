/* response_format enforced while decoding: only tokens that can still lead to a valid document may
 * be drawn inside the response; where the document may end, the closing markup joins them, and
 * where it must, nothing else is left. Reasoning and markup are free. */
#ifndef NS_CONSTRAIN_H
#define NS_CONSTRAIN_H

#include "jobs/job.h"
#include "src/json_mask.h"
#include "src/reply.h"
#include "src/sequence.h"

/* What all jobs of a run share: the vocabulary sorted for masks. Safe from several threads. */
struct constrain_vocab;
enum status constrain_vocab_open(struct constrain_vocab **out, const struct tok *t, struct err *e);
void constrain_vocab_close(struct constrain_vocab *v);

/* One answer under way. */
struct constrain;

/* *out is NULL when the job asks for no form. stop_ids: what ends the message. A pure function of
 * the tokens pushed. */
struct constrain_opts {
    struct constrain_vocab *vocab;
    const struct tok *tok;
    const struct job *job;
    const int32_t *stop_ids;
    size_t n_stop_ids;
};
enum status constrain_open(struct constrain **out, const struct constrain_opts *o, struct err *e);
void constrain_close(struct constrain *c);
/* A token that stands. */
void constrain_push(struct constrain *c, int32_t id);
/* Whether the last token was drawn without its mask: the answer must not be used. c may be NULL. */
enum status constrain_fault(const struct constrain *c, struct err *e);
/* What the engine calls; borrows c. */
struct constraint constrain_face(struct constrain *c);

#endif
