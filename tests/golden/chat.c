/* The chat template against the vendor's encoder: every segment, in order, markup or text.
 * Fixtures: tests/ref/chat.py. */
#include "src/chat.h"
#include "src/json.h"
#include "tests/lib/test.h"

#define DIR "tests/golden/chat/"
#define MAX 16

static struct json doc;

static char *kept[50000];
static size_t n_kept;

/* Decoded string of node, "" for none; lives until forget. */
static char *string(uint32_t node)
{
    const struct json_node *v = &doc.nodes[node];
    bool is = node && v->type == JSON_STRING && n_kept < sizeof kept / sizeof *kept - 1;
    kept[n_kept] = is ? strndup(doc.text + v->value, v->value_len) : strdup("");
    return kept[n_kept++];
}

static void forget(void)
{
    while (n_kept) free(kept[--n_kept]);
    json_free(&doc);
}

static const char *member(uint32_t object, const char *key)
{
    uint32_t node = json_get(&doc, object, key);
    return node ? string(node) : NULL;
}

static unsigned number(uint32_t node)
{
    const struct json_node *v = &doc.nodes[node];
    unsigned n = 0;
    for (uint32_t i = 0; i < v->value_len; i++)
        n = n * 10 + (unsigned)(doc.text[v->value + i] - '0');
    return n;
}

struct conversation {
    struct chat_message messages[MAX];
    struct chat_part parts[MAX][MAX];
    size_t n;
    struct chat_options o;
};

static void read_message(struct conversation *c, uint32_t node)
{
    struct chat_message *m = &c->messages[c->n];
    struct chat_part *p = c->parts[c->n++];
    const char *role = member(node, "role");
    m->role = !strcmp(role, "user")     ? CHAT_USER
              : !strcmp(role, "system") ? CHAT_SYSTEM
                                        : CHAT_ASSISTANT;
    m->name = member(node, "name");
    m->reasoning = member(node, "reasoning");
    m->parts = p;
    for (uint32_t i = doc.nodes[json_get(&doc, node, "parts")].child; i;
         i = doc.nodes[i].next, p++) {
        const struct json_node *v = &doc.nodes[i];
        *p = (struct chat_part){.image = v->type == JSON_ARRAY};
        if (p->image) {
            p->width = number(v->child);
            p->height = number(doc.nodes[v->child].next);
        } else {
            p->text = string(i);
            p->len = v->value_len;
        }
        m->n_parts++;
    }
}

static void read_case(struct conversation *c, uint32_t node, struct buf *schema)
{
    struct err e;
    *c = (struct conversation){0};
    for (uint32_t m = doc.nodes[json_get(&doc, node, "messages")].child; m; m = doc.nodes[m].next)
        read_message(c, m);
    c->o.thinking = doc.nodes[json_get(&doc, node, "thinking")].type == JSON_TRUE;
    c->o.effort = member(node, "effort");
    const char *format = member(node, "format"), *text = member(node, "schema");
    if (format) c->o.format = strcmp(format, "json_schema") ? CHAT_JSON_OBJECT : CHAT_JSON_SCHEMA;
    schema->len = 0;
    if (text) CHECK_OK(chat_canonical_json(text, schema, &e), e);
    c->o.schema = text ? schema->data : NULL;
}

static void check_segments(const struct chat_prompt *p, uint32_t want, size_t number_of_case)
{
    size_t i = 0;
    int images = 0;
    for (uint32_t s = doc.nodes[want].child; s; s = doc.nodes[s].next, i++) {
        uint32_t text = doc.nodes[s].child, special = doc.nodes[text].next;
        CHECK(i < p->n);
        const struct chat_segment *seg = &p->segments[i];
        const struct json_node *t = &doc.nodes[text];
        if (seg->len != t->value_len ||
            memcmp(p->text.data + seg->at, doc.text + t->value, seg->len))
            FAIL("case %zu segment %zu is \"%.*s\", not \"%.*s\"", number_of_case, i, (int)seg->len,
                 p->text.data + seg->at, (int)t->value_len, doc.text + t->value);
        CHECK_INT(seg->special, doc.nodes[special].type == JSON_TRUE);
        bool media = seg->special && !strncmp(string(text), "<|media_begin|>", 15);
        CHECK_INT(seg->image, media ? images++ : -1);
    }
    CHECK_INT(p->n, i);
}

/* Conversations of all roles, options and images, and hostile texts, give the vendor's segments. */
TEST(segments)
{
    struct err e;
    size_t size, n = 0;
    char *file = test_read(DIR "cases.json", &size);
    CHECK(file);
    CHECK_OK(json_parse(&doc, file, size, &e), e);
    static struct conversation c;
    struct buf schema = {0};
    for (uint32_t i = doc.nodes[0].child; i && !test_has_failed(); i = doc.nodes[i].next, n++) {
        struct chat_prompt p;
        read_case(&c, i, &schema);
        CHECK_OK(chat_render(&p, c.messages, c.n, &c.o, &e), e);
        check_segments(&p, json_get(&doc, i, "segments"), n);
        chat_prompt_free(&p);
    }
    CHECK(n > 100);
    buf_free(&schema);
    forget();
    free(file);
}

/* JSON is embedded as Python writes it. */
TEST(canonical_json)
{
    struct err e;
    size_t size, n = 0;
    char *file = test_read(DIR "json.json", &size);
    CHECK(file);
    CHECK_OK(json_parse(&doc, file, size, &e), e);
    struct buf out = {0};
    for (uint32_t i = doc.nodes[0].child; i; i = doc.nodes[i].next, n++) {
        uint32_t from = doc.nodes[i].child;
        out.len = 0;
        CHECK_OK(chat_canonical_json(string(from), &out, &e), e);
        CHECK_STR(out.data, string(doc.nodes[from].next));
    }
    CHECK(n > 30);
    buf_free(&out);
    forget();
    free(file);
}

TEST_MAIN
