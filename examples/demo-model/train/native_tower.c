/* Rows of the vision tower, forward and backward: pixels, residual sums, RMS norm, GELU. See
 * native_tower.py.
 *
 * One thread; a trainer runs one process per core. Rows of all pictures follow each other without
 * padding: picture i has rows starts[i] to starts[i + 1], a multiple of four. Widths and counts are
 * multiples of 16. */
#include "examples/demo-model/train/native.h"

/* Bytes of the real rows, minus 128: whole numbers that bf16 holds exactly. pixels
 * [pictures][longest][width], out [rows][width] */
void unpack_pixels(const uint8_t *pixels, long longest, long width, const int32_t *starts,
                   long pictures, bf16 *out)
{
    for (long n = 0; n < pictures; n++, pixels += longest * width)
        for (long i = 0; i < (starts[n + 1] - starts[n]) * width; i++) {
            float value = (float)(pixels[i] - 128);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            *out++ = (bf16)(bits >> 16);
        }
}

/* x [rows][width] += y; normal = x / rms(x) in bf16, inverse [rows] = 1 / rms. y may be NULL. The
 * norm's weights are in the next product. */
void add_normalize(float *x, const bf16 *y, float epsilon, bf16 *normal, float *inverse, long rows,
                   long width)
{
    for (long row = 0; row < rows; row++, x += width, normal += width) {
        vec squares = {0};
        for (long i = 0; i < width; i += LANES) {
            vec value = load(x + i);
            if (y) {
                value += load_bf16(y + i);
                store(x + i, value);
            }
            squares += value * value;
        }
        float scale = 1 / sqrtf(sum_of(squares) / width + epsilon);
        inverse[row] = scale;
        for (long i = 0; i < width; i += LANES) store_bf16(normal + i, load(x + i) * scale);
        y = y ? y + width : NULL;
    }
}

/* x += y */
void add(float *x, const bf16 *y, long count)
{
    for (long i = 0; i < count; i += LANES) store(x + i, load(x + i) + load_bf16(y + i));
}

/* gradient += what comes through the norm from d_normal; rounded_gradient: the same in bf16 */
void normalize_backward(const bf16 *normal, const float *inverse, const bf16 *d_normal,
                        float *gradient, bf16 *rounded_gradient, long rows, long width)
{
    for (long row = 0; row < rows; row++) {
        vec along = {0};
        for (long i = 0; i < width; i += LANES)
            along += load_bf16(normal + i) * load_bf16(d_normal + i);
        float mean = sum_of(along) / width;
        for (long i = 0; i < width; i += LANES) {
            vec across = load_bf16(d_normal + i) - mean * load_bf16(normal + i);
            vec sum = load(gradient + i) + inverse[row] * across;
            store(gradient + i, sum);
            store_bf16(rounded_gradient + i, sum);
        }
        normal += width, d_normal += width, gradient += width, rounded_gradient += width;
    }
}

/* out = x in bf16 */
void round_rows(const float *x, bf16 *out, long count)
{
    row_to_bf16(out, x, count);
}

/* GELU, tanh form: x s with s = sigmoid(2 a (x + b x^3)) */
#define GELU_A 0.7978845608f
#define GELU_B 0.044715f

INLINE vec gelu_sigmoid(vec x)
{
    vec exponent = -2 * GELU_A * LOG2_E * x * (1 + GELU_B * x * x);
    /* infinity would not survive -ffast-math */
    return 1 / (1 + power_of_two(smaller(exponent, splat(126))));
}

/* out = gelu(x) */
void gelu(const bf16 *x, bf16 *out, long count)
{
    for (long i = 0; i < count; i += LANES) {
        vec value = load_bf16(x + i);
        store_bf16(out + i, value * gelu_sigmoid(value));
    }
}

/* gradient: of the output, becomes that of x; out: the output again, which forward does not keep */
void gelu_backward(const bf16 *x, bf16 *gradient, bf16 *out, long count)
{
    for (long i = 0; i < count; i += LANES) {
        vec value = load_bf16(x + i), s = gelu_sigmoid(value), result = value * s;
        vec slope = s + result * (1 - s) * (2 * GELU_A) * (1 + 3 * GELU_B * value * value);
        store_bf16(out + i, result);
        store_bf16(gradient + i, load_bf16(gradient + i) * slope);
    }
}
