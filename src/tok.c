/* Encoding and decoding. A text is cut into slices and sub-slices as the vendor's tokenizer does
 * (kimi-k3 4.5), each sub-slice at specials, the rest into pieces, each piece into ranks. */
#include "src/tok.h"
#include "src/bpe.h"
#include "src/pretok.h"
#include "src/tok_file.h"
#include "src/unicode.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_CHARS 400000 /* a slice of the text */
#define RUN_CHARS   25000  /* white space, or none, in a row within a slice */

enum status ids_add(struct ids *l, int32_t id, struct err *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *at = realloc(l->at, cap * sizeof *at);
        if (!at) return err_set(e, E_NOMEM, "no memory for %zu tokens", cap);
        l->at = at;
        l->cap = cap;
    }
    l->at[l->n++] = id;
    return OK;
}

void ids_free(struct ids *l)
{
    free(l->at);
    *l = (struct ids){0};
}

struct encoder {
    const struct tok *t;
    bool specials;
    struct ids *out;
    struct err *e;
    uint32_t *ch; /* the slice's characters (pretok_char) */
    struct bpe_work work;
};

static size_t char_bytes(uint32_t ch)
{
    uint32_t cp = ch >> 6;
    return cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
}

static size_t text_bytes(const uint32_t *ch, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += char_bytes(ch[i]);
    return bytes;
}

static enum status encode_piece(struct encoder *x, const char *s, size_t len)
{
    const struct bpe_table *ranks = &x->t->ranks;
    uint32_t whole = bpe_find(ranks, s, len);
    if (whole != BPE_NONE) return ids_add(x->out, (int32_t)whole, x->e);
    enum status rc = bpe_merge(ranks, s, len, &x->work, x->e);
    for (uint32_t at = 0, end; at < len && !rc; at = end) {
        end = x->work.parts[at].end;
        rc = ids_add(x->out, (int32_t)bpe_find(ranks, s + at, end - at), x->e);
    }
    return rc;
}

static enum status encode_ordinary(struct encoder *x, const char *s, const uint32_t *ch, size_t n)
{
    enum status rc = OK;
    while (n && !rc) {
        size_t piece = pretok_piece(ch, n), bytes = text_bytes(ch, piece);
        rc = encode_piece(x, s, bytes);
        s += bytes;
        ch += piece;
        n -= piece;
    }
    return rc;
}

/* The special that s begins with, the longest; its number, and *len in bytes. */
static uint32_t special_at(const struct tok *t, const char *s, size_t n, size_t *len)
{
    if (!t->special_first[(unsigned char)*s]) return BPE_NONE;
    for (*len = t->specials.longest; *len; --*len) {
        if (*len > n || !t->special_len[*len]) continue;
        uint32_t found = bpe_find(&t->specials, s, *len);
        if (found != BPE_NONE) return found;
    }
    return BPE_NONE;
}

/* One sub-slice: n characters at s. */
static enum status encode_part(struct encoder *x, const char *s, const uint32_t *ch, size_t n)
{
    if (!x->specials) return encode_ordinary(x, s, ch, n);
    size_t bytes = text_bytes(ch, n), plain = 0, plain_at = 0, at = 0;
    enum status rc = OK;
    for (size_t i = 0; i < n && !rc;) {
        size_t len;
        uint32_t special = special_at(x->t, s + at, bytes - at, &len);
        if (special == BPE_NONE) {
            at += char_bytes(ch[i++]);
            continue;
        }
        rc = encode_ordinary(x, s + plain_at, ch + plain, i - plain);
        if (!rc) rc = ids_add(x->out, (int32_t)(x->t->ranks.n + special), x->e);
        plain_at = at + len;
        while (at < plain_at) at += char_bytes(ch[i++]);
        plain = i;
    }
    return rc ? rc : encode_ordinary(x, s + plain_at, ch + plain, n - plain);
}

/* One slice, cut where a run of white space or of none grows too long. */
static enum status encode_slice(struct encoder *x, const char *s, size_t n)
{
    enum status rc = OK;
    size_t from = 0, run = 0;
    bool was_space = false;
    for (size_t i = 0; i < n && !rc; i++) {
        bool is_space = unicode_py_space(x->ch[i] >> 6);
        run = i && is_space == was_space ? run + 1 : 1;
        was_space = is_space;
        if (run <= RUN_CHARS) continue;
        rc = encode_part(x, s, x->ch + from, i - from);
        s += text_bytes(x->ch + from, i - from);
        from = i;
        run = 1;
    }
    return rc ? rc : encode_part(x, s, x->ch + from, n - from);
}

enum status tok_encode(const struct tok *t, const char *text, size_t len, bool specials,
                       struct ids *out, struct err *e)
{
    size_t valid = unicode_valid(text, len);
    if (valid < len) return err_set(e, E_INVALID_REQUEST, "text: bad UTF-8 at byte %zu", valid);
    if (!len) return OK;
    struct encoder x = {.t = t, .specials = specials, .out = out, .e = e};
    size_t room = len < SLICE_CHARS ? len : SLICE_CHARS;
    uint32_t *ch = x.ch = calloc(room, sizeof *ch);
    if (!ch) return err_set(e, E_NOMEM, "no memory for %zu characters", room);
    enum status rc = OK;
    for (size_t at = 0, from = 0; at < len && !rc; from = at) {
        size_t n = 0;
        for (uint32_t cp; at < len && n < SLICE_CHARS; n++) {
            at += (size_t)unicode_decode(text + at, len - at, &cp);
            ch[n] = pretok_char(cp, unicode_class(cp));
        }
        rc = encode_slice(&x, text + from, n);
    }
    bpe_work_free(&x.work);
    free(ch);
    return rc;
}

const char *tok_bytes(const struct tok *t, int32_t id, size_t *len)
{
    *len = 0;
    if ((uint32_t)id >= tok_vocab(t)) return "";
    uint32_t n = (uint32_t)t->ranks.n, number = (uint32_t)id;
    return number < n ? bpe_bytes(&t->ranks, number, len)
                      : bpe_bytes(&t->specials, number - n, len);
}

bool tok_is_special(const struct tok *t, int32_t id)
{
    return id >= (int32_t)t->ranks.n && (uint32_t)id < tok_vocab(t);
}

int32_t tok_special(const struct tok *t, const char *spelling)
{
    uint32_t found = bpe_find(&t->specials, spelling, strlen(spelling));
    return found == BPE_NONE ? -1 : (int32_t)(t->ranks.n + found);
}

uint32_t tok_vocab(const struct tok *t)
{
    return (uint32_t)(t->ranks.n + t->specials.n);
}

void tok_close(struct tok *t)
{
    if (!t) return;
    bpe_free(&t->ranks);
    bpe_free(&t->specials);
    free(t);
}
