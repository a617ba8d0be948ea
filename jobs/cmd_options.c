/* The one table of options, and the reading of words by it. The help is printed from the same
 * table. */
#include "jobs/cmd_table.h"

#include "jobs/suggest.h"

#include <stdlib.h>
#include <string.h>

#define INPUTS  (CMD_RUN | CMD_ADD | CMD_CHECK | CMD_PLAN)
#define WORKERS (CMD_RUN | CMD_WORK)
#define COMPUTE (CMD_RUN | CMD_WORK | CMD_PLAN | CMD_BENCH)
#define QUEUE                                                                                      \
    (CMD_RUN | CMD_ADD | CMD_WORK | CMD_STATUS | CMD_LIST_JOBS | CMD_SHOW | CMD_ERRORS |           \
     CMD_RETRY | CMD_CANCEL | CMD_EXPORT | CMD_VERIFY | CMD_BACKUP)
#define FILTERS (CMD_LIST_JOBS | CMD_ERRORS | CMD_RETRY | CMD_CANCEL)
#define REPORTS                                                                                    \
    (CMD_CHECK | CMD_STATUS | CMD_LIST_JOBS | CMD_SHOW | CMD_ERRORS | CMD_MERGE | CMD_VERIFY |     \
     CMD_PLAN | CMD_INFO | CMD_BENCH)

#define AT(field)            offsetof(struct cmd_options, field)
#define FLAG(field)          .kind = CMD_FLAG, .at = AT(field)
#define TEXT(field)          .kind = CMD_TEXT, .at = AT(field)
#define SIZE(field)          .kind = CMD_SIZE, .at = AT(field)
#define SECONDS(field)       .kind = CMD_SECONDS, .at = AT(field)
#define COUNT(field, least)  .kind = CMD_COUNT, .at = AT(field), .min = least, .max = 9e15
#define N32(field, least)    .kind = CMD_COUNT32, .at = AT(field), .min = least, .max = INT32_MAX
#define REAL(field, lo, hi)  .kind = CMD_REAL, .at = AT(field), .min = lo, .max = hi
#define CHOICE(field, names) .kind = CMD_CHOICE, .at = AT(field), .choices = names
#define OWN(reader)          .kind = CMD_OWN, .own = reader

const struct cmd_option cmd_table[] = {
    {"input", 'i', "PATH",
     "a JSONL file, a picture, or a folder of pictures; the same as an operand", INPUTS,
     OWN(cmd_read_input)},
    {"model", 'm', "DIR", "folder of the model",
     WORKERS | CMD_CHECK | CMD_PLAN | CMD_INFO | CMD_BENCH | CMD_REPACK, TEXT(model)},
    {"output", 'o', "FILE",
     "where results go; replaced whole, never appended to; of repack: a new folder; of backup: a "
     "new "
     "file",
     CMD_RUN | CMD_EXPORT | CMD_MERGE | CMD_REPACK | CMD_BACKUP, TEXT(output)},
    {"errors-file", 0, "FILE", "write failed jobs here as well", CMD_RUN | CMD_EXPORT,
     TEXT(errors_file)},
    {"db", 0, "FILE", "the queue; run makes one beside its output", QUEUE, TEXT(db)},
    {"format", 0, "FORMAT", "form of the results", CMD_RUN | CMD_EXPORT,
     CHOICE(format, "openai|metadata|csv|txt|sharegpt")},
    {"on-existing", 0, "WHAT", "sidecar texts that are there already", CMD_RUN | CMD_EXPORT,
     CHOICE(on_existing, "error|skip|overwrite|append|prepend")},

    {"prompt", 0, "TEXT", "the question about pictures, and for lines without one", INPUTS,
     TEXT(prompt)},
    {"system", 0, "TEXT", "system message of jobs that have none", INPUTS, TEXT(system)},
    {"image-root", 0, "DIR", "where relative image paths begin", INPUTS | CMD_WORK,
     TEXT(images.root)},
    {"map-path", 0, "OLD=NEW", "image paths that begin with OLD begin with NEW instead; repeatable",
     INPUTS | CMD_WORK, OWN(cmd_read_map)},
    {"shard", 0, "K/N",
     "only jobs of shard K of N; auto or auto/N: from a Slurm or Kubernetes array", INPUTS,
     OWN(cmd_read_shard)},
    {"on-duplicate", 0, "WHAT", "a second job with the same id", INPUTS,
     CHOICE(on_duplicate, "error|skip")},
    {"on-changed-input", 0, "WHAT", "an input file that changed since it was imported",
     CMD_RUN | CMD_ADD, CHOICE(on_changed_input, "error|rerun|keep")},
    {"strict", 0, NULL, "one bad job stops everything before it begins (exit 3)", INPUTS,
     FLAG(strict)},
    {"max-line-bytes", 0, "SIZE", "longest line accepted (default 64M)", INPUTS,
     SIZE(max_line_bytes)},
    {"max-image-bytes", 0, "SIZE", "largest image file accepted (default 256M)", INPUTS | CMD_WORK,
     SIZE(images.max_bytes)},
    {"max-pixels", 0, "N", "largest picture accepted, in pixels (default 200000000)",
     WORKERS | CMD_CHECK, COUNT(max_pixels, 1)},
    {"max-patches", 0, "N", "shrink pictures to so many patches of 14 x 14 pixels",
     COMPUTE | CMD_CHECK, N32(max_patches, 4)},
    {"verify-images", 0, "HOW",
     "compare pictures with those imported: by their bytes, or by size and time", WORKERS,
     CHOICE(verify_images, "content|stat")},
    {"image-timeout", 0, "TIME", "give up decoding one picture after so long (default 60s)",
     WORKERS, SECONDS(image_timeout_s)},
    {"lenient-images", 0, NULL, "accept damaged pictures as far as they can be shown",
     WORKERS | CMD_CHECK, FLAG(lenient_images)},
    {"no-exif", 0, NULL, "do not turn pictures by their EXIF orientation", WORKERS | CMD_CHECK,
     FLAG(no_exif)},

    {"max-tokens", 0, "N", "longest answer of jobs that do not say (default 1024)", INPUTS,
     COUNT(job.max_tokens, 1), .has = JOB_HAS_MAX_TOKENS},
    {"temperature", 0, "X", "0 (default) always takes the likeliest token", INPUTS,
     REAL(job.temperature, 0, 2), .has = JOB_HAS_TEMPERATURE},
    {"top-p", 0, "X", "only the likeliest tokens that make up this much (default 1)", INPUTS,
     REAL(job.top_p, 1e-9, 1), .has = JOB_HAS_TOP_P},
    {"top-k", 0, "N", "only so many of the likeliest tokens (default 0: all)", INPUTS,
     N32(job.top_k, 0), .has = JOB_HAS_TOP_K},
    {"seed", 0, "N", "seed of random choices (default 0)", INPUTS, COUNT(job.seed, 0),
     .has = JOB_HAS_SEED},
    {"stop", 0, "TEXT", "end an answer before this text; repeatable", INPUTS, OWN(cmd_read_stop)},
    {"reasoning-effort", 0, "HOW", "none (default), low, high or max: let the model think first",
     INPUTS, OWN(cmd_read_effort)},
    {"timeout", 0, "TIME", "give up a job after so long", INPUTS | CMD_WORK, SECONDS(job.timeout_s),
     .has = JOB_HAS_TIMEOUT},

    {"ram", 0, "SIZE", "most memory to use, e.g. 2.6G (default: what the machine or cgroup has)",
     COMPUTE, SIZE(ram_bytes)},
    {"threads", 0, "N", "threads that compute (default: all cores)", COMPUTE, N32(threads, 1)},
    {"isa", 0, "NAME",
     "instruction set: auto (default), portable, avx2, avx512, avx512bf16, amx, neon", COMPUTE,
     TEXT(isa)},
    {"activations", 0, "TYPE", "precision between the products", COMPUTE,
     CHOICE(activations, "f32|bf16")},
    {"max-sequences", 0, "N", "jobs that generate at the same time (default: planned)", COMPUTE,
     COUNT(max_sequences, 1)},
    {"prefill-rows", 0, "N", "prompt tokens per sweep (default: planned)", COMPUTE,
     COUNT(prefill_rows, 1)},
    {"cache-experts", 0, "N|P%", "experts kept in memory (default: planned)", COMPUTE,
     OWN(cmd_read_cache)},
    {"context", 0, "N",
     "rows of the longest job, prompt and answer (default: what the queue needs)", COMPUTE,
     COUNT(context, 16)},
    {"draft", 0, "HOW",
     "tokens guessed ahead: auto (default), off, or N at most; answers stay same", COMPUTE,
     OWN(cmd_read_draft)},
    {"no-direct-io", 0, NULL, "read weights through the page cache", COMPUTE, FLAG(no_direct_io)},
    {"shard-size", 0, "SIZE", "largest file of weights (default 16G)", CMD_REPACK,
     SIZE(shard_bytes)},

    {"order", 0, "WHAT", "auto: jobs with the same image or beginning together", WORKERS | CMD_PLAN,
     CHOICE(order, "auto|input")},
    {"retries", 0, "N", "tries after the first, for faults that may pass (default 3)", WORKERS,
     COUNT(retries, 0)},
    {"retry-failed", 0, NULL, "run failed jobs again", CMD_RUN, FLAG(retry_failed)},
    {"fresh", 0, NULL, "begin anew: forget the jobs and results of the queue", CMD_RUN,
     FLAG(fresh)},
    {"allow-model-change", 0, NULL, "go on although model or settings are not those of the queue",
     WORKERS, FLAG(allow_model_change)},
    {"max-jobs", 0, "N", "stop after so many jobs", WORKERS | CMD_BENCH, COUNT(max_jobs, 1)},
    {"deadline", 0, "WHEN", "stop by then: 06:30, 2026-01-31T06:30, or 8h from now", WORKERS,
     OWN(cmd_read_deadline)},
    {"halt", 0, "HOW",
     "stop when jobs fail: fail=N so many, fail=P% of at least 10 that ended, never (default)",
     WORKERS, OWN(cmd_read_halt)},
    {"dry-run", 0, NULL, "say what would be done", CMD_RUN | CMD_ADD | CMD_RETRY | CMD_CANCEL,
     FLAG(dry_run)},

    {"state", 0, "STATE", "only jobs in this state", FILTERS & ~(unsigned)CMD_ERRORS, TEXT(state)},
    {"code", 0, "CODE", "only jobs that failed with this code", FILTERS, TEXT(code)},
    {"all", 0, NULL, "every job that fits", CMD_RETRY | CMD_CANCEL, FLAG(all)},
    {"limit", 0, "N", "at most so many", CMD_LIST_JOBS | CMD_ERRORS, COUNT(limit, 1)},
    {"watch", 0, "[TIME]", "again and again (every 2 s)", CMD_STATUS, SECONDS(watch_s)},
    {"progress", 0, "HOW", "how progress is shown", WORKERS,
     CHOICE(progress, "auto|tty|plain|json|none")},
    {"eta", 0, NULL, "show the time of day as well at which it will be done", WORKERS | CMD_STATUS,
     FLAG(eta)},
    {"only", 0, "SECTION",
     "only this: machine, kern, vit, disk, overlap, decode, prefill, captions, cache; repeatable",
     CMD_BENCH, OWN(cmd_read_only)},
    {"seconds", 0, "TIME",
     "for each figure, about (default 3s); what would take 20 times as long is left out", CMD_BENCH,
     SECONDS(seconds)},
    {"cache-sim", 0, "FILE", "replay recorded routes through cache policies", CMD_BENCH,
     TEXT(cache_sim)},
    {"json", 0, NULL, "JSON, one object a line", REPORTS, FLAG(json)},
    {"quiet", 'q', NULL, "only errors", CMD_ALL, FLAG(quiet)},
    {0},
};

enum status cmd_list_add(struct cmd_list *l, const char *text, struct err *e)
{
    const char **p = realloc(l->at, (l->n + 1) * sizeof *p);
    if (!p) return err_set(e, E_NOMEM, "no memory for the command line");
    l->at = p;
    l->at[l->n++] = text;
    return OK;
}

/* One word at a time. */
struct reader {
    struct cmd_options *o;
    const struct cmd_words *words;
    int at; /* next word */
    bool help;
    struct err *e;
};

static enum status unknown(const struct reader *r, const char *name)
{
    struct suggest s = {.word = name};
    for (const struct cmd_option *x = cmd_table; x->name; x++)
        if (x->commands & r->words->command) suggest_offer(&s, x->name);
    if (s.best)
        return err_set(r->e, E_USAGE, "%s: unknown option --%s; did you mean --%s?", r->words->name,
                       name, s.best);
    return err_set(r->e, E_USAGE, "%s: unknown option --%s; see nightshift %s --help",
                   r->words->name, name, r->words->name);
}

/* value: what stands behind "=" or right behind a letter; NULL: nothing does. */
static enum status take(struct reader *r, const struct cmd_option *x, const char *value)
{
    if (!(x->commands & r->words->command))
        return err_set(r->e, E_USAGE, "%s: --%s is not one of its options", r->words->name,
                       x->name);
    if (!x->arg && value)
        return err_set(r->e, E_USAGE, "%s: --%s takes no value", r->words->name, x->name);
    if (x->arg && !value && x->arg[0] != '[') {
        if (r->at == r->words->n)
            return err_set(r->e, E_USAGE, "%s: --%s needs a value: %s", r->words->name, x->name,
                           x->arg);
        value = r->words->at[r->at++];
    }
    /* An unset variable of a shell; SQLite would take a file that goes away. */
    bool file = x->arg && !strcmp(x->arg, "FILE");
    if (file && value && !*value)
        return err_set(r->e, E_USAGE, "%s: --%s needs a value: %s, found an empty one",
                       r->words->name, x->name, x->arg);
    enum status rc = cmd_read_value(r->o, x, value, r->e);
    if (rc == E_USAGE) err_wrap(r->e, "%s", r->words->name);
    return rc;
}

static enum status take_long(struct reader *r, const char *word)
{
    char name[64];
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    if (n >= sizeof name) n = sizeof name - 1;
    memcpy(name, word, n);
    name[n] = 0;
    if (!strcmp(name, "help")) {
        r->help = true;
        return OK;
    }
    for (const struct cmd_option *x = cmd_table; x->name; x++)
        if (!strcmp(x->name, name)) return take(r, x, equals ? equals + 1 : NULL);
    return unknown(r, name);
}

/* -m DIR, -mDIR, or flags together: -qh */
static enum status take_short(struct reader *r, const char *word)
{
    for (; *word; word++) {
        const struct cmd_option *x = cmd_table;
        while (x->name && x->letter != *word) x++;
        if (*word == 'h') {
            r->help = true;
            continue;
        }
        if (!x->name)
            return err_set(r->e, E_USAGE, "%s: unknown option -%c; see nightshift %s --help",
                           r->words->name, *word, r->words->name);
        if (x->arg) return take(r, x, word[1] ? word + 1 : NULL);
        enum status rc = take(r, x, NULL);
        if (rc) return rc;
    }
    return OK;
}

static enum status check_operands(const struct reader *r)
{
    const char *want = r->words->operands;
    size_t n = r->o->operands.n;
    if (n == 0 && *want && *want != '[')
        return err_set(r->e, E_USAGE, "%s: expected %s", r->words->name, want);
    if (n > 1 && *want && !strstr(want, "..."))
        return err_set(r->e, E_USAGE, "%s: expected one %s, found also %s", r->words->name, want,
                       r->o->operands.at[1]);
    if (n && !*want)
        return err_set(r->e, E_USAGE, "%s: unexpected argument %s", r->words->name,
                       r->o->operands.at[0]);
    return OK;
}

enum status cmd_parse(struct cmd_options *o, const struct cmd_words *words, bool *help,
                      struct err *e)
{
    struct reader r = {.o = o, .words = words, .e = e};
    enum status rc = OK;
    bool only_operands = false;
    *o = (struct cmd_options){.command = words->name, .retries = 3};
    while (!rc && !r.help && r.at < words->n) {
        const char *word = words->at[r.at++];
        if (only_operands || word[0] != '-' || !word[1])
            rc = cmd_list_add(&o->operands, word, e);
        else if (!strcmp(word, "--"))
            only_operands = true;
        else
            rc = word[1] == '-' ? take_long(&r, word + 2) : take_short(&r, word + 1);
    }
    *help = r.help;
    return rc || r.help ? rc : check_operands(&r);
}

void cmd_options_free(struct cmd_options *o)
{
    for (size_t i = 0; i < o->images.n_maps; i++) free((char *)(uintptr_t)o->maps[i].from);
    free(o->maps);
    free(o->stops.at);
    free(o->only.at);
    free(o->operands.at);
    *o = (struct cmd_options){0};
}
