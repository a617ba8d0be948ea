/* A made-up vocabulary of any size in Kimi's files: 256 bytes, syllables, then words of two and
 * three syllables, each with a leading space, so that the words of made-up prompts are one token
 * each; the last ids are the specials of K3. */
#ifndef NS_FAKE_TOK_H
#define NS_FAKE_TOK_H

#include "src/err.h"

#include <stddef.h>
#include <stdint.h>

#define FAKE_TOK_MIN_VOCAB 600

struct fake_tok {
    uint32_t vocab;
    uint32_t first_word; /* ids [first_word, ranks) are words */
    uint32_t ranks;      /* ids [ranks, vocab) are specials */
    uint32_t bos, end_of_message, media_pad, pad;
};

/* vocab >= FAKE_TOK_MIN_VOCAB, at most 1,000,000. */
void fake_tok_init(struct fake_tok *t, uint32_t vocab);
/* Bytes of an id below t->ranks; returns the length (at most 8). */
size_t fake_tok_bytes(const struct fake_tok *t, uint32_t id, char *out);
/* tiktoken.model and tokenizer_config.json into dir. */
enum status fake_tok_write(const struct fake_tok *t, const char *dir, struct err *e);

#endif
