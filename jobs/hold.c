/* The worth of a wait. */
#include "jobs/hold.h"

#include "src/forecast.h"

#define KEEP   0.8  /* of what earlier sweeps took, from sweep to sweep */
#define HANG_S 60.0 /* nothing came for so long: whatever it is, the others go on */

void hold_begin(struct hold *h, double sweep_s, double idle_s, double now)
{
    *h = (struct hold){.sweep_s = sweep_s, .idle_s = idle_s, .came = now};
}

bool hold_sweep(struct hold *h, size_t n, size_t places, double now)
{
    if (n == 0) return true;
    if (n >= places || now - h->came > HANG_S) return false;
    if (h->since <= 0) h->since = now;
    double idle = h->sweep_s > 0 ? h->idle_s / h->sweep_s : 0;
    double wasted = h->sweep_s * (double)(places - n) / (double)places;
    return idle < FORECAST_BUSY || (now - h->since) * idle < wasted;
}

void hold_came(struct hold *h, double now)
{
    h->came = now;
}

void hold_swept(struct hold *h, double took, double waited, double now)
{
    double keep = h->sweep_s > 0 ? KEEP : 0;
    h->sweep_s = keep * h->sweep_s + (1 - keep) * took;
    h->idle_s = keep * h->idle_s + (1 - keep) * (waited - h->waited);
    h->waited = waited;
    h->since = 0;
    h->came = now;
}
