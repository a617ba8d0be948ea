/* The cost of one sweep, and a queue of like jobs followed through its sweeps. */
#include "src/forecast.h"

#include "src/expert_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_SLOTS  12   /* being read or borrowed: not part of what stays cached */
#define LOSS         0.2  /* share of the shorter of reading and computing that is not hidden */
#define FORESEEN     0.97 /* chance of experts that are read before their layer is reached */
#define JOINS        16   /* forks of the pool in a layer */
#define VISION_SHARE 0.5  /* of the cores, while sweeps could use all of them */
#define ROUNDS       4    /* of all sequences, before a long queue is taken to go on alike */
#define MOST_TOKENS  ((size_t)1 << 20)
#define MOST_SKEW    4
#define MOST_CHANGE  4.0 /* of a speed by one run */

/* Rates of choice with mean 1, least first. */
static void rates(double skew, double r[FORECAST_QUANTILES])
{
    double sum = 0;
    for (int i = 0; i < FORECAST_QUANTILES; i++) {
        r[i] = pow(-log(1 - (i + 0.5) / FORECAST_QUANTILES), skew);
        sum += r[i];
    }
    for (int i = 0; i < FORECAST_QUANTILES; i++) r[i] *= FORECAST_QUANTILES / sum;
}

static void chances(const struct config *c, double skew, double use[FORECAST_QUANTILES])
{
    rates(skew, use);
    for (int i = 0; i < FORECAST_QUANTILES; i++) {
        use[i] *= (double)c->top_k / c->experts;
        if (use[i] > 1) use[i] = 1;
    }
}

/* Of a layer's experts, the share that is needed by `rows` rows and not among the hottest `cached`
 * ones; only of those that are needed with at least this chance. */
static double needed(const double use[FORECAST_QUANTILES], double rows, double cached,
                     double chance)
{
    double sum = 0, count = FORECAST_QUANTILES * (1 - cached);
    for (int i = 0; i < FORECAST_QUANTILES && i < count; i++) {
        double part = count - i < 1 ? count - i : 1, p = 1 - pow(1 - use[i], rows);
        if (p >= chance) sum += part * p;
    }
    return sum / FORECAST_QUANTILES;
}

double forecast_skew(const struct config *c, double rows, double experts_needed)
{
    double lo = 0, hi = MOST_SKEW;
    if (c->experts == 0 || rows <= 1) return 1;
    for (int i = 0; i < 40; i++) {
        double use[FORECAST_QUANTILES], mid = (lo + hi) / 2;
        chances(c, mid, use);
        if (needed(use, rows, 0, 0) * c->experts > experts_needed)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

void forecast_init(struct forecast *f, const struct plan_model *m, const struct plan *p,
                   const struct plan_speed *s)
{
    const struct config *c = m->config;
    *f = (struct forecast){.model = m, .plan = p, .speed = s};
    for (unsigned i = 0; i < c->layers; i++) {
        f->trunk_weights += (double)m->layer_bytes[i] / 2;
        if (i >= p->pinned_layers) f->trunk_bytes += (double)m->layer_bytes[i];
    }
    if (!m->expert_count) return;
    chances(c, s->skew, f->use);
    if (p->expert_slots >= m->expert_count)
        f->cached = 1;
    else if (p->expert_slots > SPARE_SLOTS)
        f->cached = (double)(p->expert_slots - SPARE_SLOTS) / (double)m->expert_count;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double experts_s(const struct forecast *f, double rows, double uses)
{
    const struct config *c = f->model->config;
    if (uses <= 0) return 0;
    double weights = 3.0 * c->expert_width * (c->latent ? c->latent : c->hidden);
    double pairs = rows * c->top_k * config_moe_layers(c);
    return 2 * weights * pairs / plan_speed_product(f->speed->expert_flop_s, pairs / uses) +
           pairs * c->expert_width / f->speed->gate_values_s;
}

/* Recurrence, latent attention, residual mixtures. */
static double attention_s(const struct forecast *f, const struct forecast_rows *r)
{
    const struct config *c = f->model->config;
    const struct plan_speed *s = f->speed;
    double rows = r->prefill + r->decode;
    double kda = config_layers_of(c, LAYER_KDA), mla = config_layers_of(c, LAYER_MLA);
    double step = kda * c->kda_heads * c->kda_dim * c->kda_dim * 7.0;
    double state = 2.0 * (double)config_state_bytes(c);
    double recurrence = rows * step / s->delta_flop_s;
    /* A lone row moves its whole state through memory. */
    double moved = (r->decode + (r->prefill > 0)) * state / s->memory_bytes_s;
    double attend = rows * mla * c->mla_heads * r->context * (4.0 * c->kv_lora + 2.0 * c->rope_dim);
    double blocks = c->attn_res_period ? 1 + c->layers / (2.0 * c->attn_res_period) : 0;
    double mixing = rows * 2 * c->layers * blocks * c->hidden * 6.0;
    return most(recurrence, moved) + (attend + mixing) / s->vector_flop_s;
}

/* What runs while a layer's experts are being read: they, and the shared ones (moe.c). */
static double beside_s(const struct forecast *f, double rows, double uses)
{
    const struct config *c = f->model->config;
    double layers = config_moe_layers(c), shared = (double)c->shared_experts * c->expert_width;
    double weights = layers * c->hidden * (3 * shared + c->latent);
    return experts_s(f, rows, uses) +
           2 * weights * rows / plan_speed_product(f->speed->trunk_flop_s, rows) +
           rows * layers * shared / f->speed->gate_values_s;
}

static double compute_s(const struct forecast *f, const struct forecast_rows *r, double uses)
{
    const struct config *c = f->model->config;
    const struct plan_speed *s = f->speed;
    double rows = r->prefill + r->decode, shared = (double)c->shared_experts * c->expert_width;
    double gates =
        config_moe_layers(c) * shared + (c->layers - config_moe_layers(c)) * c->dense_width;
    double t = 2 * f->trunk_weights * rows / plan_speed_product(s->trunk_flop_s, rows);
    if (r->outputs > 0)
        t += 2.0 * c->vocab * c->hidden * r->outputs /
             plan_speed_product(s->trunk_flop_s, r->outputs);
    return t + experts_s(f, rows, uses) + attention_s(f, r) + rows * gates / s->gate_values_s +
           JOINS * c->layers * s->join_s;
}

/* Of the fetches, those that can be under way while attention is computed. */
static double foreseen(const struct forecast *f, double rows)
{
    double slots = (double)expert_cache_ahead(f->plan->expert_slots, READERS_THREADS);
    return least((double)f->model->expert_count * needed(f->use, rows, f->cached, FORESEEN),
                 config_moe_layers(f->model->config) * slots);
}

void forecast_sweep(const struct forecast *f, const struct forecast_rows *r,
                    struct forecast_sweep *out)
{
    const struct config *c = f->model->config;
    double rows = r->prefill + r->decode, late = 0;
    *out = (struct forecast_sweep){0};
    if (f->model->expert_count && rows > 0) {
        double experts = (double)f->model->expert_count;
        /* One row takes top_k, whatever the quantiles say. */
        out->uses = most(experts * needed(f->use, rows, 0, 0), config_moe_layers(c) * c->top_k);
        out->fetches = least(experts * needed(f->use, rows, f->cached, 0), out->uses);
        late = most(0, out->fetches - foreseen(f, rows)) * (double)f->model->expert_bytes;
    }
    out->bytes = out->fetches * (double)f->model->expert_bytes + f->trunk_bytes;
    out->read_s = out->bytes / f->speed->read_bytes_s;
    out->compute_s = compute_s(f, r, out->uses) * f->speed->slack;
    double beside = beside_s(f, rows, out->uses) * f->speed->slack;
    double late_s = late / f->speed->read_bytes_s;
    out->seconds = most(out->read_s, out->compute_s + most(0, late_s - beside)) +
                   LOSS * least(out->read_s, out->compute_s);
}

/* The queue on its way. */
struct walk {
    const struct forecast *f;
    const struct plan_mix *mix;
    double prompt;
    double vision_s; /* of one job, by all cores */
    size_t ring;     /* sweeps that an answer takes */
    double *ends;    /* [ring] jobs that end with a sweep */
    double waiting;  /* jobs not yet admitted */
    double todo;     /* prompt rows of admitted ones */
    double inside, decoding, done;
    double seen, ready; /* pictures: seconds of work done; jobs of which all is encoded */
    uint64_t sweeps;
    double seconds, rows;
    struct forecast_rows last; /* and what it takes: most sweeps are like the one before */
    struct forecast_sweep sweep;
    struct forecast_sweep sum;
};

static void admit(struct walk *w)
{
    double room = (double)w->f->plan->sequences - w->inside;
    double n = least(least(room, w->waiting), w->vision_s > 0 ? floor(w->ready + 1e-9) : room);
    w->waiting -= n;
    w->inside += n;
    w->todo += n * w->prompt;
    w->ready -= n;
}

/* Pictures are encoded beside the sweeps, by what these leave of the cores and a share more. */
static double with_pictures(struct walk *w, const struct forecast_sweep *s)
{
    double left = w->vision_s > 0 ? (w->waiting - w->ready) * w->vision_s : 0;
    if (left <= 0) return s->seconds;
    double idle = most(0, s->seconds - s->compute_s);
    double work =
        most(VISION_SHARE / (1 - VISION_SHARE) * s->compute_s, least(idle, s->seconds / 2));
    work = least(work, left);
    w->ready += work / w->vision_s;
    return s->seconds + most(0, work - idle);
}

/* Sweeps are held while pictures are encoded that fill their places (jobs/hold.h). */
static void hold(struct walk *w)
{
    double places = (double)w->f->plan->sequences, free = places - w->inside;
    double jobs = least(free, w->waiting) - w->ready, took = w->sweep.seconds;
    double idle = took > 0 ? 1 - w->sweep.compute_s / took : 0;
    if (w->vision_s <= 0 || jobs <= 0) return;
    if (idle >= FORECAST_BUSY) jobs = least(jobs, took * free / places / idle / w->vision_s);
    if (w->inside < 0.5) jobs = most(jobs, 1 - w->ready);
    w->seconds += jobs * w->vision_s;
    w->ready += jobs;
    admit(w);
}

/* The rows of the next sweep; *began: prompts that end with it. */
static struct forecast_rows next_rows(struct walk *w, double *began)
{
    struct forecast_rows r = {.decode = w->decoding};
    r.prefill = least((double)w->f->plan->prefill_rows, w->todo);
    double before = ceil(w->todo / w->prompt - 1e-9);
    w->todo -= r.prefill;
    *began = before - ceil(w->todo / w->prompt - 1e-9);
    r.outputs = r.decode + *began;
    r.context = (r.prefill * w->prompt / 2 + r.decode * (w->prompt + (double)w->ring / 2)) /
                (r.prefill + r.decode);
    return r;
}

static void count(struct walk *w, const struct forecast_rows *r)
{
    const double *from = (const double *)&w->sweep;
    double *to = (double *)&w->sum;
    for (size_t i = 0; i < sizeof w->sum / sizeof *to; i++) to[i] += from[i];
    w->rows += r->prefill + r->decode;
    w->seconds += with_pictures(w, &w->sweep);
}

static void step(struct walk *w)
{
    double began;
    admit(w);
    hold(w);
    struct forecast_rows r = next_rows(w, &began);
    if (memcmp(&r, &w->last, sizeof r) != 0) forecast_sweep(w->f, &r, &w->sweep);
    w->last = r;
    count(w, &r);
    /* The sweep that ends a prompt gives the first token; each of the others one more. */
    w->ends[(w->sweeps + w->ring - 1) % w->ring] += began;
    w->decoding += began;
    size_t at = w->sweeps++ % w->ring;
    w->decoding -= w->ends[at];
    w->inside -= w->ends[at];
    w->done += w->ends[at];
    w->ends[at] = 0;
}

/* rate: jobs a second, once the first have gone through. */
static void conclude(const struct walk *w, double jobs, double rate, struct forecast_night *out)
{
    double n = (double)w->sweeps, tokens = (double)w->ring;
    out->seconds = w->seconds + (jobs - w->done) / rate;
    if (w->mix->jobs) rate = jobs / out->seconds;
    if (!w->mix->jobs) out->seconds = 0;
    out->jobs_per_hour = rate * 3600;
    out->tokens_s = rate * tokens;
    out->bytes_per_token = w->sum.bytes / (w->done * tokens);
    out->sweeps_per_job = n / w->done;
    out->rows = w->rows / n;
    out->sweep = w->sum;
    double *at = (double *)&out->sweep;
    for (size_t i = 0; i < sizeof out->sweep / sizeof *at; i++) at[i] /= n;
}

void forecast_night(const struct forecast *f, const struct plan_mix *given,
                    struct forecast_night *out)
{
    struct plan_mix mix = *given;
    if (!(mix.prompt_rows >= 1)) mix.prompt_rows = 512;
    if (!(mix.output_tokens >= 1)) mix.output_tokens = 256;
    struct walk w = {.f = f, .mix = &mix, .prompt = mix.prompt_rows};
    w.ring = (size_t)least(mix.output_tokens + 0.5, MOST_TOKENS);
    w.ends = calloc(w.ring, sizeof *w.ends);
    *out = (struct forecast_night){0};
    if (!w.ends) return;
    double round = most((double)f->plan->sequences, 2), jobs = mix.jobs ? (double)mix.jobs : 1e9;
    double follow = least(jobs, ROUNDS * round), first_s = 0, first = 0;
    w.waiting = jobs;
    if (mix.image_rows > 0)
        w.vision_s = f->plan->vision_flop * mix.image_rows /
                     plan_speed_product(f->speed->trunk_flop_s, 256) * f->speed->slack;
    while (w.done < follow - 0.5) {
        step(&w);
        if (first == 0 && w.done >= follow / ROUNDS - 0.5) {
            first_s = w.seconds;
            first = w.done;
        }
    }
    bool whole = w.done >= jobs - 0.5 || w.done <= first;
    conclude(&w, jobs, whole ? w.done / w.seconds : (w.done - first) / (w.seconds - first_s), out);
    free(w.ends);
}

static struct forecast_night night_of(const struct plan_speed *s, const struct plan_model *m,
                                      const struct plan *p, const struct plan_mix *mix)
{
    struct forecast f;
    struct forecast_night n;
    forecast_init(&f, m, p, s);
    forecast_night(&f, mix, &n);
    return n;
}

/* Sweeps differ in their rows, so the skew is that of the whole night, not of an average sweep. */
static void learn_skew(struct plan_speed *s, const struct plan_model *m, const struct plan *p,
                       const struct forecast_run *run)
{
    double lo = 0, hi = MOST_SKEW;
    for (int i = 0; i < 12; i++) {
        s->skew = (lo + hi) / 2;
        if (night_of(s, m, p, &run->mix).sweep.uses > run->uses)
            lo = s->skew;
        else
            hi = s->skew;
    }
}

static double between(double low, double v, double high)
{
    return most(low, least(v, high));
}

void forecast_learn(struct plan_speed *s, const struct plan_model *m, const struct plan *p,
                    const struct forecast_run *run)
{
    if (m->expert_count && p->sequences > 1) learn_skew(s, m, p, run);
    struct forecast_night n = night_of(s, m, p, &run->mix);
    if (!(n.seconds > 0)) return;
    double ratio = between(1 / MOST_CHANGE, run->seconds / n.seconds, MOST_CHANGE);
    if (n.sweep.read_s > n.sweep.compute_s)
        s->read_bytes_s = most(1, s->read_bytes_s / ratio);
    else
        s->slack = between(0.1, s->slack * ratio, 10);
}
