/* Tables and JSON of a plan. Lines come in the order in which memory is given out. */
#include "src/plan_text.h"

#include <inttypes.h>
#include <stdio.h>

void plan_text_size(char out[PLAN_TEXT_SIZE], double v, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    for (; v >= 999.5 && i + 1 < sizeof prefix / sizeof *prefix; i++) v /= 1000;
    snprintf(out, PLAN_TEXT_SIZE, i == 0 || v >= 99.95 ? "%.0f %s%s" : "%.2f %s%s", v, prefix[i],
             unit);
}

/* Lines until one fails. */
struct lines {
    struct buf *out;
    struct err *e;
    enum status rc;
};

static void line(struct lines *l, const char *name, double bytes, const char *note)
{
    char size[PLAN_TEXT_SIZE];
    plan_text_size(size, bytes, "B");
    if (!l->rc)
        l->rc = buf_addf(l->out, l->e, "%-20s%10s%s%s\n", name, size, *note ? "  " : "", note);
}

static void put_shares(struct lines *l, const struct plan *p, const struct plan_model *m)
{
    char note[128];
    line(l, "budget (--ram)", (double)p->ram_bytes, "");
    line(l, "reserve", (double)p->reserve_bytes, "code, stacks, libraries, names of tensors");
    line(l, "embedding, head", (double)p->global_bytes, "");
    snprintf(note, sizeof note, "%zu, %.1f MB each; the longest has %zu rows", p->sequences,
             (double)p->sequence_bytes * 1e-6, p->context);
    line(l, "sequences", (double)p->state_bytes, note);
    snprintf(note, sizeof note, "%zu prompt rows and %zu drafts a sweep", p->prefill_rows,
             p->draft_rows);
    line(l, "rows of a sweep", (double)(p->rows_bytes + p->draft_bytes), note);
    snprintf(note, sizeof note, "%zu of %u", p->pinned_layers, m->config->layers);
    line(l, "layers kept", (double)p->pinned_bytes, note);
    if (p->stream_bytes) line(l, "layers streamed", (double)p->stream_bytes, "two buffers");
    snprintf(note, sizeof note, "%zu of %" PRIu64 ", %.2f MB each", p->expert_slots,
             m->expert_count, (double)p->slot_bytes * 1e-6);
    if (m->expert_count) line(l, "experts cached", (double)(p->cache_bytes + p->table_bytes), note);
    if (p->prefix_bytes) line(l, "shared beginnings", (double)p->prefix_bytes, "at most");
    if (p->vision_bytes) line(l, "vision", (double)p->vision_bytes, "");
    line(l, "jobs, pictures", (double)p->jobs_bytes, "");
    line(l, "in all", (double)p->total_bytes, "");
    line(l, "least that works", (double)p->floor_bytes, "");
}

static void put_night(struct lines *l, const struct forecast_night *n)
{
    char read[PLAN_TEXT_SIZE], token[PLAN_TEXT_SIZE];
    const struct forecast_sweep *s = &n->sweep;
    plan_text_size(read, s->bytes, "B");
    plan_text_size(token, n->bytes_per_token, "B");
    if (l->rc) return;
    l->rc = buf_addf(l->out, l->e,
                     "expected: sweeps of %.0f rows in %.2f s: %s read in %.2f s beside %.2f s of "
                     "arithmetic; %.0f experts needed, %.0f read\n"
                     "expected: %.3g tokens/s, %s read a token, %.4g jobs an hour\n",
                     n->rows, s->seconds, read, s->read_s, s->compute_s, s->uses, s->fetches,
                     n->tokens_s, token, n->jobs_per_hour);
}

enum status plan_text(struct buf *out, const struct plan *p, const struct plan_model *m,
                      const struct forecast_night *n, struct err *e)
{
    struct lines l = {out, e, OK};
    put_shares(&l, p, m);
    if (n) put_night(&l, n);
    return l.rc;
}

static enum status json_shares(struct buf *out, const struct plan *p, const struct plan_model *m,
                               struct err *e)
{
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"ram_bytes", p->ram_bytes},           {"total_bytes", p->total_bytes},
        {"floor_bytes", p->floor_bytes},       {"reserve_bytes", p->reserve_bytes},
        {"sequences", p->sequences},           {"context", p->context},
        {"sequence_bytes", p->sequence_bytes}, {"state_bytes", p->state_bytes},
        {"prefill_rows", p->prefill_rows},     {"draft_rows", p->draft_rows},
        {"rows_bytes", p->rows_bytes},         {"draft_bytes", p->draft_bytes},
        {"global_bytes", p->global_bytes},     {"pinned_layers", p->pinned_layers},
        {"pinned_bytes", p->pinned_bytes},     {"stream_bytes", p->stream_bytes},
        {"expert_slots", p->expert_slots},     {"experts", m->expert_count},
        {"slot_bytes", p->slot_bytes},         {"cache_bytes", p->cache_bytes},
        {"table_bytes", p->table_bytes},       {"prefix_bytes", p->prefix_bytes},
        {"vision_bytes", p->vision_bytes},     {"jobs_bytes", p->jobs_bytes},
    };
    enum status rc = OK;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !rc; i++)
        rc = buf_addf(out, e, "%s\"%s\":%" PRIu64, i ? "," : "", fields[i].name, fields[i].value);
    return rc;
}

static enum status json_night(struct buf *out, const struct forecast_night *n, struct err *e)
{
    const struct forecast_sweep *s = &n->sweep;
    const struct {
        const char *name;
        double value;
    } fields[] = {
        {"seconds", n->seconds},
        {"jobs_per_hour", n->jobs_per_hour},
        {"tokens_s", n->tokens_s},
        {"bytes_per_token", n->bytes_per_token},
        {"sweeps_per_job", n->sweeps_per_job},
        {"sweep_rows", n->rows},
        {"sweep_s", s->seconds},
        {"sweep_bytes", s->bytes},
        {"sweep_read_s", s->read_s},
        {"sweep_compute_s", s->compute_s},
        {"sweep_experts", s->uses},
        {"sweep_fetches", s->fetches},
    };
    enum status rc = buf_addf(out, e, ",\"expected\":{");
    for (size_t i = 0; i < sizeof fields / sizeof *fields && !rc; i++)
        rc = buf_addf(out, e, "%s\"%s\":%.6g", i ? "," : "", fields[i].name, fields[i].value);
    return rc ? rc : buf_addf(out, e, "}");
}

enum status plan_text_json(struct buf *out, const struct plan *p, const struct plan_model *m,
                           const struct forecast_night *n, struct err *e)
{
    enum status rc = buf_addf(out, e, "{");
    if (!rc) rc = json_shares(out, p, m, e);
    if (!rc && n) rc = json_night(out, n, e);
    return rc ? rc : buf_addf(out, e, "}");
}
