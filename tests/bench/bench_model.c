/* bench_model DIR [--tiny] [--OPTION=N]...: writes a made-up model (tests/lib/k3_model.h) for
 * measuring.
 *
 * With --jobs it writes prompts of made-up words too, each of one topic, to DIR/jobs.jsonl.
 * DIR/bench_model.txt, written last, holds all options: a second call with the same ones does
 * nothing, one with others is refused. */
#include "tests/lib/k3_model.h"

#include "src/mem.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct option {
    const char *name;
    size_t at;
    bool real;
    double standard, tiny, least, most;
    const char *help;
} options[] = {
#define X(name, standard, tiny, least, most, help)                                                 \
    {#name, offsetof(struct k3_sizes, name), false, standard, tiny, least, most, help},
    COUNTS(X)
#undef X
#define X(name, standard, tiny, least, most, help)                                                 \
    {#name, offsetof(struct k3_sizes, name), true, standard, tiny, least, most, help},
        REALS(X)
#undef X
};
#define N_OPTIONS (sizeof options / sizeof *options)

static void set(struct k3_sizes *s, const struct option *o, double v)
{
    if (o->real)
        *(double *)((char *)s + o->at) = v;
    else
        *(uint64_t *)((char *)s + o->at) = (uint64_t)v;
}

static double get(const struct k3_sizes *s, const struct option *o)
{
    return o->real ? *(const double *)((const char *)s + o->at)
                   : (double)*(const uint64_t *)((const char *)s + o->at);
}

static void usage(FILE *f)
{
    fprintf(f, "usage: bench_model DIR [--tiny] [--OPTION=N]...\noptions, standard (tiny):\n");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &options[i];
        char tiny[32];
        snprintf(tiny, sizeof tiny, "(%g)", o->tiny);
        fprintf(f, "  --%-15s %8g %8s  %s\n", o->name, o->standard, tiny, o->help);
    }
}

/* Options are told apart from their names with - or _. */
static bool same_name(const char *given, size_t n, const char *name)
{
    if (strlen(name) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (given[i] != name[i] && !(given[i] == '-' && name[i] == '_')) return false;
    return true;
}

static bool parse_option(struct k3_sizes *s, const char *arg)
{
    const char *name = arg + 2, *value = strchr(name, '=');
    if (strncmp(arg, "--", 2) != 0 || !value) return false;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &options[i];
        if (!same_name(name, (size_t)(value - name), o->name)) continue;
        char *end;
        double v = strtod(value + 1, &end);
        if (end == value + 1 || *end || !(v >= o->least && v <= o->most) ||
            (!o->real && v != floor(v)))
            return false;
        set(s, o, v);
        return true;
    }
    return false;
}

static bool parse(struct k3_sizes *s, int argc, char **argv)
{
    bool tiny = false;
    for (int i = 2; i < argc; i++) tiny |= !strcmp(argv[i], "--tiny");
    for (size_t i = 0; i < N_OPTIONS; i++)
        set(s, &options[i], tiny ? options[i].tiny : options[i].standard);
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--tiny") || parse_option(s, argv[i])) continue;
        fprintf(stderr, "bench_model: %s: unknown, or no number it takes\n", argv[i]);
        return false;
    }
    const char *why = k3_impossible(s);
    if (why) fprintf(stderr, "bench_model: %s\n", why);
    return !why;
}

static enum status describe(const struct k3_sizes *s, struct buf *out, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < N_OPTIONS && !rc; i++)
        rc = buf_addf(out, e, "%s %.10g\n", options[i].name, get(s, &options[i]));
    return rc;
}

/* Prompts of words that are one token each, all of one topic where there are topics. */
static enum status write_jobs(const struct k3_sizes *s, const char *path, struct err *e)
{
    struct fake_tok tok;
    fake_tok_init(&tok, (uint32_t)s->vocab);
    FILE *f = fopen(path, "w");
    if (!f) return err_errno(e, errno, "%s: cannot create", path);
    uint64_t words = tok.ranks - tok.first_word, topics = s->topics ? s->topics : 1;
    unsigned long long rng = s->seed ^ 0x10b5;
    for (uint64_t i = 0; i < s->jobs; i++) {
        /* topics in random order: whoever wants them together must find that out */
        uint64_t topic = test_rand(&rng) % topics;
        uint64_t first = (topic * words + topics - 1) / topics;
        uint64_t count = ((topic + 1) * words + topics - 1) / topics - first;
        fprintf(f, "{\"id\":\"job-%06" PRIu64 "\",\"prompt\":\"", i);
        for (uint64_t w = 0; w < s->job_words; w++) {
            char bytes[8] = "";
            uint32_t id = tok.first_word + (uint32_t)(first + test_rand(&rng) % count);
            fwrite(bytes, 1, fake_tok_bytes(&tok, id, bytes), f);
        }
        fprintf(f, "\",\"max_tokens\":%" PRIu64 ",\"metadata\":{\"topic\":%" PRIu64 "}}\n",
                s->job_tokens, topic);
    }
    return fclose(f) ? err_errno(e, errno, "%s: cannot write", path) : OK;
}

static enum status write_model(const struct k3_sizes *s, const char *dir, struct err *e)
{
    struct ckpt c;
    int16_t *topics = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/jobs.jsonl", dir);
    ckpt_init(&c, s->seed, s->shard_mb << 20);
    enum status rc = k3_tensors(s, &c, &topics, e);
    if (!rc) printf("%s: %zu tensors, %.3f GB\n", dir, c.n, (double)ckpt_bytes(&c) * 1e-9);
    if (!rc) rc = k3_config_write(s, dir, e);
    if (!rc) rc = ckpt_write(&c, dir, e);
    if (!rc && s->jobs) rc = write_jobs(s, path, e);
    ckpt_free(&c);
    free(topics);
    return rc;
}

int main(int argc, char **argv)
{
    struct k3_sizes s;
    struct err e;
    struct buf text = {0};
    char stamp[4096], *old = NULL;
    if (argc < 2 || argv[1][0] == '-') {
        bool asked = argc > 1 && !strcmp(argv[1], "--help");
        usage(asked ? stdout : stderr);
        return asked ? 0 : 2;
    }
    if (!parse(&s, argc, argv) || describe(&s, &text, &e)) return 2;
    const char *dir = argv[1];
    snprintf(stamp, sizeof stamp, "%s/bench_model.txt", dir);
    int rc = 0;
    if (mkdir(dir, 0755) == 0) {
        rc = write_model(&s, dir, &e) ? 1 : 0;
        if (rc)
            fprintf(stderr, "bench_model: %s\n", e.text);
        else
            test_write(stamp, text.data, text.len);
    } else if (access(stamp, R_OK) || !(old = test_read(stamp, NULL)) || strcmp(old, text.data)) {
        fprintf(stderr, "bench_model: %s is something else or unfinished; remove it first\n", dir);
        rc = 2;
    }
    free(old);
    buf_free(&text);
    return rc;
}
