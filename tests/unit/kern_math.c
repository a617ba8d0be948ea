/* Row functions of every table this machine can run: right against double precision, blind to an
 * element's place. */
#include "src/kern.h"
#include "tests/lib/test.h"

#include <float.h>

#define MAX_TABLES 8
#define FOR_TABLES(k)                                                                              \
    const struct kern *k##_all[MAX_TABLES];                                                        \
    size_t k##_n = kern_all(k##_all, MAX_TABLES);                                                  \
    CHECK(k##_n > 0);                                                                              \
    for (const struct kern **k##_p = k##_all, *k = *k##_p; k##_p < k##_all + k##_n; k = *++k##_p)

static unsigned long long seed = 7;

static double ulps(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    double unit = ldexp(1, ilogb(fabs(want) < FLT_MIN ? FLT_MIN : want) - 23);
    return fabs(got - want) / unit;
}

static double d_sig(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* dot, axpy and rms are right for every length around the vectors. */
TEST(sums)
{
    enum { MOST = 200 };
    float a[MOST], b[MOST], y[MOST];
    FOR_TABLES(k)
    {
        for (size_t n = 0; n < MOST; n++) {
            double sum = 0, size = 0, square = 0;
            for (size_t i = 0; i < n; i++) {
                a[i] = test_randf(&seed), b[i] = test_randf(&seed), y[i] = test_randf(&seed);
                sum += (double)a[i] * b[i], size += fabs((double)a[i] * b[i]);
                square += (double)a[i] * a[i];
            }
            CHECK_NEAR(k->dot(a, b, n), sum, 1e-6 * size);
            float was[MOST];
            memcpy(was, y, sizeof y);
            k->axpy(y, 0.7f, a, n);
            for (size_t i = 0; i < n; i++)
                CHECK_NEAR(y[i], was[i] + (double)0.7f * a[i], 2e-7 * (1 + fabs(was[i])));
            k->rms(y, a, b, n, 1e-5f);
            double s = 1 / sqrt(square / (double)n + 1e-5);
            for (size_t i = 0; i < n; i++) CHECK(ulps(y[i], a[i] * s * b[i]) < 8);
        }
    }
}

/* mix gives the bits of axpy row after row, for every width around the vectors. */
TEST(mix_is_axpy)
{
    enum { N = 7, MOST = 150, LD = MOST + 1 };
    float x[N * LD], p[N], y[MOST + 1], want[MOST];
    for (size_t i = 0; i < N * LD; i++) x[i] = test_randf(&seed);
    for (size_t i = 0; i < N; i++) p[i] = test_randf(&seed);
    FOR_TABLES(k)
    {
        for (size_t width = 0; width <= MOST; width++) {
            memset(want, 0, sizeof want);
            for (size_t j = 0; j < N; j++) k->axpy(want, p[j], x + j * LD, width);
            y[width] = -77;
            k->mix(y, p, N, x, LD, width);
            CHECK(!memcmp(y, want, width * sizeof *y));
            CHECK(y[width] == -77);
        }
    }
}

/* Softmax sums to one, survives large and infinite entries, does nothing to nothing. */
TEST(softmax)
{
    FOR_TABLES(k)
    {
        for (size_t n = 1; n < 150; n++) {
            float x[150];
            double e[150], sum = 0;
            for (size_t i = 0; i < n; i++) x[i] = 1000 + 20 * test_randf(&seed);
            if (n > 3) x[n / 2] = -INFINITY;
            double max = x[0];
            for (size_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
            for (size_t i = 0; i < n; i++) sum += e[i] = exp(x[i] - max);
            k->softmax(x, n);
            for (size_t i = 0; i < n; i++) CHECK(ulps(x[i], e[i] / sum) < 8);
        }
        float none = 3;
        k->softmax(&none, 0);
        CHECK(none == 3);
    }
}

typedef void (*row_fn)(const struct kern *k, float *y, size_t n);
typedef double (*exact_fn)(double x);

static void r_exp(const struct kern *k, float *y, size_t n)
{
    k->exp(y, n);
}
static void r_sigmoid(const struct kern *k, float *y, size_t n)
{
    k->sigmoid(y, n);
}
static void r_silu(const struct kern *k, float *y, size_t n)
{
    k->silu(y, y, NULL, n);
}
static double d_silu(double x)
{
    return x * d_sig(x);
}
static void r_gelu_tanh(const struct kern *k, float *y, size_t n)
{
    k->gelu_tanh(y, n);
}
static double d_gelu_tanh(double x)
{
    return x * d_sig(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}
static void r_gelu_erf(const struct kern *k, float *y, size_t n)
{
    k->gelu_erf(y, n);
}
static double d_gelu_erf(double x)
{
    return 0.5 * x * erfc(-x / sqrt(2));
}
/* tanh alone: beta 1 and lb 1, g so large that its part is 1 */
static void r_tanh(const struct kern *k, float *y, size_t n)
{
    float g[4096];
    for (size_t i = 0; i < n; i++) g[i] = 100;
    k->situ(y, g, y, n, 1, 1);
}

/* Worst error in units of the last place over x in [-limit, limit]. */
static double worst(const struct kern *k, row_fn row, exact_fn want, float limit)
{
    enum { N = 4093 };
    float x[N], y[N];
    double w = 0;
    for (int pass = 0; pass < 20; pass++) {
        float scale = limit * ldexpf(1, -pass);
        for (size_t i = 0; i < N; i++) y[i] = x[i] = scale * test_randf(&seed);
        row(k, y, N);
        for (size_t i = 0; i < N; i++) w = fmax(w, ulps(y[i], want(x[i])));
    }
    return w;
}

/* The elementary functions stay within the accuracy stated, everywhere; gelu by tanh only to the
 * error of its argument, which its far left multiplies. */
TEST(elementary_functions)
{
    FOR_TABLES(k)
    {
        CHECK(worst(k, r_exp, exp, 88) < 2);
        CHECK(worst(k, r_sigmoid, d_sig, 110) < 4);
        CHECK(worst(k, r_silu, d_silu, 87) < 4);
        CHECK(worst(k, r_tanh, tanh, 20) < 4);
        CHECK(worst(k, r_gelu_erf, d_gelu_erf, 12.5f) < 6);
        CHECK(worst(k, r_gelu_tanh, d_gelu_tanh, 1) < 8);
        CHECK(worst(k, r_gelu_tanh, d_gelu_tanh, 8) < 200);
    }
}

/* Infinities saturate, NaN stays, zeros keep their sign. */
TEST(special_values)
{
    FOR_TABLES(k)
    {
        float x[6] = {INFINITY, -INFINITY, NAN, 1e30f, -1e30f, -0.0f}, y[6];
        memcpy(y, x, sizeof x);
        k->exp(y, 6);
        CHECK(isinf(y[0]) && y[1] == 0 && isnan(y[2]) && isinf(y[3]) && y[4] == 0 && y[5] == 1);
        memcpy(y, x, sizeof x);
        k->sigmoid(y, 6);
        CHECK(y[0] == 1 && y[1] == 0 && isnan(y[2]) && y[3] == 1 && y[4] == 0 && y[5] == 0.5f);
        memcpy(y, x, sizeof x);
        r_tanh(k, y, 6);
        CHECK(y[0] == 1 && y[1] == -1 && isnan(y[2]) && y[3] == 1 && y[4] == -1);
        CHECK(y[5] == 0 && signbit(y[5]));
        memcpy(y, x, sizeof x);
        k->gelu_erf(y, 6);
        CHECK(isinf(y[0]) && isnan(y[2]) && y[3] == 1e30f && y[4] == 0);
        memcpy(y, x, sizeof x);
        k->gelu_tanh(y, 6);
        CHECK(isinf(y[0]) && isnan(y[2]) && y[3] == 1e30f && y[4] == 0);
    }
}

/* kimi-k3 Appendix A.1, the uncapped form, and the SiLU unit. */
TEST(gated_units)
{
    static const float g[4] = {1, -1, 10, 0.5f}, u[4] = {1, 2, -100, 0.25f};
    static const double want[4] = {0.7158178281, -0.5258288955, -98.5907815539, 0.0774021063};
    FOR_TABLES(k)
    {
        float y[4];
        k->situ(y, g, u, 4, 4, 25);
        for (int i = 0; i < 4; i++) CHECK_NEAR(y[i], want[i], 4e-7 * fabs(want[i]));
        k->situ(y, g, u, 4, 4, 0);
        for (int i = 0; i < 4; i++)
            CHECK(ulps(y[i], 4 * tanh(g[i] / 4.0) * d_sig(g[i]) * u[i]) < 8);
        k->silu(y, g, u, 4);
        for (int i = 0; i < 4; i++) CHECK(ulps(y[i], g[i] * d_sig(g[i]) * u[i]) < 6);
    }
}

/* The bits of f32_to_bf16, whatever the number is and wherever it stands. */
TEST(round_bf16)
{
    enum { N = 77 };
    static const uint32_t edges[] = {0,          0x80000000, 1,          0x7fff,     0x8000,
                                     0x8001,     0x18000,    0x3f808000, 0x3f818000, 0xbf808001,
                                     0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff};
    FOR_TABLES(k)
    {
        for (size_t first = 0; first < sizeof edges / sizeof *edges; first++) {
            float x[N], want[N];
            for (size_t i = 0; i < N; i++) {
                uint32_t bits = i ? (uint32_t)test_rand(&seed) : edges[first];
                memcpy(&x[i], &bits, sizeof bits);
                want[i] = bf16_to_f32(f32_to_bf16(x[i]));
            }
            size_t n = N - first;
            k->round_bf16(x, n);
            if (memcmp(x, want, n * sizeof *x)) FAIL("%s: of %zu numbers", k->name, n);
        }
    }
}

TEST(scale_max)
{
    enum { N = 70 };
    FOR_TABLES(k)
    {
        float none = 3;
        CHECK(k->scale_max(&none, 0, 2) == -INFINITY && none == 3);
        for (size_t n = 1; n < N; n++)
            for (size_t largest = 0; largest < n; largest++) {
                float x[N], want[N];
                for (size_t i = 0; i < N; i++) x[i] = i == largest ? -1.25f : -2 - (float)i;
                for (size_t i = 0; i < N; i++) want[i] = i < n ? x[i] * 0.3f : x[i];
                CHECK(k->scale_max(x, n, 0.3f) == want[largest]);
                CHECK(!memcmp(x, want, sizeof x));
            }
    }
}

/* An element's result does not depend on its place in the row. */
TEST(place_does_not_show)
{
    enum { N = 77 };
    static const row_fn rows[] = {r_exp, r_sigmoid, r_silu, r_tanh, r_gelu_tanh, r_gelu_erf};
    FOR_TABLES(k)
    {
        for (size_t f = 0; f < sizeof rows / sizeof *rows; f++) {
            float x[N], y[N], one;
            for (size_t i = 0; i < N; i++) x[i] = y[i] = 6 * test_randf(&seed);
            rows[f](k, y, N);
            for (size_t i = 0; i < N; i++) {
                one = x[i];
                rows[f](k, &one, 1);
                if (memcmp(&one, &y[i], 4)) FAIL("%s function %zu place %zu", k->name, f, i);
            }
        }
    }
}

/* kimi-k3 Appendix A.4: three steps of one head, normalisation and q scale done beforehand. */
TEST(delta_vectors)
{
    static const double q[3][2] = {{1, 2}, {-1, 0.5}, {0.25, -0.75}};
    static const double key[3][2] = {{0.5, 1}, {1, -1}, {2, 0.5}};
    static const float v[3][2] = {{1, -1}, {0.5f, 2}, {-0.25f, 0.75f}},
                       beta[3] = {0.5f, 0.9f, 0.25f};
    static const double decay[3][2] = {{-0.1, -1}, {-2, -0.5}, {-0.01, -4}};
    static const double want[3][2] = {
        {0.353553214, -0.353553214}, {-0.338110909, -1.171233995}, {0.093729203, 0.264190825}};
    static const double last[4] = {0.285454042, 1.042061502, -0.044572011, -0.046478911};
    FOR_TABLES(k)
    {
        float S[4] = {0};
        for (int t = 0; t < 3; t++) {
            float out[2], d[2], a[2], kn[2], qn[2];
            double nk = sqrt(key[t][0] * key[t][0] + key[t][1] * key[t][1] + 1e-6);
            double nq = sqrt(q[t][0] * q[t][0] + q[t][1] * q[t][1] + 1e-6) * sqrt(2);
            for (int i = 0; i < 2; i++) {
                a[i] = (float)exp(decay[t][i]);
                kn[i] = (float)(key[t][i] / nk);
                qn[i] = (float)(q[t][i] / nq);
            }
            k->delta_step(S, 2, 2, a, kn, v[t], beta[t], qn, out, d);
            for (int i = 0; i < 2; i++) CHECK_NEAR(out[i], want[t][i], 2e-7);
        }
        for (int i = 0; i < 4; i++) CHECK_NEAR(S[i], last[i], 2e-7);
    }
}

/* Against double precision for every width of the value around the vectors. */
TEST(delta_widths)
{
    enum { K = 9, MOST = 140 };
    FOR_TABLES(k)
    {
        for (size_t v = 1; v < MOST; v++) {
            float S[K * MOST], decay[K], key[K], query[K], value[MOST], out[MOST], d[MOST];
            double want[K * MOST];
            for (size_t i = 0; i < K * v; i++) want[i] = S[i] = test_randf(&seed);
            for (size_t i = 0; i < v; i++) value[i] = test_randf(&seed);
            for (size_t c = 0; c < K; c++) {
                decay[c] = 0.5f + 0.5f * test_randf(&seed);
                key[c] = test_randf(&seed), query[c] = test_randf(&seed);
            }
            k->delta_step(S, K, v, decay, key, value, 0.3f, query, out, d);
            for (size_t j = 0; j < v; j++) {
                double u = 0, o = 0;
                for (size_t c = 0; c < K; c++) u += key[c] * (want[c * v + j] *= decay[c]);
                u = (double)0.3f * (value[j] - u);
                CHECK_NEAR(d[j], u, 1e-6);
                for (size_t c = 0; c < K; c++) {
                    o += query[c] * (want[c * v + j] += key[c] * u);
                    CHECK_NEAR(S[c * v + j], want[c * v + j], 1e-6);
                }
                CHECK_NEAR(out[j], o, 3e-6);
            }
        }
    }
}

static void add_bits(uint64_t *hash, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        *hash = (*hash ^ bits) * 0x100000001b3u;
    }
}

/* Tables with fused multiply-add give the same bits on every machine: a hash of all functions. */
TEST(fused_tables_agree)
{
    enum { N = 333, K = 9 };
    static const row_fn rows[] = {r_exp, r_sigmoid, r_silu, r_tanh, r_gelu_tanh, r_gelu_erf};
    FOR_TABLES(k)
    {
        if (!strcmp(k->name, "portable")) continue;
        float x[N], y[N], S[N], out[N] = {0}, d[N];
        uint64_t hash = 0;
        unsigned long long state = 3;
        for (size_t i = 0; i < N; i++) x[i] = 9 * test_randf(&state), S[i] = x[i];
        for (size_t f = 0; f < sizeof rows / sizeof *rows; f++) {
            memcpy(y, x, sizeof y);
            rows[f](k, y, N);
            add_bits(&hash, y, N);
        }
        memcpy(y, x, sizeof y);
        k->softmax(y, N);
        add_bits(&hash, y, N);
        k->situ(y, x, y, N, 4, 25);
        k->rms(y, y, x, N, 1e-5f);
        k->axpy(y, 0.3f, x, N);
        y[0] += k->dot(x, y, N);
        add_bits(&hash, y, N);
        k->delta_step(S, K, 37, y, x, x + 40, 0.4f, x + 80, out, d);
        k->mix(out + 40, x, K, S, 37, 37);
        add_bits(&hash, S, K * 37);
        add_bits(&hash, out, 77);
        if (hash != 0xc37b88a04ec3ed83u) FAIL("%s: %#llx", k->name, (unsigned long long)hash);
    }
}

TEST_MAIN
