/* ------------------------------------------------------------------------------------------------- integer arithmetic

   Nothing below leaves its type, whatever the inputs: the exporter has proved it from the tables. Unsigned arithmetic
   wraps around by intention; no negative number is shifted; no int is taken to be wider than 16 bits. */

/* v / 2^shift rounded to the nearest integer, halves away from zero. */
static inline int32_t pd_round_shift(int32_t v, uint8_t shift)
{
    uint32_t half = ((uint32_t)1 << shift) >> 1;
    if (v < 0) {
        return -(int32_t)((((uint32_t)0 - (uint32_t)v) + half) >> shift);
    }
    return (int32_t)(((uint32_t)v + half) >> shift);
}

/* The number whose two's complement is u. */
static inline int32_t pd_signed(uint32_t u)
{
    return u <= (uint32_t)INT32_MAX ? (int32_t)u : -(int32_t)(~u) - 1;
}

static inline int32_t pd_clip(int32_t v, int32_t limit)
{
    return v > limit ? limit : v < -limit ? -limit : v;
}

//@if fourier
/* Sine of a phase in 2^-32 turns, in units of 1/PD_ONE. */
static inline int32_t pd_sine(uint32_t phase)
{
    uint32_t position = phase & UINT32_C(0x3FFFFFFF);
    uint8_t interval;
    int32_t value;
    if (phase & UINT32_C(0x40000000)) {
        position = UINT32_C(0x3FFFFFFF) - position;
    }
    interval = (uint8_t)(position >> 24);
//@if wide
    value = PD_READ_16(pd_sine_table + interval);
    value += ((PD_READ_16(pd_sine_table + interval + 1) - value) * (int32_t)((position >> 9) & 0x7FFFu)
              + INT32_C(0x4000)) >> 15; /* the table ascends: nothing here is negative */
//@else
    value = PD_READ_8(pd_sine_table + interval);
//@end
    return (phase & UINT32_C(0x80000000)) ? -value : value;
}

/* Phase of frequency f in 2^-32 turns, which wraps around. */
static inline uint32_t pd_phase(uint16_t f, const int16_t *q)
{
    uint32_t phase = 0;
    uint16_t i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        int32_t frequency = PD_READ_FREQUENCY(pd_frequencies + (uint32_t)f * PD_N_INPUTS + i);
        phase += ((uint32_t)frequency * (uint32_t)(int32_t)q[i]) << PD_READ_8U(pd_phase_shift + i);
    }
    return phase;
}

//@end
/* Basis function j, one after the other: a sine takes the phase that its cosine has left. */
static inline int32_t pd_feature(uint16_t j, const int16_t *q, uint32_t *phase)
{
//@if fourier
    if (j < 2u * PD_N_FREQUENCIES) {
        if (j & 1u) {
            return pd_sine(*phase);
        }
        *phase = pd_phase((uint16_t)(j >> 1), q);
        return pd_sine(*phase + UINT32_C(0x40000000));
    }
//@end
//@if linear
    if (j < 2u * PD_N_FREQUENCIES + PD_N_LINEAR) {
        int32_t v = q[PD_READ_COLUMN(pd_linear + (j - 2u * PD_N_FREQUENCIES))];
        v = pd_clip(v, PD_LINEAR_LIMIT);
//@if wide
        return v;
//@else
        return pd_clip(pd_round_shift(v, 8), PD_ONE);
//@end
    }
//@end
    (void)j;
    (void)q;
    (void)phase;
    return PD_ONE;
}

/* Add a basis function times what a code stands for. */
static inline uint32_t pd_add_product(uint32_t accumulator, int32_t feature, uint8_t code)
{
//@if shifts
    /* 0x80: zero; 0x40: negative; the rest is the power of two. */
    uint8_t power = PD_READ_8U(pd_powers + code);
    uint32_t product = (uint32_t)feature << (power & 31u);
    if (power & 0x80u) {
        return accumulator;
    }
    return (power & 0x40u) ? accumulator - product : accumulator + product;
//@else
//@if even
    return accumulator + (uint32_t)(feature * (PD_FIRST_LEVEL + PD_LEVEL_STEP * (int32_t)code));
//@else
    return accumulator + (uint32_t)(feature * (int32_t)PD_READ_MULTIPLIER(pd_multipliers + code));
//@end
//@end
}

/* From quantised inputs to the totals of all columns: column = output * PD_N_SAMPLES + sample. */
static inline void pd_totals(const int16_t *q, int32_t *totals)
{
    uint32_t accumulators[PD_N_COLUMNS], phase = 0;
//@if sparse
    pd_reader reader = {UINT32_MAX, 0}; /* one before the first */
    uint32_t row_end = 0;
//@else
    uint32_t next = 0;
//@end
    uint16_t group, column, j = 0;
    for (column = 0; column < PD_N_COLUMNS; ++column) {
        totals[column] = 0;
    }
//@if sparse
    pd_advance(&reader);
//@end
    for (group = 0; group < PD_N_GROUPS; ++group) {
        uint16_t end = PD_READ_16U(pd_group_end + group);
        int32_t gain = PD_READ_GAIN(pd_group_gain + group);
        uint8_t shift = PD_READ_8U(pd_group_shift + group);
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            accumulators[column] = 0;
        }
        for (; j < end; ++j) {
            int32_t feature = pd_feature(j, q, &phase);
//@if sparse
            uint32_t row = row_end;
            row_end += PD_N_COLUMNS;
            for (; reader.next < row_end; pd_advance(&reader)) {
                column = (uint16_t)(reader.next - row);
                accumulators[column] = pd_add_product(accumulators[column], feature, pd_code(&reader));
            }
//@else
            for (column = 0; column < PD_N_COLUMNS; ++column) {
                accumulators[column] = pd_add_product(accumulators[column], feature, pd_code(next));
                ++next;
            }
//@end
        }
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            totals[column] += gain * pd_round_shift(pd_signed(accumulators[column]), shift);
        }
    }
}

/* Sum of an output's totals over the samples. */
static inline int64_t pd_sum(const int32_t *totals, uint16_t output)
{
    int64_t sum = 0;
    uint16_t s;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        sum += totals[output * PD_N_SAMPLES + s];
    }
    return sum;
}

/* Floor of the square root. */
static inline uint32_t pd_square_root(uint64_t v)
{
    uint64_t root = 0, bit = (uint64_t)1 << 62;
    while (bit > v) {
        bit >>= 2;
    }
    while (bit != 0) {
        if (v >= root + bit) {
            v -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
        bit >>= 2;
    }
    return (uint32_t)root;
}

/* Standard deviation of an output over the samples, with the noise or without it, in units of PD_STD_SCALE. */
static inline uint32_t pd_root(const int32_t *totals, uint16_t output, uint8_t with_noise)
{
    const uint64_t half = ((uint64_t)1 << PD_DEVIATION_SHIFT) >> 1;
    int64_t sum = pd_sum(totals, output);
    uint64_t squares = with_noise ? pd_noise[output] : 0;
    uint16_t s;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        int64_t deviation = (int64_t)PD_N_SAMPLES * totals[output * PD_N_SAMPLES + s] - sum;
        uint64_t size = deviation < 0 ? (uint64_t)0 - (uint64_t)deviation : (uint64_t)deviation;
        size = (size + half) >> PD_DEVIATION_SHIFT;
        squares += size * size;
    }
    return pd_square_root(squares);
}

/* Half-width of a central Gaussian interval, in units of PD_STD_SCALE: z is 65536 standard deviations' number. */
static inline uint64_t pd_half_width(uint32_t root, uint32_t z)
{
    return ((uint64_t)z * root + 0x8000u) >> 16;
}

/* Quantile of the samples' totals; p is 65536 times its probability. */
static inline int32_t pd_quantile(const int32_t *totals, uint16_t output, uint32_t p)
{
    int32_t ordered[PD_N_SAMPLES + 1];
    uint32_t h = p * (PD_N_SAMPLES - 1u), i = h >> 16, fraction = h & 0xFFFFu;
    uint64_t gap;
    uint16_t s, at;
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        int32_t total = totals[output * PD_N_SAMPLES + s];
        for (at = s; at > 0 && ordered[at - 1] > total; --at) {
            ordered[at] = ordered[at - 1];
        }
        ordered[at] = total;
    }
    ordered[PD_N_SAMPLES] = ordered[PD_N_SAMPLES - 1];
    gap = (uint64_t)((int64_t)ordered[i + 1] - ordered[i]);
    return (int32_t)(ordered[i] + (int64_t)((gap * fraction + 0x8000u) >> 16));
}

/* Central interval that holds the samples' totals with probability PD_LEVEL. */
static inline void pd_quantile_interval(const int32_t *totals, uint16_t output, int32_t *low, int32_t *high)
{
    *low = pd_quantile(totals, output, PD_LOW);
    *high = pd_quantile(totals, output, UINT32_C(65536) - PD_LOW);
}

//@if raw
/* From a device's own integers, PD_N_FEATURES_IN of them, to quantised inputs. */
static inline void pd_quantise_counts(const int32_t *counts, int16_t *q)
{
    uint16_t i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        int32_t reach = PD_READ_32(pd_count_reach + i);
        uint8_t shift = PD_READ_8U(pd_count_shift + i);
        uint64_t size, half = ((uint64_t)1 << shift) >> 1, limit = (uint64_t)PD_READ_LIMIT(i);
        int64_t t = (int64_t)counts[PD_READ_COLUMN(pd_columns + i)] - PD_READ_32(pd_count_origin + i);
        t = t > reach ? reach : t < -reach ? -reach : t;
        t = t * PD_READ_32(pd_count_multiplier + i) + PD_READ_32(pd_count_offset + i);
        size = ((t < 0 ? (uint64_t)0 - (uint64_t)t : (uint64_t)t) + half) >> shift;
        size = size > limit ? limit : size;
        q[i] = (int16_t)(t < 0 ? -(int32_t)size : (int32_t)size);
    }
}

//@end
#ifndef PD_NO_FLOAT
/* From a row of PD_N_FEATURES_IN numbers to quantised inputs. Every operation is rounded to single precision. */
static inline void pd_quantise(const float *x, int16_t *q)
{
    uint16_t i;
    for (i = 0; i < PD_N_INPUTS; ++i) {
        float limit = (float)PD_READ_LIMIT(i);
        volatile float v = x[PD_READ_COLUMN(pd_columns + i)];
        v = v - PD_READ_FLOAT(pd_origin + i);
        v = v * PD_READ_FLOAT(pd_multiplier + i);
        if (!(v > -limit)) {
            v = -limit;
        }
        if (v > limit) {
            v = limit;
        }
        v = v < 0.0f ? v - 0.5f : v + 0.5f;
        q[i] = (int16_t)v;
    }
}

/* Mean of an output in the target's units. */
static inline double pd_mean(const int32_t *totals, uint16_t output)
{
    volatile double mean = pd_scale[output] * (double)pd_sum(totals, output);
    mean = mean + pd_offset[output];
    return mean;
}

/* Standard deviation of an output in the target's units, noise included. */
static inline double pd_std(const int32_t *totals, uint16_t output)
{
    return pd_std_scale[output] * (double)pd_root(totals, output, 1);
}

/* Mean and standard deviation of every output for a row of PD_N_FEATURES_IN numbers. */
static inline void pd_predict(const float *x, double *mean, double *std)
{
    int16_t q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_quantise(x, q);
    pd_totals(q, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        mean[output] = pd_mean(totals, output);
        std[output] = pd_std(totals, output);
    }
}

//@if classes
/* Number of the most probable of the PD_N_CLASSES classes by the mean logit. */
static inline uint16_t pd_predict_class(const float *x)
{
    double mean[PD_N_OUTPUTS], std[PD_N_OUTPUTS];
    uint16_t best = 0;
//@if two_classes
    pd_predict(x, mean, std);
    best = mean[0] > 0;
//@else
    uint16_t k;
    pd_predict(x, mean, std);
    for (k = 1; k < PD_N_OUTPUTS; ++k) {
        best = mean[k] > mean[best] ? k : best;
    }
//@end
    return best;
}

#ifdef PD_WITH_MATH
/* Probabilities of the classes, averaged over the samples; needs exp. */
static inline void pd_predict_proba(const float *x, double *probability)
{
    int16_t q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t output, s;
    pd_quantise(x, q);
    pd_totals(q, totals);
    for (output = 0; output < PD_N_CLASSES; ++output) {
        probability[output] = 0;
    }
    for (s = 0; s < PD_N_SAMPLES; ++s) {
        double z[PD_N_OUTPUTS];
        for (output = 0; output < PD_N_OUTPUTS; ++output) {
            double total = totals[output * PD_N_SAMPLES + s];
            z[output] = pd_offset[output] + pd_scale[output] * PD_N_SAMPLES * total;
        }
        pd_add_probabilities(z, probability);
    }
//@if two_classes
    probability[0] = 1 - probability[1];
//@end
}
#endif

//@end
/* Central intervals that hold the target with probability PD_LEVEL. */
static inline void pd_predict_interval(const float *x, double *lower, double *upper)
{
    int16_t q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_quantise(x, q);
    pd_totals(q, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        volatile double half = (double)pd_half_width(pd_root(totals, output, 1), PD_Z);
        double mean = pd_mean(totals, output);
        half = half * pd_std_scale[output];
        lower[output] = mean - half;
        upper[output] = mean + half;
    }
}

/* A value of a sample's function, given as its total, in the target's units. */
static inline double pd_function(int32_t total, uint16_t output)
{
    volatile double value = pd_scale[output] * PD_N_SAMPLES;
    value = value * (double)total;
    value = value + pd_offset[output];
    return value;
}

/* Central intervals that hold the samples' functions, noise left out, with probability PD_LEVEL. */
static inline void pd_predict_function_interval(const float *x, double *lower, double *upper)
{
    int16_t q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_quantise(x, q);
    pd_totals(q, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        int32_t low, high;
        pd_quantile_interval(totals, output, &low, &high);
        lower[output] = pd_function(pd_scale[output] < 0 ? high : low, output);
        upper[output] = pd_function(pd_scale[output] < 0 ? low : high, output);
    }
}
#endif

/* --------------------------------------------------------------------------------------------------------- self-test

   Inputs and results of PD_N_TESTS rows, from Python. 0: all agree; otherwise the number of the row, from 1 on. */
static inline int pd_self_test(void)
{
    int16_t q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t row, i, column, output;
    for (row = 0; row < PD_N_TESTS; ++row) {
        for (i = 0; i < PD_N_INPUTS; ++i) {
            q[i] = (int16_t)PD_READ_16(pd_test_q + (uint32_t)row * PD_N_INPUTS + i);
        }
#ifndef PD_NO_FLOAT
        {
            float x[PD_N_FEATURES_IN];
            int16_t from_x[PD_N_INPUTS];
            for (i = 0; i < PD_N_FEATURES_IN; ++i) {
                x[i] = PD_READ_FLOAT(pd_test_x + (uint32_t)row * PD_N_FEATURES_IN + i);
            }
            pd_quantise(x, from_x);
            for (i = 0; i < PD_N_INPUTS; ++i) {
                if (from_x[i] != q[i]) {
                    return (int)row + 1;
                }
            }
        }
#endif
        pd_totals(q, totals);
        for (column = 0; column < PD_N_COLUMNS; ++column) {
            if (totals[column] != PD_READ_32(pd_test_totals + (uint32_t)row * PD_N_COLUMNS + column)) {
                return (int)row + 1;
            }
        }
        for (output = 0; output < PD_N_OUTPUTS; ++output) {
            uint32_t at = (uint32_t)row * PD_N_OUTPUTS + output;
            int32_t low, high;
            pd_quantile_interval(totals, output, &low, &high);
            if (pd_root(totals, output, 1) != PD_READ_32U(pd_test_root + at)
                || pd_quantile(totals, output, 0x8000u) != PD_READ_32(pd_test_median + at)
                || low != PD_READ_32(pd_test_low + at) || high != PD_READ_32(pd_test_high + at)) {
                return (int)row + 1;
            }
        }
    }
    return 0;
}
