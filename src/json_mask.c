/* Tokens in the order of their bytes: each shares a beginning with the one before it, for which the
 * states are kept, so a byte that many tokens begin with is tried once and one that is refused ends
 * all tokens behind it. Within a string nearly every token may follow: those that are plain text
 * are known beforehand and only the rest is tried. */
#include "src/json_mask.h"
#include "src/mem.h"
#include "src/unicode.h"

#include <stdlib.h>
#include <string.h>

struct order {
    uint32_t n;
    int32_t *ids;   /* [n] sorted by bytes */
    uint16_t *same; /* [n] bytes shared with the token before */
};

struct json_mask {
    const struct tok *t;
    struct order all, rough; /* ordinary tokens; those that are not plain */
    uint32_t *plain;         /* bits of those that are */
    uint32_t plain_chars;    /* the most characters of one */
    size_t longest, words;
    /* Scratch. States behind each byte of a token, packed: a thread's depth, then its frames. */
    struct buf packed;
    size_t *ends; /* [longest + 1] end of the state behind so many bytes */
};

/* Characters of text that json_state_plain speaks of; 0: it is none. */
static uint32_t plain_chars(const char *s, size_t len)
{
    uint32_t chars = 0, cp;
    for (size_t at = 0; at < len; chars++) {
        int n = unicode_decode(s + at, len - at, &cp);
        if (n <= 0 || cp < 0x20 || cp == '"' || cp == '\\') return 0;
        at += (size_t)n;
    }
    return chars;
}

static int compare(const void *va, const void *vb, void *vt)
{
    size_t n, m;
    const char *a = tok_bytes(vt, *(const int32_t *)va, &n);
    const char *b = tok_bytes(vt, *(const int32_t *)vb, &m);
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

/* Room for vocab tokens; false: no memory. */
static bool order_init(struct order *o, uint32_t vocab)
{
    o->ids = malloc(vocab * sizeof *o->ids);
    o->same = malloc(vocab * sizeof *o->same);
    return o->ids && o->same;
}

static void order_sort(struct order *o, const struct tok *t)
{
    qsort_r(o->ids, o->n, sizeof *o->ids, compare, (void *)(uintptr_t)t);
    size_t before_len = 0;
    const char *before = "";
    for (uint32_t i = 0; i < o->n; i++) {
        size_t len, same = 0;
        const char *s = tok_bytes(t, o->ids[i], &len);
        while (same < len && same < before_len && s[same] == before[same]) same++;
        o->same[i] = (uint16_t)same;
        before = s;
        before_len = len;
    }
}

static void order_free(struct order *o)
{
    free(o->ids);
    free(o->same);
}

static void sort_tokens(struct json_mask *m)
{
    for (uint32_t i = 0; i < tok_vocab(m->t); i++) {
        size_t len;
        const char *s = tok_bytes(m->t, (int32_t)i, &len);
        if (tok_is_special(m->t, (int32_t)i)) continue;
        uint32_t chars = plain_chars(s, len);
        if (chars) m->plain[i / 32] |= 1u << i % 32;
        if (!chars) m->rough.ids[m->rough.n++] = (int32_t)i;
        if (chars > m->plain_chars) m->plain_chars = chars;
        if (len > m->longest) m->longest = len;
        m->all.ids[m->all.n++] = (int32_t)i;
    }
    order_sort(&m->all, m->t);
    order_sort(&m->rough, m->t);
}

enum status json_mask_open(struct json_mask **out, const struct tok *t, struct err *e)
{
    *out = NULL;
    struct json_mask *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, E_NOMEM, "token order: no memory");
    uint32_t vocab = tok_vocab(t);
    m->t = t;
    m->words = (vocab + 31) / 32;
    m->plain = calloc(m->words, sizeof *m->plain);
    if (m->plain && order_init(&m->all, vocab) && order_init(&m->rough, vocab)) {
        sort_tokens(m);
        m->ends = malloc((m->longest + 1) * sizeof *m->ends);
    }
    if (!m->ends) {
        json_mask_close(m);
        return err_set(e, E_NOMEM, "token order: no memory for %u tokens", vocab);
    }
    *out = m;
    return OK;
}

void json_mask_close(struct json_mask *m)
{
    if (!m) return;
    order_free(&m->all);
    order_free(&m->rough);
    free(m->plain);
    free(m->ends);
    buf_free(&m->packed);
    free(m);
}

/* Keeps s as the state behind `bytes` bytes. */
static enum status pack(struct json_mask *m, size_t bytes, const struct json_state *s,
                        struct err *e)
{
    enum status rc = OK;
    m->packed.len = bytes ? m->ends[bytes - 1] : 0;
    for (uint32_t i = 0; i < s->n && !rc; i++) {
        const struct json_thread *t = &s->threads[i];
        rc = buf_add(&m->packed, &t->depth, sizeof t->depth, e);
        if (!rc) rc = buf_add(&m->packed, t->frames, t->depth * sizeof *t->frames, e);
    }
    m->ends[bytes] = m->packed.len;
    return rc;
}

static void unpack(const struct json_mask *m, size_t bytes, struct json_state *s)
{
    size_t at = bytes ? m->ends[bytes - 1] : 0;
    for (s->n = 0; at < m->ends[bytes]; s->n++) {
        struct json_thread *t = &s->threads[s->n];
        memcpy(&t->depth, m->packed.data + at, sizeof t->depth);
        at += sizeof t->depth;
        memcpy(t->frames, m->packed.data + at, t->depth * sizeof *t->frames);
        at += t->depth * sizeof *t->frames;
    }
}

enum status json_mask_fill(struct json_mask *m, const struct json_state *s, uint32_t *bits,
                           struct err *e)
{
    struct json_state now;
    size_t alive = 0; /* bytes of the last token that were taken; their states are kept */
    bool text = json_state_plain(s) >= m->plain_chars;
    const struct order *o = text ? &m->rough : &m->all;
    enum status rc = pack(m, 0, s, e);
    if (text)
        memcpy(bits, m->plain, m->words * sizeof *bits);
    else
        memset(bits, 0, m->words * sizeof *bits);
    now.grammar = s->grammar;
    for (uint32_t i = 0; i < o->n && !rc; i++) {
        size_t len;
        const char *b = tok_bytes(m->t, o->ids[i], &len);
        if (o->same[i] > alive) continue; /* shares the refused byte */
        alive = o->same[i];
        unpack(m, alive, &now);
        while (alive < len && !rc && json_state_push(&now, b + alive, 1))
            rc = pack(m, ++alive, &now, e);
        if (alive == len) bits[o->ids[i] / 32] |= 1u << o->ids[i] % 32;
    }
    return rc;
}
