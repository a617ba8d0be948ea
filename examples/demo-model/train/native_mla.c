/* Multi-head latent attention (MLA), forward and backward: from queries, keys and values to the
 * gated outputs. See native_text.h.
 *
 * Causal within each conversation, BLOCK queries at a time against the keys up to them. A head of
 * kv is key | value; the last values of every key, `rope`, are shared by the heads. */
#include "examples/demo-model/train/native_text.h"

#if defined(__AVX512BF16__)

typedef struct {
    long heads, qk, own, rope,
        value; /* width of a query or key; the head's own and the shared part of it */
    long ldq, ldkv, ldy, ldp;
} mla_layer;

/* Of one head of one conversation */
typedef struct {
    long padded;                        /* keys, a multiple of a panel */
    bf16 *keys, *share, *dshare, *dout; /* [padded][qk], [BLOCK][padded] twice, [BLOCK][value] */
    bf16_pair *keys_by_column, *keys_by_row, *values_by_column, *values_by_row;
    float *score, *dscore, *out; /* as share, dshare and dout */
    float *dkeys, *dvalues, *drope;
} mla_head;

static mla_layer mla_of(long heads, long qk, long rope, long value, long ldp)
{
    long own = qk - rope;
    return (mla_layer){.heads = heads,
                       .qk = qk,
                       .own = own,
                       .rope = rope,
                       .value = value,
                       .ldq = heads * qk,
                       .ldkv = heads * (own + value),
                       .ldy = heads * value,
                       .ldp = ldp};
}

/* The next `bytes` of a buffer, or only their size while the buffer is not there */
static void *take(char *base, size_t *used, size_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

/* Lays out the buffer at `base`, or only counts where it is NULL; gives its size. */
static size_t mla_lay_out(mla_head *m, const mla_layer *l, char *base)
{
    size_t used = 0, n = m->padded;
    m->keys = take(base, &used, n * l->qk * sizeof(bf16));
    m->share = take(base, &used, BLOCK * n * sizeof(bf16));
    m->dshare = take(base, &used, BLOCK * n * sizeof(bf16));
    m->dout = take(base, &used, BLOCK * l->value * sizeof(bf16));
    m->keys_by_column = take(base, &used, packed_size(l->qk, n));
    m->keys_by_row = take(base, &used, packed_size(n, l->qk));
    m->values_by_column = take(base, &used, packed_size(l->value, n));
    m->values_by_row = take(base, &used, packed_size(n, l->value));
    m->score = take(base, &used, BLOCK * n * sizeof(float));
    m->dscore = take(base, &used, BLOCK * n * sizeof(float));
    m->out = take(base, &used, BLOCK * l->value * sizeof(float));
    m->dkeys = take(base, &used, n * l->qk * sizeof(float));
    m->dvalues = take(base, &used, n * l->value * sizeof(float));
    m->drope = take(base, &used, n * l->rope * sizeof(float));
    return used;
}

static mla_head mla_room(const mla_layer *l, long tokens)
{
    mla_head m = {.padded = (tokens + PANEL - 1) / PANEL * PANEL};
    mla_lay_out(&m, l, room(ROOM_MLA, mla_lay_out(&m, l, NULL)));
    return m;
}

/* kv and rope begin with the conversation's first token, kv with the head */
static void mla_keys(const mla_layer *l, mla_head *m, const bf16 *kv, const bf16 *rope, long tokens)
{
    for (long t = 0; t < tokens; t++) {
        memcpy(m->keys + t * l->qk, kv + t * l->ldkv, l->own * sizeof(bf16));
        memcpy(m->keys + t * l->qk + l->own, rope + t * l->ldp, l->rope * sizeof(bf16));
    }
    memset(m->keys + tokens * l->qk, 0, (m->padded - tokens) * l->qk * sizeof(bf16));
}

/* Keys that the queries up to `end` are multiplied with */
static long seen_by(long end)
{
    return (end + LANES - 1) / LANES * LANES;
}

/* Shares (BF16, zero beyond the query's own place) of the queries begin .. end, and in `out` what
 * they take of the values. */
static void mla_mix(const mla_layer *l, mla_head *m, const bf16 *q, packed keys, packed values,
                    long begin, long end)
{
    long seen = seen_by(end), n = end - begin;
    float scale = 1 / sqrtf(l->qk);
    target scores = {m->score, m->padded, TO_F32}, out = {m->out, l->value, TO_F32};
    product(q + begin * l->ldq, l->ldq, n, l->qk, keys, seen, scores);
    for (long i = begin; i < end; i++) {
        float *s = m->score + (i - begin) * m->padded;
        bf16 *share = m->share + (i - begin) * m->padded;
        vec most = splat(-1e30f), sum = zero();
        for (long j = i + 1; j < seen; j++) s[j] = -1e30f;
        for (long j = 0; j < seen; j += LANES) most = larger(most, load(s + j));
        most = splat(largest_of(most));
        for (long j = 0; j < seen; j += LANES) {
            vec e = exp_of((load(s + j) - most) * splat(scale));
            sum += e;
            store(s + j, e);
        }
        sum = splat(1 / sum_of(sum));
        for (long j = 0; j < seen; j += LANES) {
            store(s + j, load(s + j) * sum);
            store_bf16(share + j, load(s + j));
        }
    }
    product(m->share, m->padded, n, end, values, l->value, out);
}

/* q [rows][heads][qk], kv [rows][heads][qk - rope_width + value], rope [rows][rope_width] and gate
 * [rows][heads][value] both with ldp, y [rows][heads][value] */
void mla(const bf16 *q, const bf16 *kv, const bf16 *rope, const bf16 *gate, long ldp,
         const int64_t *first, long conversations, long heads, long qk, long rope_width, long value,
         bf16 *y)
{
    mla_layer l = mla_of(heads, qk, rope_width, value, ldp);
    for (long c = 0; c < conversations; c++) {
        long tokens = first[c + 1] - first[c];
        mla_head m = mla_room(&l, tokens);
        for (long h = 0; h < heads; h++) {
            const bf16 *my_kv = kv + first[c] * l.ldkv + h * (l.own + value);
            const bf16 *my_q = q + first[c] * l.ldq + h * qk;
            mla_keys(&l, &m, my_kv, rope + first[c] * ldp, tokens);
            packed keys = pack_transposed(m.keys_by_column, m.keys, qk, m.padded, qk);
            packed values = pack(m.values_by_row, my_kv + l.own, l.ldkv, value, tokens);
            for (long begin = 0; begin < tokens; begin += BLOCK) {
                long end = begin + BLOCK < tokens ? begin + BLOCK : tokens;
                mla_mix(&l, &m, my_q, keys, values, begin, end);
                for (long i = 0; i < end - begin; i++) {
                    long row = first[c] + begin + i;
                    for (long j = 0; j < value; j += LANES) {
                        vec open = sigmoid(load_bf16(gate + row * ldp + h * value + j));
                        vec out = load(m.out + i * value + j);
                        store_bf16(y + row * l.ldy + h * value + j, out * open);
                    }
                }
            }
        }
    }
}

/* Through the gate of n queries: dgate, and dout; towards [n]: dout . out. gate, dy, dgate begin
 * with the first query's row of the head. */
static void mla_gate_back(const mla_layer *l, mla_head *m, const bf16 *gate, const bf16 *dy, long n,
                          bf16 *dgate, float *towards)
{
    for (long i = 0; i < n; i++) {
        vec sum = zero();
        for (long j = 0; j < l->value; j += LANES) {
            vec open = sigmoid(load_bf16(gate + i * l->ldp + j));
            vec d = load_bf16(dy + i * l->ldy + j), out = load(m->out + i * l->value + j);
            store_bf16(dgate + i * l->ldp + j, d * out * open * (splat(1) - open));
            store_bf16(m->dout + i * l->value + j, d * open);
            sum = madd(d * open, out, sum);
        }
        towards[i] = sum_of(sum);
    }
}

/* Through the softmax of the queries begin .. end: dshare, zero beyond the query's own place. */
static void mla_softmax_back(const mla_layer *l, mla_head *m, const float *towards, long begin,
                             long end)
{
    float scale = 1 / sqrtf(l->qk);
    for (long i = begin; i < end; i++) {
        long row = (i - begin) * m->padded;
        for (long j = 0; j < seen_by(end); j += LANES) {
            vec d = load(m->dscore + row + j) - splat(towards[i - begin]);
            __mmask16 past = 0xffff;
            if (i < j + LANES - 1) past = i < j ? 0 : (2u << (i - j)) - 1;
            d = d * load(m->score + row + j) * splat(scale);
            store_bf16(m->dshare + row + j, _mm512_maskz_mov_ps(past, d));
        }
    }
}

/* One head of one conversation. All begin with the conversation's first token and what is the
 * head's; kv, rope, dq, dgate: as in mla_back. Leaves dkeys and dvalues. */
static void mla_head_back(const mla_layer *l, mla_head *m, const bf16 *q, const bf16 *kv,
                          const bf16 *gate, const bf16 *dy, long tokens, bf16 *dq, bf16 *dgate)
{
    long qk = l->qk, value = l->value, padded = m->padded;
    packed keys = pack_transposed(m->keys_by_column, m->keys, qk, padded, qk);
    packed keys_by_row = pack(m->keys_by_row, m->keys, qk, qk, tokens);
    packed values = pack(m->values_by_row, kv + l->own, l->ldkv, value, tokens);
    /* columns of the last panel beyond the tokens give what is never used */
    packed values_by_column =
        pack_transposed(m->values_by_column, kv + l->own, l->ldkv, tokens, value);
    target dscores = {m->dscore, padded, TO_F32};
    target dkeys = {m->dkeys, qk, ADD_F32}, dvalues = {m->dvalues, value, ADD_F32};
    memset(m->dkeys, 0, padded * qk * sizeof(float));
    memset(m->dvalues, 0, padded * value * sizeof(float));
    for (long begin = 0; begin < tokens; begin += BLOCK) {
        long end = begin + BLOCK < tokens ? begin + BLOCK : tokens, n = end - begin;
        long seen = seen_by(end);
        float towards[BLOCK];
        target dqueries = {dq + begin * l->ldq, l->ldq, TO_BF16};
        mla_mix(l, m, q, keys, values, begin, end);
        mla_gate_back(l, m, gate + begin * l->ldp, dy + begin * l->ldy, n, dgate + begin * l->ldp,
                      towards);
        product(m->dout, value, n, value, values_by_column, seen, dscores);
        mla_softmax_back(l, m, towards, begin, end);
        product(m->dshare, padded, n, end, keys_by_row, qk, dqueries);
        product_of_columns(m->dshare, padded, seen, q + begin * l->ldq, l->ldq, qk, n, dkeys);
        product_of_columns(m->share, padded, seen, m->dout, value, value, n, dvalues);
    }
}

/* dy as y of mla(). Writes dq, dkv, drope and dgate (the last two with ldp). */
void mla_back(const bf16 *q, const bf16 *kv, const bf16 *rope, const bf16 *gate, long ldp,
              const int64_t *first, long conversations, long heads, long qk, long rope_width,
              long value, const bf16 *dy, bf16 *dq, bf16 *dkv, bf16 *drope, bf16 *dgate)
{
    mla_layer l = mla_of(heads, qk, rope_width, value, ldp);
    for (long c = 0; c < conversations; c++) {
        long tokens = first[c + 1] - first[c], top = first[c];
        mla_head m = mla_room(&l, tokens);
        memset(m.drope, 0, tokens * rope_width * sizeof(float));
        for (long h = 0; h < heads; h++) {
            long on_q = top * l.ldq + h * qk, on_kv = top * l.ldkv + h * (l.own + value);
            long on_gate = top * ldp + h * value, on_y = top * l.ldy + h * value;
            mla_keys(&l, &m, kv + on_kv, rope + top * ldp, tokens);
            mla_head_back(&l, &m, q + on_q, kv + on_kv, gate + on_gate, dy + on_y, tokens,
                          dq + on_q, dgate + on_gate);
            for (long t = 0; t < tokens; t++) {
                bf16 *to = dkv + on_kv + t * l.ldkv;
                const float *dkey = m.dkeys + t * qk;
                row_to_bf16(to, dkey, l.own);
                row_to_bf16(to + l.own, m.dvalues + t * value, value);
                for (long j = 0; j < rope_width; j += LANES)
                    add_to(m.drope + t * rope_width + j, load(dkey + l.own + j));
            }
        }
        for (long t = 0; t < tokens; t++)
            row_to_bf16(drope + (top + t) * ldp, m.drope + t * rope_width, rope_width);
    }
}

#endif
