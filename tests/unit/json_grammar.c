/* json_grammar, json_schema, json_mask: what is refused, bounds, no dead ends, tokens. */
#include "src/json.h"
#include "src/json_mask.h"
#include "tests/lib/test.h"

static struct json_grammar *compile(const char *schema)
{
    struct err e;
    struct json_grammar *g;
    if (json_grammar_open(&g, schema, schema ? strlen(schema) : 0, &e)) {
        test_failed(__FILE__, __LINE__, "%s: %s", schema ? schema : "any object", e.text);
        abort();
    }
    return g;
}

static bool accepts(const struct json_grammar *g, const char *text)
{
    static struct json_state s;
    json_state_init(&s, g);
    return json_state_push(&s, text, strlen(text)) && json_state_can_end(&s);
}

static void check(const char *schema, const char *good, const char *bad)
{
    struct json_grammar *g = compile(schema);
    if (good && !accepts(g, good)) FAIL("%s refuses %s", schema ? schema : "any object", good);
    if (bad && accepts(g, bad)) FAIL("%s accepts %s", schema ? schema : "any object", bad);
    json_grammar_close(g);
}

/* What is outside the subset is named by its pointer; what makes no sense too. */
TEST(refused)
{
    static const struct {
        const char *schema;
        enum status rc;
        const char *message;
    } cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"a\"}", E_UNSUPPORTED_FIELD, "\"#/pattern\""},
        {"{\"properties\":{\"a\":{\"items\":{\"multipleOf\":2}}}}", E_UNSUPPORTED_FIELD,
         "\"#/properties/a/items/multipleOf\""},
        {"{\"properties\":{\"a/b~c\":{\"not\":{}}}}", E_UNSUPPORTED_FIELD,
         "\"#/properties/a~1b~0c/not\""},
        {"{\"anyOf\":[{},{\"oneOf\":[]}]}", E_UNSUPPORTED_FIELD, "\"#/anyOf/1/oneOf\""},
        {"{\"allOf\":[{},{}]}", E_UNSUPPORTED_FIELD, "\"#/allOf\""},
        {"{\"anyOf\":[{}],\"required\":[\"a\"]}", E_UNSUPPORTED_FIELD, "\"#/required\""},
        {"{\"anyOf\":[{}],\"type\":\"object\"}", E_UNSUPPORTED_FIELD, "\"#/type\""},
        {"{\"enum\":[1],\"const\":1}", E_UNSUPPORTED_FIELD, "\"#/enum\""},
        {"{\"type\":\"number\",\"minimum\":0}", E_UNSUPPORTED_FIELD, "\"#/minimum\""},
        {"{\"type\":\"integer\",\"minimum\":0.5}", E_UNSUPPORTED_FIELD, "\"#/minimum\""},
        {"{\"$ref\":\"other.json\"}", E_UNSUPPORTED_FIELD, "\"#/$ref\""},
        {"{\"$ref\":\"#/$defs/a\"}", E_UNSUPPORTED_FIELD, "\"#/$ref\""},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"if\":{}}}}", E_UNSUPPORTED_FIELD,
         "\"#/$defs/a/if\""},
        {"{\"items\":[{}]}", E_INVALID_REQUEST, "\"#/items\""},
        {"{\"type\":\"strnig\"}", E_INVALID_REQUEST, "\"#/type\""},
        {"{\"type\":[]}", E_INVALID_REQUEST, "\"#/type\""},
        {"{\"properties\":[]}", E_INVALID_REQUEST, "\"#/properties\""},
        {"{\"required\":\"a\"}", E_INVALID_REQUEST, "\"#/required\""},
        {"{\"required\":[1]}", E_INVALID_REQUEST, "\"#/required\""},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", E_INVALID_REQUEST,
         "\"#/required\""},
        {"{\"minItems\":-1}", E_INVALID_REQUEST, "\"#/minItems\""},
        {"{\"minItems\":3,\"maxItems\":2}", E_INVALID_REQUEST, "minItems is over"},
        {"{\"minLength\":3,\"maxLength\":2}", E_INVALID_REQUEST, "minLength is over"},
        {"{\"minimum\":3,\"maximum\":2}", E_INVALID_REQUEST, "no integer"},
        {"{\"enum\":[]}", E_INVALID_REQUEST, "\"#/enum\""},
        {"{\"enum\":[1],\"type\":\"string\"}", E_INVALID_REQUEST, "\"#/enum\""},
        {"{\"anyOf\":[]}", E_INVALID_REQUEST, "\"#/anyOf\""},
        {"{\"properties\":{\"a\":false}}", E_INVALID_REQUEST, "\"#/properties/a\""},
        {"false", E_INVALID_REQUEST, "\"#\""},
        {"3", E_INVALID_REQUEST, "\"#\""},
        {"{\"$ref\":\"#\"}", E_INVALID_REQUEST, "no document"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", E_INVALID_REQUEST,
         "no document"},
        {"{\"items\":{\"$ref\":\"#\"},\"minItems\":1}", E_INVALID_REQUEST, "no document"},
        {"{", E_INVALID_JSON, "schema: JSON"},
    };
    struct err e;
    struct json_grammar *g;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *s = cases[i].schema;
        if (json_grammar_open(&g, s, strlen(s), &e) != cases[i].rc ||
            !strstr(e.text, cases[i].message))
            FAIL("%s: %s: %s", s, status_name(e.code), e.text);
        CHECK(!g);
    }
}

/* Tables have bounds, and what exceeds them is refused. */
TEST(sizes)
{
    struct err e;
    struct json_grammar *g;
    struct buf b = {0};
    for (int over = 0; over < 2; over++) {
        b.len = 0;
        buf_addf(&b, &e, "{\"properties\":{\"p0\":{}");
        for (int i = 1; i < 64 + over; i++) buf_addf(&b, &e, ",\"p%d\":{}", i);
        buf_addf(&b, &e, "}}");
        CHECK_INT(json_grammar_open(&g, b.data, b.len, &e), over ? E_UNSUPPORTED_FIELD : OK);
        json_grammar_close(g);
        b.len = 0;
        buf_addf(&b, &e, "{\"enum\":[0");
        for (int i = 1; i < 1024 + over; i++) buf_addf(&b, &e, ",%d", i);
        buf_addf(&b, &e, "]}");
        CHECK_INT(json_grammar_open(&g, b.data, b.len, &e), over ? E_UNSUPPORTED_FIELD : OK);
        json_grammar_close(g);
        b.len = 0;
        buf_addf(&b, &e, "{\"anyOf\":[{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}");
        for (int i = 1; i < 31 + over; i++) buf_addf(&b, &e, ",{\"const\":%d}", i);
        buf_addf(&b, &e, "]}");
        CHECK_INT(json_grammar_open(&g, b.data, b.len, &e), over ? E_UNSUPPORTED_FIELD : OK);
        json_grammar_close(g);
    }
    buf_free(&b);
}

/* Every integer near the bounds is accepted exactly when it lies within. */
TEST(integer_bounds)
{
    static const int bounds[][2] = {{0, 0},     {1, 9},  {-3, 5},     {10, 20}, {95, 105},
                                    {-120, -7}, {-1, 1}, {199, 1000}, {7, 7}};
    char schema[96], text[16];
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}",
                 bounds[i][0], bounds[i][1]);
        struct json_grammar *g = compile(schema);
        for (int v = -1300; v <= 1300; v++) {
            snprintf(text, sizeof text, "%d", v);
            if (accepts(g, text) != (v >= bounds[i][0] && v <= bounds[i][1]))
                FAIL("%s and %d", schema, v);
        }
        CHECK(!accepts(g, "-0") && !accepts(g, "00") && !accepts(g, "01") && !accepts(g, "1.0"));
        json_grammar_close(g);
    }
    check("{\"minimum\":1}", "10", NULL);
    check("{\"maximum\":3,\"exclusiveMaximum\":9}", "3", "4");
    check("{\"maximum\":9,\"exclusiveMaximum\":3}", "2", "3");
    check("{\"exclusiveMinimum\":3,\"exclusiveMaximum\":5}", "4", "3");
    check("{\"type\":\"integer\"}", "999999999999999999", "1000000000000000000");
    check("{\"type\":\"integer\"}", "-999999999999999999", "-1000000000000000000");
}

/* Numbers are JSON's, with bounded digits. */
TEST(numbers)
{
    static const char *const good[] = {
        "0",         "-0",  "10",    "1.5",
        "-0.25e+10", "1E5", "1e-05", "123456789012345678.123456789012345678e99"};
    static const char *const bad[] = {"",
                                      "-",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "1e+",
                                      "1e100",
                                      "1234567890123456789",
                                      "1.1234567890123456789",
                                      "1 "};
    struct json_grammar *g = compile("{\"type\":\"number\"}");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!accepts(g, good[i])) FAIL("%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (accepts(g, bad[i])) FAIL("%s", bad[i]);
    json_grammar_close(g);
}

/* Strings: lengths count characters however spelled; surrogates come in pairs; bytes are UTF-8. */
TEST(strings)
{
    static const char *const good[] = {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x99\x82\"",
                                       "\"\\u00e9\\ud83D\\uDe42\"", "\"\\\"\\\\\\/\"",
                                       "\"\\b\\n\""};
    static const char *const bad[] = {"\"a\"",
                                      "\"abcd\"",
                                      "\"ab\\ud83d\\ud83d\"",
                                      "\"\\udE42a\"",
                                      "\"\\u0000a\"",
                                      "\"\\xa\"",
                                      "\"a\nb\"",
                                      "\"\xC3\xC3\"",
                                      "\"\xED\xA0\x80z\"",
                                      "\"\xC0\x80z\"",
                                      "\"ab",
                                      "\"\\ud83dab\"",
                                      "ab"};
    struct json_grammar *g = compile("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!accepts(g, good[i])) FAIL("%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (accepts(g, bad[i])) FAIL("%s", bad[i]);
    json_grammar_close(g);
}

/* Keys: each once, the required ones before the end, others as additionalProperties says. */
TEST(keys)
{
#define AB "\"properties\":{\"a\":{\"type\":\"null\"},\"ab\":{\"type\":\"null\"}}"
    check("{" AB ",\"required\":[\"ab\"],\"additionalProperties\":false}",
          "{\"ab\":null,\"a\":null}", "{\"a\":null}");
    check("{" AB ",\"additionalProperties\":false}", "{}", "{\"a\":null,\"a\":null}");
    check("{" AB ",\"additionalProperties\":false}", "{\"a\":null}", "{\"b\":null}");
    check("{" AB ",\"additionalProperties\":false}", "{\"ab\" : null }", "{\"a\":null,}");
    check("{" AB "}", "{\"abc\":1,\"\xC3\xA9\":2,\"a\":null}", "{\"a\":1}");
    check("{" AB "}", "{\"b\":[1]}", "{\"\\u0061\":1}");
    check("{" AB ",\"additionalProperties\":{\"type\":\"string\"}}", "{\"b\":\"\"}", "{\"b\":1}");
    check("{" AB "}", "{\"a\":null}", "{\"a\":null,\"a\":null}");
    check("{" AB ",\"required\":[\"c\"]}", "{\"c\":1}", "{\"a\":null}");
    check("{\"properties\":{\"a\\\"b\":{}},\"additionalProperties\":false}", "{\"a\\\"b\":1}",
          "{\"a\":1}");
    check("{\"properties\":{\"\":{}},\"additionalProperties\":false}", "{\"\":1}", "{\"x\":1}");
    check(NULL, "{\"a\":{\"b\":[1,true,null,\"x\",{}]}}", "[]");
    check(NULL, " \n{ \"a\" : [ ] }", "{} ");
}

/* Alternatives live side by side until the bytes decide. */
TEST(alternatives)
{
    check("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"enum\":[\"abc\",1,12]}]}",
          "\"abc\"", "\"abd\"");
    check("{\"enum\":[1,12,\"a\",[1,2]]}", "12", "13");
    check("{\"enum\":[1,12,\"a\",[1,2]]}", "1", "2");
    check("{\"minItems\":2,\"maxItems\":3}", "[1,2]", "[1]");
    check("{\"minItems\":2,\"maxItems\":3}", "[1,2,3]", "[1,2,3,4]");
    check("{\"type\":\"array\",\"items\":{\"enum\":[1,12]}}", "[1,12,1 ]", "[123]");
    check("{\"type\":[\"string\",\"null\",\"integer\"],\"minLength\":2}", "null", "\"a\"");
    check("{\"anyOf\":[{\"properties\":{\"k\":{\"const\":\"x\"},\"v\":{\"type\":\"null\"}},"
          "\"required\":[\"k\",\"v\"],\"additionalProperties\":false},"
          "{\"properties\":{\"k\":{\"const\":\"y\"},\"v\":{\"type\":\"string\"}},\"required\":["
          "\"k\",\"v\"],\"additionalProperties\":false}]}",
          "{\"k\":\"y\",\"v\":\"\"}", "{\"k\":\"x\",\"v\":\"\"}");
}

static bool can_follow(const char *schema, const char *text, const char *next)
{
    struct json_grammar *g = compile(schema);
    static struct json_state s;
    json_state_init(&s, g);
    if (!json_state_push(&s, text, strlen(text))) test_failed(__FILE__, __LINE__, "%s", text);
    bool can = json_state_push(&s, next, strlen(next));
    json_grammar_close(g);
    return can;
}

/* A way that leads nowhere is not entered: no digit, key or literal that cannot be finished. */
TEST(ways_that_end)
{
    CHECK(!can_follow("{\"minimum\":1}", "", "0"));
    CHECK(!can_follow("{\"minimum\":0}", "", "-"));
    CHECK(!can_follow("{\"minimum\":250,\"maximum\":299}", "", "3"));
    CHECK(can_follow("{\"minimum\":250,\"maximum\":299}", "2", "5"));
    CHECK(!can_follow("{\"minimum\":250,\"maximum\":299}", "2", "4"));
    CHECK(
        !can_follow("{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"a\":1", ","));
    CHECK(!can_follow("{\"properties\":{\"a\":{}},\"additionalProperties\":false}", "{\"", "b"));
    CHECK(!can_follow("{\"enum\":[\"ab\"]}", "\"", "b"));
    CHECK(!can_follow("{\"maxItems\":1}", "[1", ","));
}

/* A refused push of several bytes changes nothing; a document that is complete takes no more. */
TEST(refused_push)
{
    struct json_grammar *g = compile("{\"enum\":[\"a\",\"a\"]}");
    static struct json_state s;
    json_state_init(&s, g);
    CHECK(!json_state_push(&s, "\"ab", 3));
    CHECK(json_state_push(&s, "\"a\"", 3));
    CHECK(json_state_must_end(&s));
    json_grammar_close(g);
}

/* Recursion is followed, also to places with escapes in their pointer. */
TEST(references)
{
    check("{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/"
          "b\":{\"properties\":{\"next\":{\"$ref\":\"#\"}},\"additionalProperties\":false}}}",
          "{\"next\":{\"next\":{}}}", "{\"next\":{\"nxt\":{}}}");
    check("{\"anyOf\":[{\"$ref\":\"#/anyOf/1\"},{\"type\":\"null\"}]}", "null", "1");
}

/* White space is bounded, nesting too: at the deepest place only what can be closed is begun. */
TEST(bounds)
{
    struct json_grammar *g = compile(NULL);
    static struct json_state s;
    char text[200] = "{\"a\":";
    json_state_init(&s, g);
    for (int i = 0; i < JSON_GRAMMAR_SPACE; i++) CHECK(json_state_push(&s, " ", 1));
    CHECK(!json_state_push(&s, " ", 1));
    json_state_init(&s, g);
    CHECK(json_state_push(&s, text, 5));
    for (int i = 1; i < JSON_GRAMMAR_DEPTH; i++) CHECK(json_state_push(&s, "[", 1));
    CHECK(!json_state_push(&s, "[", 1) && !json_state_push(&s, "1", 1));
    for (int i = 1; i < JSON_GRAMMAR_DEPTH; i++) CHECK(json_state_push(&s, "]", 1));
    CHECK(!json_state_can_end(&s) && json_state_push(&s, "}", 1));
    CHECK(json_state_can_end(&s) && json_state_must_end(&s));
    CHECK(!json_state_push(&s, " ", 1));
    json_grammar_close(g);
}

/* A value is begun only where its smallest form still fits. */
TEST(room_for_values)
{
    struct json_grammar *g = compile(NULL),
                        *deep =
                            compile("{\"items\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"},"
                                    "{\"properties\":{\"x\":{\"properties\":{\"y\":{}},"
                                    "\"required\":[\"y\"]}},\"required\":[\"x\"]}]}}");
    static struct json_state s;
    json_state_init(&s, g);
    for (int i = 1; i < JSON_GRAMMAR_DEPTH; i++) CHECK(json_state_push(&s, "{\"a\":", 5));
    CHECK(json_state_push(&s, "{", 1) && !json_state_push(&s, "\"", 1));
    json_state_init(&s, deep);
    for (int i = 0; i < JSON_GRAMMAR_DEPTH - 3; i++) CHECK(json_state_push(&s, "[", 1));
    CHECK(json_state_push(&s, "{\"x\":{\"y\":1}},[", 15));
    CHECK(!json_state_push(&s, "{", 1) && json_state_push(&s, "null", 4));
    json_grammar_close(g);
    json_grammar_close(deep);
}

static const char *const walks[] = {
    NULL,
    "{}",
    "{\"properties\":{\"a\":{\"$ref\":\"#\"},\"b\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},"
    "\"minItems\":2}},\"additionalProperties\":false}",
    "{\"properties\":{\"ab\":{\"type\":\"integer\",\"minimum\":-17,\"maximum\":1234},\"abc\":{"
    "\"enum\":[\"x\",\"xy\",12,123]}},\"required\":[\"ab\"],"
    "\"additionalProperties\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}}",
    "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":2},{\"type\":["
    "\"string\",\"number\"]},"
    "{\"properties\":{\"k\":{\"$ref\":\"#/anyOf/0\"}},\"required\":[\"k\"]}]}",
};

static int next_bytes(const struct json_state *s, unsigned char out[256])
{
    static struct json_state t;
    int n = 0;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        json_state_copy(&t, s);
        if (json_state_push(&t, &byte, 1)) out[n++] = (unsigned char)b;
    }
    return n;
}

/* Random walks: some byte may always follow, or the end, and what ends is JSON. */
TEST(no_dead_end)
{
    struct err e;
    struct json j;
    static struct json_state s;
    unsigned long long rng = 5;
    for (size_t w = 0; w < sizeof walks / sizeof *walks; w++) {
        struct json_grammar *g = compile(walks[w]);
        for (int round = 0; round < 60; round++) {
            struct buf text = {0};
            json_state_init(&s, g);
            for (int step = 0; step < 300 && !json_state_must_end(&s); step++) {
                unsigned char bytes[256];
                int n = next_bytes(&s, bytes);
                if (!n && !json_state_can_end(&s)) FAIL("dead end after %s", text.data);
                if (!n) break;
                /* the ASCII half of the time, or texts would be all text */
                int pick = (int)(test_rand(&rng) % (unsigned)n), ascii = 0;
                while (ascii < n && bytes[ascii] < 0x80) ascii++;
                if (ascii && test_rand(&rng) % 2) pick = (int)(test_rand(&rng) % (unsigned)ascii);
                char b = (char)bytes[pick];
                CHECK(json_state_push(&s, &b, 1));
                buf_add(&text, &b, 1, &e);
            }
            if (json_state_can_end(&s)) {
                if (json_parse(&j, text.data, text.len, &e) && !strstr(e.text, "duplicate key"))
                    FAIL("%s: %s", text.data, e.text);
                json_free(&j);
            }
            buf_free(&text);
        }
        json_grammar_close(g);
    }
}

static void check_mask(struct json_mask *m, const struct tok *t, const struct json_state *s)
{
    struct err e;
    static struct json_state u;
    uint32_t bits[(6193 + 31) / 32], allowed = 0;
    CHECK_OK(json_mask_fill(m, s, bits, &e), e);
    for (int32_t id = 0; id < 6193; id++) {
        size_t len;
        const char *b = tok_bytes(t, id, &len);
        json_state_copy(&u, s);
        bool may = !tok_is_special(t, id) && json_state_push(&u, b, len);
        if ((bits[id / 32] >> id % 32 & 1) != may) FAIL("token %d", id);
        allowed += may;
    }
    CHECK((allowed > 0) == !json_state_must_end(s));
}

/* A token may follow exactly when its bytes may; specials never. */
TEST(mask)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "{\"",
                                        "{\"ab",
                                        "{\"ab\":",
                                        "{\"ab\": 12",
                                        "{\"abc\":\"x",
                                        "{\"q\":\"\\",
                                        "{\"q\":\"\xC3",
                                        "{\"ab\":0}",
                                        "{\"q\":\"ab",
                                        "{\"q\xC3"};
    struct err e;
    struct tok *t;
    struct json_mask *m;
    static struct json_state s;
    CHECK_OK(tok_open(&t, "tests/golden/tok/mixed", 6193, &e), e);
    CHECK_OK(json_mask_open(&m, t, &e), e);
    for (size_t w = 0; w < sizeof walks / sizeof *walks; w++) {
        struct json_grammar *g = compile(walks[w]);
        for (size_t i = 0; i < sizeof texts / sizeof *texts && !test_has_failed(); i++) {
            json_state_init(&s, g);
            if (json_state_push(&s, texts[i], strlen(texts[i]))) check_mask(m, t, &s);
        }
        json_grammar_close(g);
    }
    json_mask_close(m);
    tok_close(t);
}

static void check_forced(const char *schema, const char *before, const char *want)
{
    struct json_grammar *g = compile(schema);
    static struct json_state s;
    char out[64];
    json_state_init(&s, g);
    CHECK(json_state_push(&s, before, strlen(before)));
    size_t n = json_state_forced(&s, out, sizeof out - 1);
    out[n] = 0;
    CHECK_STR(out, want);
    json_grammar_close(g);
}

/* What must follow is known: keys, punctuation, the end of a word; not what may be chosen. */
TEST(forced)
{
    const char *s = "{\"properties\":{\"name\":{\"type\":\"string\"},\"kind x\":{\"enum\":[\"flag "
                    "a\",\"flag b\"]}},\"required\":[\"name\",\"kind x\"],"
                    "\"additionalProperties\":false}";
    check_forced(s, "", "{\"");
    check_forced(s, "{\"n", "ame\":\"");
    check_forced(s, "{\"name\":\"", "");
    check_forced(s, "{\"name\":\"\"", ",\"kind x\":\"flag ");
    check_forced(s, "{\"name\":\"\",\"kind x\":\"flag a", "\"}");
    check_forced(s, "{\"name\":\"\",\"kind x\":\"flag a\"}", "");
}

TEST_MAIN
