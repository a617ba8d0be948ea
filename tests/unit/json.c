/* json: what is JSON and what is not, decoded strings, sorted members. */
#include "src/json.h"
#include "tests/lib/test.h"

/* What the grammar does not allow is refused at the byte that shows it. */
TEST(refused)
{
    static const char *const cases[][2] = {
        {"", "value expected at byte 0"},
        {" ", "value expected at byte 1"},
        {"nul", "value expected at byte 0"},
        {"nullx", "after the value at byte 4"},
        {"1 2", "after the value at byte 2"},
        {"[1,]", "value expected at byte 3"},
        {"[1 2]", "',' or ']' expected at byte 3"},
        {"[1", "',' or ']' expected at byte 2"},
        {"{\"a\":1,}", "key expected at byte 7"},
        {"{\"a\" 1}", "':' expected at byte 5"},
        {"{a:1}", "key expected at byte 1"},
        {"{\"a\":1,\"b\":2,\"\\u0061\":3}", "duplicate key"},
        {"01", "after the value at byte 1"},
        {"-", "value expected at byte 1"},
        {"+1", "value expected at byte 0"},
        {"1.", "digit expected at byte 2"},
        {".5", "value expected at byte 0"},
        {"1e", "digit expected at byte 2"},
        {"NaN", "value expected at byte 0"},
        {"\"a", "without end at byte 2"},
        {"\"a\n\"", "control character in a string at byte 2"},
        {"\"\x1f\"", "control character in a string at byte 1"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\u12g4\"", "hexadecimal digits expected at byte 5"},
        {"\"\\ud800\"", "lone surrogate"},
        {"\"\\ud800\\u0041\"", "lone surrogate"},
        {"\"\\udc00\"", "lone surrogate"},
        {"\"\xC0\x80\"", "bad UTF-8 at byte 1"},
        {"\xEF\xBB\xBF{}", "value expected at byte 0"},
    };
    struct err e;
    struct json j;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(json_parse(&j, cases[i][0], strlen(cases[i][0]), &e), E_INVALID_JSON, e,
                  cases[i][1]);
        CHECK(!j.nodes && !j.text);
    }
}

/* Nesting is bounded. */
TEST(depth)
{
    struct err e;
    struct json j;
    char s[2 * JSON_DEPTH + 2];
    memset(s, '[', JSON_DEPTH + 1);
    memset(s + JSON_DEPTH + 1, ']', JSON_DEPTH + 1);
    CHECK_OK(json_parse(&j, s + 1, 2 * JSON_DEPTH, &e), e);
    json_free(&j);
    CHECK_ERR(json_parse(&j, s, sizeof s, &e), E_INVALID_JSON, e, "nested too deeply");
}

/* Members are found by key and come sorted; strings are decoded, with their length. */
TEST(tree)
{
    struct err e;
    struct json j;
    const char *s = "{\"b\":[1,true,null],\"a\":\"x\\u0000\\ud83d\\ude42\\n\",\"ab\":{}}";
    CHECK_OK(json_parse(&j, s, strlen(s), &e), e);
    uint32_t a = json_get(&j, 0, "a"), b = json_get(&j, 0, "b"), ab = json_get(&j, 0, "ab");
    CHECK(a && b && ab && !json_get(&j, 0, "") && !json_get(&j, b, "a"));
    CHECK_INT(j.nodes[0].child, a);
    CHECK_INT(j.nodes[a].next, ab);
    CHECK_INT(j.nodes[ab].next, b);
    CHECK_INT(j.nodes[a].value_len, 7);
    CHECK(!memcmp(j.text + j.nodes[a].value, "x\0\xF0\x9F\x99\x82\n", 7));
    uint32_t item = j.nodes[b].child;
    CHECK_INT(j.nodes[item].type, JSON_NUMBER);
    CHECK(json_is(&j, item, "1") && !json_is(&j, item, "") && !json_is(&j, item, "12"));
    item = j.nodes[item].next;
    CHECK_INT(j.nodes[item].type, JSON_TRUE);
    json_free(&j);
}

/* A number beyond doubles cannot be written as one. */
TEST(write_overflow)
{
    struct err e;
    struct json j;
    struct buf out = {0};
    CHECK_OK(json_parse(&j, "[1e999]", 7, &e), e);
    CHECK_ERR(json_write(&j, 0, &out, &e), E_INVALID_REQUEST, e, "range of doubles");
    buf_free(&out);
    json_free(&j);
}

TEST_MAIN
