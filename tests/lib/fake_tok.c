/* The ranks follow from how pairs merge: syllables before words, so that a word is always put
 * together from its front. */
#include "tests/lib/fake_tok.h"

#include "src/mem.h"
#include "tests/lib/test.h"

#define SYLLABLES 100
#define PAIRS     (SYLLABLES * SYLLABLES)

static const struct {
    const char *spelling;
    unsigned small, k3; /* distance from the first special, of 16 or of 256 */
} specials[] = {
    {"[BOS]", 0, 0},
    {"[EOS]", 1, 1},
    {"<|end_of_msg|>", 2, 2},
    {"<|open|>", 3, 3},
    {"<|close|>", 4, 4},
    {"<|sep|>", 5, 5},
    {"<|media_begin|>", 6, 18},
    {"<|media_content|>", 7, 19},
    {"<|media_end|>", 8, 20},
    {"<|media_pad|>", 9, 21},
    {"[UNK]", 14, 254},
    {"[PAD]", 15, 255},
};
#define N_SPECIALS (sizeof specials / sizeof *specials)

static uint32_t special_id(const struct fake_tok *t, size_t i)
{
    return t->ranks + (t->vocab - t->ranks == 16 ? specials[i].small : specials[i].k3);
}

void fake_tok_init(struct fake_tok *t, uint32_t vocab)
{
    *t = (struct fake_tok){.vocab = vocab, .first_word = 256 + 2 * SYLLABLES};
    t->ranks = vocab - (vocab < 4096 ? 16 : 256);
    t->bos = special_id(t, 0);
    t->end_of_message = special_id(t, 2);
    t->media_pad = special_id(t, 9);
    t->pad = special_id(t, N_SPECIALS - 1);
}

static size_t syllable(uint32_t i, char *out)
{
    out[0] = "bcdfghjklmnpqrstvwxz"[i / 5 % 20];
    out[1] = "aeiou"[i % 5];
    return 2;
}

size_t fake_tok_bytes(const struct fake_tok *t, uint32_t id, char *out)
{
    if (id < 256) {
        out[0] = (char)id;
        return 1;
    }
    uint32_t i = id - 256;
    if (i < SYLLABLES) return syllable(i, out);
    i -= SYLLABLES;
    out[0] = ' ';
    size_t n = 1;
    if (id >= t->first_word) {
        i -= SYLLABLES;
        uint32_t front = i < PAIRS ? i : (i - PAIRS) / SYLLABLES;
        n += syllable(front / SYLLABLES, out + n);
        n += syllable(front % SYLLABLES, out + n);
        if (i >= PAIRS) n += syllable((i - PAIRS) % SYLLABLES, out + n);
    } else {
        n += syllable(i, out + n);
    }
    return n;
}

static void base64(const char *in, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        for (size_t j = 0; j < 3; j++) v = v << 8 | (i + j < n ? (unsigned char)in[i + j] : 0);
        for (size_t j = 0; j < 4; j++) *out++ = i + j > n ? '=' : digits[v >> (18 - 6 * j) & 63];
    }
    *out = 0;
}

static enum status ranks_file(const struct fake_tok *t, struct buf *b, struct err *e)
{
    char bytes[8], text[16];
    enum status rc = OK;
    for (uint32_t id = 0; id < t->ranks && !rc; id++) {
        base64(bytes, fake_tok_bytes(t, id, bytes), text);
        rc = buf_addf(b, e, "%s %u\n", text, id);
    }
    return rc;
}

static enum status config_file(const struct fake_tok *t, struct buf *b, struct err *e)
{
    enum status rc = buf_addf(b, e, "{\n \"added_tokens_decoder\": {");
    for (size_t i = 0; i < N_SPECIALS && !rc; i++)
        rc = buf_addf(b, e, "%s\n  \"%u\": {\"content\": \"%s\", \"special\": %s}", i ? "," : "",
                      special_id(t, i), specials[i].spelling, i < 3 || i > 5 ? "true" : "false");
    if (!rc) rc = buf_addf(b, e, "\n },\n \"tokenizer_class\": \"TikTokenTokenizer\"\n}\n");
    return rc;
}

enum status fake_tok_write(const struct fake_tok *t, const char *dir, struct err *e)
{
    struct buf ranks = {0}, config = {0};
    char path[4096];
    enum status rc = ranks_file(t, &ranks, e);
    if (!rc) rc = config_file(t, &config, e);
    if (!rc) {
        snprintf(path, sizeof path, "%s/tiktoken.model", dir);
        test_write(path, ranks.data, ranks.len);
        snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
        test_write(path, config.data, config.len);
    }
    buf_free(&ranks);
    buf_free(&config);
    return rc;
}
