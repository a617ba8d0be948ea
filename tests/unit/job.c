/* Lines become jobs or errors, and jobs become specs and jobs again. */
#include "jobs/job.h"
#include "jobs/jdoc.h"
#include "tests/lib/test.h"

#include <sha256.h>

/* The spec of a line, or "code: message". */
static char *parse(const char *line, const struct job_opts *o)
{
    struct err e = {0};
    struct job j;
    struct buf b = {0};
    enum status rc = job_parse(&j, line, strlen(line), o, &e);
    if (!rc) rc = job_spec(&j, &b, &e);
    if (rc) {
        b.len = 0;
        buf_addf(&b, NULL, "%s: %s", status_name(rc), e.text);
    }
    job_free(&j);
    return b.data;
}

struct row {
    const char *line, *want;
};

static void check_rows(const struct row *rows, size_t n, const struct job_opts *o)
{
    for (size_t i = 0; i < n; i++) {
        char *got = parse(rows[i].line, o);
        if (strcmp(got, rows[i].want))
            test_failed(__FILE__, __LINE__, "%s\n  gives %s\n  not   %s", rows[i].line, got,
                        rows[i].want);
        free(got);
    }
}
#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof *(rows), NULL)

#define TEXT(form, text)                                                                           \
    "{\"custom_id\":\"a\",\"form\":\"" form                                                        \
    "\",\"messages\":[{\"role\":\"user\",\"parts\":[\"" text "\"]}],\"images\":[]"

/* Each form becomes the same kind of job. */
TEST(forms)
{
    static const struct row rows[] = {
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
         "{\"model\":\"k3\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":"
         "\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x.png\","
         "\"detail\":\"auto\"}},{\"type\":\"text\",\"text\":\"q\"}]}],\"max_tokens\":5}}",
         "{\"custom_id\":\"a\",\"form\":\"openai\",\"model\":\"k3\",\"messages\":[{\"role\":"
         "\"system\",\"parts\":[\"s\"]},{\"role\":\"user\",\"parts\":[0,\"q\"]}],\"images\":"
         "[{\"path\":\"x.png\"}],\"max_tokens\":5}"},
        {"{\"custom_id\":\"a\",\"params\":{\"system\":[{\"type\":\"text\",\"text\":\"s\"}],"
         "\"max_tokens\":7,\"stop_sequences\":[\"x\"],\"messages\":[{\"role\":\"user\","
         "\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":"
         "\"image/png\",\"data\":\"aGk=\"}},{\"type\":\"text\",\"text\":\"q\"}]},{\"role\":"
         "\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":"
         "\"s\"},{\"type\":\"text\",\"text\":\"r\"}]},{\"role\":\"user\",\"content\":\"z\"}]}}",
         "{\"custom_id\":\"a\",\"form\":\"anthropic\",\"messages\":[{\"role\":\"system\","
         "\"parts\":[\"s\"]},{\"role\":\"user\",\"parts\":[0,\"q\"]},{\"role\":\"assistant\","
         "\"reasoning_content\":\"t\",\"parts\":[\"r\"]},{\"role\":\"user\",\"parts\":[\"z\"]}],"
         "\"images\":[{\"at\":216,\"len\":4,\"mime\":\"image/png\",\"bytes\":2,\"sha256\":"
         "\"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4\"}],"
         "\"max_tokens\":7,\"stop\":[\"x\"]}"},
        {"{\"id\":\"a\",\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":"
         "\"<image>one<image>\"},{\"role\":\"assistant\",\"content\":\"r\"},{\"role\":\"user\","
         "\"content\":[{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"image\"}]}],\"images\":"
         "[\"1\",\"2\",\"3\"]}",
         "{\"custom_id\":\"a\",\"form\":\"messages\",\"messages\":[{\"role\":\"system\",\"parts\":"
         "[\"s\"]},{\"role\":\"user\",\"parts\":[0,\"one\",1]},{\"role\":\"assistant\",\"parts\":"
         "[\"r\"]},{\"role\":\"user\",\"parts\":[\"b\",2]}],\"images\":[{\"path\":\"1\"},"
         "{\"path\":\"2\"},{\"path\":\"3\"}]}"},
        {"{\"id\":7,\"image\":\"x.png\",\"prompt\":\"q\"}",
         "{\"custom_id\":\"7\",\"form\":\"short\",\"messages\":[{\"role\":\"user\",\"parts\":[0,"
         "\"q\"]}],\"images\":[{\"path\":\"x.png\"}]}"},
        {"{\"custom_id\":\"a\",\"images\":[\"1\",\"2\"],\"question\":\"q\",\"system\":\"s\"}",
         "{\"custom_id\":\"a\",\"form\":\"short\",\"messages\":[{\"role\":\"system\",\"parts\":"
         "[\"s\"]},{\"role\":\"user\",\"parts\":[0,1,\"q\"]}],\"images\":[{\"path\":\"1\"},"
         "{\"path\":\"2\"}]}"},
        {"{\"custom_id\":\"a\",\"file_name\":\"f\",\"prompt\":\"<image>\"}",
         "{\"custom_id\":\"a\",\"form\":\"short\",\"messages\":[{\"role\":\"user\",\"parts\":[0,"
         "\"<image>\"]}],\"images\":[{\"path\":\"f\"}]}"},
        {"{\"custom_id\":\"a\",\"prompt\":\"q\"}", TEXT("short", "q") "}"},
    };
    CHECK_ROWS(rows);
}

#define Q(rest) "{\"id\":\"a\",\"prompt\":\"q\"" rest "}"
#define S(rest) TEXT("short", "q") rest "}"

/* Settings arrive exactly, whatever their spelling. */
TEST(settings)
{
    static const struct row rows[] = {
        {Q(",\"seed\":18446744073709551615"), S(",\"seed\":18446744073709551615")},
        {Q(",\"seed\":9007199254740993"), S(",\"seed\":9007199254740993")},
        {Q(",\"temperature\":0.7,\"top_p\":1e-1,\"top_k\":40"),
         S(",\"temperature\":0.7,\"top_p\":0.1,\"top_k\":40")},
        {Q(",\"temperature\":-0.0,\"top_k\":-1"), S(",\"temperature\":0,\"top_k\":0")},
        {Q(",\"max_completion_tokens\":3,\"max_tokens\":3"), S(",\"max_tokens\":3")},
        {Q(",\"stop\":\"\\n\""), S(",\"stop\":[\"\\n\"]")},
        {Q(",\"stop\":[]"), S(",\"stop\":[]")},
        {Q(",\"stop\":null,\"seed\":null,\"response_format\":null"), S("")},
        {Q(",\"reasoning_effort\":\"max\""), S(",\"reasoning_effort\":\"max\"")},
        {Q(",\"reasoning_effort\":\"off\""), S(",\"reasoning_effort\":\"none\"")},
        {Q(",\"thinking\":{\"type\":\"disabled\"},\"chat_template_kwargs\":{\"thinking\":false}"),
         S("")},
        {Q(",\"response_format\":{\"type\":\"text\"}"), S("")},
        {Q(",\"response_format\":{\"type\":\"json_object\"}"),
         S(",\"response_format\":{\"type\":\"json_object\"}")},
        {Q(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
           "\"schema\":{\"type\": \"object\", \"required\": [ ]}}}"),
         S(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{"
           "\"required\":"
           "[],\"type\":\"object\"}}}")},
        {Q(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
           "\"schema\":{\"type\":\"object\",\"patternProperties\":{}}}}"),
         "unsupported_field: response_format: schema: schema at \"#/patternProperties\": this "
         "keyword is "
         "not supported"},
        {Q(",\"metadata\":{ \"n\": 12345678901234567890, \"s\":\"\\u00e9\"}"),
         S(",\"metadata\":{ \"n\": 12345678901234567890, \"s\":\"\\u00e9\"}")},
        {Q(",\"metadata\":\"x\\\"y\""), S(",\"metadata\":\"x\\\"y\"")},
        {Q(",\"priority\":-3,\"timeout_s\":1.5"), S(",\"priority\":-3,\"timeout_s\":1.5")},
        {Q(",\"n\":1,\"stream\":false,\"tools\":[],\"logit_bias\":{},\"user\":\"u\",\"top_logprobs"
           "\":0,\"tool_choice\":\"none\",\"frequency_penalty\":0.0"),
         S("")},
        {"{\"custom_id\":\"a\",\"priority\":2,\"metadata\":[1],\"body\":{\"messages\":[{\"role\":"
         "\"user\",\"content\":\"q\"}]}}",
         TEXT("openai", "q") ",\"metadata\":[1],\"priority\":2}"},
        {"{\"custom_id\":\"\\ud83d\\ude00\\u00e9\\/\\b\\u0001\",\"prompt\":\"q\"}",
         "{\"custom_id\":\"\xf0\x9f\x98\x80\xc3\xa9/\\b\\u0001\",\"form\":\"short\",\"messages\":"
         "[{\"role\":\"user\",\"parts\":[\"q\"]}],\"images\":[]}"},
    };
    CHECK_ROWS(rows);
}

#define INVALID     "invalid_request: "
#define UNSUPPORTED "unsupported_field: "
#define BODY(rest)  "{\"custom_id\":\"a\",\"body\":{" rest "}}"
#define USER(c)     BODY("\"messages\":[{\"role\":\"user\",\"content\":" c "}]")

/* A bad field of a line says its name, what is expected and what was found. */
TEST(bad_fields)
{
    static const struct row rows[] = {
        {"{\"prompt\":\"q\"}", INVALID "custom_id is missing"},
        {"{\"id\":null,\"prompt\":\"q\"}", INVALID "custom_id is missing"},
        {"{\"id\":\"\",\"prompt\":\"q\"}",
         INVALID "id: expected a string that is not empty, or a number, found \"\""},
        {"{\"custom_id\":true,\"prompt\":\"q\"}",
         INVALID "custom_id: expected a string that is not empty, or a number, found true"},
        {"{\"custom_id\":\"a\",\"id\":\"b\",\"prompt\":\"q\"}",
         INVALID "id: expected only one of id and custom_id, found \"b\""},
        {"{\"id\":\"a\"}",
         INVALID "unknown form: expected one of body, params, messages, or prompt / question "
                 "with image / images / file_name"},
        {"{\"id\":\"a\",\"image\":\"x\"}",
         INVALID "prompt: expected a text that is not empty (or --prompt)"},
        {"{\"id\":\"a\",\"prompt\":\"\"}",
         INVALID "prompt: expected a text that is not empty (or --prompt)"},
        {"{\"id\":\"a\",\"prompt\":\"q\",\"question\":\"r\"}",
         INVALID "question: expected only one of prompt and question"},
        {"{\"id\":\"a\",\"prompt\":\"q\",\"image\":\"r\",\"images\":[]}",
         INVALID "image: expected only one of images and image"},
        {"{\"id\":\"a\",\"prompt\":[1]}", INVALID "prompt: expected a string, found an array"},
        {"{\"id\":\"a\",\"prompt\":\"q\",\"image\":{}}",
         INVALID "image: expected a string, found {}"},
        {Q(",\"images\":[\"x\",7]"), INVALID "images[1]: expected a string, found 7"},
        {Q(",\"temprature\":1"),
         UNSUPPORTED "temprature: unknown field; did you mean \"temperature\"?"},
        {Q(",\"colour\":1"), UNSUPPORTED "colour: unknown field"},
        {Q(",\"Seed\":1"), UNSUPPORTED "Seed: unknown field; did you mean \"seed\"?"},
        {Q(",\"n\":2"), UNSUPPORTED "n: 2 is not supported, only 1"},
        {Q(",\"stream\":true"), UNSUPPORTED "stream: true is not supported, only false"},
        {Q(",\"tools\":[{}]"), UNSUPPORTED "tools: an array is not supported, only an empty value"},
        {Q(",\"logprobs\":true"), UNSUPPORTED "logprobs: true is not supported, only false"},
        {Q(",\"logit_bias\":{\"1\":2}"),
         UNSUPPORTED "logit_bias: an object is not supported, only an empty value"},
        {Q(",\"tool_choice\":\"required\""),
         UNSUPPORTED "tool_choice: \"required\" is not supported, only \"none\" or \"auto\""},
        {Q(",\"verbosity\":\"low\""), UNSUPPORTED "verbosity: \"low\" is not supported"},
        {Q(",\"thinking\":{\"type\":\"enabled\"}"),
         UNSUPPORTED "thinking: only {\"type\": \"disabled\"} is supported; reasoning_effort (low, "
                     "high, max) turns thinking on"},
        {Q(",\"chat_template_kwargs\":{\"thinking\":true}"),
         UNSUPPORTED "chat_template_kwargs.thinking: true is not supported, only false"},
    };
    CHECK_ROWS(rows);
}

/* And a setting with an impossible value. */
TEST(bad_settings)
{
    static const struct row rows[] = {
        {Q(",\"max_tokens\":0"), INVALID "max_tokens: expected an integer of at least 1, found 0"},
        {Q(",\"max_tokens\":1.0"),
         INVALID "max_tokens: expected an integer of at least 1, found 1.0"},
        {Q(",\"max_tokens\":4,\"max_completion_tokens\":5"),
         INVALID "max_completion_tokens: expected the same as max_tokens, found 5"},
        {Q(",\"temperature\":2.1"),
         INVALID "temperature: expected a number from 0 to 2, found 2.1"},
        {Q(",\"temperature\":\"1\""),
         INVALID "temperature: expected a number from 0 to 2, found \"1\""},
        {Q(",\"top_p\":0"), INVALID "top_p: expected a number over 0, at most 1, found 0"},
        {Q(",\"top_k\":-2"),
         INVALID "top_k: expected an integer of at least 0, or -1 for off, found -2"},
        {Q(",\"seed\":-1"),
         INVALID "seed: expected an integer from 0 to 18446744073709551615, found -1"},
        {Q(",\"seed\":18446744073709551616"),
         INVALID "seed: expected an integer from 0 to 18446744073709551615, found "
                 "18446744073709551616"},
        {Q(",\"stop\":[\"\"]"), INVALID "stop: expected a string that is not empty, found \"\""},
        {Q(",\"stop\":1"), INVALID "stop: expected a string that is not empty, found 1"},
        {Q(",\"reasoning_effort\":\"medium\""),
         INVALID "reasoning_effort: expected none, off, low, high or max, found \"medium\""},
        {Q(",\"response_format\":{\"type\":\"xml\"}"),
         INVALID "response_format: expected an object with type text, json_object or json_schema, "
                 "found an object"},
        {Q(",\"response_format\":{\"type\":\"json_schema\"}"),
         INVALID "response_format: expected an object with json_schema, itself an object, found an "
                 "object"},
        {Q(",\"timeout_s\":0"), INVALID "timeout_s: expected a number of seconds over 0, found 0"},
        {Q(",\"priority\":1.5"), INVALID "priority: expected an integer, found 1.5"},
    };
    CHECK_ROWS(rows);
}

/* So does a bad body, message or part. */
TEST(bad_messages)
{
    static const struct row rows[] = {
        {"{\"id\":\"a\",\"body\":{},\"prompt\":\"q\"}", UNSUPPORTED "prompt: unknown field"},
        {"{\"custom_id\":\"a\",\"body\":[]}", INVALID "body: expected an object, found []"},
        {"{\"custom_id\":\"a\",\"body\":null}", INVALID "body: expected an object"},
        {"{\"custom_id\":\"a\",\"method\":\"GET\",\"body\":{}}",
         INVALID "method: expected \"POST\", found \"GET\""},
        {"{\"custom_id\":\"a\",\"url\":\"/v1/embeddings\",\"body\":{}}",
         INVALID "url: expected \"/v1/chat/completions\", found \"/v1/embeddings\""},
        {BODY("\"model\":\"m\""), INVALID "body.messages: expected an array of messages"},
        {BODY("\"messages\":[]"),
         INVALID "body.messages: expected an array of at least one message, found []"},
        {BODY("\"messages\":[7]"), INVALID "body.messages[0]: expected an object, found 7"},
        {BODY("\"messages\":[{\"content\":\"q\"}]"),
         INVALID "body.messages[0]: expected a message with a role, found an object"},
        {BODY("\"messages\":[{\"role\":\"bot\",\"content\":\"q\"}]"),
         INVALID "body.messages[0].role: expected system, developer, user or assistant, found "
                 "\"bot\""},
        {BODY("\"messages\":[{\"role\":\"tool\",\"content\":\"q\"}]"),
         UNSUPPORTED "body.messages[0].role: expected system, developer, user or assistant, found "
                     "\"tool\""},
        {BODY("\"messages\":[{\"role\":\"user\"}]"),
         INVALID "body.messages[0]: expected a message with content, found an object"},
        {BODY("\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
              "\"content\":\"r\"}]"),
         INVALID "body.messages: the last message is the assistant's; leave the answer out"},
        {USER("\"\""), INVALID "body.messages: the last message is empty"},
        {USER("7"),
         INVALID "body.messages[0].content: expected a string or an array of parts, found 7"},
        {USER("[\"q\"]"),
         INVALID "body.messages[0].content[0]: expected a part as an object with a type, found "
                 "\"q\""},
        {USER("[{\"type\":\"input_audio\"}]"),
         UNSUPPORTED "body.messages[0].content[0].type: expected text, image_url or image, found "
                     "\"input_audio\""},
        {USER("[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://x/y.png\"}}]"), INVALID
         "body.messages[0].content[0].image_url.url: https://x/y.png: a URL of scheme https; "
         "images are paths, file:// or data: URLs, nothing is fetched"},
        {USER("[{\"type\":\"image_url\",\"image_url\":\"data:image/png,abc\"}]"),
         INVALID "body.messages[0].content[0].image_url: expected a data: URL as "
                 "data:image/...;base64,..., found \"data:image/png,abc\""},
        {USER("[{\"type\":\"image_url\",\"image_url\":\"data:;base64,aGk\"}]"),
         "image_unreadable: body.messages[0].content[0].image_url: inline image: the base64 text "
         "stops after 3 characters, within a group of four"},
        {USER("[{\"type\":\"image_url\",\"image_url\":\"data:;base64,aG k\"}]"),
         "image_unreadable: body.messages[0].content[0].image_url: inline image: character 3 of "
         "the base64 text is 0x20"},
        {USER("[{\"type\":\"image_url\",\"image_url\":\"data:image/png;base64,\"}]"),
         "image_unreadable: body.messages[0].content[0].image_url: inline image: no bytes"},
        {USER("[{\"type\":\"image\"}]"),
         INVALID "body.messages[0].content[0]: an image part without source or image"},
        {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}],\"images\":[]}",
         INVALID "messages: 1 <image> markers in the text, but images has 0 images"},
        {"{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"images\":[\"x\"]}",
         INVALID "messages: 0 <image> markers in the text, but images has 1 images"},
        {"{\"id\":\"a\",\"system\":\"s\",\"messages\":[{\"role\":\"system\",\"content\":\"t\"}]}",
         INVALID "system: expected no system message in messages beside it, found \"s\""},
    };
    CHECK_ROWS(rows);
}

/* What is wrong with the bytes is found before anything is read from them. */
TEST(bytes)
{
#define JSON "invalid_json: "
    static const struct row rows[] = {
        {"", JSON "expected a JSON value, but the text ends"},
        {"[1]", JSON "expected one JSON object a line, found an array"},
        {"{\"id\":\"a\",\"prompt\":\"q\"} {}",
         JSON "byte 25: text after the JSON value, found '{'"},
        {"{\"id\":\"a\",\"prompt\":\"q\"", JSON "expected ',' or '}', but the text ends"},
        {"{\"id\":\"a\",\"prompt\":\"\tq\"}",
         JSON "byte 21: a control character in a string must be escaped, found 0x09"},
        {"{\"id\":\"\xff\"}", JSON "byte 8: not UTF-8, found 0xff"},
        {"{\"id\":\"\xc0\x80\"}", JSON "byte 8: not UTF-8, found 0xc0"},
        {"{\"id\":\"\xed\xa0\x80\"}", JSON "byte 8: not UTF-8, found 0xed"},
        {"{\"id\":\"a\\u0000b\"}",
         JSON "byte 9: an escaped NUL character is not supported, found '\\'"},
        {"{\"id\":\"\\ud800\"}", JSON "byte 8: a lone surrogate is no character, found '\\'"},
        {"{\"id\":\"\\udc00\\ud800\"}",
         JSON "byte 8: a lone surrogate is no character, found '\\'"},
        {"{\"id\":\"a\",\"\\u0069d\":\"b\"}", JSON "byte 11: duplicate key \"\\u0069d\""},
        {"{\"id\":\"a\",\"prompt\":\"q\",\"metadata\":{\"x\":1,\"x\":1}}",
         JSON "byte 42: duplicate key \"x\""},
        {"{\"id\":01}", JSON "byte 8: expected ',' or '}', found '1'"},
        {"{\"id\":NaN}", JSON "byte 7: expected a JSON value, found 'N'"},
        {"{'id':1}", JSON "byte 2: expected a key in quotes, found '''"},
        {"{\"id\":1,}", JSON "byte 9: expected a key in quotes, found '}'"},
    };
    CHECK_ROWS(rows);
}

/* Nesting and the number of values are bounded; just below the bounds all is well. */
TEST(bounds)
{
    struct jdoc d = {0};
    struct err e;
    char deep[2 * JDOC_MAX_DEPTH + 4];
    for (int extra = 0; extra <= 1; extra++) {
        int n = JDOC_MAX_DEPTH + extra;
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        enum status rc = jdoc_parse(&d, deep, (size_t)n * 2, &e);
        CHECK_INT(rc, extra ? E_INVALID_JSON : OK);
        if (extra) CHECK_HAS(e.text, "nested deeper than 64");
    }
    size_t n = 2u * JDOC_MAX_VALUES;
    char *wide = malloc(n + 1);
    for (size_t i = 0; i < n; i++) wide[i] = i & 1 ? ',' : '1';
    wide[0] = '[';
    wide[n] = ']';
    CHECK_ERR(jdoc_parse(&d, wide, n + 1, &e), E_INVALID_JSON, e, "expected");
    memset(wide, '1', n);
    for (size_t i = 2; i < n; i += 2) wide[i] = ',';
    wide[0] = '[';
    CHECK_ERR(jdoc_parse(&d, wide, n + 1, &e), E_INVALID_JSON, e, "more than 1048576 values");
    free(wide);
    jdoc_free(&d);
}

/* A large object finds its duplicates as a small one does. */
TEST(many_keys)
{
    struct jdoc d = {0};
    struct err e;
    struct buf b = {0};
    buf_addf(&b, &e, "{");
    for (int i = 0; i < 1000; i++) buf_addf(&b, &e, "\"k%d\":%d,", i, i);
    size_t len = b.len;
    buf_addf(&b, &e, "\"z\":0}");
    CHECK_OK(jdoc_parse(&d, b.data, b.len, &e), e);
    CHECK_INT(jdoc_first(&d, 0), 1);
    uint64_t x;
    CHECK(jdoc_u64(&d, jdoc_member(&d, 0, "k777"), &x));
    CHECK_INT(x, 777);
    b.len = len;
    buf_addf(&b, &e, "\"\\u006b5\":0}");
    CHECK_ERR(jdoc_parse(&d, b.data, b.len, &e), E_INVALID_JSON, e, "duplicate key \"\\u006b5\"");
    buf_free(&b);
    jdoc_free(&d);
}

/* The command line's prompt and system message fill what a line leaves open, and nothing else. */
TEST(defaults)
{
    static const struct job_opts o = {.prompt = "p", .system = "s"};
    static const struct row rows[] = {
        {"{\"id\":\"a\",\"image\":\"x\"}",
         "{\"custom_id\":\"a\",\"form\":\"short\",\"messages\":[{\"role\":\"system\",\"parts\":"
         "[\"s\"]},{\"role\":\"user\",\"parts\":[0,\"p\"]}],\"images\":[{\"path\":\"x\"}]}"},
        {"{\"id\":\"a\",\"prompt\":\"q\",\"system\":\"t\"}",
         "{\"custom_id\":\"a\",\"form\":\"short\",\"messages\":[{\"role\":\"system\",\"parts\":"
         "[\"t\"]},{\"role\":\"user\",\"parts\":[\"q\"]}],\"images\":[]}"},
        {BODY("\"messages\":[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"user\","
              "\"content\":\"q\"}]"),
         "{\"custom_id\":\"a\",\"form\":\"openai\",\"messages\":[{\"role\":\"system\",\"parts\":"
         "[\"d\"]},{\"role\":\"user\",\"parts\":[\"q\"]}],\"images\":[]}"},
    };
    check_rows(rows, 3, &o);

    struct job j;
    struct err e;
    struct buf b = {0};
    CHECK_OK(job_from_file(&j, "d/x.png", &o, &e), e);
    CHECK_OK(job_spec(&j, &b, &e), e);
    CHECK_STR(b.data, "{\"custom_id\":\"d/x.png\",\"form\":\"file\",\"messages\":[{\"role\":"
                      "\"system\",\"parts\":[\"s\"]},{\"role\":\"user\",\"parts\":[0,\"p\"]}],"
                      "\"images\":[{\"path\":\"d/x.png\"}]}");
    buf_free(&b);
    job_free(&j);
    CHECK_ERR(job_from_file(&j, "x.png", NULL, &e), E_USAGE, e, "--prompt");
    job_free(&j);
    CHECK_ERR(job_from_file(&j, "x\xff.png", &o, &e), E_INVALID_REQUEST, e, "UTF-8");
    CHECK_STR(j.custom_id, "x\\xff.png");
    job_free(&j);
    char path[JOB_ID_MAX + 2] = {0};
    memset(path, 'x', sizeof path - 1);
    CHECK_ERR(job_from_file(&j, path, &o, &e), E_INVALID_REQUEST, e, "over 512 bytes");
    CHECK_HAS(j.custom_id, "sha256:");
    job_free(&j);

    struct job_settings s = {.has = JOB_HAS_SEED, .seed = 5};
    job_settings_fill(&s, &job_default_settings);
    CHECK_INT(s.seed, 5);
    CHECK_INT(s.max_tokens, 1024);
    CHECK(s.temperature == 0 && s.top_p == 1 && s.top_k == 0 && !s.effort && !s.n_stops);
    CHECK_INT(s.has, job_default_settings.has);
}

/* The id survives an error that comes after it, also as a number beyond doubles. */
TEST(id_of_a_bad_job)
{
    struct job j;
    struct err e;
    const char *line = "{\"id\":123456789012345678901234567890,\"prompt\":1}";
    CHECK_ERR(job_parse(&j, line, strlen(line), NULL, &e), E_INVALID_REQUEST, e, "prompt");
    CHECK_STR(j.custom_id, "123456789012345678901234567890");
    job_free(&j);
}

/* An inline image is found again in its line, escapes and all. */
TEST(inline_range)
{
    struct job j;
    struct err e;
    const char *line = "{\"id\":\"a\",\"prompt\":\"q\",\"image\":\"data:image\\/png;base64,"
                       "\\/\\u002B8=\"}";
    CHECK_OK(job_parse(&j, line, strlen(line), NULL, &e), e);
    CHECK_INT(j.n_images, 1);
    CHECK_STR(j.images[0].mime, "image/png");
    CHECK(!memcmp(line + j.images[0].at, "\\/\\u002B8=\"", 11));
    CHECK_INT(j.images[0].len, 10);
    CHECK_INT(j.images[0].bytes, 2);
    char sha[JOB_SHA_CHARS];
    SHA256Data((const uint8_t *)"\xff\xef", 2, sha);
    CHECK_STR(j.images[0].sha256, sha);
    job_set_image_size(&j, 0, 3, 4);
    CHECK(j.messages[0].parts[0].image);
    CHECK_INT(j.messages[0].parts[0].width, 3);
    job_free(&j);
}

/* Questions on one image fall into one shard; without an image the id decides. */
TEST(shard)
{
    static const char *const lines[] = {
        "{\"id\":\"1\",\"prompt\":\"q\",\"image\":\"x\"}",
        "{\"id\":\"2\",\"prompt\":\"r\",\"images\":[\"x\",\"y\"]}",
        "{\"id\":\"1\",\"prompt\":\"q\"}",
        "{\"id\":\"2\",\"prompt\":\"q\"}",
        "{\"id\":\"1\",\"prompt\":\"q\",\"image\":\"y\"}",
    };
    uint64_t hash[5];
    for (int i = 0; i < 5; i++) {
        struct job j;
        struct err e;
        CHECK_OK(job_parse(&j, lines[i], strlen(lines[i]), NULL, &e), e);
        hash[i] = job_shard_hash(&j);
        CHECK(job_in_shard(&j, 0, 0));
        for (uint32_t k = 1; k <= 7; k++) CHECK(job_in_shard(&j, k, 7) == (hash[i] % 7 == k - 1));
        job_free(&j);
    }
    CHECK(job_in_shard(&(struct job){0}, 1, 7) && !job_in_shard(&(struct job){0}, 2, 7));
    CHECK(hash[0] == hash[1] && hash[2] != hash[3] && hash[0] != hash[2] && hash[0] != hash[4]);
    /* first eight bytes of SHA-256("1") */
    CHECK(hash[2] == 0x6b86b273ff34fce1);
}

/* A damaged spec is the database's fault and names the place. */
TEST(bad_specs)
{
    static const struct row rows[] = {
        {"{}", "custom_id"},
        {"[]", "object"},
        {"{\"custom_id\":\"a\",\"form\":\"none\"}", "form"},
        {"{\"custom_id\":\"a\",\"form\":\"short\",\"images\":[],\"messages\":[{\"role\":\"user\","
         "\"parts\":[0]}]}",
         "images in order"},
        {"{\"custom_id\":\"a\",\"form\":\"short\",\"images\":[{\"path\":\"x\"},{\"path\":\"y\"}],"
         "\"messages\":[{\"role\":\"user\",\"parts\":[1,0]}]}",
         "images in order"},
        {"{\"custom_id\":\"a\",\"form\":\"short\",\"images\":[{\"path\":\"x\"}],\"messages\":[]}",
         "1 images, but the messages show 0"},
        {"{\"custom_id\":\"a\",\"form\":\"short\",\"images\":[{\"at\":1}],\"messages\":[]}",
         "at, len and bytes"},
        {"{\"custom_id\":\"a\",\"form\":\"short\",\"images\":[{\"at\":1,\"len\":4,\"bytes\":3,"
         "\"mime\":\"\",\"sha256\":\"x\"}],\"messages\":[]}",
         "64 hex digits"},
        {"{\"custom_id\":\"a\",\"form\":\"short\",\"images\":[],\"messages\":[],\"x\":1}",
         "x: unknown"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job j;
        struct err e;
        enum status rc = job_from_spec(&j, rows[i].line, strlen(rows[i].line), &e);
        job_free(&j);
        CHECK_INT(rc, E_DB);
        CHECK_INT(e.code, E_DB);
        CHECK_HAS(e.text, rows[i].want);
    }
}

/* A schema that stands right in json_schema is one level deeper in the spec; at the bound of lines
 * the spec can still be read. */
TEST(deepest_spec)
{
    struct buf line = {0};
    struct err e;
    struct job j;
    buf_addf(&line, &e,
             "{\"id\":\"a\",\"prompt\":\"x\",\"response_format\":{\"type\":\"json_schema\","
             "\"json_schema\":");
    for (int i = 3; i < JDOC_MAX_DEPTH - 1; i += 2)
        buf_addf(&line, &e, "{\"type\":\"object\",\"properties\":{\"a\":");
    buf_addf(&line, &e, "{\"type\":\"string\"}");
    for (int i = 3; i < JDOC_MAX_DEPTH - 1; i += 2)
        buf_addf(&line, &e, "},\"required\":[\"a\"],\"additionalProperties\":false}");
    buf_addf(&line, &e, "}}");
    char *spec = parse(line.data, NULL);
    CHECK_HAS(spec, "{\"custom_id\":");
    CHECK_OK(job_from_spec(&j, spec, strlen(spec), &e), e);
    job_free(&j);
    free(spec);
    buf_free(&line);
}

/* A spec becomes the same job: its spec is the same text. */
TEST(spec_round_trip)
{
    static const char *const lines[] = {
        Q(",\"seed\":18446744073709551615,\"temperature\":0.1,\"top_p\":0.3333333333333333,"
          "\"stop\":[\"a\",\"\\u2028\"],\"metadata\":{\"x\":[1,2.50]},\"priority\":-1,"
          "\"timeout_s\":0.001,\"reasoning_effort\":\"off\",\"model\":\"m\",\"top_k\":3,"
          "\"max_tokens\":2147483647"),
        Q(",\"images\":[\"x\",\"data:image/gif;base64,R0lGODlh\"],\"response_format\":{\"type\":"
          "\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"object\",\"description\":\"d\"}}"
          "}"),
        BODY(
            "\"messages\":[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"assistant\",\"name\":"
            "\"n\",\"content\":null,\"reasoning\":\"\"},{\"role\":\"user\",\"content\":\"\\\"\"}],"
            "\"response_format\":{\"type\":\"json_object\"}"),
    };
    for (size_t i = 0; i < 3; i++) {
        struct job j;
        struct err e;
        struct buf b = {0};
        char *first = parse(lines[i], NULL);
        CHECK(first[0] == '{');
        CHECK_OK(job_from_spec(&j, first, strlen(first), &e), e);
        CHECK_OK(job_spec(&j, &b, &e), e);
        CHECK_STR(b.data, first);
        free(first);
        buf_free(&b);
        job_free(&j);
    }
}

TEST_MAIN
