/* response_format enforced: whatever the logits, what is drawn under the masks is a document of the
 * form. */
#include "jobs/constrain.h"

#include "jobs/jdoc.h"
#include "tests/lib/test.h"

#define VOCAB 1000

static struct tok *tok;
static struct constrain_vocab *vocab;
static int32_t stop;

static void open_all(void)
{
    struct err e = {0};
    if (tok) return;
    if (tok_open(&tok, "tests/golden/tok/demo", VOCAB, &e) ||
        constrain_vocab_open(&vocab, tok, &e)) {
        printf("%s\n", e.text);
        exit(1);
    }
    stop = tok_special(tok, "<|end_of_msg|>");
}

static struct constrain *start(const struct job *j)
{
    struct err e = {0};
    struct constrain *c = NULL;
    struct constrain_opts o = {vocab, tok, j, &stop, 1};
    open_all();
    o.vocab = vocab;
    o.tok = tok;
    if (constrain_open(&c, &o, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return c;
}

/* The likeliest token of random logits under the mask, which favour closing strings now and then.
 */
static int32_t draw(struct constrain *c, unsigned long long *random)
{
    static float logits[VOCAB];
    struct constraint face = constrain_face(c);
    int32_t best = -1;
    for (size_t i = 0; i < VOCAB; i++) logits[i] = test_randf(random);
    logits['"'] += 1;
    logits['}'] += 1;
    face.mask(face.user, logits, VOCAB);
    for (int32_t i = 0; i < VOCAB; i++)
        if (logits[i] > (best < 0 ? -INFINITY : logits[best])) best = i;
    if (best >= 0) face.push(face.user, best);
    return best;
}

/* Draws until the markup closes; the bytes before it. */
static void run(struct constrain *c, unsigned long long seed, struct buf *text)
{
    for (int n = 0; n < 3000; n++) {
        size_t len;
        int32_t id = draw(c, &seed);
        CHECK(id >= 0);
        if (id == stop || id == tok_special(tok, "<|close|>")) return;
        const char *bytes = tok_bytes(tok, id, &len);
        CHECK_INT(buf_add(text, bytes, len, NULL), OK);
    }
    FAIL("no end after 3000 tokens: %.200s", text->data);
}

/* Random answers to a schema parse, are objects, and have the members that are required. */
TEST(any_logits_give_a_document)
{
    struct job j = {
        .format = CHAT_JSON_SCHEMA,
        .schema =
            "{\"additionalProperties\":false,\"properties\":{\"a\":{\"enum\":[\"x\",\"yes\"]},"
            "\"n\":{\"type\":\"integer\"},\"s\":{\"maxLength\":9,\"type\":\"string\"}},"
            "\"required\":[\"a\",\"s\"],\"type\":\"object\"}"};
    for (unsigned long long seed = 1; seed <= 25 && !test_has_failed(); seed++) {
        struct constrain *c = start(&j);
        struct buf text = {0};
        struct jdoc d = {0};
        struct err e = {0};
        if (!c) return;
        run(c, seed, &text);
        CHECK_OK(jdoc_parse(&d, text.data, text.len, &e), e);
        CHECK_INT(d.values[0].type, JDOC_OBJECT);
        CHECK(jdoc_member(&d, 0, "a") && jdoc_member(&d, 0, "s"));
        jdoc_free(&d);
        buf_free(&text);
        constrain_close(c);
    }
}

/* A job that goes on after an interruption has the same masks as one that was never stopped. */
TEST(pushed_again_it_stands_where_it_stood)
{
    struct job j = {.format = CHAT_JSON_OBJECT};
    unsigned long long seed = 5;
    struct constrain *a = start(&j), *b = start(&j);
    int32_t ids[40];
    size_t n = 0;
    if (!a || !b) return;
    while (n < 40) {
        ids[n] = draw(a, &seed);
        CHECK(ids[n] >= 0);
        if (ids[n] == stop || tok_is_special(tok, ids[n])) break;
        n++;
    }
    for (size_t i = 0; i < n; i++) constrain_push(b, ids[i]);
    if (n == 40) {
        unsigned long long again = seed;
        CHECK_INT(draw(a, &seed), draw(b, &again));
    }
    constrain_close(a);
    constrain_close(b);
}

/* Text jobs have no constraint; reasoning is free until the response opens. */
TEST(only_the_response_is_bound)
{
    struct job j = {.format = CHAT_TEXT};
    CHECK(start(&j) == NULL);
    CHECK(constrain_fault(NULL, NULL) == OK);
    j.format = CHAT_JSON_OBJECT;
    j.settings.effort = "low";
    struct constrain *c = start(&j);
    if (!c) return;
    struct constraint face = constrain_face(c);
    float logits[VOCAB] = {0};
    face.mask(face.user, logits, VOCAB);
    for (size_t i = 0; i < VOCAB; i++) CHECK(logits[i] == 0);
    CHECK(constrain_fault(c, NULL) == OK);
    constrain_close(c);
}

TEST_MAIN
