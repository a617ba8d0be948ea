/* Prompts of the demo model, text and image, against the ids its reference recorded. Fixtures:
 * tests/ref/prompt.py. */
#include "src/json.h"
#include "src/prompt.h"
#include "tests/lib/test.h"

static struct json doc;

static unsigned number(uint32_t node)
{
    const struct json_node *v = &doc.nodes[node];
    unsigned n = 0;
    for (uint32_t i = 0; i < v->value_len; i++)
        n = n * 10 + (unsigned)(doc.text[v->value + i] - '0');
    return n;
}

static void check_case(const struct tok *t, uint32_t node)
{
    struct err e;
    struct chat_part parts[2] = {0};
    struct chat_message m = {.role = CHAT_USER, .parts = parts};
    struct chat_options o = {0};
    struct chat_prompt c;
    struct prompt p;
    const struct json_node *text = &doc.nodes[json_get(&doc, node, "prompt")];
    uint32_t image = json_get(&doc, node, "image"), rows_node = json_get(&doc, node, "rows");
    unsigned rows = rows_node ? number(rows_node) : 0;
    if (image) {
        uint32_t width = doc.nodes[image].child;
        parts[m.n_parts++] = (struct chat_part){
            .image = true, .width = number(width), .height = number(doc.nodes[width].next)};
    }
    parts[m.n_parts++] = (struct chat_part){.text = doc.text + text->value, .len = text->value_len};
    CHECK_OK(chat_render(&c, &m, 1, &o, &e), e);
    CHECK_OK(prompt_build(&p, t, &c, tok_special(t, "<|media_pad|>"), &rows, image != 0, &e), e);
    size_t i = 0;
    for (uint32_t id = doc.nodes[json_get(&doc, node, "ids")].child; id;
         id = doc.nodes[id].next, i++) {
        CHECK(i < p.ids.n);
        CHECK_INT(p.ids.at[i], number(id));
    }
    CHECK_INT(p.ids.n, i);
    CHECK_INT(p.n_images, image != 0);
    for (i = 0; image && i < rows; i++)
        CHECK_INT(p.ids.at[p.images[0].first + i], tok_special(t, "<|media_pad|>"));
    prompt_free(&p);
    chat_prompt_free(&c);
}

/* A job's prompt has the ids that the model was trained with, pads repeated for the image's rows.
 */
TEST(demo_jobs)
{
    struct err e;
    struct tok *t;
    size_t size, n = 0;
    char *file = test_read("tests/golden/prompt/cases.json", &size);
    CHECK(file);
    CHECK_OK(json_parse(&doc, file, size, &e), e);
    CHECK_OK(tok_open(&t, "tests/golden/tok/demo", 1000, &e), e);
    for (uint32_t i = doc.nodes[0].child; i && !test_has_failed(); i = doc.nodes[i].next, n++)
        check_case(t, i);
    CHECK_INT(n, 12);
    tok_close(t);
    json_free(&doc);
    free(file);
}

TEST_MAIN
