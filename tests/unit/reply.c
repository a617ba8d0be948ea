/* reply: channels, malformed markup, stop strings, limits, repetition, torn characters. */
#include "src/reply.h"
#include "tests/lib/test.h"

#define OPEN  "<|open|>"
#define CLOSE "<|close|>"
#define SEP   "<|sep|>"
#define EOM   "<|end_of_msg|>"

static struct tok *tok(void)
{
    static struct tok *t;
    struct err e;
    if (!t && tok_open(&t, "tests/golden/tok/demo", 1000, &e)) abort();
    return t;
}

struct run {
    bool thinking;
    const char *stops[4];
    size_t max_tokens; /* 0: 10000 */
    bool stop_repetition;
};

/* Pushes the ids of text, markers by their spelling, until the reply ends. Returns the state. */
static enum reply_state push(struct reply *r, const char *text)
{
    struct err e;
    struct ids ids = {0};
    enum reply_state state = REPLY_OPEN;
    if (tok_encode(tok(), text, strlen(text), true, &ids, &e)) abort();
    for (size_t i = 0; i < ids.n && state == REPLY_OPEN; i++)
        if (reply_push(r, ids.at[i], &state, &e)) abort();
    ids_free(&ids);
    return state;
}

static struct reply *start(const struct run *run)
{
    struct err e;
    struct reply *r;
    const int32_t stop = tok_special(tok(), EOM);
    struct reply_opts o = {.tok = tok(),
                           .thinking = run->thinking,
                           .stop_ids = &stop,
                           .n_stop_ids = 1,
                           .stops = run->stops,
                           .max_tokens = run->max_tokens ? run->max_tokens : 10000,
                           .stop_repetition = run->stop_repetition};
    while (o.n_stops < 4 && run->stops[o.n_stops]) o.n_stops++;
    if (reply_open(&r, &o, &e)) abort();
    return r;
}

static void check(struct run run, const char *text, const char *reasoning, const char *content,
                  const char *finish)
{
    struct reply *r = start(&run);
    size_t len;
    push(r, text);
    const char *got = reply_content(r, &len);
    CHECK_STR(got, content);
    CHECK_INT(len, strlen(content));
    CHECK_STR(reply_reasoning(r, &len), reasoning);
    if (finish)
        CHECK_STR(reply_finish_reason(r), finish);
    else
        CHECK(!reply_finish_reason(r));
    reply_close(r);
}

#define END CLOSE "message" SEP EOM

/* Thinking on: reasoning first, then the answer; markup in neither. */
TEST(thinking)
{
    check((struct run){.thinking = true},
          "why" CLOSE "think" SEP OPEN "response" SEP "because" CLOSE "response" SEP END, "why",
          "because", "stop");
    check((struct run){.thinking = true},
          CLOSE "think" SEP OPEN "response" SEP CLOSE "response" SEP END, "", "", "stop");
    check((struct run){.thinking = true}, "so far", "so far", "", NULL);
}

/* Thinking off: the answer at once; only the stop id ends. */
TEST(answer)
{
    check((struct run){0}, "Hello" CLOSE "response" SEP END, "", "Hello", "stop");
    check((struct run){0}, "Hello" CLOSE "response" SEP CLOSE "message" SEP, "", "Hello", NULL);
    check((struct run){0}, "Hello" EOM, "", "Hello", "stop");
    check((struct run){0}, "[EOS]" EOM, "", "[EOS]", "stop");
}

/* Text between elements is dropped, tools with all that is in them too. */
TEST(dropped)
{
    check((struct run){.thinking = true},
          "a" CLOSE "think" SEP "x" OPEN "response" SEP "b" CLOSE "response" SEP "y" END, "a", "b",
          "stop");
    check((struct run){0},
          "b" CLOSE "response" SEP OPEN "tools" SEP "t" OPEN "call tool=\"f\" index=\"1\"" SEP
          "u" OPEN "argument key=\"k\" type=\"string\"" SEP "v" CLOSE "argument" SEP CLOSE
          "call" SEP "w" CLOSE "tools" SEP "z" END,
          "", "b", "stop");
    check((struct run){0}, "b" OPEN "tools" SEP "t" CLOSE "tools" SEP "c" EOM, "", "bc", "stop");
}

/* Without any response element the message's own text is the answer. */
TEST(no_response_element)
{
    check((struct run){.thinking = true}, "a" CLOSE "think" SEP "answer" END, "a", "answer",
          "stop");
}

/* Nested, crossed and stray markers keep all text. */
TEST(crossed)
{
    check((struct run){0}, "a" CLOSE "think" SEP "b" EOM, "", "ab", "stop");
    check((struct run){.thinking = true}, "a" CLOSE "response" SEP "b" EOM, "ab", "", "stop");
    check((struct run){0}, "a" OPEN "think" SEP "t" CLOSE "think" SEP "b" EOM, "t", "ab", "stop");
    check((struct run){0}, "a" OPEN "think" SEP "t" CLOSE "response" SEP "x" EOM, "t", "a", "stop");
    check((struct run){0}, "a" SEP "b" OPEN "bold" SEP "c" CLOSE "bold" SEP "d" EOM, "", "abcd",
          "stop");
    check((struct run){.thinking = true}, "a" OPEN "response" SEP "b" CLOSE "response" SEP "c" EOM,
          "ac", "b", "stop");
    check((struct run){0}, "a" CLOSE SEP "b" OPEN SEP "c" EOM, "", "abc", "stop");
}

/* Markers without their end: a known name counts, a beginning of one is dropped, others are text.
 */
TEST(cut_short)
{
    check((struct run){0}, "a" CLOSE "response" EOM, "", "a", "stop");
    check((struct run){0}, "a" CLOSE "resp" EOM, "", "a", "stop");
    check((struct run){0}, "a" CLOSE EOM, "", "a", "stop");
    check((struct run){0}, "a" OPEN "other text" EOM, "", "aother text", "stop");
    check((struct run){.thinking = true}, "a" CLOSE "think" OPEN "response" SEP "b" EOM, "a", "b",
          "stop");
    check((struct run){0}, "a" OPEN OPEN OPEN "hm" CLOSE "response" SEP END, "", "ahm", "stop");
    check((struct run){.max_tokens = 2}, "a" CLOSE "response" SEP, "", "a", "length");
}

/* A name that never ends is text from its 257th byte on. */
TEST(endless_name)
{
    struct run run = {0};
    struct reply *r = start(&run);
    size_t len;
    push(r, "a" OPEN);
    for (int i = 0; i < 256; i++) push(r, "7");
    CHECK_INT(reply_channel(r), REPLY_MARKUP);
    reply_content(r, &len);
    CHECK_INT(len, 1);
    push(r, "7");
    CHECK_INT(reply_channel(r), REPLY_CONTENT);
    reply_content(r, &len);
    CHECK_INT(len, 258);
    push(r, "b" EOM);
    reply_content(r, &len);
    CHECK_INT(len, 259);
    reply_close(r);
}

/* More elements than can be open at once neither crash nor lose the answer. */
TEST(deep)
{
    struct run run = {0};
    struct reply *r = start(&run);
    size_t len;
    for (int i = 0; i < 100; i++) push(r, OPEN "think" SEP "t");
    push(r, OPEN "response" SEP "a");
    CHECK_STR(reply_content(r, &len), "a");
    reply_reasoning(r, &len);
    CHECK_INT(len, 100);
    for (int i = 0; i < 100; i++) push(r, CLOSE "message" SEP CLOSE "think" SEP);
    CHECK_INT(reply_channel(r), REPLY_NOWHERE);
    reply_close(r);
}

/* The channel is known at every token. */
TEST(channels)
{
    struct run run = {.thinking = true};
    struct reply *r = start(&run);
    CHECK_INT(reply_channel(r), REPLY_REASONING);
    push(r, CLOSE);
    CHECK_INT(reply_channel(r), REPLY_MARKUP);
    push(r, "think");
    CHECK_INT(reply_channel(r), REPLY_MARKUP);
    push(r, SEP);
    CHECK_INT(reply_channel(r), REPLY_NOWHERE);
    push(r, OPEN "response" SEP);
    CHECK_INT(reply_channel(r), REPLY_CONTENT);
    CHECK_INT(reply_tokens(r), 6);
    reply_close(r);
}

/* Markers spelled out as ordinary text are text. */
TEST(spelled_markers)
{
    struct run run = {0};
    struct reply *r = start(&run);
    struct ids ids = {0};
    struct err e;
    enum reply_state state;
    size_t len;
    const char *text = "<|close|>response<|sep|><|end_of_msg|>";
    CHECK_OK(tok_encode(tok(), text, strlen(text), false, &ids, &e), e);
    for (size_t i = 0; i < ids.n; i++) {
        CHECK_OK(reply_push(r, ids.at[i], &state, &e), e);
        CHECK_INT(state, REPLY_OPEN);
    }
    CHECK_STR(reply_content(r, &len), text);
    ids_free(&ids);
    reply_close(r);
}

/* The content ends before the earliest stop string, across tokens; reasoning is not searched. */
TEST(stop_strings)
{
    check((struct run){.stops = {"77", "67"}}, "1567789", "", "15", "stop");
    check((struct run){.stops = {"9", "789"}}, "1567789", "", "1567", "stop");
    check((struct run){.stops = {"\n"}, .thinking = true},
          "a\nb" CLOSE "think" SEP "\n" OPEN "response" SEP "c\nd", "a\nb", "c", "stop");
    check((struct run){.stops = {"xyz"}}, "xyxy" EOM, "", "xyxy", "stop");
    check((struct run){.stops = {"a"}}, "a", "", "", "stop");
    check((struct run){.stops = {"pq"}}, "p" OPEN "qq" CLOSE, "", "", "stop");
}

/* max_tokens counts every token; a stop id at the limit is a stop, the answer so far is kept. */
TEST(limit)
{
    check((struct run){.max_tokens = 3}, "1234", "", "123", "length");
    check((struct run){.max_tokens = 2}, "1" EOM, "", "1", "stop");
    check((struct run){.max_tokens = 2, .stops = {"2"}}, "123", "", "1", "stop");
    check((struct run){.max_tokens = 1}, CLOSE "response", "", "", "length");
}

/* What ends a reply when several ends fall together. */
TEST(stop_before_repetition)
{
    char zeros[258] = "";
    memset(zeros, '0', 257);
    check((struct run){.stops = {zeros}, .stop_repetition = true, .max_tokens = 257}, zeros, "", "",
          "stop");
    check((struct run){.stop_repetition = true, .max_tokens = 257}, zeros, "", zeros, "repetition");
}

static void check_loop(const char *cycle, size_t times, bool ends)
{
    struct run run = {.stop_repetition = true};
    struct reply *r = start(&run);
    enum reply_state state = REPLY_OPEN;
    push(r, "start ");
    size_t n = 0;
    while (n < times && state == REPLY_OPEN) {
        state = push(r, cycle);
        n++;
    }
    CHECK_INT(state, ends ? REPLY_REPETITION : REPLY_OPEN);
    if (ends) CHECK_STR(reply_finish_reason(r), "repetition");
    if (ends) CHECK_INT(n, times);
    reply_close(r);
}

/* A run of one token ends with its 257th; eight equal lines of 60 tokens do not, the ninth does;
 * what counts up is no loop. */
TEST(repetition)
{
    char line[65] = "";
    for (int i = 0; i < 60; i++) line[i] = (char)("0123456789"[i * i % 10] + (i > 40 ? 17 : 0));
    check_loop("0", 256, false);
    check_loop("0", 257, true);
    check_loop("01", 128, false);
    check_loop("01", 129, true);
    check_loop(line, 8, false);
    check_loop(line, 9, true);
    struct run run = {.stop_repetition = true}, off = {0};
    struct reply *r = start(&run), *q = start(&off);
    for (int i = 0; i < 600; i++) {
        char row[16];
        snprintf(row, sizeof row, "%d,", i);
        CHECK_INT(push(r, row), REPLY_OPEN);
        CHECK_INT(push(q, "0"), REPLY_OPEN);
    }
    reply_close(r);
    reply_close(q);
}

/* One token a byte. */
static void push_bytes(struct reply *r, const char *bytes, size_t n)
{
    enum reply_state state;
    struct err e;
    size_t len;
    for (size_t i = 0; i < n; i++) {
        int32_t id = -1;
        for (int32_t k = 0; k < 984 && id < 0; k++) {
            const char *s = tok_bytes(tok(), k, &len);
            if (len == 1 && *s == bytes[i]) id = k;
        }
        CHECK_OK(reply_push(r, id, &state, &e), e);
    }
}

static void check_bytes(const char *bytes, size_t n, const char *held, const char *final)
{
    struct run run = {0};
    struct reply *r = start(&run);
    size_t len;
    push_bytes(r, bytes, n);
    CHECK_STR(reply_content(r, &len), held);
    CHECK_INT(push(r, EOM), REPLY_STOP);
    CHECK_STR(reply_content(r, &len), final);
    reply_close(r);
}

/* Characters are whole: a torn one is held back and becomes U+FFFD at the end, a bad one at once.
 */
TEST(characters)
{
    check_bytes("a\xE2\x82\xAC", 4, "a\xE2\x82\xAC", "a\xE2\x82\xAC");
    check_bytes("a\xE2\x82", 3, "a", "a\xEF\xBF\xBD");
    check_bytes("\xF0\x9F\x99\xF0\x9F\x99\x82", 7, "\xEF\xBF\xBD\xF0\x9F\x99\x82",
                "\xEF\xBF\xBD\xF0\x9F\x99\x82");
    check_bytes("\xC0\x80z", 3, "\xEF\xBF\xBD\xEF\xBF\xBDz", "\xEF\xBF\xBD\xEF\xBF\xBDz");
    check_bytes("\xE2z\xE2", 3, "\xEF\xBF\xBDz", "\xEF\xBF\xBDz\xEF\xBF\xBD");
}

/* A marker ends a character that is not whole, and so does a stop string. */
TEST(torn_by_marker)
{
    struct run run = {0}, stop = {.stops = {"ab"}};
    struct reply *r = start(&run), *q = start(&stop);
    size_t len;
    push_bytes(r, "\xE2", 1);
    push(r, SEP);
    push_bytes(r, "\x82\xAC", 2);
    CHECK_STR(reply_content(r, &len), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    push(q, "x" OPEN "ab");
    push_bytes(q, "\xE2", 1);
    CHECK_INT(push(q, CLOSE), REPLY_STOP);
    CHECK_STR(reply_content(q, &len), "x");
    reply_close(r);
    reply_close(q);
}

/* Impossible requests and ids are refused. */
TEST(refused)
{
    struct err e;
    struct reply *r;
    enum reply_state state;
    const char *empty = "";
    struct reply_opts o = {.tok = tok(), .max_tokens = 1, .stops = &empty, .n_stops = 1};
    CHECK_ERR(reply_open(&r, &o, &e), E_INVALID_REQUEST, e, "empty");
    CHECK(!r);
    o = (struct reply_opts){.tok = tok()};
    CHECK_ERR(reply_open(&r, &o, &e), E_INVALID_REQUEST, e, "max_tokens");
    o.max_tokens = 1;
    CHECK_OK(reply_open(&r, &o, &e), e);
    CHECK_ERR(reply_push(r, 1000, &state, &e), E_INTERNAL, e, "token 1000");
    CHECK_ERR(reply_push(r, -1, &state, &e), E_INTERNAL, e, "token -1");
    reply_close(r);
}

TEST_MAIN
