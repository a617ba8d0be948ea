/* The command line as words, values and options. */
#include "jobs/cmd_table.h"
#include "jobs/id_set.h"
#include "jobs/input.h"
#include "jobs/suggest.h"
#include "src/repack.h"
#include "tests/lib/test.h"
#include "vision/vision.h"

#include <time.h>

static struct err e;

/* Parse words (up to NULL) as those of `command`, which takes any number of operands. */
static enum status parse(struct cmd_options *o, enum cmd_bit command, const char *const *words,
                         bool *help)
{
    struct cmd_words w = {.command = command, .name = "x", .operands = "[FILE]..."};
    while (words[w.n]) w.n++;
    w.at = (char **)(uintptr_t)words;
    e = (struct err){0};
    return cmd_parse(o, &w, help, &e);
}

#define PARSE(command, ...) parse(&o, command, (const char *const[]){__VA_ARGS__, NULL}, &help)

/* Options may stand anywhere and in any of their spellings; -i and operands are one list. */
TEST(words)
{
    struct cmd_options o;
    bool help;
    CHECK_OK(PARSE(CMD_RUN, "a", "-m", "M", "b", "-i", "c", "-oO", "--prompt=p=q", "--system", "--",
                   "--quiet", "--", "-m", "-"),
             e);
    CHECK(!help && o.quiet && !o.strict);
    CHECK_STR(o.model, "M");
    CHECK_STR(o.output, "O");
    CHECK_STR(o.prompt, "p=q");
    CHECK_STR(o.system, "--");
    CHECK_INT(o.operands.n, 5);
    CHECK_STR(o.operands.at[1], "b");
    CHECK_STR(o.operands.at[2], "c");
    CHECK_STR(o.operands.at[3], "-m");
    CHECK_STR(o.operands.at[4], "-");
    CHECK_INT(o.retries, 3);
    cmd_options_free(&o);
}

/* Help wins over what is missing, and over what comes after it. */
TEST(help_is_asked_for)
{
    struct cmd_options o;
    bool help;
    CHECK_OK(PARSE(CMD_RUN, "--help", "--nonsense"), e);
    CHECK(help);
    cmd_options_free(&o);
    CHECK_OK(PARSE(CMD_RUN, "-qh"), e);
    CHECK(help);
    cmd_options_free(&o);
}

/* A mistake is told in one line that names the option. */
TEST(mistakes)
{
    static const struct {
        const char *words[4], *needle;
    } rows[] = {
        {{"--temprature", "1"}, "x: unknown option --temprature; did you mean --temperature?"},
        {{"--colour"}, "x: unknown option --colour; see nightshift x --help"},
        {{"-z"}, "x: unknown option -z"},
        {{"--watch"}, "x: --watch is not one of its options"},
        {{"--model"}, "x: --model needs a value: DIR"},
        {{"-m"}, "x: --model needs a value: DIR"},
        {{"--strict=yes"}, "x: --strict takes no value"},
        {{"--seed", "-1"}, "--seed: expected an integer of at least 0, found \"-1\""},
        {{"--seed=18446744073709551616"}, "--seed: expected an integer"},
        {{"--max-tokens", "0"}, "--max-tokens: expected an integer of at least 1, found \"0\""},
        {{"--top-k", "2147483648"}, "--top-k: expected an integer"},
        {{"--temperature", "2.5"}, "--temperature: expected a number from 0 to 2"},
        {{"--temperature", "nan"}, "found \"nan\""},
        {{"--temperature", "1e0"}, "found \"1e0\""},
        {{"--ram", "2.6X"}, "--ram: expected a size like 512M or 2.6G (powers of 1024)"},
        {{"--ram", "-1G"}, "--ram: expected"},
        {{"--ram", "0"}, "--ram: expected"},
        {{"--ram", "."}, "--ram: expected"},
        {{"--ram", "99999999T"}, "--ram: expected"},
        {{"--timeout", "5x"}, "--timeout: expected a time like 90s, 5m or 1h30m"},
        {{"--timeout", "0"}, "--timeout: expected"},
        {{"--order", "input2"}, "--order: expected auto|input, found \"input2\""},
        {{"--order", "aut"}, "--order: expected"},
        {{"--shard", "0/4"}, "--shard: expected K/N with 1 <= K <= N"},
        {{"--shard", "5/4"}, "--shard: expected"},
        {{"--shard", "3"}, "--shard: expected"},
        {{"--shard", "1/2/3"}, "--shard: expected"},
        {{"--halt", "fail=0"}, "--halt: expected"},
        {{"--halt", "later,fail=1"}, "--halt: expected"},
        {{"--halt", "now,fail=1"}, "--halt: expected"},
        {{"--halt", "fail=101%"}, "--halt: expected"},
        {{"--deadline", "25:00"}, "--deadline: expected"},
        {{"--deadline", "8"}, "--deadline: expected"},
        {{"--deadline", ""}, "--deadline: expected"},
        {{"--cache-experts", "0"}, "--cache-experts: expected"},
        {{"--reasoning-effort", "medium"}, "--reasoning-effort: expected none, low, high or max"},
        {{"--stop", ""}, "--stop: expected a text that is not empty"},
        {{"--map-path", "a"}, "--map-path: expected OLD=NEW"},
        {{"--map-path", "=a"}, "--map-path: expected OLD=NEW"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cmd_options o;
        bool help;
        enum status rc = parse(&o, CMD_RUN, rows[i].words, &help);
        cmd_options_free(&o);
        if (rc != E_USAGE) FAIL("%s: %s", rows[i].words[0], status_name(rc));
        CHECK_HAS(e.text, rows[i].needle);
    }
}

/* What a command takes as operands is checked by the words of its table. */
TEST(operands)
{
    static const struct {
        const char *operands, *words[3], *needle;
    } rows[] = {
        {"", {NULL}, NULL},
        {"", {"a"}, "unexpected argument a"},
        {"ID", {NULL}, "expected ID"},
        {"ID", {"a"}, NULL},
        {"ID", {"a", "b"}, "expected one ID, found also b"},
        {"A B...", {NULL}, "expected A B..."},
        {"A B...", {"a", "b"}, NULL},
        {"[ID]", {NULL}, NULL},
        {"[ID]", {"a", "b"}, "expected one [ID]"},
        {"[ID...]", {"a", "b"}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cmd_options o;
        struct cmd_words w = {.command = CMD_SHOW, .name = "x", .operands = rows[i].operands};
        while (rows[i].words[w.n]) w.n++;
        w.at = (char **)(uintptr_t)rows[i].words;
        bool help;
        enum status rc = cmd_parse(&o, &w, &help, &e);
        cmd_options_free(&o);
        CHECK_INT(rc, rows[i].needle ? E_USAGE : OK);
        if (rows[i].needle) CHECK_HAS(e.text, rows[i].needle);
    }
}

/* Sizes are powers of 1024 in every spelling, times any mix of units. */
TEST(sizes_and_times)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"1", 1},
                 {"4096B", 4096},
                 {"64K", 65536},
                 {"2.6G", 2791728742},
                 {"2.6GiB", 2791728742},
                 {"1gb", 1 << 30},
                 {".5m", 1 << 19},
                 {"2T", 2ull << 40}};
    static const struct {
        const char *text;
        double s;
    } times[] = {{"90", 90},  {"1.5", 1.5},    {"30s", 30},
                 {"5m", 300}, {"1h30m", 5400}, {"1d", 86400}};
    struct cmd_options o;
    bool help;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(PARSE(CMD_RUN, "--ram", sizes[i].text), e);
        CHECK_INT(o.ram_bytes, sizes[i].bytes);
        cmd_options_free(&o);
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        CHECK_OK(PARSE(CMD_RUN, "--timeout", times[i].text), e);
        CHECK(o.job.timeout_s == times[i].s && o.job.has == JOB_HAS_TIMEOUT);
        cmd_options_free(&o);
    }
}

/* Settings of jobs say which of them were given. */
TEST(settings)
{
    struct cmd_options o;
    bool help;
    CHECK_OK(PARSE(CMD_RUN, "--seed=18446744073709551615", "--temperature", "0.7", "--stop", "a",
                   "--stop", "b", "--reasoning-effort", "off", "--map-path", "C:\\x=/y=z",
                   "--map-path=/a=b"),
             e);
    CHECK(o.job.seed == UINT64_MAX && o.job.temperature == 0.7 && !o.job.effort);
    CHECK_INT(o.job.n_stops, 2);
    CHECK_STR(o.job.stops[1], "b");
    CHECK_INT(o.job.has, JOB_HAS_SEED | JOB_HAS_TEMPERATURE | JOB_HAS_STOP | JOB_HAS_EFFORT);
    CHECK_INT(o.images.n_maps, 2);
    CHECK_STR(o.images.maps[0].from, "C:\\x");
    CHECK_STR(o.images.maps[0].to, "/y=z");
    CHECK_STR(o.images.maps[1].from, "/a");
    cmd_options_free(&o);
}

/* Options with a grammar of their own, and choices in the order of their enums. */
TEST(own_grammars)
{
    struct cmd_options o;
    bool help;
    CHECK_OK(PARSE(CMD_RUN, "--halt", "soon,fail=10%", "--cache-experts", "25.5%", "--order=input",
                   "--on-changed-input", "keep", "--format", "sharegpt", "--on-existing=prepend",
                   "--progress", "none", "--shard", "3/4"),
             e);
    CHECK(o.halt_percent == 10 && !o.halt_fails);
    CHECK(o.cache_experts_percent == 25.5 && !o.cache_experts);
    CHECK(o.order == ORDER_INPUT && o.on_changed_input == CHANGED_KEEP);
    CHECK(o.format == FORMAT_SHAREGPT && o.on_existing == EXISTING_PREPEND);
    CHECK(o.progress == PROGRESS_NONE && o.shard == 3 && o.shards == 4);
    cmd_options_free(&o);
    CHECK_OK(PARSE(CMD_RUN, "--halt=fail=3", "--cache-experts", "7", "--order=auto"), e);
    CHECK(o.halt_fails == 3 && o.cache_experts == 7 && o.order == ORDER_AUTO);
    cmd_options_free(&o);
    CHECK_OK(PARSE(CMD_STATUS, "--watch"), e);
    CHECK(o.watch_s == 2);
    cmd_options_free(&o);
    CHECK_OK(PARSE(CMD_STATUS, "--watch=1m"), e);
    CHECK(o.watch_s == 60);
    cmd_options_free(&o);
}

/* An option belongs to the commands whose help lists it, and to no other. */
TEST(options_of_commands)
{
    static const struct {
        enum cmd_bit bit;
        const char *name;
    } commands[] = {
#define X(bit, name, operands, summary) {bit, #name},
        CMD_LIST(X)
#undef X
    };
    unsigned all = 0;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        all |= commands[i].bit;
        for (const struct cmd_option *x = cmd_table; x->name; x++) {
            struct cmd_options o;
            char word[64];
            bool help;
            snprintf(word, sizeof word, "--%s", x->name);
            enum status rc = PARSE(commands[i].bit, word, "--help");
            bool refused = rc == E_USAGE && strstr(e.text, "is not one of its options");
            cmd_options_free(&o);
            if (refused != !(x->commands & commands[i].bit))
                FAIL("%s --%s: %s", commands[i].name, x->name, e.text);
        }
    }
    CHECK_INT(all, CMD_ALL);
}

/* The defaults that the help tells are those that hold. */
TEST(defaults_of_the_help)
{
    struct vision_limits v;
    vision_limits_default(&v);
    const struct job_settings *j = &job_default_settings;
    const struct {
        const char *option;
        double value;
    } known[] = {{"max-line-bytes", INPUT_MAX_LINE_BYTES},
                 {"max-image-bytes", IMAGE_REF_MAX_BYTES},
                 {"max-pixels", (double)v.max_pixels},
                 {"image-timeout", v.timeout_s},
                 {"max-tokens", (double)j->max_tokens},
                 {"temperature", j->temperature},
                 {"top-p", j->top_p},
                 {"top-k", j->top_k},
                 {"seed", (double)j->seed},
                 {"shard-size", REPACK_SHARD_BYTES},
                 {"retries", 3}};
    size_t found = 0;
    for (const struct cmd_option *x = cmd_table; x->name; x++) {
        const char *at = strstr(x->help, "(default ");
        const char *number = at ? at + 9 : strstr(x->help, "0 (default)");
        if (!number || *number < '0' || *number > '9' || x->commands == CMD_BENCH) continue;
        char text[24];
        struct cmd_options o = {0};
        size_t i = 0;
        snprintf(text, sizeof text, "%.*s", (int)strspn(number, "0123456789MGs"), number);
        CHECK_OK(cmd_read_value(&o, x, text, &e), e);
        const void *p = (char *)&o + x->at;
        double value = x->kind == CMD_COUNT32 ? *(const uint32_t *)p
                       : x->kind == CMD_REAL || x->kind == CMD_SECONDS
                           ? *(const double *)p
                           : (double)*(const uint64_t *)p;
        while (i < sizeof known / sizeof *known && strcmp(known[i].option, x->name)) i++;
        if (i == sizeof known / sizeof *known) FAIL("--%s: not checked here", x->name);
        if (value != known[i].value) FAIL("--%s is %g, not %s", x->name, known[i].value, text);
        found++;
    }
    CHECK_INT(found, sizeof known / sizeof *known);
}

/* A file without a name is none: a variable of the shell that is not set. */
TEST(empty_file_names)
{
    struct cmd_options o;
    bool help;
    CHECK_ERR(PARSE(CMD_ADD, "--db", ""), E_USAGE, e, "--db needs a value: FILE");
    cmd_options_free(&o);
    CHECK_ERR(PARSE(CMD_RUN, "--output="), E_USAGE, e, "--output needs a value: FILE");
    cmd_options_free(&o);
}

/* A deadline is a moment: the next time the clock shows it, a date, or so long from now. */
TEST(deadline)
{
    struct cmd_options o;
    bool help;
    CHECK(setenv("TZ", "UTC", 1) == 0);
    tzset();
    time_t now = time(NULL);
    CHECK_OK(PARSE(CMD_RUN, "--deadline", "06:30"), e);
    CHECK(o.deadline > now && o.deadline <= now + 86401 && o.deadline % 86400 == 23400);
    cmd_options_free(&o);
    CHECK_OK(PARSE(CMD_RUN, "--deadline", "2033-05-18T03:33"), e);
    CHECK_INT(o.deadline, 1999999980);
    cmd_options_free(&o);
    CHECK_OK(PARSE(CMD_RUN, "--deadline", "8h"), e);
    CHECK(o.deadline >= now + 28800 && o.deadline <= now + 28900);
    cmd_options_free(&o);
}

static void array_env(const char *id, const char *min, const char *step, const char *count)
{
    setenv("SLURM_ARRAY_TASK_ID", id, 1);
    setenv("SLURM_ARRAY_TASK_MIN", min, 1);
    setenv("SLURM_ARRAY_TASK_STEP", step, 1);
    setenv("SLURM_ARRAY_TASK_COUNT", count, 1);
}

/* The shard of an array task: Slurm tells all, Kubernetes only the index. */
TEST(shard_of_an_array)
{
    struct cmd_options o;
    bool help;
    CHECK_ERR(PARSE(CMD_RUN, "--shard", "auto"), E_USAGE, e, "SLURM_ARRAY_TASK_ID");
    cmd_options_free(&o);
    array_env("7", "3", "2", "5");
    CHECK_OK(PARSE(CMD_RUN, "--shard", "auto"), e);
    CHECK(o.shard == 3 && o.shards == 5);
    cmd_options_free(&o);
    array_env("8", "3", "2", "5");
    CHECK_ERR(PARSE(CMD_RUN, "--shard", "auto"), E_USAGE, e, "--shard auto");
    cmd_options_free(&o);
    setenv("JOB_COMPLETION_INDEX", "0", 1);
    CHECK_OK(PARSE(CMD_RUN, "--shard", "auto/4"), e);
    CHECK(o.shard == 1 && o.shards == 4);
    cmd_options_free(&o);
    CHECK_ERR(PARSE(CMD_RUN, "--shard", "auto"), E_USAGE, e, "auto/N");
    cmd_options_free(&o);
}

/* Each option has help, a name of its own and a letter of its own; each command has a way in. */
TEST(table)
{
    for (const struct cmd_option *x = cmd_table; x->name; x++) {
        CHECK(x->help && x->commands && (x->kind == CMD_FLAG) == !x->arg);
        CHECK((x->kind == CMD_CHOICE) == (x->choices != NULL));
        CHECK((x->kind == CMD_OWN) == (x->own != NULL));
        for (const struct cmd_option *y = cmd_table; y != x; y++) {
            CHECK(strcmp(x->name, y->name) != 0);
            CHECK(!x->letter || x->letter != y->letter);
        }
    }
}

/* The nearest name is offered only when it is near: two edits, swaps counting one. */
TEST(nearest_name)
{
    static const struct {
        const char *word, *want;
    } rows[] = {{"promt", "prompt"},  {"pormpt", "prompt"}, {"prompts", "prompt"},
                {"rpomtp", "prompt"}, {"proof", NULL},      {"p", NULL},
                {"seed", "seed"},     {"sed", "seed"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct suggest s = {.word = rows[i].word};
        suggest_offer(&s, "prompt");
        suggest_offer(&s, "seed");
        if (rows[i].want)
            CHECK_STR(s.best, rows[i].want);
        else
            CHECK(s.best == NULL);
    }
}

/* The first place of each id is remembered through all growth. */
TEST(id_set)
{
    struct id_set s = {0};
    char id[20];
    uint64_t first;
    for (uint64_t pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < 5000; i++) {
            snprintf(id, sizeof id, "id%d", (int)i);
            CHECK_OK(id_set_add(&s, id, pass << 40 | i, &first, &e), e);
            CHECK_INT(first, i);
        }
    }
    CHECK_INT(s.n, 5000);
    id_set_free(&s);
}

/* Exit codes follow whose fault it is. */
TEST(exit_codes)
{
    static const int want[][2] = {{OK, 0},        {E_USAGE, 2},   {E_BUDGET, 2},  {E_INPUT, 3},
                                  {E_MODEL, 4},   {E_DB, 4},      {E_IO, 5},      {E_NOSPACE, 5},
                                  {E_LOCKED, 6},  {E_STOPPED, 7}, {E_TIMEOUT, 1}, {E_NOMEM, 4},
                                  {E_INTERNAL, 4}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_INT(cmd_exit_code((enum status)want[i][0]), want[i][1]);
}

TEST_MAIN
