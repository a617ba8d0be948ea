/* The tokenizer: tiktoken ranks, Kimi's pre-tokenizer, specials (kimi-k3 section 4).
 *
 * Markup and user text never mix: specials are resolved only where the caller says so. Read-only
 * once open, so safe from several threads. */
#ifndef NS_TOK_H
#define NS_TOK_H

#include "src/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* A growing list of token ids. */
struct ids {
    int32_t *at;
    size_t n, cap;
};
enum status ids_add(struct ids *l, int32_t id, struct err *e);
void ids_free(struct ids *l);

/* Reads tiktoken.model and tokenizer_config.json in dir. E_MODEL names file, line and fault.
 * vocab_size: rows of the embedding; ids from the number of ranks up to vocab_size - 1 are
 * specials, spelled as added_tokens_decoder says, else <|reserved_token_ID|>. */
enum status tok_open(struct tok **out, const char *dir, uint32_t vocab_size, struct err *e);
/* The same from the bytes of the two files. */
struct tok_source {
    const char *ranks, *config;
    size_t ranks_len, config_len;
};
enum status tok_read(struct tok **out, const struct tok_source *s, uint32_t vocab_size,
                     struct err *e);
void tok_close(struct tok *t);

/* Appends the ids of UTF-8 text (bad UTF-8 is E_INVALID_REQUEST). specials: spellings such as
 * <|open|> become their ids (the leftmost first, the longest of those that begin there); else
 * everything is ordinary text. Time and memory grow in proportion to len. */
enum status tok_encode(const struct tok *t, const char *text, size_t len, bool specials,
                       struct ids *out, struct err *e);
/* Bytes of one token (a special: its spelling); len 0 for an id out of range. Lives as long as t.
 */
const char *tok_bytes(const struct tok *t, int32_t id, size_t *len);
bool tok_is_special(const struct tok *t, int32_t id);
/* Id of a special by spelling, -1 when there is none. */
int32_t tok_special(const struct tok *t, const char *spelling);
uint32_t tok_vocab(const struct tok *t);

#endif
