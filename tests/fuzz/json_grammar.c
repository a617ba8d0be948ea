/* A schema, a NUL byte, and bytes that try to be a document of it. Whatever compiles: refused bytes
 * change nothing, some byte may follow or the document may end, and what ends is JSON. */
#include "src/json.h"
#include "src/json_grammar.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool goes_on(const struct json_state *s)
{
    static struct json_state t;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        json_state_copy(&t, s);
        if (json_state_push(&t, &byte, 1)) return true;
    }
    return false;
}

static void check_document(const char *text, size_t len)
{
    struct err e;
    struct json j;
    if (json_parse(&j, text, len, &e) && !strstr(e.text, "duplicate key")) abort();
    json_free(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_state s, before;
    const char *schema = (const char *)data, *text = memchr(schema, 0, size);
    struct json_grammar *g;
    size_t len = text ? (size_t)(text - schema) : size;
    if (json_grammar_open(&g, schema, len, NULL)) return 0;
    json_state_init(&s, g);
    if (!goes_on(&s)) abort();
    char *taken = malloc(size + 1);
    size_t n = 0;
    for (size_t i = len + 1; i < size; i++) {
        char b = (char)data[i];
        json_state_copy(&before, &s);
        if (json_state_push(&s, &b, 1)) {
            taken[n++] = b;
            if (json_state_can_end(&s)) check_document(taken, n);
            if (json_state_must_end(&s)) break;
            if (i % 8 == 0 && !json_state_can_end(&s) && !goes_on(&s)) abort();
        } else if (s.n != before.n || memcmp(&s.threads[0], &before.threads[0], 32)) {
            abort();
        }
    }
    free(taken);
    json_grammar_close(g);
    return 0;
}
