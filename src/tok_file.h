/* A tokenizer's tables, as tok_file.c reads them and tok.c uses them. */
#ifndef NS_TOK_FILE_H
#define NS_TOK_FILE_H

#include "src/bpe.h"
#include "src/tok.h"

#define TOK_MAX_RANK_BYTES    4096
#define TOK_MAX_SPECIAL_BYTES 256
#define TOK_MAX_SPECIALS      65536
#define TOK_MAX_VOCAB         (1u << 24)

struct tok {
    struct bpe_table ranks;                      /* ids 0 .. ranks.n - 1 */
    struct bpe_table specials;                   /* ids from ranks.n on */
    bool special_first[256];                     /* bytes that begin a special */
    bool special_len[TOK_MAX_SPECIAL_BYTES + 1]; /* lengths that occur */
};

#endif
