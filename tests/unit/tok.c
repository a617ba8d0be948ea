/* unicode, bpe, tok_file, tok: what the goldens do not say: hostile files, specials, sizes. */
#include "src/mem.h"
#include "src/tok.h"
#include "src/unicode.h"
#include "tests/lib/test.h"

#define CONFIG(tokens) "{\"added_tokens_decoder\":{" tokens "}}"
#define NAMED                                                                                      \
    CONFIG("\"259\":{\"content\":\"<|open|>\"},\"261\":{\"content\":\"<|open\"},"                  \
           "\"262\":{\"content\":\"x y\"}")

static void add_line(struct buf *b, const char *token, size_t len, size_t rank)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct err e;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = 0;
        size_t n = len - i < 3 ? len - i : 3;
        for (size_t k = 0; k < 3; k++) v = v << 8 | (k < n ? (unsigned char)token[i + k] : 0);
        char four[4];
        for (size_t k = 0; k < 4; k++) four[k] = k <= n ? digits[v >> (18 - 6 * k) & 63] : '=';
        if (buf_add(b, four, 4, &e)) abort();
    }
    if (buf_addf(b, &e, " %zu\n", rank)) abort();
}

/* All bytes, then "ab" 256, "bc" 257, "abc" 258. */
static struct buf ranks(void)
{
    static const char *const more[] = {"ab", "bc", "abc"};
    struct buf b = {0};
    for (size_t i = 0; i < 256; i++) add_line(&b, &(char){(char)i}, 1, i);
    for (size_t i = 0; i < 3; i++) add_line(&b, more[i], strlen(more[i]), 256 + i);
    return b;
}

static enum status read(struct tok **t, const struct buf *r, const char *config, uint32_t vocab,
                        struct err *e)
{
    struct tok_source s = {r->data, config, r->len, strlen(config)};
    enum status rc = tok_read(t, &s, vocab, e);
    if (rc != OK && *t) abort();
    return rc;
}

static void check_fault(const char *from, const char *to, const char *message)
{
    struct err e = {0};
    struct tok *t;
    struct buf r = ranks();
    char *at = strstr(r.data, from);
    CHECK(at);
    struct buf changed = {0};
    CHECK_OK(buf_addf(&changed, &e, "%.*s%s%s", (int)(at - r.data), r.data, to, at + strlen(from)),
             e);
    CHECK_ERR(read(&t, &changed, NAMED, 263, &e), E_MODEL, e, message);
    buf_free(&r);
    buf_free(&changed);
}

/* Each fault of the rank file is refused, with its line. */
TEST(broken_ranks)
{
    check_fault("Ag== 2\n", "Ag== 3\n", "line 3: rank 2 expected");
    check_fault("Ag== 2\n", "Ag== 02\n", "line 3: rank 2 expected");
    check_fault("Ag== 2\n", "Ag== 2 \n", "line 3: rank 2 expected");
    check_fault("Ag== 2\n", "Ag== 2\r\n", "line 3: rank 2 expected");
    check_fault("Ag== 2\n", "Ag==\n", "line 3: base64");
    check_fault("Ag== 2\n", "Ag==  2\n", "line 3: rank 2 expected");
    check_fault("Ag== 2\n", " 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "\n", "line 3: base64");
    check_fault("Ag== 2\n", "Ag= 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "Ag=A 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "AgAAA 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "A=== 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "==== 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "Ah== 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "A-== 2\n", "line 3: base64");
    check_fault("Ag== 2\n", "AQ== 2\n", "line 3: a token that an earlier line has");
    check_fault("Ag== 2\n", "YWJj 2\n", "line 259: a token that an earlier line has");
    check_fault("Ag== 2\n", "YWJk 2\n", "the single byte 2 is missing");
}

/* A token that is too long, an empty file, more ranks than the vocabulary. */
TEST(rank_sizes)
{
    struct err e;
    struct tok *t;
    struct buf r = ranks();
    static char big[5000];
    CHECK_ERR(read(&t, &(struct buf){.data = big}, NAMED, 263, &e), E_MODEL, e,
              "byte 0 is missing");
    CHECK_ERR(read(&t, &r, NAMED, 258, &e), E_MODEL, e, "more lines than the vocabulary of 258");
    CHECK_ERR(read(&t, &r, NAMED, UINT32_MAX, &e), E_MODEL, e, "at most");
    CHECK_ERR(read(&t, &r, NAMED, 259 + 65537, &e), E_MODEL, e, "65537 specials");
    add_line(&r, big, 4000, 259);
    CHECK_OK(read(&t, &r, "{}", 260, &e), e);
    tok_close(t);
    add_line(&r, big, sizeof big, 260);
    CHECK_ERR(read(&t, &r, "{}", 263, &e), E_MODEL, e, "line 261: a token of more than");
    buf_free(&r);
}

/* Each fault of the names is refused. */
TEST(broken_names)
{
    static const char *const cases[][2] = {
        {"", "JSON"},
        {"[]", "added_tokens_decoder"},
        {"{\"added_tokens_decoder\":[]}", "added_tokens_decoder"},
        {CONFIG("\"258\":{\"content\":\"x\"}"), "ids are 259 to 262"},
        {CONFIG("\"263\":{\"content\":\"x\"}"), "ids are 259 to 262"},
        {CONFIG("\"0259\":{\"content\":\"x\"}"), "ids are 259 to 262"},
        {CONFIG("\"259\\u0000\":{\"content\":\"x\"}"), "ids are 259 to 262"},
        {CONFIG("\"-1\":{\"content\":\"x\"}"), "ids are 259 to 262"},
        {CONFIG("\"18446744073709551875\":{\"content\":\"x\"}"), "ids are 259 to 262"},
        {CONFIG("\"259\":{\"content\":7}"), "259 has no content"},
        {CONFIG("\"259\":\"x\""), "259 has no content"},
        {CONFIG("\"259\":{\"content\":\"\"}"), "259: 0 bytes"},
        {CONFIG("\"259\":{\"content\":\"x\"},\"260\":{\"content\":\"x\"}"), "260 is spelled as"},
        {CONFIG("\"259\":{\"content\":\"<|reserved_token_262|>\"}"), "262 is spelled as"},
    };
    struct err e;
    struct tok *t;
    struct buf r = ranks();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_ERR(read(&t, &r, cases[i][0], 263, &e), E_MODEL, e, cases[i][1]);
    buf_free(&r);
}

static struct tok *sample(void)
{
    struct err e;
    struct tok *t;
    struct buf r = ranks();
    if (read(&t, &r, NAMED, 263, &e)) abort();
    buf_free(&r);
    return t;
}

static void check_ids(const char *text, bool specials, const char *want)
{
    struct err e;
    struct tok *t = sample();
    struct ids ids = {0};
    struct buf got = {0};
    CHECK_OK(tok_encode(t, text, strlen(text), specials, &ids, &e), e);
    for (size_t i = 0; i < ids.n; i++) buf_addf(&got, &e, "%s%d", i ? " " : "", ids.at[i]);
    CHECK_STR(ids.n ? got.data : "", want);
    ids_free(&ids);
    buf_free(&got);
    tok_close(t);
}

/* The lowest rank merges first, wherever it stands; a whole piece in the table is not merged. */
TEST(merge_order)
{
    check_ids("abc", false, "258");
    check_ids("abcz", false, "258 122");
    check_ids("zabbc", false, "122 256 257");
    check_ids("aabcabab", false, "97 258 256 256");
    check_ids("", false, "");
}

/* Specials count where they are asked for; the longest of those that begin at one place. */
TEST(specials)
{
    check_ids("<|open|>", true, "259");
    check_ids("<|open|>", false, "60 124 111 112 101 110 124 62");
    check_ids("<|open|", true, "261 124");
    check_ids("ab<|open|>x yab", true, "256 259 262 256");
    check_ids("<<|open<|open|>", true, "60 261 259");
    check_ids("<|reserved_token_260|>", true, "260");
}

/* Ids have bytes, specials their spelling, others nothing. */
TEST(bytes_of_ids)
{
    struct tok *t = sample();
    size_t len;
    CHECK_INT(tok_vocab(t), 263);
    CHECK(!memcmp(tok_bytes(t, 258, &len), "abc", 3) && len == 3);
    CHECK(!memcmp(tok_bytes(t, 0, &len), "", 1) && len == 1);
    CHECK(!memcmp(tok_bytes(t, 260, &len), "<|reserved_token_260|>", 22) && len == 22);
    tok_bytes(t, 263, &len);
    CHECK_INT(len, 0);
    tok_bytes(t, -1, &len);
    CHECK_INT(len, 0);
    CHECK(!tok_is_special(t, 258) && tok_is_special(t, 259) && !tok_is_special(t, 263));
    CHECK(!tok_is_special(t, -1));
    CHECK_INT(tok_special(t, "<|open|>"), 259);
    CHECK_INT(tok_special(t, "abc"), -1);
    tok_close(t);
}

/* Bad UTF-8 is refused with its place; nothing was encoded. */
TEST(bad_utf8)
{
    static const char *const bad[] = {
        "ab\x80", "ab\xC3", "ab\xC0\x80", "ab\xED\xA0\x80", "ab\xF4\x90\x80\x80", "ab\xFF"};
    struct err e;
    struct tok *t = sample();
    struct ids ids = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(tok_encode(t, bad[i], strlen(bad[i]), false, &ids, &e), E_INVALID_REQUEST, e,
                  "byte 2");
    CHECK_INT(ids.n, 0);
    tok_close(t);
}

/* A megabyte without a space, worst for merging, comes back byte for byte. */
TEST(long_text)
{
    enum { N = 1 << 20 };
    struct err e;
    struct tok *t = sample();
    struct ids ids = {0};
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) text[i] = "abc"[i % 7 % 3];
    CHECK_OK(tok_encode(t, text, N, false, &ids, &e), e);
    size_t at = 0, len;
    for (size_t i = 0; i < ids.n; i++, at += len) {
        const char *s = tok_bytes(t, ids.at[i], &len);
        CHECK(at + len <= N && !memcmp(text + at, s, len));
    }
    CHECK_INT(at, N);
    CHECK(ids.n < N / 2);
    ids_free(&ids);
    free(text);
    tok_close(t);
}

/* Missing files are named. */
TEST(missing_files)
{
    struct err e;
    struct tok *t;
    struct buf r = ranks();
    CHECK_ERR(tok_open(&t, test_dir(), 263, &e), E_MODEL, e, "tiktoken.model");
    test_write(test_path("tiktoken.model"), r.data, r.len);
    CHECK_ERR(tok_open(&t, test_dir(), 263, &e), E_MODEL, e, "tokenizer_config.json");
    test_write(test_path("tokenizer_config.json"), "{", 1);
    CHECK_ERR(tok_open(&t, test_dir(), 263, &e), E_MODEL, e, "tokenizer_config.json: JSON");
    test_write(test_path("tokenizer_config.json"), NAMED, strlen(NAMED));
    CHECK_OK(tok_open(&t, test_dir(), 263, &e), e);
    tok_close(t);
    buf_free(&r);
}

/* Classes at their edges: Han beyond the ideographs, white space with and without U+001C..U+001F.
 */
TEST(classes)
{
    CHECK_INT(unicode_class('A'), UNICODE_LETTER | UNICODE_UPPER);
    CHECK_INT(unicode_class(0x4E2D), UNICODE_HAN | UNICODE_LETTER | UNICODE_UPPER | UNICODE_LOWER);
    CHECK_INT(unicode_class(0x3007), UNICODE_HAN | UNICODE_NUMBER);
    CHECK_INT(unicode_class(0x301), UNICODE_UPPER | UNICODE_LOWER);
    CHECK_INT(unicode_class(0x1C), 0);
    CHECK_INT(unicode_class(0xA0), UNICODE_SPACE);
    CHECK_INT(unicode_class(0x10FFFF), 0);
    CHECK_INT(unicode_class(UINT32_MAX), 0);
    CHECK(unicode_py_space(0x1C) && unicode_py_space(0x3000) && !unicode_py_space(0x200B));
}

/* An ill-formed character is replaced by its maximal part, a torn one waited for. */
TEST(utf8_parts)
{
    static const struct {
        const char *s;
        size_t n;
        int want;
    } cases[] = {{"\xE2\x82\xAC", 3, 3}, {"\xE2\x82", 2, 0},         {"\xE2\x82\x41", 3, -2},
                 {"\xE0\x80", 2, -1},    {"\xF0\x9F\x99", 3, 0},     {"\xF0\x9F\x99\xC3", 4, -3},
                 {"\xC1", 1, -1},        {"\xF5\x80", 2, -1},        {"\x80", 1, -1},
                 {"\xED\xA0", 2, -1},    {"\xF4\x8F\xBF\xBF", 4, 4}, {"a\x80", 2, 1}};
    uint32_t cp;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(unicode_decode(cases[i].s, cases[i].n, &cp), cases[i].want);
    char out[4];
    for (uint32_t c = 0; c < 0x110000; c += 0x81) {
        if (c >= 0xD800 && c < 0xE000) continue;
        size_t n = unicode_encode(c, out);
        CHECK_INT(unicode_decode(out, n, &cp), n);
        CHECK_INT(cp, c);
    }
}

TEST_MAIN
