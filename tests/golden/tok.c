/* The tokenizer against tiktoken driven by the vendor's wrapper, and the pre-tokenizer against the
 * vendor's pattern in Python's regex module. Fixtures and their format: tests/ref/tok.py. */
#include "src/mem.h"
#include "src/pretok.h"
#include "src/tok.h"
#include "src/unicode.h"
#include "tests/lib/test.h"

#include <stdint.h>

#define DIR         "tests/golden/tok/"
#define MIXED_VOCAB 6193

struct reader {
    const unsigned char *at, *end;
    bool bad;
};

static uint64_t get(struct reader *r, int bytes)
{
    uint64_t v = 0;
    if (r->end - r->at < bytes) {
        r->bad = true;
        return 0;
    }
    for (int i = 0; i < bytes; i++) v |= (uint64_t)*r->at++ << 8 * i;
    return v;
}

static const char *get_bytes(struct reader *r, size_t n)
{
    if ((size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return (const char *)r->at - n;
}

static uint64_t fnv(const struct ids *l)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < 16; k += 8) h = (h ^ (l->at[i] >> k & 0xFF)) * 0x100000001b3u;
    return h;
}

/* The text of the next case, its runs repeated. */
static void get_text(struct reader *r, struct buf *text)
{
    struct err e;
    text->len = 0;
    for (uint64_t runs = get(r, 4); runs && !r->bad; runs--) {
        uint64_t times = get(r, 4);
        size_t len = get(r, 4);
        const char *s = get_bytes(r, len);
        for (; times && !r->bad; times--)
            if (buf_add(text, s, len, &e)) abort();
    }
}

static void check_ids(struct reader *r, const struct ids *got, uint32_t number)
{
    size_t n = get(r, 4);
    if (got->n != n) FAIL("text %u: %zu ids, not %zu", number, got->n, n);
    if (n > 2000) {
        if (fnv(got) != get(r, 8)) FAIL("text %u: other ids", number);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t want = (int32_t)get(r, 2);
        if (got->at[i] != want) FAIL("text %u: id %zu is %d, not %d", number, i, got->at[i], want);
    }
}

static void check_back(const struct tok *t, const struct ids *ids, const struct buf *text)
{
    size_t at = 0, len;
    for (size_t i = 0; i < ids->n; i++, at += len) {
        const char *s = tok_bytes(t, ids->at[i], &len);
        CHECK(at + len <= text->len && !memcmp(text->data + at, s, len));
    }
    CHECK_INT(at, text->len);
}

/* Every text gives tiktoken's ids, specials on and off, short and beyond the slices; the ids give
 * the text back. */
TEST(ids)
{
    struct err e;
    struct tok *t[2] = {0};
    struct buf text = {0};
    struct ids ids = {0};
    size_t size;
    char *file = test_read(DIR "ids.bin", &size);
    CHECK(file);
    struct reader r = {(unsigned char *)file, (unsigned char *)file + size, false};
    CHECK_OK(tok_open(&t[0], DIR "demo", 1000, &e), e);
    CHECK_OK(tok_open(&t[1], DIR "mixed", MIXED_VOCAB, &e), e);
    uint32_t n = (uint32_t)get(&r, 4);
    CHECK(n > 2000);
    for (uint32_t i = 0; i < n && !test_has_failed(); i++) {
        unsigned table = (unsigned)get(&r, 1);
        bool specials = get(&r, 1);
        get_text(&r, &text);
        CHECK(!r.bad && table < 2);
        ids.n = 0;
        CHECK_OK(tok_encode(t[table], text.data, text.len, specials, &ids, &e), e);
        check_ids(&r, &ids, i);
        check_back(t[table], &ids, &text);
    }
    CHECK(!r.bad && r.at == r.end);
    ids_free(&ids);
    buf_free(&text);
    tok_close(t[0]);
    tok_close(t[1]);
    free(file);
}

/* Every text falls into the pieces of the vendor's pattern. */
TEST(pieces)
{
    size_t size;
    char *file = test_read(DIR "pieces.bin", &size);
    CHECK(file);
    struct reader r = {(unsigned char *)file, (unsigned char *)file + size, false};
    static uint32_t ch[1024];
    uint32_t cp = 0;
    uint32_t n = (uint32_t)get(&r, 4);
    CHECK(n > 2000);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = get(&r, 4), chars = 0, at = 0;
        const char *s = get_bytes(&r, len), *piece = s;
        CHECK(s && len <= sizeof ch / sizeof *ch);
        for (; at < len; chars++) {
            at += (size_t)unicode_decode(s + at, len - at, &cp);
            ch[chars] = pretok_char(cp, unicode_class(cp));
        }
        size_t pieces = get(&r, 4);
        at = 0;
        for (size_t k = 0; k < pieces; k++) {
            CHECK(at < chars);
            size_t m = pretok_piece(ch + at, chars - at), bytes = 0;
            char out[4];
            for (size_t c = at; c < at + m; c++) bytes += unicode_encode(ch[c] >> 6, out);
            size_t want = get(&r, 2);
            if (bytes != want)
                FAIL("text %u \"%.*s\": piece %zu at byte %td has %zu bytes, not %zu", i, (int)len,
                     s, k, piece - s, bytes, want);
            at += m;
            piece += bytes;
        }
        CHECK_INT(at, chars);
    }
    CHECK(!r.bad && r.at == r.end);
    free(file);
}

TEST_MAIN
