/* A reply of arbitrary tokens. Byte 0: options; then two bytes a token. Texts stay valid UTF-8, the
 * end is told once, and the same tokens again give the same answer. */
#include "src/reply.h"
#include "src/unicode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct reply *start(uint8_t options)
{
    static struct tok *t;
    if (!t && tok_open(&t, "tests/golden/tok/demo", 1000, NULL)) abort();
    static const char *const stops[] = {"ab", "\n\n", "\xEF\xBF\xBD"};
    const int32_t stop = 986;
    struct reply_opts o = {.tok = t,
                           .thinking = options & 1,
                           .stop_ids = &stop,
                           .n_stop_ids = 1,
                           .stops = stops,
                           .n_stops = options >> 1 & 3,
                           .max_tokens = options & 8 ? 20 : 100000,
                           .stop_repetition = options >> 4 & 1};
    struct reply *r;
    if (reply_open(&r, &o, NULL)) abort();
    return r;
}

static void check_text(const char *s, size_t n)
{
    if (unicode_valid(s, n) != n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    struct reply *r = start(*data), *again = start(*data);
    enum reply_state state = REPLY_OPEN, second = REPLY_OPEN;
    size_t n, m, i;
    for (i = 1; i + 1 < size && state == REPLY_OPEN; i += 2) {
        int32_t id = (data[i] | data[i + 1] << 8) % 1000;
        if (reply_push(r, id, &state, NULL)) abort();
        const char *s = reply_content(r, &n);
        check_text(s, n);
        s = reply_reasoning(r, &n);
        check_text(s, n);
        if ((state == REPLY_OPEN) != !reply_finish_reason(r)) abort();
        if (state != REPLY_OPEN && reply_channel(r) == REPLY_MARKUP) abort();
    }
    size_t end = i;
    for (i = 1; i < end; i += 2) {
        if (second != REPLY_OPEN) abort();
        int32_t id = (data[i] | data[i + 1] << 8) % 1000;
        if (reply_push(again, id, &second, NULL)) abort();
    }
    const char *a = reply_content(r, &n), *b = reply_content(again, &m);
    if (state != second || n != m || memcmp(a, b, n)) abort();
    reply_close(r);
    reply_close(again);
    return 0;
}
