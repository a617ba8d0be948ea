/* Speeds as text, and the rate of a product between the measured points. */
#include "src/plan_speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const size_t plan_speed_rows[PLAN_SPEED_POINTS] = {1, 4, 16, 64, 256};

static const struct field {
    const char *name;
    double least, most;
} fields[] = {
    {"read_bytes_s", 1, 1e15},
    {"memory_bytes_s", 1, 1e15},
    {"expert_flop_s_1", 1, 1e18},
    {"expert_flop_s_4", 1, 1e18},
    {"expert_flop_s_16", 1, 1e18},
    {"expert_flop_s_64", 1, 1e18},
    {"expert_flop_s_256", 1, 1e18},
    {"trunk_flop_s_1", 1, 1e18},
    {"trunk_flop_s_4", 1, 1e18},
    {"trunk_flop_s_16", 1, 1e18},
    {"trunk_flop_s_64", 1, 1e18},
    {"trunk_flop_s_256", 1, 1e18},
    {"vector_flop_s", 1, 1e18},
    {"delta_flop_s", 1, 1e18},
    {"gate_values_s", 1, 1e18},
    {"join_s", 0, 1},
    {"skew", 0, 4},
    {"slack", 0.1, 10},
};
#define FIELDS (sizeof fields / sizeof *fields)
_Static_assert(sizeof(struct plan_speed) == FIELDS * sizeof(double), "a name for each field");

void plan_speed_guess(struct plan_speed *s, unsigned threads)
{
    *s = (struct plan_speed){.read_bytes_s = 2e9, .memory_bytes_s = 20e9};
    for (size_t i = 0; i < PLAN_SPEED_POINTS; i++)
        s->expert_flop_s[i] = s->trunk_flop_s[i] = (i ? 20e9 : 5e9) * threads;
    s->vector_flop_s = s->delta_flop_s = 5e9 * threads;
    s->gate_values_s = 200e6 * threads;
    s->join_s = 20e-6;
    s->skew = 1;
    s->slack = 1;
}

double plan_speed_product(const double flop_s[PLAN_SPEED_POINTS], double rows)
{
    const size_t *at = plan_speed_rows, last = PLAN_SPEED_POINTS - 1;
    if (rows <= (double)at[0]) return flop_s[0];
    for (size_t i = 0; i < last; i++) {
        if (rows > (double)at[i + 1]) continue;
        /* Straight in time per weight: what a weight costs once, and what each row adds. */
        double a = (double)at[i] / flop_s[i], b = (double)at[i + 1] / flop_s[i + 1];
        double t = (rows - (double)at[i]) / (double)(at[i + 1] - at[i]);
        return rows / (a + (b - a) * t);
    }
    return flop_s[last];
}

enum status plan_speed_to_text(const struct plan_speed *s, struct buf *out, struct err *e)
{
    const double *at = (const double *)s;
    enum status rc = OK;
    for (size_t i = 0; i < FIELDS && !rc; i++)
        rc = buf_addf(out, e, "%s%s=%.6g", i ? " " : "", fields[i].name, at[i]);
    return rc;
}

static const struct field *field_of(const char *name, size_t n)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (strlen(fields[i].name) == n && !memcmp(fields[i].name, name, n)) return &fields[i];
    return NULL;
}

bool plan_speed_from_text(struct plan_speed *s, const char *text)
{
    double *at = (double *)s;
    bool seen[FIELDS] = {false};
    size_t n = 0;
    while (*text) {
        const char *equals = strchr(text, '=');
        const struct field *f = equals ? field_of(text, (size_t)(equals - text)) : NULL;
        if (!f || seen[f - fields]) return false;
        char *end;
        double v = strtod(equals + 1, &end);
        if (end == equals + 1 || !(v >= f->least && v <= f->most)) return false;
        seen[f - fields] = true;
        at[f - fields] = v;
        n++;
        text = *end == ' ' ? end + 1 : end;
        if (text == end && *end) return false;
    }
    return n == FIELDS;
}
