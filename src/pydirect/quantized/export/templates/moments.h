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

/* Standard deviation of an output over the samples, optionally with the noise, in units of PD_STD_SCALE. */
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

/* Half-width of a central Gaussian interval, in units of PD_STD_SCALE; z is 65536 times its number of standard
   deviations. */
static inline uint64_t pd_half_width(uint32_t root, uint32_t z)
{
    return ((uint64_t)z * root + 0x8000u) >> 16;
}

/* Quantile of the samples' totals; p is 65536 times the probability. */
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

/* Central interval of the samples' totals with probability PD_LEVEL. */
static inline void pd_quantile_interval(const int32_t *totals, uint16_t output, int32_t *low, int32_t *high)
{
    *low = pd_quantile(totals, output, PD_LOW);
    *high = pd_quantile(totals, output, UINT32_C(65536) - PD_LOW);
}

//@if raw
/* Quantise inputs given as a device's own integers, PD_N_FEATURES_IN of them. */
static inline void pd_quantise_counts(const int32_t *counts, pd_input *q)
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
        q[i] = (pd_input)(t < 0 ? -(int32_t)size : (int32_t)size);
    }
}

//@end
#ifndef PD_NO_FLOAT
/* Quantise a row of PD_N_FEATURES_IN numbers. Every operation is rounded to single precision. */
static inline void pd_quantise(const float *x, pd_input *q)
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
        q[i] = (pd_input)v;
    }
}

/* Totals of all columns for a row of PD_N_FEATURES_IN numbers. */
static inline void pd_run(const float *x, int32_t *totals)
{
    pd_input q[PD_N_INPUTS];
    pd_quantise(x, q);
    pd_totals(q, totals);
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
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        mean[output] = pd_mean(totals, output);
        std[output] = pd_std(totals, output);
    }
}

//@if classes
/* Index of the most probable of the PD_N_CLASSES classes by the mean logit. */
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
/* Probabilities of the classes, averaged over the samples; requires exp. */
static inline void pd_predict_proba(const float *x, double *probability)
{
    int32_t totals[PD_N_COLUMNS];
    uint16_t output, s;
    pd_run(x, totals);
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
/* Central intervals that contain the target with probability PD_LEVEL. */
static inline void pd_predict_interval(const float *x, double *lower, double *upper)
{
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        volatile double half = (double)pd_half_width(pd_root(totals, output, 1), PD_Z);
        double mean = pd_mean(totals, output);
        half = half * pd_std_scale[output];
        lower[output] = mean - half;
        upper[output] = mean + half;
    }
}

/* Value of a sample's function in the target's units, from its total. */
static inline double pd_function(int32_t total, uint16_t output)
{
    volatile double value = pd_scale[output] * PD_N_SAMPLES;
    value = value * (double)total;
    value = value + pd_offset[output];
    return value;
}

/* Central intervals of the samples' functions, without noise, with probability PD_LEVEL. */
static inline void pd_predict_function_interval(const float *x, double *lower, double *upper)
{
    int32_t totals[PD_N_COLUMNS];
    uint16_t output;
    pd_run(x, totals);
    for (output = 0; output < PD_N_OUTPUTS; ++output) {
        int32_t low, high;
        pd_quantile_interval(totals, output, &low, &high);
        lower[output] = pd_function(pd_scale[output] < 0 ? high : low, output);
        upper[output] = pd_function(pd_scale[output] < 0 ? low : high, output);
    }
}
#endif

/* --------------------------------------------------------------------------------------------------------- self-test

   Compares PD_N_TESTS rows with the results of Python. Returns 0 when all agree, else the row's number from 1 on. */
static inline int pd_self_test(void)
{
    pd_input q[PD_N_INPUTS];
    int32_t totals[PD_N_COLUMNS];
    uint16_t row, i, column, output;
    for (row = 0; row < PD_N_TESTS; ++row) {
        for (i = 0; i < PD_N_INPUTS; ++i) {
            q[i] = (pd_input)PD_READ_INPUT(pd_test_q + (uint32_t)row * PD_N_INPUTS + i);
        }
#ifndef PD_NO_FLOAT
        {
            float x[PD_N_FEATURES_IN];
            pd_input from_x[PD_N_INPUTS];
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
