/* The tokenizer on hostile bytes. The first byte chooses: even, the rest is text (its ids give it
 * back); odd, the rest is a rank file and, after a NUL byte, a tokenizer_config.json. What opens
 * must encode and give back the file itself. */
#include "src/tok.h"
#include "src/unicode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void there_and_back(const struct tok *t, const char *s, size_t n, bool specials)
{
    struct ids ids = {0};
    size_t at = 0, len;
    bool valid = unicode_valid(s, n) == n;
    enum status rc = tok_encode(t, s, n, specials, &ids, NULL);
    if (rc != (valid ? OK : E_INVALID_REQUEST)) abort();
    for (size_t i = 0; i < ids.n; i++, at += len) {
        const char *b = tok_bytes(t, ids.at[i], &len);
        if (!len || at + len > n || memcmp(s + at, b, len)) abort();
        if (!specials && tok_is_special(t, ids.at[i])) abort();
    }
    if (at != (valid ? n : 0)) abort();
    ids_free(&ids);
}

static const struct tok *fixed(void)
{
    static struct tok *t;
    if (!t && tok_open(&t, "tests/golden/tok/mixed", 6193, NULL)) abort();
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const char *s = (const char *)data + 1;
    size_t n = size - 1;
    if (!(*data & 1)) {
        there_and_back(fixed(), s, n, false);
        there_and_back(fixed(), s, n, true);
        return 0;
    }
    const char *config = memchr(s, 0, n);
    struct tok *t;
    struct tok_source src = {
        .ranks = s, .ranks_len = config ? (size_t)(config - s) : n, .config = ""};
    if (config) {
        src.config = config + 1;
        src.config_len = n - src.ranks_len - 1;
    }
    if (tok_read(&t, &src, 300, NULL)) return 0;
    there_and_back(t, s, src.ranks_len, true);
    tok_close(t);
    return 0;
}
