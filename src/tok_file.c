/* Opens a tokenizer: tiktoken.model (lines of strict base64, one space, the rank, in order and
 * without gaps) and the names of specials from tokenizer_config.json. Nothing in the files is
 * trusted; a fault names file and line or token. */
#include "src/tok_file.h"
#include "src/json.h"
#include "src/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_FILE  "tiktoken.model"
#define CONFIG_FILE "tokenizer_config.json"
#define MAX_FILE    (64u << 20)

static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decoded length of the strict base64 text s[0..n); 0: it is none, or empty. dst: n bytes. */
static size_t base64(const char *s, size_t n, char *dst)
{
    if (!n || n % 4) return 0;
    size_t pad = s[n - 1] != '=' ? 0 : s[n - 2] != '=' ? 1 : 2, len = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int v = i < n - pad ? sextet(s[i]) : 0;
        if (v < 0) return 0;
        bits = bits << 6 | (uint32_t)v;
        if (i % 4 != 3) continue;
        int low = i + 1 == n ? 8 * (int)pad : 0;
        if (bits & ((1u << low) - 1)) return 0; /* what the padding cuts off must be 0 */
        for (int k = 16; k >= low; k -= 8) dst[len++] = (char)(bits >> k & 0xFF);
        bits = 0;
    }
    return len;
}

/* One line without its end. */
static enum status read_rank(struct bpe_table *t, const char *line, size_t len, struct err *e)
{
    char bytes[TOK_MAX_RANK_BYTES / 3 * 4 + 8], want[16];
    const char *space = memchr(line, ' ', len);
    size_t code = space ? (size_t)(space - line) : 0, n;
    if (code > sizeof bytes)
        return err_set(e, E_MODEL, "a token of more than %d bytes", TOK_MAX_RANK_BYTES);
    n = base64(line, code, bytes);
    if (!n) return err_set(e, E_MODEL, "base64, one space and a rank expected");
    int digits = snprintf(want, sizeof want, "%zu", t->n);
    if (len - code - 1 != (size_t)digits || memcmp(space + 1, want, (size_t)digits))
        return err_set(e, E_MODEL, "rank %s expected", want);
    return bpe_add(t, bytes, n, e);
}

static enum status read_ranks(struct tok *t, const struct tok_source *s, uint32_t vocab,
                              struct err *e)
{
    for (size_t at = 0; at < s->ranks_len;) {
        const char *line = s->ranks + at, *end = memchr(line, '\n', s->ranks_len - at);
        size_t len = end ? (size_t)(end - line) : s->ranks_len - at;
        if (t->ranks.n == vocab)
            return err_set(e, E_MODEL, RANKS_FILE ": more lines than the vocabulary of %" PRIu32,
                           vocab);
        enum status rc = read_rank(&t->ranks, line, len, e);
        if (rc) {
            err_wrap(e, RANKS_FILE " line %zu", t->ranks.n + 1);
            return rc;
        }
        at += len + 1;
    }
    uint32_t twice;
    enum status rc = bpe_index(&t->ranks, &twice, e);
    if (rc) return rc;
    if (twice != BPE_NONE)
        return err_set(e, E_MODEL, RANKS_FILE " line %" PRIu32 ": a token that an earlier line has",
                       twice + 1);
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        if (bpe_find(&t->ranks, &c, 1) == BPE_NONE)
            return err_set(e, E_MODEL, RANKS_FILE ": the single byte %d is missing", b);
    }
    return OK;
}

/* names[i]: node of the spelling of special i, 0 for the default. */
static enum status read_names(const struct json *j, uint32_t *names, size_t first, size_t n,
                              struct err *e)
{
    uint32_t table = json_get(j, 0, "added_tokens_decoder");
    if (j->nodes[0].type != JSON_OBJECT || (table && j->nodes[table].type != JSON_OBJECT))
        return err_set(e, E_MODEL, "no object added_tokens_decoder");
    for (uint32_t m = table ? j->nodes[table].child : 0; m; m = j->nodes[m].next) {
        const struct json_node *node = &j->nodes[m];
        char key[16] = "", again[24];
        if (node->key_len < sizeof key) memcpy(key, j->text + node->key, node->key_len);
        size_t id = strtoul(key, NULL, 10);
        snprintf(again, sizeof again, "%zu", id);
        if (node->key_len != strlen(again) || strcmp(key, again) || id < first || id - first >= n)
            return err_set(e, E_MODEL, "added token \"%s\": ids are %zu to %zu", key, first,
                           first + n - 1);
        uint32_t content = json_get(j, m, "content");
        if (!content || j->nodes[content].type != JSON_STRING)
            return err_set(e, E_MODEL, "added token %zu has no content", id);
        size_t len = j->nodes[content].value_len;
        if (!len || len > TOK_MAX_SPECIAL_BYTES)
            return err_set(e, E_MODEL, "added token %zu: %zu bytes, 1 to %d expected", id, len,
                           TOK_MAX_SPECIAL_BYTES);
        names[id - first] = content;
    }
    return OK;
}

static enum status add_specials(struct tok *t, const struct json *j, const uint32_t *names,
                                size_t n, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < n && !rc; i++) {
        char spelled[40];
        int len = snprintf(spelled, sizeof spelled, "<|reserved_token_%zu|>", t->ranks.n + i);
        const struct json_node *name = &j->nodes[names[i]];
        rc = names[i] ? bpe_add(&t->specials, j->text + name->value, name->value_len, e)
                      : bpe_add(&t->specials, spelled, (size_t)len, e);
    }
    uint32_t twice;
    if (!rc) rc = bpe_index(&t->specials, &twice, e);
    if (rc) return rc;
    if (twice != BPE_NONE)
        return err_set(e, E_MODEL, "token %zu is spelled as an earlier one", t->ranks.n + twice);
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        const char *s = bpe_bytes(&t->specials, i, &len);
        t->special_first[(unsigned char)*s] = true;
        t->special_len[len] = true;
    }
    return OK;
}

static enum status read_specials(struct tok *t, const struct tok_source *s, size_t n, struct err *e)
{
    struct json j;
    uint32_t *names = NULL;
    if (n > TOK_MAX_SPECIALS)
        return err_set(e, E_MODEL, "%zu specials, at most %d are supported", n, TOK_MAX_SPECIALS);
    enum status rc = json_parse(&j, s->config, s->config_len, e);
    if (rc == E_INVALID_JSON) {
        rc = E_MODEL;
        if (e) e->code = rc;
    }
    if (rc) return rc;
    names = calloc(n + 1, sizeof *names);
    rc = names ? OK : err_set(e, E_NOMEM, "no memory for %zu specials", n);
    if (!rc) rc = read_names(&j, names, t->ranks.n, n, e);
    if (!rc) rc = add_specials(t, &j, names, n, e);
    free(names);
    json_free(&j);
    return rc;
}

enum status tok_read(struct tok **out, const struct tok_source *s, uint32_t vocab_size,
                     struct err *e)
{
    *out = NULL;
    if (vocab_size > TOK_MAX_VOCAB)
        return err_set(e, E_MODEL, "vocabulary of %" PRIu32 ", at most %u are supported",
                       vocab_size, TOK_MAX_VOCAB);
    struct tok *t = calloc(1, sizeof *t);
    if (!t) return err_set(e, E_NOMEM, "tokenizer: no memory");
    enum status rc = read_ranks(t, s, vocab_size, e);
    if (!rc) {
        rc = read_specials(t, s, vocab_size - t->ranks.n, e);
        if (rc) err_wrap(e, CONFIG_FILE);
    }
    if (rc)
        tok_close(t);
    else
        *out = t;
    return rc;
}

enum status tok_open(struct tok **out, const char *dir, uint32_t vocab_size, struct err *e)
{
    struct tok_source s = {0};
    struct buf path = {0};
    char *ranks = NULL, *config = NULL;
    *out = NULL;
    enum status rc = buf_addf(&path, e, "%s/" RANKS_FILE, dir);
    if (!rc) rc = os_read_file(path.data, MAX_FILE, &ranks, &s.ranks_len, e);
    path.len = 0;
    if (!rc) rc = buf_addf(&path, e, "%s/" CONFIG_FILE, dir);
    if (!rc) rc = os_read_file(path.data, MAX_FILE, &config, &s.config_len, e);
    if (rc) goto out;
    s.ranks = ranks;
    s.config = config;
    rc = tok_read(out, &s, vocab_size, e);
    if (rc) err_wrap(e, "%s", dir);
out:
    if (rc == E_IO) { /* a file of the model that is not there is the model's fault */
        rc = E_MODEL;
        if (e) e->code = rc;
    }
    buf_free(&path);
    free(ranks);
    free(config);
    return rc;
}
