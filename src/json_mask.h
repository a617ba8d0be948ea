/* From bytes to tokens: which tokens of a vocabulary a JSON document under way may go on with. */
#ifndef NS_JSON_MASK_H
#define NS_JSON_MASK_H

#include "src/json_grammar.h"
#include "src/tok.h"

struct json_mask;

/* Sorts the vocabulary by bytes; a few bytes a token. t must outlive it. End with json_mask_close.
 */
enum status json_mask_open(struct json_mask **out, const struct tok *t, struct err *e);
void json_mask_close(struct json_mask *m);
/* bits [(tok_vocab + 31) / 32]: bit i % 32 of word i / 32 says that token i may come next. Specials
 * never may: the caller adds the closing markup when json_state_can_end. Scratch is kept in m: one
 * thread at a time. */
enum status json_mask_fill(struct json_mask *m, const struct json_state *s, uint32_t *bits,
                           struct err *e);

#endif
