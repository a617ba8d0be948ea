/* The JSON acceptor against the jsonschema package: a document is accepted exactly when it is
 * valid. Fixtures: tests/ref/json_grammar.py. */
#include "src/json.h"
#include "src/json_grammar.h"
#include "tests/lib/test.h"

static struct json doc;

/* Schemas that no finite document satisfies are refused when compiled. */
static void check_schema(uint32_t node, size_t number)
{
    struct err e;
    struct json_grammar *g;
    static struct json_state s;
    const struct json_node *schema = &doc.nodes[json_get(&doc, node, "schema")];
    const char *text = doc.text + schema->value;
    enum status rc = json_grammar_open(&g, text, schema->value_len, &e);
    if (rc && rc != E_INVALID_REQUEST) FAIL("schema %zu: %s", number, e.text);
    for (uint32_t d = doc.nodes[json_get(&doc, node, "documents")].child; d;
         d = doc.nodes[d].next) {
        const struct json_node *t = &doc.nodes[doc.nodes[d].child];
        bool want = doc.nodes[t->next].type == JSON_TRUE, got = false;
        if (!rc) {
            json_state_init(&s, g);
            got = json_state_push(&s, doc.text + t->value, t->value_len) && json_state_can_end(&s);
        }
        if (got != want)
            FAIL("schema %zu %.*s: %.*s is %s, but %s", number, (int)schema->value_len, text,
                 (int)t->value_len, doc.text + t->value, want ? "valid" : "not valid",
                 got ? "accepted" : "refused");
    }
    json_grammar_close(g);
}

/* Random schemas of the subset, values valid and nearly so, compact and indented. */
TEST(documents)
{
    struct err e;
    size_t size, n = 0;
    char *file = test_read("tests/golden/json_grammar/cases.json", &size);
    CHECK(file);
    CHECK_OK(json_parse(&doc, file, size, &e), e);
    for (uint32_t i = doc.nodes[0].child; i && !test_has_failed(); i = doc.nodes[i].next)
        check_schema(i, n++);
    CHECK(n > 200);
    json_free(&doc);
    free(file);
}

TEST_MAIN
