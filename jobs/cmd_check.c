/* `check`: every job as far as it can be judged without running it. Lines and ids, references and
 * headers of images; with a model also the length of prompts. Nothing is decoded or loaded but the
 * tokenizer. One line a problem, then a summary. */
#include "jobs/cmd.h"

#include "jobs/cmd_model.h"
#include "jobs/id_set.h"
#include "jobs/input.h"
#include "jobs/jdoc.h"
#include "jobs/prepare.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct cmd_options *o;
    struct input *in;
    struct id_set ids;
    struct mem mem;         /* of one picture's file */
    struct cmd_model model; /* without one only limits and processor, those of K3 */

    uint64_t jobs, bad, codes[STATUS_COUNT];
    uint64_t images, image_tokens, warnings;
    struct picture_info least, most; /* those with fewest and most pixels */
    uint64_t prompt_tokens, longest_prompt, answer_tokens;

    char *last_path; /* the picture looked at last: several jobs in a row may ask about it */
    struct picture_info last;
};

static void add_text(struct buf *b, const char *name, const char *text)
{
    if (!text) return;
    buf_addf(b, NULL, "%s\"%s\":", b->len > 1 ? "," : "", name);
    jdoc_quote(b, text, strlen(text), NULL);
}

/* "file:line: code: message", or the same as JSON. */
static void tell(const struct check *c, const struct input_item *item, const char *code,
                 const char *message)
{
    if (!c->o->json) {
        /* A file's name may hold a line end; a problem stays one line. */
        for (const char *p = item->path; *p; p++) putchar((unsigned char)*p < 0x20 ? '?' : *p);
        putchar(':');
        if (item->line) printf("%" PRIu64 ":", item->line);
        printf(" %s: %s\n", code, message);
        return;
    }
    struct buf b = {0};
    buf_addf(&b, NULL, "{");
    add_text(&b, "file", item->path);
    if (item->line) buf_addf(&b, NULL, ",\"line\":%" PRIu64, item->line);
    add_text(&b, "custom_id", item->job->custom_id);
    add_text(&b, "code", code);
    add_text(&b, "message", message);
    printf("%s}\n", b.data ? b.data : "");
    buf_free(&b);
}

static enum status check_id(struct check *c, const struct input_item *item, struct err *e)
{
    uint64_t place = (uint64_t)item->source << 40 | item->line, first;
    enum status rc = id_set_add(&c->ids, item->job->custom_id, place, &first, e);
    if (rc || first == place || c->o->on_duplicate == DUPLICATE_SKIP) return rc;
    return err_set(e, E_DUPLICATE_ID, "custom_id \"%s\" was first given by %s line %" PRIu64,
                   item->job->custom_id, input_source(c->in, first >> 40)->path, first << 24 >> 24);
}

static void count_image(struct check *c, const struct picture_info *p)
{
    uint64_t pixels = (uint64_t)p->width * p->height;
    if (!c->images || pixels < (uint64_t)c->least.width * c->least.height) c->least = *p;
    if (!c->images || pixels > (uint64_t)c->most.width * c->most.height) c->most = *p;
    c->images++;
    c->image_tokens += p->rows;
}

/* Format and size of a picture, from its header. */
static enum status probe(struct check *c, const struct image_ref_source *s,
                         const struct job_image *image, const char *path, struct err *e)
{
    struct image_ref_bytes bytes = {.mem = &c->mem};
    if (path && c->last_path && !strcmp(path, c->last_path)) return OK;
    free(c->last_path);
    c->last_path = NULL;
    enum status rc = image_ref_load(&bytes, &c->o->images, s, image, path, e);
    if (rc) return rc;
    rc = vision_probe(&c->model.processor, &c->model.limits, bytes.at, bytes.len, &c->last, e);
    mem_free(&c->mem, bytes.at);
    if (rc) err_wrap(e, "%s", path ? path : "inline image");
    if (!rc && path) c->last_path = strdup(path);
    return rc;
}

static enum status check_image(struct check *c, const struct input_item *item, size_t i,
                               unsigned *rows, struct err *e)
{
    struct image_ref_source s = {item->line ? item->path : NULL, item->offset};
    const struct job_image *image = &item->job->images[i];
    char *path = NULL;
    enum status rc = OK;
    if (image->ref) rc = image_ref_resolve(&c->o->images, &s, image->ref, &path, e);
    if (!rc) rc = probe(c, &s, image, path, e);
    free(path);
    if (rc) return rc;
    count_image(c, &c->last);
    *rows = c->last.rows;
    job_set_image_size(item->job, i, c->last.width, c->last.height);
    for (unsigned w = 0; w < c->last.n_warnings; w++, c->warnings++)
        tell(c, item, "warning", c->last.warnings[w]);
    return OK;
}

static enum status check_prompt(struct check *c, const struct job *j, const unsigned *rows,
                                struct err *e)
{
    const struct config *config = &c->model.config;
    struct prepare_opts o = {.config = config, .tok = c->model.tok, .model_name = c->model.name};
    struct prompt prompt = {0};
    if (j->n_images && !c->model.has_vision)
        return err_set(e, E_INVALID_REQUEST, "the job has %zu images, the model takes none",
                       j->n_images);
    enum status rc = prepare_model(&o, j, e);
    if (!rc) rc = prepare_prompt(&o, j, rows, &prompt, e);
    uint64_t n = prompt.ids.n;
    if (!rc && n + j->settings.max_tokens > config->context)
        rc = err_set(e, E_PROMPT_TOO_LONG,
                     "%" PRIu64 " prompt tokens and max_tokens %" PRIu64
                     " make more than the model's context of %" PRIu32,
                     n, j->settings.max_tokens, config->context);
    if (!rc) {
        c->prompt_tokens += n;
        if (n > c->longest_prompt) c->longest_prompt = n;
        c->answer_tokens += j->settings.max_tokens;
    }
    prompt_free(&prompt);
    return rc;
}

static enum status check_job(struct check *c, const struct input_item *item, struct err *e)
{
    struct job *j = item->job;
    unsigned *rows = calloc(j->n_images + 1, sizeof *rows);
    if (!rows) return err_set(e, E_NOMEM, "no memory for %zu images", j->n_images);
    job_settings_fill(&j->settings, &c->o->job);
    job_settings_fill(&j->settings, &job_default_settings);
    enum status rc = check_id(c, item, e);
    for (size_t i = 0; i < j->n_images && !rc; i++) rc = check_image(c, item, i, &rows[i], e);
    if (!rc && c->model.tok) rc = check_prompt(c, j, rows, e);
    free(rows);
    return rc;
}

/* The machine's and the model's errors end the check; a job's is told and counted. */
static enum status check_all(struct check *c, struct err *e)
{
    const struct input_item *item;
    for (;;) {
        enum status rc = input_next(c->in, &item, e);
        if (rc || !item) return rc;
        if (!job_in_shard(item->job, c->o->shard, c->o->shards)) continue;
        struct err why = item->err;
        rc = item->status ? item->status : check_job(c, item, &why);
        c->jobs++;
        if (!rc) continue;
        if (status_fault(rc) != FAULT_JOB) {
            *e = why;
            return rc;
        }
        c->bad++;
        c->codes[rc]++;
        tell(c, item, status_name(rc), why.text);
    }
}

static enum status open_all(struct check *c, struct err *e)
{
    const struct cmd_options *o = c->o;
    struct input_opts in = {.paths = o->operands.at,
                            .n_paths = o->operands.n,
                            .job = {o->prompt, o->system},
                            .max_line_bytes = o->max_line_bytes};
    enum status rc = input_open(&c->in, &in, e);
    if (rc) return rc;
    if (o->model) return cmd_model_begin(&c->model, o, e);
    cmd_limits(&c->model.limits, o);
    return vision_processor_load(&c->model.processor, NULL, e);
}

static void print_summary(const struct check *c)
{
    printf("%" PRIu64 " jobs, %" PRIu64 " of them bad", c->jobs, c->bad);
    for (int i = 0; i < STATUS_COUNT; i++)
        if (c->codes[i]) printf(", %" PRIu64 " %s", c->codes[i], status_name((enum status)i));
    printf("\n%" PRIu64 " images", c->images);
    if (c->images)
        printf(" of %u x %u to %u x %u pixels, %" PRIu64 " tokens", c->least.width, c->least.height,
               c->most.width, c->most.height, c->image_tokens);
    if (c->warnings) printf(", %" PRIu64 " warnings", c->warnings);
    if (c->model.tok)
        printf("\n%" PRIu64 " prompt tokens, the longest prompt %" PRIu64
               "; answers of at most %" PRIu64 " tokens\n",
               c->prompt_tokens, c->longest_prompt, c->answer_tokens);
    else
        printf("\nprompt tokens are counted with -m MODEL\n");
}

static void print_json_summary(const struct check *c)
{
    const char *comma = "";
    printf("{\"jobs\":%" PRIu64 ",\"bad\":%" PRIu64 ",\"codes\":{", c->jobs, c->bad);
    for (int i = 0; i < STATUS_COUNT; i++) {
        if (!c->codes[i]) continue;
        printf("%s\"%s\":%" PRIu64, comma, status_name((enum status)i), c->codes[i]);
        comma = ",";
    }
    printf("},\"images\":%" PRIu64
           ",\"smallest\":[%u,%u],\"largest\":[%u,%u],\"image_tokens\":%" PRIu64
           ",\"warnings\":%" PRIu64,
           c->images, c->least.width, c->least.height, c->most.width, c->most.height,
           c->image_tokens, c->warnings);
    if (c->model.tok)
        printf(",\"prompt_tokens\":%" PRIu64 ",\"longest_prompt\":%" PRIu64
               ",\"max_answer_tokens\":%" PRIu64,
               c->prompt_tokens, c->longest_prompt, c->answer_tokens);
    printf("}\n");
}

int cmd_check(const struct cmd_options *o)
{
    struct check c = {.o = o};
    struct err e;
    mem_init(&c.mem, 0);
    enum status rc = open_all(&c, &e);
    if (!rc) rc = check_all(&c, &e);
    int code = rc          ? cmd_fail(&e)
               : !c.bad    ? EXIT_DONE
               : o->strict ? EXIT_REJECTED
                           : EXIT_SOME_FAILED;
    if (!rc && o->json)
        print_json_summary(&c);
    else if (!rc && !o->quiet)
        print_summary(&c);
    input_close(c.in);
    cmd_model_close(&c.model);
    id_set_free(&c.ids);
    free(c.last_path);
    mem_close(&c.mem);
    return code;
}
